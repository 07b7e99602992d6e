"""What every chapter's Analysis has: its rows, and the machine that they are from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from tlb.machine import stated_facts
from tlb.machine.host import Host, data_caches, tlb_entries
from tlb.measure import row_tables, survey
from tlb.report.chapter import Chapter
from tlb.report.quantities import FEWEST_MAPPINGS_WITH_INTERVAL
from tlb.stats import curves, geometry, splinter
from tlb.stats.curves import Curve, select_rows
from tlb.stats.intervals import Interval, interval_of_rows
from tlb.system.page_sizes import page_labels
from tlb.system.reasons import Unavailable, UnmeasuredNote, none_if_unavailable, require_nonempty


class TlbEntries(list[int]):
    """The entries of each TLB level, ascending. is_stated: whether CPUID states them; else the last
    number is of all levels together, as a chase finds them."""

    def __init__(self, entries: Iterable[int] = (), *, is_stated: bool = True):
        super().__init__(entries)
        self.is_stated = is_stated

    @property
    def whose(self) -> str:
        """What the last number is of, for a sentence."""
        return "last level's" if self.is_stated else "levels'"


Document = TypeVar("Document", bound=BaseModel)
SIMULATED = "simulated-"  # begins the id of a machine whose rows were computed, and no other id
_NO_TLB = "no TLB level is stated here"
_NO_LEVELS = f"{_NO_TLB}, and no measurement found two"


class Analysis:
    """The rows of a chapter; its own Analysis derives cached properties from them, for its claims and
    its page. about: its machine."""

    documents: tuple[str, ...] = ()  # properties that are documents of data/
    on_request: tuple[str, ...] = ()  # those which a command of their own makes

    def __init__(self, frame: pd.DataFrame, about: Chapter):
        self.frame = self.measured_rows = frame  # a subclass may leave rows out of its frame
        self.about = about
        self.states: dict[str, str] = {}  # the machine's state by document, of those read

    @property
    def chapter(self) -> str:
        """The chapter's name: that of the package which defines the Analysis."""
        return type(self).__module__.split(".")[-2]

    def on(self, machine: str) -> Self:
        """Return the chapter's Analysis of another machine's rows. Raises
        Unavailable("no-data")."""
        other = self.about.on(machine)
        return type(self)(other.kept(self.chapter), other)

    @property
    def measured_besides(self) -> str:
        """What was measured that is no row, in words; "" if nothing."""
        return ""

    @property
    def host(self) -> Host:
        return self.about.host

    @property
    def notes(self) -> Sequence[UnmeasuredNote]:
        return self.about.notes

    @property
    def is_simulated(self) -> bool:
        """Whether the rows of this machine were computed, not measured."""
        return self.about.machine.startswith(SIMULATED)

    @cached_property
    def has_few_mappings(self) -> bool:
        """Whether it has rows, and none of their points as many mappings as decide."""
        if "repeat" not in self.frame or self.frame.empty:
            return False
        most = int(row_tables.processes_per_point(self.frame).max())
        return most < FEWEST_MAPPINGS_WITH_INTERVAL

    @property
    def base_page_bytes(self) -> int:
        """The distance of two lines of a spread layout."""
        return self.host.base_page_bytes

    @cached_property
    def page_labels(self) -> dict[str, str]:
        """Page sizes as figures and tables call them."""
        return page_labels(self.base_page_bytes)

    def cache_bytes(self, level: int) -> int | None:
        """Return the size of the data cache of a level, or None if it is not stated."""
        return data_caches(self.host).get(level)

    # --- the levels of the TLB

    @property
    def stated_entries(self) -> list[int]:
        """Base-page data entries of each TLB level by CPUID, ascending; empty on all arm64."""
        return tlb_entries(self.host)

    @cached_property
    def entries(self) -> TlbEntries:
        """`stated_entries`, else those that this machine's survey found; empty if it found none, one
        level alone, which may be any, or one so roughly that any statement agrees with it."""
        if self.stated_entries:
            return TlbEntries(self.stated_entries)
        found = none_if_unavailable(self._surveyed_entries) or []
        return TlbEntries(found, is_stated=False)

    def _surveyed_entries(self) -> list[int]:
        levels = geometry.infer_tlb_geometry(
            self.about.kept(survey.NAME), (), data_caches(self.host)
        ).levels
        if any(level.is_alone for level in levels):
            return []
        return [round(level.narrow_entries.value) for level in levels]

    @property
    def entries_source(self) -> str:
        return "CPUID" if self.stated_entries else "our measurement of this machine"

    @property
    def known_entries(self) -> TlbEntries:
        """`entries`, of one level at least. Raises Unavailable("no-geometry")."""
        if not self.entries:
            raise Unavailable("no-geometry", _NO_LEVELS)
        return self.entries

    def two_levels(self) -> tuple[int, int]:
        """Return the entries of the first and last level. Raises Unavailable: no-geometry,
        no-geometry."""
        return _first_and_last(self.entries, _NO_LEVELS)

    def two_stated_levels(self) -> tuple[int, int]:
        """Return `two_levels` by CPUID alone, for sentences that compare it with a step.
        Raises Unavailable: no-geometry."""
        return _first_and_last(self.stated_entries, _NO_TLB)

    def price_of(self, spread: Curve, packed: Curve) -> Curve:
        """Return the price of translation of a chase on this machine (`curves.price_of`)."""
        return curves.price_of(spread, packed, self._most_entries)

    def judged_price_of(self, spread: Curve, packed: Curve) -> Curve:
        """Return the price by which a claim is judged (`curves.price_with_packed_walks`)."""
        return curves.price_with_packed_walks(spread, packed, self._most_entries)

    def judged_packed(self, spread: Curve, packed: Curve) -> Curve:
        """Return the packed chase by which a claim about a load without a walk is judged
        (`curves.packed_without_walks`)."""
        return curves.packed_without_walks(spread, packed, self._most_entries)

    @cached_property
    def _cliff_price(self) -> Curve | None:
        """The price of translation on base pages by the chases of The TLB cliff; None without
        them."""
        rows = none_if_unavailable(self.about.kept, "stlb_cliff")
        if rows is None:
            return None
        return self.price_of(curves.spread_curve(rows), curves.packed_curve(rows))

    def cliff_price_at(self, lines: float) -> Interval | None:
        """Return the price of translation on base pages at so many lines as The TLB cliff states it,
        whose bounds allow for what page-table entries take of a cache; None without it."""
        price = self._cliff_price
        return price.get(lines) if price is not None and lines in price.xs else None

    def is_comparable(self, lines: float) -> bool:
        """Return whether spread minus packed is a price at so many lines on base pages, by the list
        of The TLB cliff for all chapters: not at a size without a price, nor beside one."""
        price = self._cliff_price
        return price is None or curves.is_comparable(price, lines)

    @property
    def _most_entries(self) -> int:
        return max(self.entries, default=curves.LEAST_ENTRIES)

    # --- what else is known of the machine

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        kind: type[Document],
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> Document:
        """Return a document of data/ and note its state (`Chapter.document` has the arguments).

        Raises Unavailable: no-data, also for a document of an older version; what `make` raises.
        """
        try:
            made = kind.model_validate(self.about.document(name, make, whole))
        except ValidationError:
            raise Unavailable("no-data", f"{name}.json is of another version") from None
        if state := getattr(made, "state", ""):
            self.states[name] = state
        return made

    def splintering(self) -> splinter.SplinteringVerdict | None:
        """Return what this machine's large pages are made of, or None if its rows cannot tell."""
        return self._splintering

    @cached_property
    def is_splintered(self) -> bool:
        """Whether large pages are known to miss as base pages do."""
        found = self.splintering()
        return found is not None and found.is_splintered

    @cached_property
    def survey(self) -> geometry.TlbGeometry:
        """What this machine's survey found of its TLB. Raises Unavailable."""
        rows = self.about.kept(survey.NAME)
        return geometry.infer_tlb_geometry(rows, self.stated_entries, data_caches(self.host))

    @cached_property
    def _splintering(self) -> splinter.SplinteringVerdict | None:
        return none_if_unavailable(
            lambda: splinter.judge_splintering(self.about.kept("hugepages"), self.host.hypervisor)
        )


def _first_and_last(entries: Sequence[int], lacking: str) -> tuple[int, int]:
    if not entries:
        raise Unavailable("no-geometry", lacking)
    if len(entries) < 2:
        raise Unavailable(
            "no-geometry", f"this compares two levels, and one is known, of {entries[0]:,} entries"
        )
    return entries[0], entries[-1]


class SingleEventAnalysis(Analysis):
    """The Analysis of a chapter about single events, such as a call or a switch, some of which take
    a second CPU."""

    @cached_property
    def flushes(self) -> stated_facts.TlbFlushBehaviourDocument:
        """What this computer states of flushes. Raises Unavailable, as `document` does."""
        return self.document(
            "flushes", stated_facts.make_flushes, stated_facts.TlbFlushBehaviourDocument
        )

    def _rows(self, kernel: str, *columns: str, **where: object) -> pd.DataFrame:
        """Return a kernel's rows, none if one of these columns is missing."""
        rows = select_rows(self.frame, kernel=kernel, **where)
        if {*columns} <= set(rows):
            return rows
        return rows.iloc[:0].assign(**dict.fromkeys(columns, 0.0))

    def require_others(self, rows: Sequence | pd.DataFrame, lacking: str) -> None:
        """Raise Unavailable if there are no rows: one-cpu, or too-few-points."""
        require_nonempty(
            rows, lacking, "one-cpu" if len(self.host.usable_cpus) < 2 else "too-few-points"
        )

    @staticmethod
    def _median(rows: pd.DataFrame, lacking: str, value: str = "ns_per_access") -> Interval:
        return interval_of_rows(require_nonempty(rows, lacking), value)
