"""Report what was seen of a watched program: how much of its CPU time huge pages can gain it at
most, one line that tries it, which of its mappings is hot, and what collapsing it takes."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tlb.programs import collapse, levers
from tlb.programs.activity import ActivitySample, ProcessUsage, phase_change_windows
from tlb.programs.executable import reason_against_preload
from tlb.programs.levers import Lever
from tlb.programs.trial import MIN_RUN_PAIRS, TrialAim
from tlb.programs.walk_price import WalkPrices
from tlb.programs.watch import WatchState
from tlb.system.page_sizes import BASE_PAGES, PAGE_KINDS, page_words
from tlb.system.reasons import Unavailable
from tlb.system.units import format_ns, format_size

if TYPE_CHECKING:
    from tlb.measure.record import CounterReading
    from tlb.programs.collapse import CollapseForecast

IDLE = 0.01  # CPU time, as a part of the time that it was watched
MOSTLY = 0.5  # of its memory: from then on it is said to lie on huge pages
WORTH = 0.02  # of the CPU time: the smallest gain that `tlb try` shows by default
LEAST_SHOWN = 0.001  # of the CPU time, in a verdict
FEWEST_SAMPLES = 3  # from which the rate of page walks is taken
# A page is walked to again if other programs had the CPU meanwhile and took its entry: most windows
# of a hundredth of a second see no more than one such change.
_WALKS_A_PAGE = 2
MAPPINGS_TABLE_HEAD = (
    "mapping",
    "addresses",
    "resident",
    "on huge pages",
    "of touches on base pages",
)
_HOT_MAPPINGS = 3  # rows of the table
_RAN = 0.05  # of a window, with the CPU: on a busy computer a short one may pass without it
_HOT_SHARE = 0.9  # of what is touched: from then on one mapping is worth a trial of its own

Evidence = Literal["page walks counted", "rate of page walks", "price of far loads"]
# Clients of servers that read without changing anything, for `tlb try --driver`. as_user: words
# that start it as the server's user, whom PostgreSQL lets in by its socket.
_CLIENTS = {
    "redis-server": "redis-benchmark -p {port} -n 200000 -r 1000000 -q -t get",
    "valkey-server": "valkey-benchmark -p {port} -n 200000 -r 1000000 -q -t get",
    "postgres": "{as_user}pgbench -n -S -t 20000 -p {port} postgres",
    "nginx": "ab -q -n 20000 http://127.0.0.1:{port}/",
    "apache2": "ab -q -n 20000 http://127.0.0.1:{port}/",
}


# Options of programs whose memory is shared, so that no lever reaches it: with huge pages, without.
_OWN_SETTINGS = {"postgres": ("-c huge_pages=on", "-c huge_pages=off")}
_OWN_SETTING = Lever("own setting", "huge pages requested by the program itself")
_LONG_S = 3600.0  # a program that has run for longer is not run again for a trial
_RUNS = 2 * (MIN_RUN_PAIRS + 1)  # of the fewest pairs for a verdict, and of the rehearsal
_JVM = {"java"}
_ARGUMENTS = "ARGUMENTS"  # stands for those that a program has overwritten
_GROWING = 0.01  # of its memory while it is watched: from then on a forecast does not hold


class HugePageGainBound(NamedTuple):
    """The most that huge pages can gain a program. share: of its CPU time. evidence: what sets the
    bound. pages: base pages that it touches in window_s; walk_ns: what a walk costs then."""

    share: float
    evidence: Evidence
    pages: int
    window_s: float
    walk_ns: float


def typical(samples: Sequence[ActivitySample]) -> ActivitySample:
    """Return the sample with the median active size."""
    return sorted(samples, key=lambda sample: sample.active_bytes)[len(samples) // 2]


def duration_words(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def size_in_words(size_bytes: float) -> str:
    return format_size(int(size_bytes))


# --- the most that huge pages can gain


def far_load_share(prices: WalkPrices, pages: int, user_share: float) -> float:
    """Return the part of its CPU time that huge pages gain a program whose own instructions, a part
    user_share of the time, are far loads alone."""
    return user_share * (1 - prices.ratio(pages))


def walk_rate_share(prices: WalkPrices, samples: Sequence[ActivitySample]) -> float | None:
    """Return the part of its CPU time that a program spends on page walks at most, by the pages
    that it touches in short windows; None if they do not decide.

    If the TLB holds all pages that it touches in a window, it walks to each no more than once, and
    once more if it lost the CPU meanwhile; on each CPU that it runs on. The time that sampling
    itself has cost is left out."""
    if len(samples) < FEWEST_SAMPLES or not prices.tlb_entries:
        return None
    walked = run_s = 0.0
    cpus = os.cpu_count() or 1
    for sample in samples:
        pages = sample.base_bytes / prices.base_page_bytes
        if pages > prices.tlb_entries:
            return None
        walked += pages * min(sample.threads, cpus) * _WALKS_A_PAGE
        run_s += sample.run_s - pages * prices.retouch_ns / 1e9
    total_s = sum(sample.run_s for sample in samples)
    if run_s <= total_s / 2:  # most of the time went into sampling
        return None
    pages_most = max(sample.base_bytes for sample in samples) / prices.base_page_bytes
    return walked * prices.walk_ns(pages_most) / 1e9 / run_s


# --- the report


@dataclass(frozen=True)
class WatchReport:
    """prices: of this computer, or why there are none. counts: hardware counts of each pause, or
    the reason's code. forecast: of collapsing it; None for what was started here."""

    watched: WatchState
    prices: WalkPrices | Unavailable
    counts: Sequence[Mapping[str, CounterReading]] | str = "no-time"
    forecast: CollapseForecast | None = None

    @property
    def samples(self) -> list[ActivitySample]:
        return self.watched.samples_after_start

    @cached_property
    def largest(self) -> ActivitySample:
        """The typical sample that touches most; of equal ones, that of the shortest window."""
        samples = [typical(self.watched.of(window_s)) for window_s in self.watched.windows_s]
        return max(samples, key=lambda sample: sample.base_bytes)

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
        if not self.used.cpu_s or isinstance(self.prices, Unavailable):
            return 0.0
        fault_s = self.prices.fault_ns / 1e9 * self.used.minor_faults
        return min(fault_s, self.used.kernel_s) / self.used.cpu_s

    @property
    def is_idle(self) -> bool:
        ran_s = sum(sample.run_s for sample in self.samples)  # of processes that have ended too
        windows_s = sum(sample.window_s for sample in self.samples)
        return self.used.cpu_s <= IDLE * self.watched.after_start_s and ran_s <= IDLE * windows_s

    @property
    def is_huge(self) -> bool:
        """Whether most of its memory lies on huge pages, and what it touches may."""
        last, touched = self.watched.samples[-1], self.largest
        huge_bytes = last.resident_bytes - last.mapped[BASE_PAGES]
        pool_bytes = huge_bytes - last.mapped["thp"]  # of which no touch is seen
        is_touched = touched.huge_most + pool_bytes >= MOSTLY * (touched.active_bytes + pool_bytes)
        return huge_bytes >= MOSTLY * last.resident_bytes and is_touched

    @cached_property
    def bound(self) -> HugePageGainBound | Unavailable:
        """The most that huge pages can gain it, page faults included; or why that is unknown."""
        prices = self.prices
        if isinstance(prices, Unavailable):
            return prices
        sample = self.largest
        pages = max(sample.base_bytes // prices.base_page_bytes, 1)
        shares: dict[Evidence, float | None] = {
            "page walks counted": self.counted_share,
            "rate of page walks": self._walk_rate_share(prices),
            "price of far loads": far_load_share(prices, pages, self.user_share),
        }
        known = {evidence: share for evidence, share in shares.items() if share is not None}
        evidence = min(known, key=known.__getitem__)
        share = min(known[evidence] + self.fault_share, 1.0)
        return HugePageGainBound(share, evidence, pages, sample.window_s, prices.walk_ns(pages))

    def _walk_rate_share(self, prices: WalkPrices) -> float | None:
        """Return the least that windows of one length show; None if none decides."""
        shares = [walk_rate_share(prices, self.watched.of(window_s)) for window_s in self.windows_s]
        return min((share for share in shares if share is not None), default=None)

    @property
    def windows_s(self) -> list[float]:
        return self.watched.windows_s

    @property
    def counted_share(self) -> float | None:
        """The largest part of its cycles with a walk in progress; None where that is not counted."""
        turns = () if isinstance(self.counts, str) else self.counts
        counts = [(turn.get("walk_cycles"), turn.get("core_cycles")) for turn in turns]
        shares = [
            walks.value / cycles.value
            for walks, cycles in counts
            if walks and cycles and walks.value is not None and cycles.value
        ]
        return max(shares, default=None)

    @property
    def is_small(self) -> bool:
        """Whether the gain would not show."""
        return isinstance(self.bound, HugePageGainBound) and self.bound.share < WORTH

    # --- what to try

    @cached_property
    def lever(self) -> Lever | Unavailable | None:
        """The lever to try, or why there is none; None if nothing is worth trying."""
        if self.is_idle or (self.is_small and not self.is_huge):
            return None
        if self.watched.thp_disabled:
            return levers.thp_disabled()
        if self.is_huge:
            return levers.LEVERS["no-thp"] if self.watched.samples[-1].mapped["thp"] else None
        start = self.watched.target.start
        if self.is_tried_as_it_runs:
            if self.is_out_of_reach:
                return _OWN_SETTING if self.own_setting else _nothing_to_collapse()
            return _usable("collapse")
        if start.worker_of:
            return _a_worker(start.worker_of)
        return lever_for(start.command[0]) if start.command else None

    @property
    def is_tried_as_it_runs(self) -> bool:
        """Whether it is tried without a new start, because it serves clients or has run for long."""
        if self.watched.target.was_started:
            return False
        return bool(self.watched.ports) or self.watched.target.start.running_s > _LONG_S

    @property
    def own_setting(self) -> tuple[str, ...]:
        """Options of the program for its own huge pages and without them; () if none are known."""
        return _OWN_SETTINGS.get(self._program, ())

    @property
    def _program(self) -> str:
        """The name of its file."""
        return Path((self.watched.target.start.command or [""])[0]).name

    @property
    def is_out_of_reach(self) -> bool:
        """Whether a collapse would reach none of its memory."""
        return self.forecast is not None and not self.forecast.blocks

    @property
    def line(self) -> str:
        """The trial as a line for a shell; "" if there is none."""
        lever, target = self.lever, self.watched.target
        if not isinstance(lever, Lever):
            return ""
        start, driver = target.start, ["--driver", self.client] if self.watched.ports else []
        if lever.acts and self.is_tried_as_it_runs:
            options = ["--pid", str(target.pid), *self.only, "--driver", self.client]
            return f"tlb try {shlex.join(options)}"
        if not start.command:
            return ""
        arguments = [_ARGUMENTS] if start.has_lost_arguments else []
        command = [*start.as_user, *start.command, *arguments]
        given = ["--input", start.input_file] if start.input_file else []
        if lever is _OWN_SETTING:
            with_pages, without = ([*command, *shlex.split(each)] for each in self.own_setting)
            options = [*driver, "--versus", shlex.join(with_pages), "--", *without]
        else:
            minutes = ["--minutes", str(self.minutes)] if self.minutes else []
            options = ["--lever", lever.name, *driver, *given, *minutes, "--", *command]
        is_here = os.path.realpath(start.cwd) == os.getcwd()
        change = "" if is_here else f"cd {shlex.quote(start.cwd)} && "
        return f"{change}tlb try {shlex.join(options)}"

    @property
    def minutes(self) -> int:
        """How many minutes a verdict takes at least, because each run takes as long as it has run so
        far; 0 if those of `tlb try` do."""
        minutes = _RUNS * self.watched.target.start.running_s / 60
        return ceil(minutes) if minutes > TrialAim.minutes and not self.watched.ports else 0

    @property
    def client(self) -> str:
        """A command that uses it, if it is a server that has one here; else CLIENT."""
        port, known = min(self.watched.ports - {0}, default=0), _CLIENTS.get(self._program, "")
        program = known.removeprefix("{as_user}").split(maxsplit=1)[0] if known else ""
        as_user = "".join(f"{word} " for word in self.watched.target.start.as_user)
        is_here = port and program and shutil.which(program)
        return known.format(port=port, as_user=as_user) if is_here else "CLIENT"

    @property
    def only(self) -> list[str]:
        """Options that restrict a trial to its hot mapping, if one of several is."""
        hot = self.hot_mappings
        if len(hot) < 2 or hot[0].share < _HOT_SHARE:
            return []
        return ["--only", f"{hot[0].start:x}-{hot[0].end:x}"]

    # --- which mapping is hot

    @cached_property
    def hot_mappings(self) -> list[HotMapping]:
        """The mappings by what the shortest windows show of them in which it had the CPU."""
        windows = [self.watched.of(window_s) for window_s in self.windows_s]
        return hot_mappings(next(filter(_has_run, windows), windows[-1]))

    # --- in words and rows

    @property
    def large_size(self) -> str:
        """The size of a huge page, in words."""
        sizes = [self.prices.huge_page_bytes] if isinstance(self.prices, WalkPrices) else []
        return format_size(sizes[0] if sizes else collapse.huge_page_bytes() or 2 << 20)

    def page_rows(self) -> list[tuple[str, str]]:
        """Return rows of a table: memory by page size at the last sample, what was used, when
        samples were taken."""
        last, used = self.watched.samples[-1], self.used
        rows = [
            (self._page_words(page), format_size(size))
            for page, size in last.mapped.items()
            if size or page in (BASE_PAGES, "thp")
        ]
        touched = [
            (f"touched in {duration_words(sample.window_s)}", _touched_words(sample))
            for sample in (typical(self.watched.of(window_s)) for window_s in self.windows_s)
        ]
        return [
            *rows,
            *touched,
            ("CPU time", f"{duration_words(used.cpu_s)}, {self.user_share:.0%} of it its own"),
            ("page faults", f"{used.minor_faults + used.major_faults:,}"),
            ("samples", self._sample_words()),
        ]

    def _page_words(self, page: str) -> str:
        if page == "thp":
            return f"on transparent {self.large_size} pages"
        size = (
            page_words(page, os.sysconf("SC_PAGE_SIZE")) if page in PAGE_KINDS else f"{page} pages"
        )
        return f"on {size}"

    def _sample_words(self) -> str:
        samples, watched = self.samples, self.watched
        first, last = (duration_words(samples[n].at_s) for n in (0, -1))
        when = f"{len(samples)}, after {first}" + (f" to {last}" if len(samples) > 1 else "")
        left_out = len(watched.samples) - len(samples)
        start_up = f"; {left_out} during start-up left out" if left_out else ""
        return f"{when}{start_up}; they cost it {watched.cost:.2%} of its time"

    def mapping_rows(self) -> list[tuple[str, ...]]:
        """Return rows of a table: the hot mappings, hottest first."""
        return [
            (
                hot.name,
                f"{hot.start:x}-{hot.end:x}",
                format_size(hot.resident_bytes),
                format_size(hot.huge_bytes),
                f"{hot.share:.0%}",
            )
            for hot in self.hot_mappings[:_HOT_MAPPINGS]
        ]

    def sentences(self) -> list[str]:
        """Return the verdict, what it rests on, the forecast, and the line to try."""
        found = [self.verdict, *self._details(), *self._forecast_words()]
        if line := self.line:
            if self.watched.target.start.has_lost_arguments and _ARGUMENTS in line:
                lost = f"It has overwritten its arguments: put them in place of {_ARGUMENTS}."
                found.append(lost)
            found += [f"{self._trial_words}:", line]
        elif isinstance(self.lever, Unavailable):
            found.append(str(self.lever))
        return found

    @property
    def verdict(self) -> str:
        if why := self.why_unknown:
            return f"Cannot tell, because {why}"
        if self.is_huge:
            last = self.watched.samples[-1]
            huge = size_in_words(last.resident_bytes - last.mapped[BASE_PAGES])
            whole = size_in_words(last.resident_bytes)
            return f"Nothing to gain: {huge} of its {whole} are on huge pages already."
        bound = self.bound
        assert isinstance(bound, HugePageGainBound)  # else why_unknown says why not
        if self.is_small:
            most = f"at most {bound.share:.1%}" if bound.share >= LEAST_SHOWN else "less than 0.1%"
            return f"Nothing to gain: huge pages save it {most} of its CPU time."
        return f"Huge pages save it up to {bound.share:.0%} of its CPU time."

    @property
    def why_unknown(self) -> str:
        """Why there is no verdict, as the end of a sentence; "" if there is one."""
        if self.is_idle:
            cpu, time = duration_words(self.used.cpu_s), duration_words(self.watched.after_start_s)
            return f"it was idle: {cpu} of CPU time in {time}. Watch it at work."
        if isinstance(self.bound, Unavailable) and not self.is_huge:
            return f"the price of a page walk is unknown. {self.bound}"
        return ""

    def _details(self) -> list[str]:
        bound, found = self.bound, list[str]()
        if isinstance(bound, HugePageGainBound) and not self.is_idle and not self.is_huge:
            found.append(_bound_words(bound, self))
            if self.fault_share >= WORTH:
                found.append(f"Page faults take at most {self.fault_share:.0%} of it.")
        if windows := phase_change_windows(self.samples):
            short, long = map(duration_words, windows)
            found.append(f"It touched less in {long} than in {short}: it has phases; watch longer.")
        if len(self.samples) == 1:
            seconds = ceil(FEWEST_SAMPLES * self.watched.due_s)
            found.append(f"This is one sample: for {FEWEST_SAMPLES}, take --seconds {seconds}.")
        if throttled := self.watched.throttled:
            found.append(f"Its cgroup's CPU quota was used up {throttled:,} times meanwhile.")
        if self.watched.has_ended:
            status = self.watched.target.status()
            code = "" if status is None else f", with exit code {status}"
            found.append(f"It ended meanwhile{code}.")
        return found

    def _forecast_words(self) -> list[str]:
        made, lever = self.forecast, self.lever
        if not isinstance(made, collapse.CollapseForecast) or not isinstance(lever, Lever):
            return []
        if self.is_huge or not made.blocks:
            return []
        return [forecast_words(made, self.prices), *self._growth_words()]

    def _growth_words(self) -> list[str]:
        """Return that its memory grows by itself, as a sentence; nothing if it does not."""
        first, last = self.samples[0], self.samples[-1]
        grown_bytes = last.resident_bytes - first.resident_bytes
        if grown_bytes <= _GROWING * last.resident_bytes:
            return []
        time = duration_words(last.at_s - first.at_s)
        return [f"It grew by {size_in_words(grown_bytes)} by itself in {time}, and may go on."]

    @property
    def _trial_words(self) -> str:
        if self.is_huge:
            return "To see what they are worth, run it without"
        start, is_client = self.watched.target.start, "CLIENT" in self.line
        if self.lever is _OWN_SETTING:
            size_mib = ceil(max(hot.end - hot.start for hot in self.hot_mappings[:1]) / (1 << 20))
            return (
                "Huge pages for its shared memory are its own setting, and take a pool: reserve it by "
                f"`tlb pool reserve --pages 2m --size {size_mib}MiB`. Stop the server, because a "
                "second one cannot have its folder and port, and try it"
            )
        if self.watched.ports:
            return f"Try it{' (a command that uses it in place of CLIENT)' if is_client else ''}"
        if self.is_tried_as_it_runs:
            client = "a command that waits for a fixed amount of its work"
            return f"Try it as it runs ({client} in place of CLIENT)"
        if self.minutes:
            ran = duration_words(start.running_s)
            return f"It has run for {ran}, and a trial runs it {_RUNS} times; with less work it takes less time. Try it"
        return "Try it"


def _bound_words(bound: HugePageGainBound, report: WatchReport) -> str:
    touched = size_in_words(bound.pages * os.sysconf("SC_PAGE_SIZE"))
    window, walk = duration_words(bound.window_s), f"{bound.walk_ns:.0f} ns"
    if bound.evidence == "rate of page walks":
        short = duration_words(min(report.windows_s))
        return (
            f"The TLB holds what it touches in {short}, so it makes few page walks ({walk} each)."
        )
    if bound.evidence == "page walks counted":
        return "That is the part of its cycles with a page walk in progress."
    return (
        f"It touches {touched} of base pages in {window}; over so much a page walk costs {walk}. "
        "The bound is that of a program of such loads alone."
    )


def _touched_words(sample: ActivitySample) -> str:
    low, high = sample.huge_least, sample.huge_most
    huge = size_in_words(high) if low == high else f"{size_in_words(low)} to {size_in_words(high)}"
    return size_in_words(sample.active_bytes) + (f", {huge} of it on huge pages" if high else "")


def forecast_words(made: CollapseForecast, prices: WalkPrices | Unavailable) -> str:
    """Return what a collapse takes, as a sentence or two."""
    each_s = prices.collapse_s if isinstance(prices, WalkPrices) else 0.0
    time = f" in about {duration_words(made.blocks * each_s)}" if each_s else ""
    memory = f"its resident memory grows by {size_in_words(made.growth_bytes)}"
    text = f"Collapsing it makes {made.blocks:,} huge pages{time}; {memory}."
    if made.growth_bytes > made.available_bytes:
        available = size_in_words(made.available_bytes)
        return f"{text} Linux has only {available} for that."
    if not made.fits_now:
        moved = "Linux has to move other pages first, and may fail"
        return f"{text} Only {made.free_blocks:,} free blocks are so large: {moved}."
    return text


def _has_run(samples: Sequence[ActivitySample]) -> bool:
    """Whether a program had the CPU for a part of these windows that shows what it touches."""
    windows_s = sum(sample.window_s for sample in samples)
    return sum(sample.run_s for sample in samples) >= _RAN * windows_s


class HotMapping(NamedTuple):
    """A mapping with its part of the base pages that a program touches in short windows."""

    pid: int
    start: int
    end: int
    name: str
    resident_bytes: int
    huge_bytes: int
    share: float


def hot_mappings(samples: Sequence[ActivitySample]) -> list[HotMapping]:
    """Return the mappings by their part of the base pages touched, the hottest first. A window has
    to be short: in a long one a cold mapping is touched whole as well.

    A mapping that grows stays the same one by its start."""
    touched, last = dict[tuple[int, int], int](), {}
    for sample in samples:
        for mapping in sample.hottest:
            key = mapping.pid, mapping.start
            touched[key] = touched.get(key, 0) + mapping.touched_bytes
            last[key] = mapping
    total = sum(sample.base_bytes for sample in samples) or 1
    found = [
        HotMapping(
            *last[key][:3],
            last[key].name or "anonymous",
            last[key].resident_bytes,
            last[key].huge_bytes,
            size_bytes / total,
        )
        for key, size_bytes in touched.items()
    ]
    return sorted(found, key=lambda hot: hot.share, reverse=True)


def _nothing_to_collapse() -> Unavailable:
    return Unavailable(
        "program-unfit",
        "a collapse reaches none of its memory, which is shared or of files",
        "Use its own setting for huge pages, such as huge_pages=on of PostgreSQL, or start it with "
        "`tlb try -- COMMAND`.",
    )


def _a_worker(pid: int) -> Unavailable:
    return Unavailable(
        "program-unfit",
        f"it is a worker that process {pid} of the same program has started",
        f"Watch that process, with all its workers: `tlb watch {pid}`.",
    )


@cache
def _usable(name: str) -> Lever | Unavailable:
    """Return a lever, or why it cannot be used here; it is found out once."""
    return _value(lambda: levers.lever_by_name(name))


def lever_for(program: str) -> Lever | Unavailable:
    """Return the lever that reaches a program: advise if a library can be preloaded, else collapse;
    or why that cannot be used here. A JVM has a setting of its own, which takes less memory."""
    if Path(program).name in _JVM:
        return _usable("jvm")
    advise = _usable("advise")
    is_reached = isinstance(advise, Lever) and not reason_against_preload(program)
    return advise if is_reached else _usable("collapse")


def _value(make: Callable[[], Any]) -> Any:
    """Return a value, or why there is none, as an Unavailable."""
    try:
        return make()
    except Unavailable as why:
        return why


# --- as JSON


def watch_document(report: WatchReport) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, prices in ns. What is missing has its
    reason."""
    watched, last = report.watched, report.watched.samples[-1]
    counts = report.counts
    return {
        "pid": watched.target.pid,
        "command": watched.target.start.command,
        "verdict": report.verdict,
        "bound": _or_reason(report.bound),
        "line": report.line or None,
        "lever": report.lever.name if isinstance(report.lever, Lever) else None,
        "elapsed_s": watched.elapsed_s,
        "sampling_s": watched.sampling_s,
        "overhead": watched.cost,
        "overhead_allowed": watched.overhead,
        "within_overhead": watched.within_overhead,
        "ended": watched.has_ended,
        "exit_code": watched.target.status() if watched.has_ended else None,
        "throttled": watched.throttled,
        "thp_disabled": watched.thp_disabled,
        "ports": sorted(watched.ports),
        "mapped": last.mapped,
        "table_bytes": last.table_bytes,
        "used": watched.used._asdict(),
        "user_share": report.user_share,
        "fault_share": report.fault_share,
        "start_up_samples": len(watched.samples) - len(report.samples),
        "windows": [_window(watched.of(window_s)) for window_s in watched.windows_s],
        "hot_mappings": [hot._asdict() for hot in report.hot_mappings],
        "forecast": _or_reason(report.forecast),
        "prices": _or_reason(report.prices),
        "counts": {"reason": counts} if isinstance(counts, str) else [*map(_quantities, counts)],
    }


def _window(samples: Sequence[ActivitySample]) -> dict[str, Any]:
    middle = typical(samples)
    return {
        "window_s": middle.window_s,
        "at_s": [sample.at_s for sample in samples],
        "active_bytes": [sample.active_bytes for sample in samples],
        "huge_least_bytes": middle.huge_least,
        "huge_most_bytes": middle.huge_most,
        "sample_s": max(sample.took_s for sample in samples),
    }


def _quantities(turn: Mapping[str, CounterReading]) -> dict[str, Any]:
    return {
        name: quantity.value if quantity.reason is None else {"reason": quantity.reason}
        for name, quantity in turn.items()
    }


def _or_reason(value: Any) -> Any:
    """Return a named tuple or nothing as JSON has it, or the reason's code."""
    if isinstance(value, Unavailable):
        return {"reason": value.code}
    return value if value is None else value._asdict()
