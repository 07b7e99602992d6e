"""The book's chapters, found at run time: `tlb` names none of them, and works without them where no
page is written."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from tlb.system.files import ROOT
from tlb.system.reasons import LazyModule, book_unavailable_error

yaml = LazyModule("yaml")

PACKAGE = "experiments"


def table_of_contents() -> list[str]:
    """The chapters' names in reading order, from _toc.yml: the notebooks among its files."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    parts = toc.get("parts") or [{"chapters": toc.get("chapters", [])}]
    files = [toc["root"]] + [entry["file"] for part in parts for entry in part["chapters"]]
    return [Path(name).name for name in files if (ROOT / f"{name}.ipynb").exists()]


def load(name: str) -> ModuleType:
    """Import a module of the book, such as "overview.profile". Raises Unavailable("no-extra")
    outside a clone."""
    try:
        return import_module(f"{PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != PACKAGE:
            raise
        raise book_unavailable_error(f"{PACKAGE}.{name}") from None


@cache
def chapters() -> tuple[ModuleType, ...]:
    """Import the chapters that measure, in the reading order of _toc.yml."""
    return tuple(map(_chapter, measured_chapters()))


def measured_chapters() -> list[str]:
    """Return the names of the chapters that have a grid, in reading order."""
    return [name for name in table_of_contents() if _has_grid(name)]


def is_rerun(name: str) -> bool:
    """Return whether a page measures a source's article again: it shows the published machines and
    nothing of this computer."""
    return name.startswith("rerun_")


def _has_grid(name: str) -> bool:
    return bool(find_spec(f"{PACKAGE}.{name}") and find_spec(f"{PACKAGE}.{name}.grid"))


def _chapter(name: str) -> ModuleType:
    """Import a chapter with its parts as attributes, so that it needs no __init__.py."""
    chapter = load(name)
    if not hasattr(chapter, "Analysis"):
        for part in ("grid", "claims", "analysis"):
            load(f"{name}.{part}")
        vars(chapter)["Analysis"] = chapter.analysis.Analysis
    return chapter


@cache
def documents() -> dict[str, tuple[type[BaseModel], tuple[str, ...]]]:
    """Return of each document that a chapter keeps beside its rows, by its name, the model and the texts
    of its chapter that it may hold."""
    return {
        name: (model, getattr(chapter, "DOCUMENT_TEXTS", ()))
        for chapter in chapters()
        for name, model in getattr(chapter, "DOCUMENTS", {}).items()
    }
