"""A chapter's parameters: declared in its notebook, typed, and checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papermill import inspect_notebook
from pydantic import TypeAdapter, ValidationError

from tlb.measure import grid
from tlb.measure.store import MACHINE_ID_PATTERN
from tlb.report.discovery import table_of_contents as table_of_contents
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable
from tlb.system.units import MINUTES_PER_DAY

BOOK_FOLDER = ROOT / "book"
TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KINDS = {  # as errors name them
    str: "a text",
    int: "a whole number",
    float: "a number with a decimal point",
    bool: "True or False",
}


def declared(chapter: str) -> dict[str, tuple[type, Any]]:
    """Return name -> (type, default) of a chapter, from its cell tagged `parameters`. Raises
    Unavailable("bad-parameter")."""
    chapters = table_of_contents()
    if chapter not in chapters:
        raise _bad(f"there is no chapter '{chapter}'; there are {', '.join(chapters)}")
    found = inspect_notebook(str(BOOK_FOLDER / f"{chapter}.ipynb"))
    return {
        name: (kind := TYPES[said["inferred_type_name"]], parse(kind, said["default"]))
        for name, said in found.items()
    }


def _bad(sentence: str) -> Unavailable:
    return Unavailable("bad-parameter", sentence)


def parse(kind: type, text: str) -> Any:
    """Return a value of a type from its text on a command line or in a cell. Raises
    ValidationError."""
    return text.strip("\"'") if kind is str else TypeAdapter(kind).validate_strings(text)


def values(chapter: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters from their texts, each of its declared type; a text that is no such value
    stays one, for `check`."""
    kinds = {name: kind for name, (kind, _) in declared(chapter).items()}
    parsed: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            parsed[name] = parse(kinds.get(name, str), text)
        except ValidationError:
            parsed[name] = text
    return parsed


def check(chapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chapter's parameters, `given` over the defaults, each of its type and meaning.

    Raises Unavailable("bad-parameter"): Papermill itself only warns of an unknown name.
    """
    known = declared(chapter)
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
