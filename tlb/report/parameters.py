"""A chapter's parameters: declared in its notebook, one type and one meaning each, checked before
anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papermill import inspect_notebook
from pydantic import TypeAdapter, ValidationError

from tlb.discovery import table_of_contents as table_of_contents
from tlb.lab import grid
from tlb.lab.store import MACHINE
from tlb.reasons import Unavailable
from tlb.system.files import ROOT

BOOK = ROOT / "book"
TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
MOST_MINUTES = 24 * 60
_KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number with a decimal point",
    bool: "True or False",
}


def declared(chapter: str) -> dict[str, tuple[type, Any]]:
    """name -> (type, default) of a chapter, from its cell tagged `parameters`. Raises
    Unavailable("bad-parameter")."""
    if chapter not in table_of_contents():
        raise Unavailable(
            "bad-parameter",
            f"there is no chapter '{chapter}'; there are {', '.join(table_of_contents())}",
        )
    found = inspect_notebook(str(BOOK / f"{chapter}.ipynb"))
    return {
        name: (kind := TYPES[said["inferred_type_name"]], parse(kind, said["default"]))
        for name, said in found.items()
    }


def parse(kind: type, text: str) -> Any:
    """A value of a type from its text, as on a command line or in a cell. ValidationError for what
    is none."""
    return text.strip("\"'") if kind is str else TypeAdapter(kind).validate_strings(text)


def values(chapter: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Parameters from their texts, each of the type that the chapter declares; what is no such
    value stays a text, for `check`."""
    kinds = {name: kind for name, (kind, _) in declared(chapter).items()}
    parsed: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            parsed[name] = parse(kinds.get(name, str), text)
        except ValidationError:
            parsed[name] = text
    return parsed


def check(chapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The chapter's parameters with `given` over the defaults, each of its declared type and
    meaning.

    Raises Unavailable("bad-parameter") in one sentence: Papermill itself only warns of an unknown
    name.
    """
    known = declared(chapter)
    # Papermill takes "40" for a whole number.
    given = {
        name: float(value) if type(value) is int and known.get(name, (str,))[0] is float else value
        for name, value in given.items()
    }
    for name, value in given.items():
        if name not in known:
            raise Unavailable(
                "bad-parameter", f"{chapter} has no parameter '{name}'; it has {', '.join(known)}"
            )
        if type(value) is not known[name][0]:
            raise Unavailable("bad-parameter", f"{name} is {_KINDS[known[name][0]]}, not {value!r}")
    checked = {name: default for name, (_, default) in known.items()} | given
    grid.profile(checked["profile"])
    if checked["engine"] not in ("auto", "c", "numba"):
        raise Unavailable("bad-parameter", f"engine is auto, c or numba, not '{checked['engine']}'")
    if not 0 <= checked["repeats"] <= grid.MOST_REPEATS:
        raise Unavailable(
            "bad-parameter",
            f"repeats is 0 (as the profile says) or up to {grid.MOST_REPEATS}, not {checked['repeats']}",
        )
    if not 0 <= checked["minutes"] <= MOST_MINUTES:
        raise Unavailable(
            "bad-parameter",
            f"minutes is 0 (what is there already) or up to {MOST_MINUTES}, not {checked['minutes']}",
        )
    if not MACHINE.fullmatch(checked["machine"]):
        raise Unavailable(
            "bad-parameter",
            f"machine is this, reference or a name in data/, not {checked['machine'][:80]!r}",
        )
    if checked["max_working_set"] != "profile":
        grid.check_size("max_working_set", checked["max_working_set"])
    return checked
