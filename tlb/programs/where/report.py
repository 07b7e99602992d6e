"""What `tlb where` says of a program: tables of lines and allocations, a verdict, and the same for
other tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from tlb.inference.intervals import Interval, median_interval
from tlb.programs.executable import why_no_preload
from tlb.programs.where.proof import ALL, NONE, Proof, Sites
from tlb.programs.where.samples import IN_LINUX, OTHER_CODE, PROGRAM, milliseconds
from tlb.programs.where.simulation import HEAP, Counts, Line, Simulated, Site
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
    """walk_ns: the most that a walk costs here, one that overlaps with nothing. native_s: of a run
    without simulation; None if it did not end. Without simulation: no geometry, and a proof."""

    command: list[str]
    geometry: Geometry | None
    found: Simulated
    native_s: float | None
    walk_ns: float
    proof: Proof | None = None

    def weight(self, counts: Counts) -> int:
        """Return the walks to rank by: the exposed ones, or all where hardly any is exposed."""
        total = self.found.total
        return counts.exposed if total.exposed > FEW * total.walks else counts.walks

    @property
    def lines(self) -> list[tuple[Line, Counts]]:
        """Lines with walks, those that weigh most first; without simulation, by the time saved."""
        if self.found.lacking:
            least = LEAST * self.times[PROGRAM][0] if self.times else 0.0
            timed = [line for line, (ms, _) in self.times.items() if line.module and ms > least]
            timed.sort(key=lambda line: -self.times[line][1].value)
            return [(line, Counts()) for line in timed]
        made = [(line, counts) for line, counts in self.found.lines.items() if counts.walks]
        return sorted(made, key=lambda each: (-self.weight(each[1]), -each[1].walks))

    @property
    def sites(self) -> list[Site]:
        """Named sites with walks, those that weigh most first; without simulation, those that were
        tried, by what each gains alone."""
        named = [site for site in self.found.sites.values() if site.is_named]
        if self.found.lacking:
            tried = {sites: self.proof.ratio(sites).value for sites in self.proof.tried[1:]}
            made = [site for site in named if (site.id,) in tried]
            return sorted(made, key=lambda site: tried[(site.id,)])
        made = [site for site in named if site.counts.walks]
        return sorted(made, key=lambda site: (-self.weight(site.counts), -site.counts.walks))

    def candidates(self) -> list[str]:
        """Return the sites to try, the most promising first; without simulation, the heap and the
        largest."""
        if not self.found.lacking:
            return [site.id for site in self.sites]
        named = [site for site in self.found.sites.values() if site.is_named]
        return [
            site.id for site in sorted(named, key=lambda site: (site.id != HEAP, -site.first_bytes))
        ]

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
            (milliseconds(each[NONE], self.found), milliseconds(each[sites], self.found))
            for each in self.proof.sampled
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
        least = LEAST * self.found.total.walks
        rows = list[tuple[str, ...]]()
        for line, counts in [each for each in self.lines if each[1].walks >= least][:MOST_ROWS]:
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
        least = LEAST * self.found.total.walks
        rows = list[tuple[str, ...]]()
        for site in [each for each in self.sites if each.counts.walks >= least][:MOST_ROWS]:
            walks, size = site.counts.walks, site.bytes or site.first_bytes
            left = f"{site.counts.large_walks / walks:.0%}" if walks else ""
            size = format_size(size) * (size > 0) + (
                f" in {site.number}" if site.number > 1 else ""
            )
            rows.append((self._short(site.id), *self._walks(site.counts), left, size, site.origin))
        return ("site", *WALKS, "left with 2 MiB", "size", "allocated by"), rows

    def proof_table(self, proof: Proof) -> Table:
        rows = list[tuple[str, ...]]()
        for sites in proof.tried:
            name = {NONE: "none", ALL: "all"}.get(sites, " and ".join(map(self._short, sites)))
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
        if self.found.lacking:
            return "", ""
        share = counts.exposed / max(self.found.total.exposed, 1)
        return f"{counts.exposed:,} ({share:.0%})", f"{counts.walks:,}"

    def _short(self, site: str) -> str:
        """Return a site's letter: A weighs most."""
        order = [each.id for each in self.sites]
        if site not in order:
            return "other memory"
        number = order.index(site)
        return chr(ord("A") + number) if number < 26 else site[:8]

    def verdict(self) -> str:
        """Return one sentence: what to put on huge pages, nothing to gain, or cannot tell."""
        if self.proof:
            return self._proven(self.proof)
        total, most = self.found.total, format_ns(self.most_saved_s * 1e9)
        if self.native_s is None:
            return (
                f"Cannot tell: it did not end, so its {total.walks:,} page walks, {most} at most, "
                "cannot be compared with its time."
            )
        time = format_ns(self.native_s * 1e9)
        if self.most_saved_s < NOTHING * self.native_s:
            return f"Nothing to gain: {total.walks:,} page walks cost it at most {most} of {time}."
        named = self.largest()
        share = sum(self.weight(site.counts) for site in named) / max(self.weight(total), 1)
        which = " and ".join(self._short(site.id) for site in named)
        kind = "exposed" if self.weight(total) == total.exposed else "overlapping"
        where = f" Of the {kind} walks {share:.0%} are in {which}." if named else ""
        return (
            f"Huge pages may save between nothing and {most} of {time}.{where} --prove measures what "
            "they save."
        )

    def _proven(self, proof: Proof) -> str:
        every = proof.ratio(ALL)
        if proof.smallest == NONE:
            is_wide = every.low < 1 - UNSURE
            return (
                f"{'Cannot tell' if is_wide else 'Nothing to gain that shows'}: with all allocations "
                f"on huge pages it takes {every:.3f} times as long ({len(proof.rounds)} rounds)."
                + " Give it a quieter computer, or more --minutes."
                * is_wide
            )
        gain = proof.ratio(proof.smallest)
        which = " and ".join(map(self._short, proof.smallest))
        what = f"Allocation{'s' * (len(proof.smallest) > 1)} {which}"
        return (
            f"{'All allocations' if proof.smallest == ALL else what} on huge pages: {1 / gain.value:.2f}x faster ({1 / gain.high:.2f} to "
            f"{1 / gain.low:.2f}), {proof.share(proof.smallest):.0%} of what huge pages for "
            f"everything bring ({len(proof.rounds)} rounds)."
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
        yield self.verdict()
        if self.geometry:
            yield f"{self.geometry}."
        if self.found.lacking:
            yield f"Not simulated, but timed alone, so page walks are unknown. {self.found.lacking}"
        else:
            yield (
                f"{total.walks:,} page walks in {self.found.instructions:,} instructions. Exposed are "
                f"{total.chained:,} that wait for an earlier one and {total.alone:,} that stand alone; "
                f"the others overlap. With 2 MiB pages everywhere {total.large_walks:,} are left, unless "
                "a virtual machine's host splits them (`tlb geometry --pages 2m`)."
            )
        if self.times:
            yield (
                "Time is CPU time without huge pages, by samples, and what they save of it; Linux's "
                "own is mostly page faults, which huge pages change too."
            )
        elif self.proof:
            yield f"No samples, so no time of lines. {self.proof.no_samples}"
        if self.found.is_cut:
            yield "The simulation was ended before the program (--seconds), so walks are missing."
        if why := why_no_preload(self.command[0]):
            yield f"Its allocations have no names: {why}. `tlb try --lever collapse` needs none."

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "command": self.command,
            "not_simulated": self.found.lacking,
            "geometry": self.geometry and self.geometry._asdict(),
            "native_s": self.native_s,
            "instructions": self.found.instructions,
            "total": self.found.total._asdict() | {"exposed": self.found.total.exposed},
            "walk_ns": self.walk_ns,
            "saved_s": [0.0, self.most_saved_s],
            "verdict": self.verdict(),
            "lines": [
                line._asdict()
                | counts._asdict()
                | {"sites": self.found.touches[line]}
                | ({"saved_ms": self.times[line][1][:3]} if line in self.times else {})
                for line, counts in self.lines
            ],
            "sites": [vars(site) | {"counts": site.counts._asdict()} for site in self.sites],
            "proof": self.proof
            and {
                "smallest": self.proof.smallest,
                "rounds": [
                    {",".join(sites) or "none": value for sites, value in each.items()}
                    for each in self.proof.rounds
                ],
            },
        }


def _filled(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """Return a table without the columns that are empty in all rows."""
    kept = [k for k in range(len(head)) if any(row[k] for row in rows)]
    return tuple(head[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _range(value: Interval) -> str:
    return f"{value.value:z,.0f} ({value.low:z,.0f} to {value.high:z,.0f})"


def callgrind(found: Simulated) -> str:
    """Return lines in Callgrind's format, for KCachegrind (Valgrind manual, cl-format)."""
    made = ["version: 1", "creator: tlb where", "positions: line", "events: Walks Exposed L1Misses"]
    for line, counts in found.lines.items():
        made += [f"ob={line.module}", f"fl={line.file or '???'}", f"fn={line.function or '???'}"]
        made += [f"{line.line} {counts.walks} {counts.exposed} {counts.misses}"]
    return "\n".join(made) + "\n"


def collapsed(found: Simulated) -> str:
    """Return memory;function;line and exposed walks, a stack a line, for flame-graph tools."""
    return "".join(
        f"{';'.join(frame.replace(';', ',') for frame in stack)} {number}\n"
        for stack, number in found.stacks().items()
    )
