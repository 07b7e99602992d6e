"""Why a number could not be measured: each reason's code, its sentence and its remedy
(reasons.txt).

A number is there or a reason is; there is no third way. A code is a class of reasons that a program
can act on; what is particular to one place is its detail and, where the class's remedy does not help,
a remedy of its own. Codes go into data/, so a code that stands there is never renamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sized
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Some = TypeVar("Some")


class ReasonText(NamedTuple):
    """One sentence on what is lacking, and what to do about it."""

    sentence: str
    remedy: str


_DETAIL_CHARS = 300  # a compiler's first error line fits; a core dump of text does not
_ENTRY = re.compile(r"([a-z0-9-]+)(?: \(([a-z0-9 -]+)\))?: (.+)\n    (.+)\n*|#.*\n*")


def parsed(table: str) -> tuple[dict[str, ReasonText], dict[str, str]]:
    """Return the entries of reasons.txt by code, and the codes by the names that own data may still
    hold for them. Raises ValueError for a line of no entry."""
    if rest := _ENTRY.sub("", table):
        raise ValueError(f"reasons.txt has a line of no reason: {rest[:80]!r}")
    entries = [entry for entry in _ENTRY.findall(table) if entry[0]]
    texts = {code: ReasonText(*text) for code, _, *text in entries}
    return texts, {name: code for code, names, *_ in entries for name in names.split()}


REASON_TEXTS, _MERGED = parsed(Path(__file__).with_name("reasons.txt").read_text(encoding="utf-8"))


def current_reason_code(code: str) -> str:
    """Return the code of the class that a code of earlier data belongs to now."""
    return _MERGED.get(code, code)


def explain_reason(code: str, detail: str = "", remedy: str = "") -> str:
    """Return one line: the reason's sentence, with `detail` in brackets, and `remedy`, by default
    the code's.

    KeyError for a code that REASON_TEXTS does not hold.
    """
    reason = REASON_TEXTS[current_reason_code(code)]
    sentence, remedy = reason.sentence, remedy or reason.remedy
    detail = " ".join(detail.split())
    if len(detail) > _DETAIL_CHARS:
        detail = detail[:_DETAIL_CHARS] + "…"
    return (
        f"{sentence.removesuffix('.')} ({detail}). {remedy}" if detail else f"{sentence} {remedy}"
    )


def state_reason(code: str, detail: str = "") -> str:
    """Return the reason's sentence, with `detail` in brackets, without a remedy."""
    return explain_reason(code, detail, " ").rstrip()


# Why a page size may have no rows.
PAGE_REASON_CODES = {"pool-empty", "thp-never", "page-size-unsupported"}
PAGE_REASON_CODES |= {"backing-partial", "memory-short", "linux-lacks"}


# Why what was measured does not decide a claim. Codes go into data/, as those of REASON_TEXTS do.
UNDECIDED_TEXTS: dict[str, str] = {
    "few": "Too few processes were measured.",
    "crosses": "The interval crosses an end of the band.",
    "widened": "An interval that is one of several compared has to be wider than printed, and then "
    "crosses an end of the band.",
    "bistable": "The processes fall into two groups, and the interval over both crosses an end of "
    "the band.",
    "conditions": "The conditions differ from those of the source.",
    "ambiguous": "The result fits more than one explanation.",
}


@dataclass(frozen=True)
class Undecided:
    """Why a claim is left open. text: a sentence; by default that of the code."""

    code: str
    text: str = ""

    def __post_init__(self) -> None:
        default = UNDECIDED_TEXTS[self.code]  # an unknown code fails where it is made
        object.__setattr__(self, "text", self.text or default)


class UnmeasuredNote(NamedTuple):
    """What a run could not measure, in a sentence; and the reason's code, "" where it is none of
    REASON_TEXTS. pages: the page sizes that it is about."""

    text: str
    code: str = ""
    pages: tuple[str, ...] = ()


class Unavailable(Exception):
    """Something cannot be measured here. `code` is a key of REASON_TEXTS; `remedy` replaces that of
    the code; str() is one line with the remedy."""

    def __init__(self, code: str, detail: str = "", remedy: str = "") -> None:
        # first, so that an unknown code fails where it is raised
        self.text = explain_reason(code, detail, remedy)
        super().__init__(code, detail, remedy)  # all, so that it survives pickling
        self.code = current_reason_code(code)
        self.detail = detail
        self.remedy = remedy or REASON_TEXTS[self.code].remedy

    def __str__(self) -> str:
        return self.text

    @property
    def note(self) -> UnmeasuredNote:
        return UnmeasuredNote(self.text, self.code)

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback: the sentence is all that helps whoever reads
        it."""
        return [f"Unavailable: {self.text}"]


def none_if_unavailable(make: Callable[..., Any], *given: Any) -> Any:
    """What `make` gives; None where it raises Unavailable: for what a sentence or a figure can do
    without."""
    try:
        return make(*given)
    except Unavailable:
        return None


def require_nonempty(rows: Some | None, lacking: str, code: str = "too-few-points") -> Some:
    """Return `rows`. Raises Unavailable(code) with what is lacking for None and for anything
    empty."""
    if rows is None or (isinstance(rows, Sized) and not len(rows)):
        raise Unavailable(code, lacking)
    return rows


# --- packages that the core of `tlb` does without, imported with their first use


# The extra of pyproject.toml that brings a package, where it is not `book`.
_EXTRAS = {
    **dict.fromkeys(("numpy", "pandas", "scipy", "yaml"), "analysis"),
    **dict.fromkeys(("distributed", "dask"), "fleet"),
}


class LazyModule:
    """A module that is imported when something of it is asked for. Raises Unavailable("no-extra")
    then if it is not installed."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            value = getattr(import_module(self._name), attribute)
        except ModuleNotFoundError as error:
            raise missing_package_error(error) from None
        setattr(self, attribute, value)  # the next access does not come here
        return value


def book_unavailable_error(what: str) -> Unavailable:
    """Return why something needs the book, of which only a clone has the files."""
    return Unavailable(
        "no-extra",
        f"{what}: it needs the book, which only a clone of the repository has",
        "Clone it and run `make` there.",
    )


def missing_package_error(error: ModuleNotFoundError) -> Unavailable:
    """Return the reason for a package that is not installed, with the extra that brings it."""
    package = (error.name or "").partition(".")[0]
    return Unavailable("no-extra", f"{package} is of the extra {_EXTRAS.get(package, 'book')}")
