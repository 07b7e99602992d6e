"""The sentences of the section about the kernel's own housekeeping, which prose.py has in its list."""

from __future__ import annotations

from statistics import median

from experiments.chapters.churn.analysis import Analysis
from experiments.chapters.churn.housekeeping import ALWAYS, FRAGMENTS, FREE, LARGE, NEVER, ON_BASE
from experiments.words.pages import BASE, words
from experiments.words.prose import Prose, choose
from experiments.words.units import format_ns, format_size


def defrag_said(a: Analysis) -> Prose:
    """What the first touch of a large page's room takes on free memory and in pieces, with defrag as it was and switched off."""
    mode = a.housekeeping.defrag
    free, pieces, never = (a.touch_ns(*where, "p50") for where in ((FREE, mode), (FRAGMENTS, mode), (FRAGMENTS, NEVER)))
    got, got_never = (a.large_share(FRAGMENTS, each).value for each in (mode, NEVER))
    return Prose(
        f"With the setting as it was here, `{mode}`, the first touch of a large page's room takes {format_ns(free.value)} on free memory "
        f"and {format_ns(pieces.value)} in pieces, where {got:.0%} of the rooms get a large page. With `{NEVER}` it takes "
        f"{format_ns(never.value)}, and {got_never:.0%} of them get one. " + choose(pieces / never, {
            "above": "What the kernel does to find a large page, whoever touches first waits for.",
            "open": "So nobody is seen to wait for the kernel's work here.",
            "below": "So a first touch is no dearer for the kernel's work here."}))


def spikes_said(a: Analysis) -> Prose:
    """The tail of touches in pieces, on large pages and on base pages."""
    large, base = (a.touch_ns(FRAGMENTS, mode, "p999") for mode in (ALWAYS, ON_BASE))
    longest = max(run.longest_ns for run in a.runs(FRAGMENTS, ALWAYS))
    return Prose(
        f"Of all touches in pieces, one in a thousand takes {format_ns(large.value)} or more with `{ALWAYS}`, and "
        f"{format_ns(base.value)} on {words(BASE)}; the longest took {format_ns(longest)}. " + choose(large / base, {
            "above": "A large page gathers the waiting of its base pages in one touch: the same work, or less, as a spike.",
            "open": "That is no difference that could be told.", "below": "So large pages make no spikes here."}))


def lives_said(a: Analysis) -> Prose:
    """What large pages are to programs that live briefly."""
    mib = a.longest_lives_mib()
    base = median(a.lives(FREE)[mib].ns[BASE])
    free, pieces = a.life_ratio(FREE, mib), a.life_ratio(FRAGMENTS, mib)
    said = (f"A program that starts, writes {mib} MiB once and ends takes {format_ns(base)} on {words(BASE)} and {free:.2f} times that on "
            f"{words(LARGE)}.\n\nOn fragmented memory, with `{ALWAYS}`, it takes {pieces:.2f} times as long as on {words(BASE)} there. ")
    return Prose(said + choose(pieces, {
        "above": "So it is such programs on a machine that has run for long that regress.",
        "open": "So in pieces nothing of that gain is certain.",
        "below": "So even then a short program gains."}))


def merged_said(a: Analysis) -> Prose:
    """What merging equal pages leaves of large ones, and what a write takes then."""
    rounds = a.merged()
    saved = median(some.saved_bytes / some.bytes for some in rounds)
    before, after = (median(getattr(some, name) / some.bytes for some in rounds) for name in ("large_before", "large_after"))
    merged, own = (median(getattr(some, name) for some in rounds) for name in ("merged_write_ns", "own_write_ns"))
    return Prose(
        f"Asked to merge equal pages (KSM), the kernel gives back {saved:.0%} of them. Of that memory {before:.0%} lay on large pages "
        f"before, and {after:.0%} does afterwards. A write to a page then takes {format_ns(merged)}, and {format_ns(own)} to one that "
        "was not merged. " + ("Merging splits large pages, and each first write copies a page."
                              if after < before else "Merging leaves the large pages whole here."))


def swapped_said(a: Analysis) -> Prose:
    """What reading a byte of a page that was swapped out brings back."""
    (base_in, base_ns), (large_in, large_ns) = (a.swapped_in(pages) for pages in (BASE, LARGE))
    pool = {False: " A page of a pool it refuses to swap out.", True: " A page of a pool may be swapped out too.",
            None: ""}[a.housekeeping.pool_pageout]
    return Prose(
        f"Of a large page that was swapped out to compressed memory (zram), reading a byte brings in {format_size(round(large_in.value))} "
        f"in {format_ns(large_ns.value)}; of base pages, {format_size(round(base_in.value))} in {format_ns(base_ns.value)}. "
        + ("The large page is in pieces then: it comes back as base pages." if large_in.value < a.housekeeping.room_bytes
           else "The large page comes back whole.") + pool)


def idle_said(a: Analysis) -> Prose:
    """How much the kernel joins by itself, and what it does between nodes."""
    idle = a.idle()
    said = (f"Of {format_size(idle.bytes)} on base pages that nobody touches, khugepaged makes {idle.large_bytes / idle.bytes:.0%} large "
            f"within {idle.seconds:.0f} s" + (f"; it sleeps {idle.scan_sleep_ms / 1000:.0f} s between two looks. "
                                              if idle.scan_sleep_ms is not None else ". "))
    return Prose(said + (
        "NUMA balancing, which moves pages between nodes, is no part of this: here there is one node." if a.housekeeping.nodes < 2 else
        "NUMA balancing, which moves pages between nodes, was not measured."))
