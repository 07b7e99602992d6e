"""What `tlb where` says of a program: tables, a verdict, and the same for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import median
from string import ascii_uppercase
from typing import Any

from tlb.programs.executable import reason_against_preload
from tlb.programs.runs import ProgramRun
from tlb.programs.text import render_template_lines
from tlb.programs.where import advice
from tlb.programs.where.proof import (
    ALL_ALLOCATION_SITES,
    NO_ALLOCATION_SITES,
    AllocationSiteNames,
    AllocationSitesProof,
)
from tlb.programs.where.simulation import (
    LINUX_SOURCE_LINE,
    UNATTRIBUTED_CODE,
    WHOLE_PROGRAM,
    AllocationSite,
    SimulationResult,
    SourceLine,
    WalkCounts,
)
from tlb.programs.where.valgrind import SimulatedTlb
from tlb.stats.intervals import Interval, median_interval
from tlb.system.units import format_ns, format_size

MAX_TABLE_ROWS = 12
# Of the time, what translation may cost at most for it to be not worth a thought.
NEGLIGIBLE_SHARE = 0.02
UNDECIDED_SHARE = (
    0.05  # of the time, that huge pages may save where runs show no gain: more is left open
)
MOST_WALKS_SHARE = 0.9  # of the walks
FEW_EXPOSED_WALKS_SHARE = 0.05  # exposed ones, of the walks
LEAST = 0.005  # of the walks, for a row of its own
# Of a page fault, with the page that Linux clears: generous, as the published rows of page_fault have
# 2.8 us at most. It bounds faults where Linux's time is mostly reading and writing.
FAULT_NS = 10_000
Row = dict[str, str]  # cells by the names of their columns
TextTable = tuple[tuple[str, ...], list[tuple[str, ...]]]  # head, rows


class HugePagesVerdict(StrEnum):
    """What is known of huge pages for a program."""

    HELPS = "huge pages help"  # some runs with them are faster
    NO_GAIN = "nothing to gain"  # all that translation and page faults cost is next to nothing
    NO_GAIN_SHOWN = "no gain shown"  # by runs that would show it
    UNDECIDED = "cannot tell"
    NOT_ENDED = "did not end"
    POSSIBLE = "possible gain"  # and no runs with huge pages


@dataclass(frozen=True)
class WhereReport:
    """native_s: of a run by itself; None if it did not end. walk_ns: what a walk costs that overlaps
    with nothing; hit_ns: the same of a miss that the second level answers; faults_s: what page faults
    cost that run at most. Without a simulation: no geometry, and a proof. is_interrupted: by Ctrl-C,
    in a proof; lacks_time: no round of the proof was finished in the time for it."""

    command: list[str]
    geometry: SimulatedTlb | None
    found: SimulationResult
    native_s: float | None
    walk_ns: float
    proof: AllocationSitesProof | None = None
    is_interrupted: bool = False
    lacks_time: bool = False
    hit_ns: float = 0.0
    faults_s: float = 0.0

    @property
    def knows_sites(self) -> bool:
        """Whether it was counted which allocations the walks read."""
        return self.geometry is not None and not self.found.lacking

    @property
    def huge_size(self) -> str:
        """The size of a simulated huge page, in words."""
        return format_size(self.geometry.huge_page_bytes) if self.geometry else ""

    def weight(self, counts: WalkCounts) -> int:
        """Return the walks to rank by: the exposed ones, or all where hardly any is exposed."""
        total = self.found.total
        return (
            counts.exposed
            if total.exposed > FEW_EXPOSED_WALKS_SHARE * total.walks
            else counts.walks
        )

    def _ranked(self, items: Iterable[Any], counts: Callable[[Any], WalkCounts]) -> list[Any]:
        """Return the items with walks enough for a row, the first most."""
        least = LEAST * self.found.total.walks
        made = [item for item in items if counts(item).walks > least]
        return sorted(made, key=lambda item: (-self.weight(counts(item)), -counts(item).walks))

    @cached_property
    def lines(self) -> list[SourceLine]:
        """Lines that matter, the first most: by walks, without simulation by the time saved."""
        if self.geometry:
            return self._ranked(self.found.lines, self.found.lines.__getitem__)
        times = {line: time for line, time in self.times.items() if line.module}
        made = [line for line in times if times[line][0] > LEAST * self.times[WHOLE_PROGRAM][0]]
        return sorted(made, key=lambda line: -times[line][1].value)

    @cached_property
    def sites(self) -> list[AllocationSite]:
        """Sites that matter, the first most: by walks, without simulation by the gain of each."""
        sites = self.found.sites.values()
        if self.knows_sites:
            return self._ranked(sites, lambda site: site.counts)
        if (proof := self.proof) is None:
            return []
        tried = [site for site in sites if (site.id,) in proof.tried]
        return sorted(tried, key=lambda site: proof.ratio((site.id,)).value)

    @property
    def most_saved_s(self) -> float:
        """What huge pages may save at most, of the time without them: page faults, and all misses
        of the first level, each at the price of one that overlaps with nothing."""
        total = self.found.total
        misses_ns = total.walks * self.walk_ns + (total.misses - total.walks) * self.hit_ns
        most = misses_ns / 1e9 + self.faults_s
        return most if self.native_s is None else min(most, self.native_s)

    def largest(self) -> Iterator[AllocationSite]:
        """Yield the fewest sites that make up most of the weight."""
        weight = 0
        for site in self.sites:
            if weight >= MOST_WALKS_SHARE * self.weight(self.found.total):
                return
            yield site
            weight += self.weight(site.counts)

    @cached_property
    def times(self) -> dict[SourceLine, tuple[float, Interval]]:
        """As `saved`, of the set that the proof found, or all if none gains."""
        return self.saved(self.chosen or ALL_ALLOCATION_SITES)

    def saved(self, sites: AllocationSiteNames) -> dict[SourceLine, tuple[float, Interval]]:
        """Return the CPU time of each line in ms without huge pages, and what it saves if these
        sites are on them; empty without samples."""
        if self.proof is None or self.proof.no_samples:
            return {}
        rounds = [
            tuple(
                self.found.milliseconds(each[key].samples) for key in (NO_ALLOCATION_SITES, sites)
            )
            for each in self.proof.rounds
            if sites in each
        ]
        lines = {line for none, _ in rounds for line in none} | {
            UNATTRIBUTED_CODE,
            LINUX_SOURCE_LINE,
            WHOLE_PROGRAM,
        }
        return {
            line: (
                median(none[line] for none, _ in rounds),
                median_interval([none[line] - some[line] for none, some in rounds]),
            )
            for line in sorted(lines)
        }

    def line_rows(self) -> Iterator[Row]:
        """Yield a row a line; with samples, those end with the other code's time and Linux's."""
        for line in self.lines[:MAX_TABLE_ROWS]:
            sites = [self.letters(site) for site, _ in self.found.touches[line].most_common(2)]
            name = f"{line.function or '?'} ({line.place})"
            cells = self._walks(self.found.lines[line]) | self._time(line)
            yield {"line": name, **cells, "memory": ", ".join(sites)}
        for line in (UNATTRIBUTED_CODE, LINUX_SOURCE_LINE) if self.times else ():
            yield {"line": line.function, **self._time(line)}

    def _time(self, line: SourceLine) -> Row:
        if not self.times:
            return {}
        if line in self.found.python:  # samples are of the interpreter's instructions
            return {"time, ms": "–", "saved, ms": "–"}
        took, saved = self.times.get(line, (0.0, median_interval([0.0])))
        return {"time, ms": f"{took:,.0f}", "saved, ms": _range(saved)}

    def site_rows(self) -> Iterator[Row]:
        for site in self.sites[:MAX_TABLE_ROWS]:
            row = {"site": self.letters(site.id)} | self._walks(site.counts)
            if walks := site.counts.walks:
                row[f"left with {self.huge_size} pages"] = f"{site.counts.large_walks / walks:.0%}"
            if site.bytes:
                row |= {
                    "size": format_size(site.size_bytes),
                    f"{self.huge_size} pages add": format_size(site.added),
                }
                row["lives"] = f"{site.lived:.0%}"
            yield row | {"allocated by": site.origin}

    def run_rows(self) -> Iterator[Row]:
        if self.proof is None:
            return
        for sites in self.proof.tried:
            name = {NO_ALLOCATION_SITES: "none", ALL_ALLOCATION_SITES: "all"}.get(
                sites, self.letters(*sites)
            )
            seconds = median(*self.proof.seconds(sites))
            row = {"on huge pages": name, "time": format_ns(seconds * 1e9)}
            if sites != NO_ALLOCATION_SITES:
                row["ratio"] = f"{self.proof.ratio(sites):.3f}"
                if saved := self.saved(sites):
                    row["CPU saved, ms"] = _range(saved[WHOLE_PROGRAM][1])
                    row["by Linux, ms"] = _range(saved[LINUX_SOURCE_LINE][1])
            yield row

    def tables(self) -> dict[str, TextTable]:
        """Return the tables that have rows, by their headings."""
        made = {"Lines of code": [*self.line_rows()], "Allocations": [*self.site_rows()]}
        made["Runs"] = [*self.run_rows()]
        return {heading: _table(rows) for heading, rows in made.items() if rows}

    def _walks(self, counts: WalkCounts) -> Row:
        share = counts.exposed / max(self.found.total.exposed, 1)
        exposed = f"{counts.exposed:,} ({share:.0%})" if self.knows_sites else ""
        return {"exposed walks": exposed, "all walks": f"{counts.walks:,}" if self.geometry else ""}

    def letters(self, *sites: str) -> str:
        """Return the letters of sites: A weighs most."""
        names = dict(zip((site.id for site in self.sites), ascii_uppercase, strict=False))
        return " and ".join(names.get(site, "other memory") for site in sites)

    def interpreted(self) -> Iterator[tuple[str, str]]:
        """Yield the letter and the interpreter of each site that matters and is inside one."""
        for site in self.sites[:MAX_TABLE_ROWS]:
            if site.interpreter:
                yield self.letters(site.id), site.interpreter

    @property
    def is_cheap(self) -> bool:
        """Whether huge pages can save next to nothing; False if that is unknown."""
        if self.geometry is None or self.native_s is None or self.found.is_cut:
            return False
        return self.most_saved_s < NEGLIGIBLE_SHARE * self.native_s

    @property
    def chosen(self) -> AllocationSiteNames:
        """The sites for huge pages: those that the proof found, else those with most walks."""
        return self.proof.smallest if self.proof else tuple(site.id for site in self.largest())

    @cached_property
    def verdict(self) -> HugePagesVerdict:
        if self.proof and self.proof.smallest:
            return HugePagesVerdict.HELPS
        if not self.proof and (self.native_s is None or self.found.is_cut):
            return HugePagesVerdict.NOT_ENDED
        if self.is_cheap:
            return HugePagesVerdict.NO_GAIN
        if not self.proof:
            return HugePagesVerdict.POSSIBLE
        is_open = (
            self.proof.ratio(ALL_ALLOCATION_SITES).low < 1 - UNDECIDED_SHARE
            or not self.proof.is_decisive
        )
        return HugePagesVerdict.UNDECIDED if is_open else HugePagesVerdict.NO_GAIN_SHOWN

    @property
    def _chosen_sites(self) -> list[AllocationSite]:
        """The sites that matter of those for huge pages, without heaps that fill none."""
        chosen = [
            site
            for site in self.sites
            if self.chosen == ALL_ALLOCATION_SITES or site.id in self.chosen
        ]
        least = advice.huge_page_bytes()
        return [site for site in chosen if not (site.is_heap and 0 < site.touched < least)]

    def commands(self) -> Iterator[str]:
        """Yield what to run or to write next."""
        if not self.chosen or self.verdict in (
            HugePagesVerdict.NO_GAIN,
            HugePagesVerdict.NO_GAIN_SHOWN,
        ):
            return
        huge_bytes, sites = advice.huge_page_bytes(), self._chosen_sites
        only = (
            ALL_ALLOCATION_SITES
            if self.chosen == ALL_ALLOCATION_SITES
            else advice.reachable(sites, huge_bytes)
        )
        yield from advice.commands(self.command, sites, only, huge_bytes)

    def sentences(self) -> list[str]:
        """Return the verdict, then what qualifies it."""
        second = self.geometry.base.second if self.geometry else 0
        larger = [row for row in sorted(self.found.curve.items()) if row[0] > second]
        return render_template_lines(
            "where",
            report=self,
            found=self.found,
            all=ALL_ALLOCATION_SITES,
            verdicts=HugePagesVerdict,
            larger=larger[:3],
            unnamed=reason_against_preload(self.command[0]) or self.found.unnamed,
            allocators=advice.without_setting(self._chosen_sites),
            no_huge_pages=advice.why_no_huge_pages(),
        )

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        found, total, proof = self.found, self.found.total, self.proof
        return {
            "command": self.command,
            "geometry": self.geometry and self.geometry._asdict(),
            "not_simulated": found.lacking,
            "native_s": self.native_s,
            "instructions": found.instructions,
            "total": total._asdict() | {"exposed": total.exposed},
            "walks_by_entries": found.curve,
            "walk_ns": self.walk_ns,
            "hit_ns": self.hit_ns,
            "faults_s": self.faults_s,
            "saved_s": [0.0, self.most_saved_s],
            "verdict": self.verdict,
            "sentence": self.sentences()[0],
            "lines": [
                line._asdict() | found.lines[line]._asdict() | {"sites": found.touches[line]}
                for line in self.lines
            ],
            "saved_ms": [
                line._asdict() | {"saved": s.value_and_bounds}
                for line, (_, s) in self.times.items()
            ],
            "sites": [vars(site) | {"counts": site.counts._asdict()} for site in self.sites],
            "smallest": proof and proof.smallest,
            "rounds": proof
            and [
                {",".join(key): timed.seconds for key, timed in each.items()}
                for each in proof.rounds
            ],
        }


def _table(rows: list[Row]) -> TextTable:
    """Return head and rows of a table; what no row has is no column."""
    head = tuple(dict.fromkeys(name for row in rows for name, cell in row.items() if cell))
    return head, [tuple(row.get(name, "") for name in head) for row in rows]


def _range(value: Interval) -> str:
    return f"{value.value:z,.0f} ({value.low:z,.0f} to {value.high:z,.0f})"


def most_faults_s(alone: ProgramRun) -> float:
    """Return the most that page faults cost a run, in s."""
    return min(alone.system_s, alone.minor_faults * FAULT_NS / 1e9)
