"""The book's notebooks: their order, the chapters' modules, and their parameters.

The chapters are found at run time: `tlb` names none of them, and works without them where no page is
written. Parameters are declared in a notebook, typed, and checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from papermill import inspect_notebook
from pydantic import BaseModel, TypeAdapter, ValidationError

from tlb.measure import grid
from tlb.measure.store import MACHINE_ID_PATTERN
from tlb.system.files import ROOT
from tlb.system.reasons import LazyModule, Unavailable, book_unavailable_error
from tlb.system.units import MINUTES_PER_DAY

yaml = LazyModule("yaml")

PACKAGE = "experiments"
BOOK_FOLDER = ROOT / "book"
PARAMETER_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KINDS = {  # as errors name them
    str: "a text",
    int: "a whole number",
    float: "a number with a decimal point",
    bool: "True or False",
}


def chapter_names_in_order() -> list[str]:
    """The chapters' names in reading order, from _toc.yml: the notebooks among its files."""
    files = [entry["file"] for entry in _contents()]
    return [Path(name).name for name in files if (ROOT / f"{name}.ipynb").exists()]


def page_titles() -> dict[str, str]:
    """Return how the book's menu calls each page but the first, by the page's name."""
    return {Path(entry["file"]).name: entry["title"] for entry in _contents() if "title" in entry}


def _contents() -> list[dict[str, str]]:
    """Return the entries of _toc.yml, the first page before the others."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    parts = toc.get("parts") or [{"chapters": toc.get("chapters", [])}]
    return [{"file": toc["root"]}] + [entry for part in parts for entry in part["chapters"]]


def load_book_module(name: str) -> ModuleType:
    """Import a module of the book, such as "overview.profile". Raises Unavailable("no-extra")
    outside a clone."""
    try:
        return import_module(f"{PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != PACKAGE:
            raise
        raise book_unavailable_error(f"{PACKAGE}.{name}") from None


@cache
def chapter_modules() -> tuple[ModuleType, ...]:
    """Import the chapters that measure, in the reading order of _toc.yml."""
    return tuple(map(_chapter, measured_chapters()))


def measured_chapters() -> list[str]:
    """Return the names of the chapters that have a grid, in reading order."""
    return [name for name in chapter_names_in_order() if _has_grid(name)]


def is_rerun(name: str) -> bool:
    """Return whether a page measures a source's article again: it shows the published machines and
    nothing of this computer."""
    return name.startswith("rerun_")


def _has_grid(name: str) -> bool:
    return bool(find_spec(f"{PACKAGE}.{name}") and find_spec(f"{PACKAGE}.{name}.grid"))


def _chapter(name: str) -> ModuleType:
    """Import a chapter with its parts as attributes, so that it needs no __init__.py."""
    chapter = load_book_module(name)
    if not hasattr(chapter, "Analysis"):
        for part in ("grid", "claims", "analysis"):
            load_book_module(f"{name}.{part}")
        vars(chapter)["Analysis"] = chapter.analysis.Analysis
    return chapter


@cache
def document_models() -> dict[str, tuple[type[BaseModel], tuple[str, ...]]]:
    """Return of each document that a chapter keeps beside its rows, by its name, the model and the texts
    of its chapter that it may hold."""
    return {
        name: (model, getattr(chapter, "DOCUMENT_TEXTS", ()))
        for chapter in chapter_modules()
        for name, model in getattr(chapter, "DOCUMENTS", {}).items()
    }


def declared_parameters(chapter: str) -> dict[str, tuple[type, Any]]:
    """Return name -> (type, default) of a chapter, from its cell tagged `parameters`. Raises
    Unavailable("bad-parameter")."""
    chapters = chapter_names_in_order()
    if chapter not in chapters:
        raise _bad(f"there is no chapter '{chapter}'; there are {', '.join(chapters)}")
    found = inspect_notebook(str(BOOK_FOLDER / f"{chapter}.ipynb"))
    return {
        name: (
            kind := PARAMETER_TYPES[said["inferred_type_name"]],
            parse_parameter(kind, said["default"]),
        )
        for name, said in found.items()
    }


def _bad(sentence: str) -> Unavailable:
    return Unavailable("bad-parameter", sentence)


def parse_parameter(kind: type, text: str) -> Any:
    """Return a value of a type from its text on a command line or in a cell. Raises
    ValidationError."""
    return text.strip("\"'") if kind is str else TypeAdapter(kind).validate_strings(text)


def parameter_values(chapter: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters from their texts, each of its declared type; a text that is no such value
    stays one, for `check_parameters`."""
    kinds = {name: kind for name, (kind, _) in declared_parameters(chapter).items()}
    parsed: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            parsed[name] = parse_parameter(kinds.get(name, str), text)
        except ValidationError:
            parsed[name] = text
    return parsed


def check_parameters(chapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chapter's parameters, `given` over the defaults, each of its type and meaning.

    Raises Unavailable("bad-parameter"): Papermill itself only warns of an unknown name.
    """
    known = declared_parameters(chapter)
    checked = {name: default for name, (_, default) in known.items()}
    for name, value in given.items():
        if name not in known:
            raise _bad(f"{chapter} has no parameter '{name}'; it has {', '.join(known)}")
        kind = known[name][0]
        if kind is float and type(value) is int:  # Papermill takes "40" for a whole number
            value = float(value)
        if type(value) is not kind:
            raise _bad(f"{name} is {_KINDS[kind]}, not {value!r}")
        checked[name] = value
    grid.load_profile(checked["profile"])
    repeats, minutes = checked["repeats"], checked["minutes"]
    engine = checked["engine"]
    if engine not in ("auto", "c", "numba"):
        raise _bad(f"engine is auto, c or numba, not '{engine}'")
    if not 0 <= repeats <= grid.MOST_REPEATS:
        most = f"up to {grid.MOST_REPEATS}"
        raise _bad(f"repeats is 0 (as the profile says) or {most}, not {repeats}")
    if not 0 <= minutes <= MINUTES_PER_DAY:
        raise _bad(f"minutes is 0 (no measuring) or up to {MINUTES_PER_DAY}, not {minutes}")
    for name in ("machine", "beside"):
        if not MACHINE_ID_PATTERN.fullmatch(checked[name]):
            raise _bad(f"{name} is this, reference or a name in data/, not {checked[name][:80]!r}")
    if checked["machine"] == checked["beside"] != "reference":
        raise _bad(f"a page has two machines, machine and beside, not {checked['machine']} twice")
    if checked["max_working_set"] != "profile":
        grid.parse_size_parameter("max_working_set", checked["max_working_set"])
    return checked
