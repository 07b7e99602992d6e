"""What every chapter's Analysis has: its rows, and the machine that they are from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from tlb.inference import curves, geometry, splinter
from tlb.inference.curves import Curve
from tlb.lab import survey
from tlb.machine.host import Host, data_caches, tlb_entries
from tlb.reasons import Note, Unavailable, if_available
from tlb.report import page

Document = TypeVar("Document", bound=BaseModel)
# how the id of a machine begins whose rows were computed; no computer's own id does
SIMULATED = "simulated-"


class NotDefined(NameError):
    """A name that a page's cells were to define."""


class About(Protocol):
    """What an Analysis asks of a chapter (article.chapter.Chapter): the machine, and what else is
    kept of it in data/."""

    host: Host
    machine: str  # its name in data/
    notes: list[Note]  # what this run could not measure
    is_this: bool  # whether it is this computer
    # whether it is published in the place of the reference machine, where this chapter was not
    # measured
    stands_in: bool

    def described(self, state: str) -> Host:
        """The machine as it was in the state that a row names. Raises Unavailable("no-data") where
        nothing says."""

    def kept(self, name: str) -> pd.DataFrame:
        """Rows that another chapter measured; none are measured for this one. Raises
        Unavailable("no-data")."""

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> dict[str, Any]:
        """data/<machine>/<name>.json, made first where this computer has none that is `whole` and
        there is a way to. Raises Unavailable("no-data")."""

    def reference(self) -> About:
        """The same of the reference machine, whose rows may stand in for what this machine cannot
        have. Raises Unavailable("no-data")."""


class Analysis:
    """The rows of a chapter, one a process; a chapter's own Analysis adds what it derives from them
    as cached properties.

    Figures, claims and texts take it and nothing else. What the page's cells define (`price =
    spread - packed`) is an attribute too, and has no other definition: of an Analysis that no page
    made, the cells of the committed notebook are run (page.definitions).

    names: the globals of the notebook that makes it.
    """

    documents: tuple[
        str, ...
    ] = ()  # the properties that are documents of data/, made once in each state of a machine
    on_request: tuple[str, ...] = ()  # those that are documents which a command of their own makes

    def __init__(self, frame: pd.DataFrame, about: About, names: dict[str, Any] | None = None):
        self._names = names
        self.frame = frame
        self.about = about
        self.states: dict[
            str, str
        ] = {}  # of the machine, by the documents that were read, without those that name none

    def __getattr__(self, name: str) -> Any:
        """Return what a cell of the page defines. Raises NotDefined."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._names is None:
            self._names = {}  # what a cell takes, one above it has defined
            page.definitions(self.chapter, self, self._names)
        if name not in self._names:
            raise NotDefined(f"no cell of {self.chapter}.ipynb has defined {name!r}")
        return self._names[name]

    @property
    def chapter(self) -> str:
        """The chapter's name: that of the package which the Analysis stands in."""
        return type(self).__module__.split(".")[-2]

    @property
    def host(self) -> Host:
        return self.about.host

    @property
    def notes(self) -> Sequence[Note]:
        return self.about.notes

    @property
    def stated_entries(self) -> list[int]:
        """Base-page data entries of each TLB level as CPUID states them, ascending; empty where it
        is silent, as on all arm64."""
        return tlb_entries(self.host)

    @cached_property
    def entries(self) -> list[int]:
        """`stated_entries`; where there are none, those that this machine's survey found. Empty
        where it found none, or one level alone, of which nobody knows which it is."""
        return self.stated_entries or if_available(self._surveyed_entries) or []

    def _surveyed_entries(self) -> list[int]:
        levels = geometry.infer(self.about.kept(survey.NAME), (), data_caches(self.host)).levels
        return (
            []
            if any(level.is_alone for level in levels)
            else [round(level.entries.value) for level in levels]
        )

    @property
    def entries_source(self) -> str:
        """Who says how many `entries` there are."""
        return "CPUID" if self.stated_entries else "the survey of this machine"

    @property
    def base_page_bytes(self) -> int:
        """Lines of a spread layout lie this far apart."""
        return self.host.base_page_bytes

    def cache_bytes(self, level: int) -> int | None:
        """The size of the data cache of a level; None where nothing states it."""
        return data_caches(self.host).get(level)

    @property
    def is_simulated(self) -> bool:
        """Whether the rows of this machine were computed, not measured: its id says so."""
        return self.about.machine.startswith(SIMULATED)

    @property
    def known_entries(self) -> list[int]:
        """`entries`, of one level at least. Raises Unavailable("no-geometry")."""
        if not self.entries:
            raise Unavailable(
                "no-geometry", "CPUID names no TLB level here, and no survey found two"
            )
        return self.entries

    def two_levels(self) -> tuple[int, int]:
        """The entries of the first and of the last level. Raises Unavailable: no-geometry,
        one-level."""
        return self._first_and_last(
            self.entries, "CPUID names no TLB level here, and no survey found two"
        )

    def two_stated_levels(self) -> tuple[int, int]:
        """`two_levels` by CPUID alone, for a sentence about what is stated: what a step itself told
        proves nothing of the step. Raises Unavailable: no-geometry, one-level."""
        return self._first_and_last(self.stated_entries, "CPUID names no TLB level here")

    def price_of(self, spread: Curve, packed: Curve) -> Curve:
        """Return the price of translation of a chase on this machine (`curves.price_of`)."""
        return curves.price_of(spread, packed, max(self.entries, default=curves.LEAST_ENTRIES))

    @staticmethod
    def _first_and_last(entries: Sequence[int], lacking: str) -> tuple[int, int]:
        if len(entries) < 2:
            raise (
                Unavailable("one-level", f"of {entries[0]:,} entries")
                if entries
                else Unavailable("no-geometry", lacking)
            )
        return entries[0], entries[-1]

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        kind: type[Document],
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> Document:
        """A document of data/. whole: whether one that is there has all that one made now would
        have. Raises Unavailable: no-data also for one that an older version wrote, and what `make`
        raises."""
        try:
            made = kind.model_validate(self.about.document(name, make, whole))
        except ValidationError:
            raise Unavailable("no-data", f"{name}.json is of another version") from None
        if state := getattr(made, "state", ""):
            self.states[name] = state
        return made

    def splintering(self) -> splinter.Splinter | None:
        """Return what this machine's large pages are made of, or None if the chapter about page
        sizes cannot tell."""
        return self._splintering

    @cached_property
    def _splintering(self) -> splinter.Splinter | None:
        return if_available(
            lambda: splinter.judge(self.about.kept("hugepages"), self.host.hypervisor)
        )
