"""What was seen of a program that was watched, for a person and for a program: its pages, its
tread, what it can pay and gain at most, what cannot be seen, and what to try."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tlb.inference.intervals import Interval, median_interval
from tlb.inference.treads import Gain, Tread
from tlb.lab.record import Quantity
from tlb.page_sizes import BASE, PAGES, words
from tlb.programs import levers
from tlb.programs.active import Sight
from tlb.programs.executable import unreached
from tlb.programs.reach import Reach
from tlb.programs.watch import Watched
from tlb.prose import listed
from tlb.reasons import Unavailable, explain, if_available
from tlb.units import format_ns, format_size

IDLE = 0.01  # of the time that it was watched: CPU time
WORTH = 0.02  # of the time: what `tlb try` tells from none by default
Counts = Sequence[Mapping[str, Quantity]]
# Of what is counted: the quantity, what it is divided by, how often, and in which words.
_RATES = (
    ("walk", "instructions", 1000, "walks in a thousand instructions"),
    ("itlb_walk", "instructions", 1000, "walks for code in as many"),
    ("walk_cycles", "instructions", 1000, "cycles with a walk in progress in as many"),
    ("walk_cycles", "core_cycles", 100, "per cent of its cycles with one"),
)


def typical(sights: Sequence[Sight]) -> Sight:
    """Of several looks through one window that in the middle."""
    return sorted(sights, key=lambda sight: sight.active_bytes)[len(sights) // 2]


def active(sights: Sequence[Sight]) -> Interval:
    """What was touched in a window, bytes: the median over its looks."""
    return median_interval([sight.active_bytes for sight in sights])


def duration(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def pages_rows(watched: Watched) -> list[tuple[str, str]]:
    """What it has mapped at the last look, by page size, and what that took."""
    last = watched.sights[-1]
    named = [
        (_name(page), format_size(size))
        for page, size in last.mapped.items()
        if size or page in (BASE, "thp")
    ]
    named[1:1] = [
        (
            f"of these in folios of {format_size(PAGES[page].size_bytes or 0)}",
            f"about {format_size(size)}",
        )
        for page, size in between(watched).items()
    ]
    used = watched.used
    return [
        *named,
        ("page tables", format_size(last.table_bytes)),
        ("mappings", f"{last.mappings:,}"),
        (
            "faults meanwhile",
            f"{used.minor_faults + used.major_faults:,}, {used.major_faults:,} of them waited for a disk",
        ),
        (
            "CPU time meanwhile",
            f"{duration(used.user_s)}, and {duration(used.kernel_s)} in the kernel",
        ),
    ]


def between(watched: Watched) -> dict[str, int]:
    """Bytes of its base pages in folios between the base page and the large one, by size, as far as
    the pages drawn tell."""
    drawn = {} if isinstance(watched.folios, Unavailable) else watched.folios
    return {
        page: int(share * watched.sights[-1].mapped[BASE])
        for page, share in drawn.items()
        if page != BASE
    }


def _name(page: str) -> str:
    return words(page) if page in PAGES else f"{page} pages of the pool"


def window_rows(watched: Watched, reach: Reach) -> list[tuple[str, ...]]:
    """A row a window: its length, what is touched in it, of it on 2 MiB pages, the TLB level that
    covers it, looks, the longest look."""
    rows = []
    for window_s in watched.windows_s:
        sights = watched.of(window_s)
        middle, size = typical(sights), active(sights)
        large = (
            format_size(middle.large_most)
            if middle.large_least == middle.large_most
            else (f"{format_size(middle.large_least)} to {format_size(middle.large_most)}")
        )
        bounds = (
            f" ({format_size(int(size.low))} to {format_size(int(size.high))})"
            if size.low < size.high
            else ""
        )
        rows.append(
            (
                duration(window_s),
                f"{format_size(int(size.value))}{bounds}",
                large,
                if_available(reach.tread, middle) or "not known",
                f"{len(sights)}",
                duration(max(s.look_s for s in sights)),
            )
        )
    return rows


def largest(watched: Watched) -> Sight:
    """Of the typical looks that at which most was touched; of two alike, through the shorter
    window."""
    return max(
        (typical(watched.of(window_s)) for window_s in watched.windows_s),
        key=lambda sight: sight.active_bytes,
    )


def kernel_share(watched: Watched) -> float:
    """Of its CPU time what the kernel took, where it faulted."""
    used = watched.used
    return (
        used.kernel_s / (used.user_s + used.kernel_s)
        if used.minor_faults and used.kernel_s
        else 0.0
    )


def sentences(
    watched: Watched,
    reach: Reach,
    counts: Counts | str,
    sampled: Mapping[int, int] | str = "no-time",
) -> list[str]:
    """What it does, what it can pay at most, and what cannot be seen, a sentence or two each; the
    advice last. counts: of each turn, or the reason for none. sampled: loads by the bytes of the
    page that they read, or the reason for none."""
    return [
        *_stands(watched, reach),
        *_pays(watched, reach),
        *_counted(counts),
        *_sampled(counts, sampled),
        *_unseen(watched, reach),
        *_cost(watched),
        *advice(watched, reach),
    ]


def _stands(watched: Watched, reach: Reach) -> Iterator[str]:
    used = watched.used
    if _is_idle(watched):
        yield f"It was idle: in {duration(watched.elapsed_s)} it took {duration(used.user_s + used.kernel_s)} of CPU time."
    try:
        treads = {
            window_s: reach.tread(typical(watched.of(window_s))) for window_s in watched.windows_s
        }
    except Unavailable as why:
        yield f"Which level of the TLB covers what it touches is not known. {why}"
        return
    held = reach.entries[BASE]
    size = format_size(held[-1] * reach.base_page_bytes)
    beyond = [window_s for window_s, tread in treads.items() if tread == "beyond"]
    source = f"{held[-1]:,} entries, {size} of base pages by {reach.source[BASE]}"
    yield (
        f"In {duration(beyond[0])} it touches more than the TLB holds ({source})."
        if beyond
        else f"In no window does it touch more than the TLB holds ({source})."
    )
    if reach.is_splintered:
        yield "The host backs large pages with smaller ones here, so each 2 MiB page takes as many entries as base pages would."


def _is_idle(watched: Watched) -> bool:
    return watched.used.user_s + watched.used.kernel_s <= IDLE * watched.elapsed_s


def _pays(watched: Watched, reach: Reach) -> Iterator[str]:
    try:
        gain = gained(watched, reach)
    except Unavailable as why:
        yield f"What a far load can pay is not known. {why}"
        return
    size = format_size(gain.pages * reach.base_page_bytes)
    yield (
        f"Over {size} on base pages, which is what it touches there in {duration(largest(watched).window_s)}, a far load pays at most "
        f"{gain.price:z.1f} ns for translation here, and on {words(gain.large)} {gain.large_price:z.1f}."
    )
    if gain.pages > gain.measured_pages:
        yield f"More than {format_size(gain.measured_pages * reach.base_page_bytes)} was not measured; past that a load may pay more."


def gained(watched: Watched, reach: Reach) -> Gain:
    """The most that large pages can gain it. Raises Unavailable, as `Reach.gain` does."""
    return reach.gain(largest(watched), kernel_share(watched))


def _counted(counts: Counts | str) -> Iterator[str]:
    if isinstance(counts, str):
        yield f"Its walks are not counted: {explain(counts)}"
        return
    rates = [(rated(counts, part, whole), times, what) for part, whole, times, what in _RATES]
    if told := [f"{rate * times:.2f} {what}" for rate, times, what in rates if rate]:
        yield f"Counted were {listed(told)}."
    reasons = {
        quantity: each.reason for turn in counts for quantity, each in turn.items() if each.reason
    }
    for quantity in ("walk", "walk_cycles"):
        if quantity in reasons and not rated(counts, quantity, "instructions"):
            yield f"There is no count of {quantity}: {explain(reasons[quantity])}"


def _sampled(counts: Counts | str, sampled: Mapping[int, int] | str) -> Iterator[str]:
    """Of the loads that were sampled, which part read from pages of which size; nothing where the
    reason was given for the walks."""
    if isinstance(sampled, str):
        if sampled != counts:
            yield f"On pages of which size its loads fall was not sampled. {explain(sampled)}"
        return
    every = sum(sampled.values())
    told = listed(
        f"{number / every:.0%} on pages of {format_size(size)}"
        for size, number in sorted(sampled.items())
    )
    yield f"Of {every:,} loads that were sampled, {told}."


def rated(counts: Counts, part: str, whole: str) -> Interval | None:
    """One quantity over another over the turns that counted both; None of none."""
    both = [
        (turn[part].value, turn[whole].value) for turn in counts if part in turn and whole in turn
    ]
    shares = [a / b for a, b in both if a is not None and b]
    return median_interval(shares) if shares else None


def _unseen(watched: Watched, reach: Reach) -> Iterator[str]:
    last = watched.sights[-1]
    entries = reach.entries.get(BASE)
    held = f", which are {entries[-1]:,} at most," if entries else ""
    yield f"Pages whose translation a TLB keeps all the while{held} may not be seen, and pay nothing."
    if last.mapped["thp"]:
        base_pages = reach.large_page_bytes // reach.base_page_bytes
        yield f"What is touched is counted in pages as they are mapped, so a byte of a 2 MiB page counts as {base_pages} base pages."
    if pool := sum(size for page, size in last.mapped.items() if page not in (BASE, "thp")):
        yield explain("not-seen", f"{format_size(pool)} of the pool")
    yield from _folios(watched, reach)
    if last.denied:
        yield explain(
            "process-denied", f"{last.denied} of {last.denied + last.processes} processes"
        )


def _folios(watched: Watched, reach: Reach) -> Iterator[str]:
    """What lies in folios between the base page and 2 MiB, and what such a size pays here, beside
    base pages."""
    if isinstance(watched.folios, Unavailable):
        yield f"Sizes between the base page and 2 MiB count as base pages. {watched.folios}"
        return
    sizes = between(watched)
    if not sizes:
        yield "None of its base pages that were drawn lies in a folio between the base page and 2 MiB."
        return
    most, pages = (
        max(sizes, key=sizes.__getitem__),
        max(largest(watched).active_bytes // reach.base_page_bytes, 1),
    )
    size = format_size(PAGES[most].size_bytes or 0)
    told = f"About {sizes[most] / max(watched.sights[-1].mapped[BASE], 1):.0%} of its base pages lie in folios of {size}. "
    try:
        prices = [reach.far_price(page, pages) for page in (most, BASE)]
    except Unavailable as why:
        yield f"{told}What those save here is not known. {why}"
        return
    yield (
        f"{told}Over {format_size(pages * reach.base_page_bytes)} a far load pays {prices[0]:z.1f} ns for translation on pages of that "
        f"size here, and {prices[1]:z.1f} on base pages."
    )


def _cost(watched: Watched) -> Iterator[str]:
    took = (
        f"Looks took {duration(watched.look_s)} in {duration(watched.elapsed_s)}, and cost the program about {watched.cost:.2%} of its "
        "time"
    )
    yield (
        f"{took}, within the {watched.overhead:.2%} allowed."
        if watched.within_overhead
        else (
            f"{took}. That is more than the {watched.overhead:.2%} allowed, because one look is always made: it takes "
            f"{duration(watched.due_s)} of watching to stay within."
        )
    )
    if watched.left_out_s:
        yield f"Windows of {listed(map(duration, watched.left_out_s))} are shorter than a look or longer than what was left of the time."
    if watched.has_ended:
        status = watched.target.status()
        yield (
            "It ended while it was watched."
            if status is None
            else f"It ended while it was watched, with exit code {status}."
        )


def advice(watched: Watched, reach: Reach) -> list[str]:
    """What to try, what it can gain, and the command for it; or why there is nothing to try."""
    if _is_idle(watched):
        return ["Advice: watch it at work. An idle program has nothing to gain."]
    gain = if_available(gained, watched, reach)
    if gain and _is_nothing(
        gain, kernel_share(watched), if_available(reach.tread, largest(watched))
    ):
        return [
            f"Advice: nothing. Large pages would gain it less than {WORTH:.0%}: it touches no more than the TLB holds, or has them."
        ]
    expected = (
        "How much large pages can gain it is not known"
        if gain is None
        else (
            f"With large pages it takes between {gain.ratio.low:.2f} and {gain.ratio.high:.2f} of its time: {gain.ratio.value:.2f} if it did "
            "nothing but far loads, 1 if it does none"
        )
    )
    if not any(watched.target.command):
        return [
            f"Advice: {expected}. Its command line cannot be read; try it with `tlb try -- COMMAND`."
        ]
    try:
        lever = lever_for(watched.target.command[0])
    except Unavailable as why:
        return [f"Advice: {expected}. {why}"]
    return [
        f"Advice: {expected}. Try {levers.LEVERS[lever].does}:",
        trial(lever, watched.target.command),
    ]


def _is_nothing(gain: Gain, kernel_share: float, tread: Tread | None) -> bool:
    """Whether what large pages could gain would not show. Inside the TLB's reach the bounds are
    those of noise."""
    return gain.ratio.low > 1 - WORTH or (
        tread != "beyond" and kernel_share < WORTH and gain.ratio.value > 1 - WORTH
    )


def lever_for(program: str) -> str:
    """Which lever reaches a program: advice where a library can be loaded before its own, joining
    from outside elsewhere. Raises Unavailable, as the levers' checks do."""
    if unreached(program) or if_available(lambda: levers.lever("advise", [])) is None:
        return levers.lever("collapse", []).name
    return "advise"


def trial(lever: str, command: Sequence[str]) -> str:
    """The experiment as a line for a shell."""
    return f"tlb try --lever {lever} -- {shlex.join(command)}"


def document(
    watched: Watched,
    reach: Reach,
    counts: Counts | str,
    sampled: Mapping[int, int] | str = "no-time",
) -> dict[str, Any]:
    """All of it for a program. Sizes in bytes, times in seconds, prices in ns a far load; a number
    that is not there has its reason."""
    target, last = watched.target, watched.sights[-1]
    gain = _told(lambda: gained(watched, reach))
    return {
        "pid": target.pid,
        "command": target.command,
        "elapsed_s": watched.elapsed_s,
        "look_s": watched.look_s,
        "overhead": watched.cost,
        "overhead_allowed": watched.overhead,
        "within_overhead": watched.within_overhead,
        "ended": watched.has_ended,
        "exit_code": target.status(),
        "mapped": last.mapped,
        "table_bytes": last.table_bytes,
        "used": watched.used._asdict(),
        "active": [_window(watched, reach, window_s) for window_s in watched.windows_s],
        "folios": {"reason": watched.folios.code}
        if isinstance(watched.folios, Unavailable)
        else watched.folios,
        "not_seen": {
            page: "not-seen" for page in last.mapped if page not in (BASE, "thp")
        },  # what is touched of a pool
        "entries": reach.entries,
        "entries_source": reach.source,
        "splintered": reach.is_splintered,
        "gain": gain,
        "counts": {"reason": counts}
        if isinstance(counts, str)
        else [
            {
                quantity: each.value if each.reason is None else {"reason": each.reason}
                for quantity, each in turn.items()
            }
            for turn in counts
        ],
        "loads_by_page_bytes": {"reason": sampled} if isinstance(sampled, str) else dict(sampled),
        "sentences": sentences(watched, reach, counts, sampled),
    }


def _window(watched: Watched, reach: Reach, window_s: float) -> dict[str, Any]:
    sights = watched.of(window_s)
    middle = typical(sights)
    return {
        "window_s": window_s,
        **active(sights)._asdict(),
        "large_least": middle.large_least,
        "large_most": middle.large_most,
        "tread": _told(lambda: reach.tread(middle)),
        "looks": len(sights),
        "look_s": max(sight.look_s for sight in sights),
    }


def _told(make: Callable[[], Any]) -> Any:
    """A value as JSON has it, or its reason."""
    try:
        value = make()
    except Unavailable as why:
        return {"reason": why.code}
    if not hasattr(value, "_asdict"):
        return value
    return {
        name: part._asdict() if isinstance(part, Interval) else part
        for name, part in value._asdict().items()
    }
