"""What `tlb where` says of a program: tables, a verdict, and the same for other tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from string import ascii_uppercase
from typing import Any

from tlb.inference.intervals import Interval, median_interval
from tlb.programs.executable import why_no_preload
from tlb.programs.where.proof import ALL, NONE, Proof, Sites
from tlb.programs.where.simulation import (
    HEAP,
    IN_LINUX,
    OTHER_CODE,
    PROGRAM,
    Counts,
    Line,
    Simulated,
    Site,
)
from tlb.programs.where.valgrind import Geometry
from tlb.units import format_ns, format_size

MOST_ROWS = 12
# Of the time, what translation may cost at most for it to be not worth a thought.
NOTHING = 0.02
UNSURE = 0.05  # of the time, that huge pages may save where runs show no gain: more is left open
MOST = 0.9  # of the walks
FEW = 0.05  # exposed ones, of the walks
LEAST = 0.005  # of the walks, for a row of its own
WALKS = "exposed walks", "all walks"
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]  # head, rows


@dataclass(frozen=True)
class Report:
    """walk_ns: what a walk costs that overlaps with nothing. native_s: of a run by itself; None if it
    did not end. Without a simulation: no geometry, and a proof."""

    command: list[str]
    geometry: Geometry | None
    found: Simulated
    native_s: float | None
    walk_ns: float
    proof: Proof | None = None

    @property
    def knows_sites(self) -> bool:
        """Whether it was counted which allocations the walks read."""
        return self.geometry is not None and not self.found.lacking

    def weight(self, counts: Counts) -> int:
        """Return the walks to rank by: the exposed ones, or all where hardly any is exposed."""
        total = self.found.total
        return counts.exposed if total.exposed > FEW * total.walks else counts.walks

    def _ranked(self, counted: dict[Any, Counts]) -> list[Any]:
        """Return the keys with walks enough for a row, the first most."""
        least = LEAST * self.found.total.walks
        made = [key for key, counts in counted.items() if counts.walks > least]
        return sorted(made, key=lambda key: (-self.weight(counted[key]), -counted[key].walks))

    @cached_property
    def lines(self) -> dict[Line, Counts]:
        """Lines that matter, the first most: by walks, without simulation by the time saved."""
        if self.geometry:
            lines = self._ranked(self.found.lines)
        else:
            least = LEAST * self.times[PROGRAM][0] if self.times else 0.0
            lines = [line for line, (ms, _) in self.times.items() if line.module and ms > least]
            lines.sort(key=lambda line: -self.times[line][1].value)
        return {line: self.found.lines[line] for line in lines}

    @cached_property
    def sites(self) -> list[Site]:
        """Sites that matter, the first most: by walks, without simulation by the gain of each."""
        sites = self.found.sites
        if self.knows_sites:
            return [sites[id] for id in self._ranked({id: sites[id].counts for id in sites})]
        made = [site for site in sites.values() if self.proof and (site.id,) in self.proof.tried]
        return sorted(made, key=lambda site: self.proof.ratio((site.id,)).value)

    @property
    def most_saved_s(self) -> float:
        """What huge pages may save at most, of the time without them: all walks, each at the price
        of one that overlaps with nothing."""
        most = self.found.total.walks * self.walk_ns / 1e9
        return most if self.native_s is None else min(most, self.native_s)

    def largest(self) -> list[Site]:
        """Return the fewest sites that make up most of the weight."""
        made, weight = list[Site](), 0
        for site in self.sites:
            if weight >= MOST * self.weight(self.found.total):
                break
            made.append(site)
            weight += self.weight(site.counts)
        return made

    @cached_property
    def times(self) -> dict[Line, tuple[float, Interval]]:
        """As `saved`, of the set that the proof found, or all if none gains."""
        return self.saved(self.proof.smallest or ALL) if self.proof else {}

    def saved(self, sites: Sites) -> dict[Line, tuple[float, Interval]]:
        """Return the CPU time of each line in ms without huge pages, and what it saves if these
        sites are on them; empty without samples."""
        if self.proof is None or self.proof.no_samples:
            return {}
        rounds = [
            tuple(self.found.milliseconds(each[key].samples) for key in (NONE, sites))
            for each in self.proof.rounds
            if sites in each
        ]
        lines = {line for none, _ in rounds for line in none} | {OTHER_CODE, IN_LINUX, PROGRAM}
        return {
            line: (
                median(none[line] for none, _ in rounds),
                median_interval([none[line] - some[line] for none, some in rounds]),
            )
            for line in lines
        }

    def line_table(self) -> Table:
        """Return head and rows; with samples, those end with the other code's time and Linux's."""
        rows = list[tuple[str, ...]]()
        for line, counts in [*self.lines.items()][:MOST_ROWS]:
            sites = [self._short(site) for site, _ in self.found.touches[line].most_common(2)]
            name = f"{line.function or '?'} ({line.place})"
            rows.append((name, *self._walks(counts), *self._time(line), ", ".join(sites)))
        for line in (OTHER_CODE, IN_LINUX) if self.times else ():
            rows.append((line.function, "", "", *self._time(line), ""))
        return ("line", *WALKS, "time, ms", "saved, ms", "memory"), rows

    def _time(self, line: Line) -> tuple[str, str]:
        if not self.times:
            return "", ""
        took, saved = self.times.get(line, (0.0, median_interval([0.0])))
        return f"{took:,.0f}", _range(saved)

    def site_table(self) -> Table:
        rows = list[tuple[str, ...]]()
        for site in self.sites[:MOST_ROWS]:
            counts, memory = site.counts, ("", "", "")
            left = f"{counts.large_walks / counts.walks:.0%}" if counts.walks else ""
            if site.bytes:
                memory = format_size(site.bytes), format_size(site.added), f"{site.lived:.0%}"
            rows.append((self._short(site.id), *self._walks(counts), left, *memory, site.origin))
        head = "site", *WALKS, "left with 2 MiB", "size", "2 MiB pages add", "lives"
        return (*head, "allocated by"), rows

    def proof_table(self, proof: Proof) -> Table:
        rows = list[tuple[str, ...]]()
        for sites in proof.tried:
            name = {NONE: "none", ALL: "all"}.get(sites, self._short(*sites))
            ratio = "" if sites == NONE else f"{proof.ratio(sites):.3f}"
            value = median(seconds for (seconds,) in proof.seconds(sites))
            saved = self.saved(sites)
            cells = [
                _range(saved[each][1]) if ratio and saved else "" for each in (PROGRAM, IN_LINUX)
            ]
            rows.append((name, format_ns(value * 1e9), ratio, *cells))
        return ("on huge pages", "time", "ratio", "CPU saved, ms", "by Linux, ms"), rows

    def tables(self) -> dict[str, Table]:
        """Return the tables that have rows, by their headings, without empty columns."""
        made = {"Lines of code": self.line_table(), "Allocations": self.site_table()}
        made |= {"Runs": self.proof_table(self.proof)} if self.proof else {}
        return {heading: _filled(*table) for heading, table in made.items() if table[1]}

    def _walks(self, counts: Counts) -> tuple[str, str]:
        if not self.knows_sites:
            return "", f"{counts.walks:,}" if self.geometry else ""
        share = counts.exposed / max(self.found.total.exposed, 1)
        return f"{counts.exposed:,} ({share:.0%})", f"{counts.walks:,}"

    def _short(self, *sites: str) -> str:
        """Return the letters of sites: A weighs most."""
        letters = dict(zip((site.id for site in self.sites), ascii_uppercase, strict=False))
        return " and ".join(letters.get(site, "other memory") for site in sites)

    def verdict(self) -> str:
        """Return one sentence: what to put on huge pages, nothing to gain, or cannot tell."""
        if self.proof:
            return self._proven(self.proof)
        most = format_ns(self.most_saved_s * 1e9)
        if self.native_s is None or self.found.is_cut:
            return f"Cannot tell: it did not end; its page walks until then cost at most {most}."
        if bound := self._bound():
            return f"Nothing to gain: {bound}."
        time = format_ns(self.native_s * 1e9)
        largest = self._short(*(site.id for site in self.largest())) or "other memory"
        mostly = f", mostly of {largest}" if self.knows_sites else ""
        return (
            f"Huge pages may save between nothing and {most} of {time}{mostly}. "
            "--prove measures what they save."
        )

    def _bound(self) -> str:
        """Say what all walks cost at most, if that is next to nothing; "" if it is not, or unknown."""
        is_known = self.geometry and self.native_s is not None and not self.found.is_cut
        if not is_known or self.most_saved_s >= NOTHING * self.native_s:
            return ""
        walks, most, time = self.found.total.walks, self.most_saved_s * 1e9, self.native_s * 1e9
        return f"{walks:,} page walks cost it at most {format_ns(most)} of {format_ns(time)}"

    def _proven(self, proof: Proof) -> str:
        every, rounds = proof.ratio(ALL), f"({len(proof.rounds)} rounds)"
        what = f"with all allocations on huge pages it takes {every:.3f} times as long {rounds}"
        if proof.smallest == NONE:
            if bound := self._bound():
                return f"Nothing to gain: {bound}, and {what}."
            if every.low < 1 - UNSURE:
                return f"Cannot tell: {what}. Give it a quieter computer, or more --minutes."
            return f"Nothing to gain that shows: {what}."
        gain, which = proof.ratio(proof.smallest), "All allocations"
        if proof.smallest != ALL:
            which = f"Allocation {self._short(*proof.smallest)}"
        return (
            f"{which} on huge pages: {1 / gain.value:.2f}x faster ({1 / gain.high:.2f} to "
            f"{1 / gain.low:.2f}), {proof.share(proof.smallest):.0%} of what huge pages for "
            f"everything bring {rounds}."
        )

    def commands(self) -> Iterator[str]:
        """Yield what to run or to write next."""
        chosen = self.proof.smallest if self.proof else tuple(site.id for site in self.largest())
        if not chosen or self.verdict().startswith("Nothing"):
            return
        yield f"tlb try --only {','.join(chosen)} -- {shlex.join(self.command)}"
        named = [site.origin for site in self.sites if site.id in chosen and site.id != HEAP]
        for origin in dict.fromkeys(named):
            yield f"in {origin}: madvise(p, bytes, MADV_HUGEPAGE) after the allocation"
        if HEAP in chosen:
            yield f"GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {shlex.join(self.command)}"

    def sentences(self) -> Iterator[str]:
        """Yield the verdict, then what qualifies it."""
        total = self.found.total
        counted = f"{total.walks:,} page walks in {self.found.instructions:,} instructions"
        yield self.verdict()
        if self.geometry and self.found.lacking:
            yield (
                f"{counted}, counted by Cachegrind, which does not tell which of them overlap, nor "
                f"which allocations they read. {self.geometry}. {self.found.lacking}"
            )
        elif self.geometry:
            yield (
                f"{counted}; exposed are {total.chained:,} that wait for an earlier one and "
                f"{total.alone:,} that stand alone. With 2 MiB pages everywhere "
                f"{total.large_walks:,} are left, unless a virtual machine's host splits them. "
                f"{self.geometry}."
            )
            curve, now = self.found.curve, self.geometry.base.second
            larger = [f"{curve[n]:,} with {n:,} entries" for n in sorted(curve) if n > now]
            if larger:
                yield f"Walks that a larger second level would leave: {', '.join(larger[:3])}."
        else:
            yield f"Not simulated, so page walks are unknown. {self.found.lacking}"
        if self.times:
            yield (
                "Time is CPU time on base pages, by samples; Linux's own is mostly page faults, "
                "which huge pages change too."
            )
        elif self.proof:
            yield f"No samples, so no time of lines. {self.proof.no_samples}"
        if self.found.is_cut:
            yield "The simulation was ended (--seconds), so walks are missing."
        if why := why_no_preload(self.command[0]):
            yield f"Its allocations have no names: {why}. `tlb try --lever collapse` needs none."


def _filled(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """Return a table without the columns that are empty in all rows."""
    kept = [k for k in range(len(head)) if any(row[k] for row in rows)]
    return tuple(head[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _range(value: Interval) -> str:
    return f"{value.value:z,.0f} ({value.low:z,.0f} to {value.high:z,.0f})"
