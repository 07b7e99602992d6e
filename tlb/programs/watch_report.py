"""Report what was seen of a watched program, in tables, sentences and JSON: its pages, which TLB
level covers them, what translation can cost it at most, and what to try."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tlb.measure.record import Quantity
from tlb.programs import levers
from tlb.programs.activity import ActivitySample, ProcessUsage, contradicting_windows
from tlb.programs.executable import why_no_preload
from tlb.programs.levers import Lever
from tlb.programs.program_bounds import Gain
from tlb.programs.reach import TlbReach
from tlb.programs.text import sentences
from tlb.programs.watch import WatchState
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE, PAGES, page_words
from tlb.system.reasons import Unavailable, if_available
from tlb.system.units import format_ns, format_size

IDLE = 0.01  # CPU time, as a part of the time that it was watched
MOSTLY = 0.5  # of its memory: from then on it is said to lie on huge pages
WORTH = 0.02  # of the time: the smallest gain that `tlb try` shows by default


def typical(samples: Sequence[ActivitySample]) -> ActivitySample:
    """Return the sample with the median active size."""
    return sorted(samples, key=lambda sample: sample.active_bytes)[len(samples) // 2]


def active(samples: Sequence[ActivitySample]) -> Interval:
    """Return the median active size of samples in bytes."""
    return median_interval([sample.active_bytes for sample in samples])


def duration_words(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def size_range(low: float, high: float) -> str:
    ends = [format_size(int(low)), format_size(int(high))]
    return ends[0] if low == high else " to ".join(ends)


@dataclass(frozen=True)
class WatchReport:
    """counts: hardware counts of each pause, or the reason's code. loads: sampled loads by the
    bytes of the page that they read, or the reason's code."""

    watched: WatchState
    reach: TlbReach
    counts: Sequence[Mapping[str, Quantity]] | str = "no-time"
    loads: Mapping[int, int] | str = "no-time"

    @cached_property
    def largest(self) -> ActivitySample:
        """The typical sample that touches most; of equal ones, that of the shortest window."""
        samples = [typical(self.watched.of(window_s)) for window_s in self.watched.windows_s]
        return max(samples, key=lambda sample: sample.active_bytes)

    @property
    def used(self) -> ProcessUsage:
        """What it has used since it had started up."""
        return self.watched.used_after_start

    @property
    def user_share(self) -> float:
        """The part of its CPU time that its own instructions take."""
        return self.used.user_s / self.used.cpu_s if self.used.cpu_s else 1.0

    @property
    def fault_share(self) -> float:
        """The part of its CPU time that page faults can take at most: no more than Linux takes."""
        if not self.used.cpu_s:
            return 0.0
        fault_s = self.reach.fault_s * self.used.minor_faults
        return min(fault_s, self.used.kernel_s) / self.used.cpu_s

    @property
    def is_idle(self) -> bool:
        return self.used.cpu_s <= IDLE * self.watched.after_start_s

    @property
    def is_huge(self) -> bool:
        """Whether most of its memory lies on huge pages, and what it touches may."""
        last, touched = self.watched.samples[-1], self.largest
        huge_bytes = last.resident_bytes - last.mapped[BASE]
        pool_bytes = huge_bytes - last.mapped["thp"]  # of which no touch is seen
        is_touched = touched.huge_most + pool_bytes >= MOSTLY * (touched.active_bytes + pool_bytes)
        return huge_bytes >= MOSTLY * last.resident_bytes and is_touched

    @cached_property
    def contradiction(self) -> tuple[float, float] | None:
        """Two windows in s, of which the longer touched far less."""
        return contradicting_windows(self.watched.samples_after_start)

    @property
    def large_size(self) -> str:
        """The size of a transparent huge page, in words."""
        return format_size(self.reach.large_page_bytes)

    def page_words(self, page: str) -> str:
        """Return a page size as a sentence calls it, on this computer."""
        if page == "thp":
            return f"transparent {self.large_size} pages"
        base = self.reach.base_page_bytes
        return page_words(page, base) if page in PAGES else f"{page} pages of the pool"

    def gain(self) -> Gain:
        """Return the most that huge pages can gain it. Raises Unavailable as `Reach.gain` does."""
        return self.reach.gain(self.largest, self.user_share, self.fault_share)

    def page_rows(self) -> list[tuple[str, str]]:
        """Return rows of a table: memory by page size at the last sample, and what was used."""
        last, used = self.watched.samples[-1], self.watched.used
        rows = list[tuple[str, str]]()
        for page, size in last.mapped.items():
            if size or page in (BASE, "thp"):
                rows.append((self.page_words(page), format_size(size)))
            if page == BASE:
                for folio, part in self.folio_bytes().items():
                    folio_size = format_size(PAGES[folio].size_bytes or 0)
                    rows.append(
                        (f"of these in folios of {folio_size}", f"about {format_size(part)}")
                    )
        faults = used.minor_faults + used.major_faults
        return [
            *rows,
            ("page tables", format_size(last.table_bytes)),
            ("mappings", f"{last.mappings:,}"),
            ("page faults", f"{faults:,}, of which {used.major_faults:,} read a disk"),
            (
                "CPU time",
                f"{duration_words(used.user_s)}, and {duration_words(used.kernel_s)} in the kernel",
            ),
        ]

    def folio_bytes(self) -> dict[str, int]:
        """Return the estimated bytes of base pages in folios larger than one."""
        shares, last = self.watched.folios, self.watched.samples[-1]
        if isinstance(shares, Unavailable):
            return {}
        return {
            page: int(part * last.mapped[BASE]) for page, part in shares.items() if page != BASE
        }

    def window_row(self, window_s: float) -> tuple[str, ...]:
        """Return a table's row: window, active size, of it on huge pages, the TLB level that covers
        it, samples, the longest time that a sample took."""
        samples = self.watched.of(window_s)
        middle, size = typical(samples), active(samples)
        bounds = f" ({size_range(size.low, size.high)})" if size.low < size.high else ""
        return (
            duration_words(window_s),
            f"{format_size(int(size.value))}{bounds}",
            size_range(middle.huge_least, middle.huge_most),
            if_available(self.reach.tread, middle) or "unknown",
            str(len(samples)),
            duration_words(max(sample.took_s for sample in samples)),
        )

    def window_rows(self) -> list[tuple[str, ...]]:
        return [self.window_row(window_s) for window_s in self.watched.windows_s]

    def sentences(self) -> list[str]:
        """Return what was found, what cannot be seen, and what to try."""
        found = sentences("watch", report=self, watched=self.watched, reach=self.reach, worth=WORTH)
        return [*found, line] if (line := self.line) else found

    @cached_property
    def gain_or_reason(self) -> Gain | Unavailable:
        return _value(self.gain)

    @property
    def level(self) -> str | Unavailable:
        """The TLB level that covers the largest sample, or why it is unknown."""
        return _value(lambda: self.reach.tread(self.largest))

    @property
    def beyond_s(self) -> float | None:
        """The shortest window in which it touches more than the TLB covers."""
        for window_s in self.watched.windows_s:
            if if_available(self.reach.tread, typical(self.watched.of(window_s))) == "beyond":
                return window_s
        return None

    @property
    def turns(self) -> Sequence[Mapping[str, Quantity]]:
        """The counts of each pause; none if nothing was counted."""
        return () if isinstance(self.counts, str) else self.counts

    def uncounted(self) -> dict[str, str]:
        """Return the reason's code for quantities of page walks that were never counted."""
        return {
            name: quantity.reason
            for turn in self.turns
            for name, quantity in turn.items()
            if name in ("walk", "walk_cycles")
            if quantity.reason and not self.rate(name, "instructions")
        }

    def rate(self, part: str, whole: str) -> Interval | None:
        """Return one count over another, over the turns with both; None without any."""
        turns = [turn for turn in self.turns if {part, whole} <= {*turn}]
        both = [(turn[part].value, turn[whole].value) for turn in turns]
        shares = [a / b for a, b in both if a is not None and b]
        return median_interval(shares) if shares else None

    @property
    def folio(self) -> str | None:
        """The most frequent folio size above the base page, a key of PAGES."""
        sizes = self.folio_bytes()
        return max(sizes, key=sizes.__getitem__, default=None)

    def far_price(self, page: str) -> Interval | Unavailable:
        """Return what a far load pays on pages of a size, over as much as it touches."""
        pages = max(self.largest.active_bytes // self.reach.base_page_bytes, 1)
        return _value(lambda: self.reach.far_price(page, pages))

    @property
    def command(self) -> list[str]:
        return self.watched.target.command

    @property
    def lever(self) -> Lever | Unavailable | None:
        """The lever to try, or why there is none; None if nothing is worth trying."""
        if self.is_idle or (self.is_small and not self.is_huge):
            return None
        if self.watched.thp_disabled:
            return levers.thp_disabled()
        if self.is_huge:
            return levers.LEVERS["no-thp"] if self.watched.samples[-1].mapped["thp"] else None
        if self.is_served_as_it_runs:
            return _value(lambda: levers.lever("collapse"))
        return _value(lambda: lever_for(self.command[0])) if self.command else None

    @property
    def is_served_as_it_runs(self) -> bool:
        """Whether it is a server that ran before, so that a driver can be timed against it."""
        return self.watched.listens and not self.watched.target.was_started

    @property
    def line(self) -> str:
        """The trial as a line for a shell; "" if there is none."""
        lever, target = self.lever, self.watched.target
        if not isinstance(lever, Lever):
            return ""
        driver = ["--driver", "CLIENT"] if self.watched.listens else []
        if lever.acts and self.is_served_as_it_runs:
            return try_line(lever.name, ["--pid", str(target.pid), *driver])
        if not self.command:
            return ""
        return try_line(lever.name, [*driver, "--", *self.command], target.cwd)

    @property
    def is_inside(self) -> bool:
        """Whether the TLB covers what it touches and it takes few page faults: then no huge page
        saves a walk."""
        return self.level in ("first level", "second level") and self.fault_share < WORTH

    @property
    def is_small(self) -> bool:
        """Whether the gain would not show."""
        gain = self.gain_or_reason
        return self.is_inside or (isinstance(gain, Gain) and gain.ratio.low > 1 - WORTH)


def lever_for(program: str) -> Lever:
    """Return the lever that reaches a program: advise if a library can be preloaded, else collapse.
    Raises Unavailable as the levers' checks do."""
    advise = if_available(levers.lever, "advise", [])
    return levers.lever("collapse") if why_no_preload(program) or not advise else advise


def try_line(lever: str, words: Sequence[str], cwd: str = ".") -> str:
    """Return a trial as a line for a shell, which starts it in a folder."""
    is_here = os.path.realpath(cwd) == os.getcwd()
    change = "" if is_here else f"cd {shlex.quote(cwd)} && "
    return f"{change}tlb try --lever {lever} {shlex.join(words)}"


def _value(make: Callable[[], Any]) -> Any:
    """Return a value, or why there is none, as an Unavailable."""
    try:
        return make()
    except Unavailable as why:
        return why


# --- what was seen, as JSON


def watch_document(report: WatchReport) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, prices in ns a far load. A number that
    is missing has its reason."""
    watched, reach, last = report.watched, report.reach, report.watched.samples[-1]
    shares, counts, loads = watched.folios, report.counts, report.loads
    return {
        "pid": watched.target.pid,
        "command": watched.target.command,
        "elapsed_s": watched.elapsed_s,
        "look_s": watched.sampling_s,
        "overhead": watched.cost,
        "overhead_allowed": watched.overhead,
        "within_overhead": watched.within_overhead,
        "ended": watched.has_ended,
        "exit_code": watched.target.status() if watched.has_ended else None,
        "throttled": watched.throttled,
        "thp_disabled": watched.thp_disabled,
        "mapped": last.mapped,
        "table_bytes": last.table_bytes,
        "used": watched.used._asdict(),
        "samples_left_out": len(watched.samples) - len(watched.samples_after_start),
        "active": [_window(report, window_s) for window_s in watched.windows_s],
        "folios": {"reason": shares.code} if isinstance(shares, Unavailable) else shares,
        "not_seen": {page: "linux-lacks" for page in last.mapped if page not in (BASE, "thp")},
        "entries": reach.entries,
        "entries_source": reach.source,
        "splintered": reach.is_splintered,
        "gain": _or_reason(report.gain),
        "user_share": report.user_share,
        "fault_share": report.fault_share,
        "advice": report.line or None,
        "counts": {"reason": counts} if isinstance(counts, str) else [*map(_quantities, counts)],
        "loads_by_page_bytes": {"reason": loads} if isinstance(loads, str) else dict(loads),
        "sentences": report.sentences(),
    }


def _window(report: WatchReport, window_s: float) -> dict[str, Any]:
    samples = report.watched.of(window_s)
    middle = typical(samples)
    return {
        "window_s": window_s,
        "at_s": [sample.at_s for sample in samples],
        **active(samples).as_dict(),
        "large_least": middle.huge_least,
        "large_most": middle.huge_most,
        "tread": _or_reason(lambda: report.reach.tread(middle)),
        "looks": len(samples),
        "look_s": max(sample.took_s for sample in samples),
    }


def _quantities(turn: Mapping[str, Quantity]) -> dict[str, Any]:
    return {
        name: quantity.value if quantity.reason is None else {"reason": quantity.reason}
        for name, quantity in turn.items()
    }


def _or_reason(make: Callable[[], Any]) -> Any:
    """Return a value as JSON has it, or its reason."""
    try:
        value = make()
    except Unavailable as why:
        return {"reason": why.code}
    if not hasattr(value, "_asdict"):
        return value
    parts = value._asdict().items()
    return {name: part.as_dict() if isinstance(part, Interval) else part for name, part in parts}
