"""What `tlb where` says of a program: tables of lines and allocations, a verdict, and the same for
other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from tlb.programs.where.proof import ALL, NONE, Proof
from tlb.programs.where.simulation import HEAP, Counts, Line, Simulated, Site, resolved
from tlb.units import format_ns, format_size

MOST_ROWS = 12
# Of the time, what translation may cost at most for it to be not worth a thought.
NOTHING = 0.02
MOST = 0.9  # of the walks
LEAST = 0.005  # of the walks, for a row of its own
LINES = ("line", "exposed walks", "all walks", "memory")
SITES = ("site", "exposed walks", "all walks", "left with 2 MiB", "size", "allocated by")


@dataclass(frozen=True)
class Report:
    """walk_ns: the most that a walk costs here, one that overlaps with nothing. native_s: of a run
    without simulation."""

    command: list[str]
    found: Simulated
    native_s: float
    walk_ns: float
    proof: Proof | None = None

    @property
    def lines(self) -> list[tuple[Line, Counts]]:
        """Lines with walks, those with the most exposed ones first."""
        made = [(line, counts) for line, counts in self.found.lines.items() if counts.walks]
        return sorted(made, key=lambda each: (-each[1].exposed, -each[1].walks))

    @property
    def sites(self) -> list[Site]:
        """Named sites with walks, those with the most exposed ones first."""
        made = [site for site in self.found.sites.values() if site.is_named and site.counts.walks]
        return sorted(made, key=lambda site: (-site.counts.exposed, -site.counts.walks))

    @property
    def most_saved_s(self) -> float:
        """What huge pages may save at most, of the time without them: all walks, each at the price
        of one that overlaps with nothing."""
        return min(self.found.total.walks * self.walk_ns / 1e9, self.native_s)

    def largest(self) -> list[Site]:
        """Return the fewest sites that make up most of the exposed walks."""
        made, exposed = list[Site](), 0
        for site in self.sites:
            if exposed >= MOST * self.found.total.exposed:
                break
            made.append(site)
            exposed += site.counts.exposed
        return made

    def line_rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield rows under LINES."""
        least = LEAST * self.found.total.walks
        for line, counts in [each for each in self.lines if each[1].walks > least][:MOST_ROWS]:
            place = f"{line.file}:{line.line}" if line.line else line.module.rpartition("/")[2]
            sites = [self._short(site) for site, _ in self.found.touches[line].most_common(2)]
            yield f"{line.function or '?'} ({place})", *self._walks(counts), ", ".join(sites)

    def site_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield rows under SITES."""
        least = LEAST * self.found.total.walks
        for site in [each for each in self.sites if each.counts.walks > least][:MOST_ROWS]:
            left = f"{site.counts.large_walks / max(site.counts.walks, 1):.0%}"
            size = format_size(site.bytes) + (f" in {site.number}" if site.number > 1 else "")
            yield self._short(site.id), *self._walks(site.counts), left, size, self.origin(site)

    def origin(self, site: Site) -> str:
        if site.id == HEAP:
            return "small objects on the heap"
        return f"{site.how} in {' < '.join(resolved(site.stack[:3]))}"

    def _walks(self, counts: Counts) -> tuple[str, str]:
        total = self.found.total
        exposed = counts.exposed / max(total.exposed, 1)
        return f"{counts.exposed:,} ({exposed:.0%})", f"{counts.walks:,}"

    def _short(self, site: str) -> str:
        """Return a site's letter: A has the most exposed walks."""
        order = [each.id for each in self.sites]
        if site not in order:
            return "other memory"
        number = order.index(site)
        return chr(ord("A") + number) if number < 26 else site[:8]

    def verdict(self) -> str:
        """Return one sentence: what to put on huge pages, nothing to gain, or cannot tell."""
        total = self.found.total
        if self.proof:
            return self._proven(self.proof)
        if self.most_saved_s < NOTHING * self.native_s:
            return (
                f"Nothing to gain: {total.walks:,} page walks cost it at most "
                f"{format_ns(self.most_saved_s * 1e9)} of {format_ns(self.native_s * 1e9)}."
            )
        named = self.largest()
        share = sum(site.counts.exposed for site in named) / max(total.exposed, 1)
        which = " and ".join(self._short(site.id) for site in named) or "no allocation"
        return (
            f"Huge pages may save between nothing and {format_ns(self.most_saved_s * 1e9)} of "
            f"{format_ns(self.native_s * 1e9)}. {which}: {share:.0%} of the walks that nothing "
            "hides. --prove measures what they gain."
        )

    def _proven(self, proof: Proof) -> str:
        every = proof.ratio(ALL)
        if proof.smallest == NONE:
            return (
                f"Nothing to gain that shows: with all allocations on huge pages it takes {every:.3f} "
                f"times as long ({len(proof.rounds)} rounds)."
            )
        gain = proof.ratio(proof.smallest)
        which = " and ".join(map(self._short, proof.smallest))
        what = "All of its memory" if proof.smallest == ALL else f"Allocation {which}"
        return (
            f"{what} on huge pages: {1 / gain.value:.2f}x faster ({1 / gain.high:.2f} to "
            f"{1 / gain.low:.2f}), {proof.share(proof.smallest):.0%} of what huge pages for "
            f"everything bring ({len(proof.rounds)} rounds)."
        )

    def proof_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield rows: allocations on huge pages, median time, ratio to none."""
        assert self.proof
        for sites in self.proof.tried:
            name = " and ".join(map(self._short, sites))
            name = {NONE: "none", ALL: "all"}.get(sites, name)
            ratio = "" if sites == NONE else f"{self.proof.ratio(sites):.3f}"
            value = median(seconds for (seconds,) in self.proof.seconds(sites))
            yield name, format_ns(value * 1e9), ratio

    def commands(self) -> Iterator[str]:
        """Yield what to run or to write next."""
        chosen = self.proof.smallest if self.proof else tuple(site.id for site in self.largest())
        if not chosen or self.verdict().startswith("Nothing"):
            return
        if chosen != ALL:
            yield f"tlb try --only {','.join(chosen)} -- {' '.join(self.command)}"
        for site in (s for s in self.sites if s.id in chosen and s.id != HEAP):
            yield f"in {self.origin(site)}: madvise(p, bytes, MADV_HUGEPAGE) after the allocation"
        if HEAP in chosen:
            yield f"GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {' '.join(self.command)}"

    def sentences(self) -> Iterator[str]:
        """Yield the verdict, then what qualifies it."""
        total = self.found.total
        yield self.verdict()
        yield (
            f"{total.walks:,} page walks in {self.found.instructions:,} instructions: "
            f"{total.chained:,} wait for an earlier one, {total.alone:,} stand alone, the others "
            f"overlap. With 2 MiB pages everywhere {total.large_walks:,} are left, if the TLB holds "
            "them whole: a virtual machine's host may prevent that (`tlb geometry --pages 2m`)."
        )
        if self.found.is_full:
            yield "A table of the simulation was full, so some walks are counted at other lines."

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "command": self.command,
            "native_s": self.native_s,
            "instructions": self.found.instructions,
            "total": self.found.total._asdict() | {"exposed": self.found.total.exposed},
            "walk_ns": self.walk_ns,
            "saved_s": [0.0, self.most_saved_s],
            "verdict": self.verdict(),
            "lines": [
                {**line._asdict(), **counts._asdict(), "sites": dict(self.found.touches[line])}
                for line, counts in self.lines
            ],
            "sites": [
                {
                    "site": site.id,
                    "how": site.how,
                    "stack": site.stack,
                    "bytes": site.bytes,
                    "regions": site.number,
                    "lifetime": site.lifetime,
                    **site.counts._asdict(),
                }
                for site in self.sites
            ],
            "proof": self.proof
            and {
                "smallest": self.proof.smallest,
                "rounds": [
                    {",".join(sites) or "none": value for sites, value in each.items()}
                    for each in self.proof.rounds
                ],
            },
        }


def callgrind(found: Simulated) -> str:
    """Return lines in Callgrind's format, for KCachegrind (Valgrind manual, cl-format)."""
    made = ["version: 1", "creator: tlb where", "positions: line", "events: Walks Exposed L1Misses"]
    for line, counts in found.lines.items():
        made += [f"ob={line.module}", f"fl={line.file or '???'}", f"fn={line.function or '???'}"]
        made += [f"{line.line} {counts.walks} {counts.exposed} {counts.misses}"]
    return "\n".join(made) + "\n"


def collapsed(found: Simulated) -> str:
    """Return site;function;line and exposed walks, a stack a line, for flame-graph tools."""
    stacks = Counter[str]()
    for line, touched in found.touches.items():
        counts = found.lines[line]
        for site, walks in touched.items():
            frames = resolved(found.sites[site].stack[:1]) if site in found.sites else []
            memory = frames[0] if frames else "heap" if site == HEAP else "other memory"
            place = f"{line.file}:{line.line}" if line.line else line.module.rpartition("/")[2]
            name = f"{memory.replace(';', ',')};{line.function or '?'};{place}"
            stacks[name] += round(walks * counts.exposed / max(counts.walks, 1))
    return "".join(f"{name} {number}\n" for name, number in stacks.items() if number)
