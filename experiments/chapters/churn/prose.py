"""The sentences of the chapter about churn, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from math import isfinite

from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.churn.analysis import NEW, Analysis
from experiments.chapters.churn.grid import CALLS, FEW, FIRST_HOPS, HELD, LARGE, MANY, STREAMED_MIB
from experiments.chapters.churn.housekeeping_prose import (
    defrag_said,
    idle_said,
    lives_said,
    merged_said,
    spikes_said,
    swapped_said,
)
from experiments.chapters.churn.tables import CALL_WORDS
from experiments.inference.curves import select
from experiments.inference.intervals import Interval
from experiments.machine.host import is_x86
from experiments.words.pages import BASE, words
from experiments.words.prose import Prose, choose, in_words, listed
from experiments.words.reasons import if_available, required
from experiments.words.units import format_ns, format_size

__all__ = ["set_up", "lead", "calls_said", "control_said", "seen_said", "victim_said", "moved_said", "joined_said", "parts_said",
           "switch_said", "walks_said", "kept_said", "cold_said", "request_said", "fork_said", "copy_said", "sparse_said", "load_said",
           "tail_said", "sibling_said", "defrag_said", "spikes_said", "lives_said", "merged_said", "swapped_said", "idle_said", "change",
           "run_this"]

SAME = 0.1  # of a time: what no reader would notice
EQUAL = 0.01  # of the flushes asked, that were not seen: what bare metal stays within
HALF = 0.5  # of what a new process pays


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def _one(a: Analysis, call: str) -> tuple[Interval, Interval]:
    """A call on one page: on one CPU, and beside threads on the others. Raises Unavailable."""
    a.need_others(a.shootdowns.get(call, ()), "no calls beside other threads were measured")
    return a.calls_alone[call].get(FEW), a.calls_beside[call].get(FEW)


def brief(a: Analysis) -> Prose:
    """What a shootdown, a switch and a new process cost."""
    price, back = a.price_after(NEW), if_available(a.brought_back)
    said = f"A new process pays {price.value:.0f} ns for the translation of each of its first {HELD} pages, though not one of them faults. "
    if back:
        said += ("A switch of processes gives most of that back to pay. " if back.low > HALF else
                 "A switch of processes costs almost nothing of it: the TLB keeps what it knew. " if back.high < HALF else "")
    if pair := if_available(_one, a, CALLS[0]):
        said += (f"What empties a TLB is the program itself: a munmap of one page takes {format_ns(pair[0].value)} alone and "
                 f"{format_ns(pair[1].value)} where the program runs on {in_words(a.most_others + 1)} CPUs.")
    return Prose(said.rstrip())


# --- pages that are taken away


def calls_said(a: Analysis) -> Prose:
    """Say what other CPUs add to a call, of one page and of many."""
    alone, beside = _one(a, CALLS[0])
    told = a.shootdowns[CALLS[0]].get(FEW)
    many = a.calls_alone[CALLS[0]].get(MANY)
    said = f"A munmap of one page takes {format_ns(alone.value)} on one CPU. " + choose(beside / alone, {
        "above": f"Threads of the program on {in_words(a.most_others)} more add {format_ns(told.value)}: the call waits until each of them "
                 "has answered. ",
        "open": f"What threads of the program on {in_words(a.most_others)} more add to it is less than processes differ by. ",
        "below": f"Threads of the program on {in_words(a.most_others)} more add nothing. "}, slack=SAME)
    if a.host.hypervisor != "none":
        said += "This machine is a guest, whose hypervisor may have to deliver the interrupt: on bare metal, expect less. "
    if a.most_others > 1:
        first = a.by_cpus.get(1)
        said += f"The first of them makes it {format_ns(first.value)} already. " if first.value == first.value else ""
    if many.value == many.value:
        said += (f"Of {MANY} pages the call has {format_ns(many.value)} of its own to do, and asks no more often: one request is for "
                 "all.")
    return Prose(said.rstrip())


def control_said(a: Analysis) -> Prose:
    """Whether busy CPUs alone explain it."""
    alone, beside = _one(a, CALLS[0])
    apart = a.apart(CALLS[0])
    return Prose(f"Beside processes that keep the same CPUs busy and share nothing, it takes {format_ns(apart.value)}. " + choose(
        beside / apart, {"above": "So the price is that of asking, and not of busy neighbours.",
                         "open": "So busy neighbours explain it as well as asking does.",
                         "below": "So what is dear here is busy neighbours."}, slack=SAME))


def seen_said(a: Analysis) -> Prose:
    """How many flushes were seen of those asked, and why fewer."""
    share = a.seen_share()
    said = f"Of the flushes that the calls ask for, the other CPUs see {share:.1%}. "
    stated = if_available(lambda: a.flushes)
    if abs(share - 1) <= EQUAL:
        return Prose(said + "So each call interrupts each CPU once.")
    if stated and stated.broadcasts:
        return Prose(said + "This CPU can empty the TLBs of all others by an instruction, which interrupts nobody and is not counted.")
    if share > 1:
        return Prose(said + "What is more was asked by other programs, or by a kernel that flushes more often than it has to.")
    if a.host.hypervisor == "none":
        return Prose(said + "Without a hypervisor every one should arrive; other work on those CPUs may have taken the program off them.")
    offered = ("KVM says that it offers this (CPUID's leaf of paravirtual features)." if stated and stated.defers else
               "This hypervisor does not say that it offers this." if stated else "Whether it is offered here was not asked.")
    return Prose(f"{said}The others were probably deferred: a CPU that runs something else just then or, in a guest, does not run at all, "
                 f"is flushed when the program comes back to it. {offered}")


def victim_said(a: Analysis) -> Prose:
    """Say how much of a flushed program's slowdown is lost entries, and how much the interrupts themselves."""
    spread, packed = a.slowed_by_discards("spread"), a.slowed_by_discards("packed")
    said = (f"A chase over {HELD} pages takes {spread.value:.2f} times as long beside a thread that gives its own pages back all the time. "
            f"Its packed control, which needs few entries, takes {packed.value:.2f} times as long: that is the interrupts' own time. ")
    return Prose(said + choose(a.beside_discards(), {
        "above": "The rest is the walks that refill the TLB: the chase's pages are still there, its TLB entries are not.",
        "open": "Lost entries cannot be told apart from that here.",
        "below": "So lost entries cost nothing here."}))


def moved_said(a: Analysis) -> Prose:
    """What it costs that the kernel makes a large page of base pages, and who is told."""
    took = a.moved(False)
    said = f"To make one large page of base pages takes {format_ns(took.value)}. "
    seen = if_available(a.moved_flushes)
    return Prose(said + (f"Each other CPU of the program sees {seen:.1f} flushes for it, though the program gave nothing "
                         "away: a page that moves has to be forgotten first." if seen is not None else
                         "Whether other CPUs are told to flush was not counted."))


def joined_said(a: Analysis) -> Prose:
    """What a chase suffers while its pages are joined, and when it has paid."""
    a.need_others(a.joining, "no chase over pages that are joined was measured")

    def at(phase: str, quantile: str) -> Interval:
        rows = select(a.joining, mode="address", phase=phase, quantile=quantile)
        return Interval.of(required(rows, "a chase over its own pages was not measured").iloc[0])

    during, before = at("during", "p999"), at("before", "p999")
    said = (f"A chase goes on over pages that are joined: of its slices, one in a thousand takes {format_ns(during.value)} a hop or more "
            f"meanwhile, in place of {format_ns(before.value)}") + choose(during / before, {
                "above": ": whoever reads a page that moves waits. ", "open": ", which may be noise. ", "below": ", so nobody waits. "})
    hops = if_available(a.break_even_hops, "address")
    if hops and not isfinite(hops.high):
        return Prose(said + "Whether a hop takes less afterwards cannot be told.")
    return Prose(said + (f"Afterwards a hop takes {format_ns(at('after', 'p50').value)}, in place of "
                         f"{format_ns(at('before', 'p50').value)}: the work has paid after {hops.value / 1e6:.1f} million hops."
                         if hops else "Afterwards a hop takes no less, so that it never pays here."))


def parts_said(a: Analysis) -> Prose:
    """What a call on a part of a large page leaves of it."""
    rows = required(a.parts, "no parts of large pages were taken")
    split = [CALL_WORDS[call] for call, share in zip(rows["call"], rows["large_share"], strict=True) if share < HALF]
    worst = rows.loc[[interval.value for interval in rows["ns"]].index(max(interval.value for interval in rows["ns"]))]
    said = (f"A call on one base page of a large one takes up to {format_ns(worst['ns'].value)}"
            + (f", where one on base pages takes {format_ns(worst['base_ns'].value)}. "
               f"" if worst["base_ns"].value == worst["base_ns"].value else ". "))
    return Prose(said + (f"After {listed(split)} the whole is mapped by base pages again, and nothing joins them soon." if split else
                         "The large pages stay large."))


# --- programs that take turns


def switch_said(a: Analysis) -> Prose:
    """What a switch of threads and of processes leaves to pay."""
    alone, thread, process = (a.price_after(mode) for mode in ("alone", "thread", "process"))
    said = (f"Over {HELD} pages translation costs {alone.value:.1f} ns a hop where nothing is switched, {thread.value:.1f} after a "
            f"switch to a thread and back, and {process.value:.1f} after one to a process. ")
    back = a.brought_back()
    return Prose(said + (f"That is most of the {a.price_after(NEW).value:.0f} that a new process pays: the TLB was "
                         "emptied." if back.low > HALF else
                         f"A new process pays {a.price_after(NEW).value:.0f}: so the TLB was not emptied." if back.high < HALF else
                         "These are too near each other, or too uncertain, to say what was kept."))


def walks_said(a: Analysis) -> Prose:
    """Whether the walker's own caches outlive a switch."""
    ratio = a.first_walks()
    said = (f"Beyond the TLB's reach every hop is a walk. The first {FIRST_HOPS} after a switch of processes take {ratio.value:.2f} "
            "times as long as after a switch of threads, ")
    return Prose(said + choose(ratio, {
        "above": "so walks begin further up than before.", "open": "which is no difference that could be told.",
        "below": "so nothing of the walker's is lost."}, slack=SAME / 2))


def kept_said(a: Analysis) -> Prose:
    """By what the TLB tells processes apart, as the computer states it."""
    stated = if_available(lambda: a.flushes)
    several = "the six address spaces that a CPU ran last (PCID, `TLB_NR_DYN_ASIDS`)" if is_x86(a.host) else "several address spaces (ASID)"
    pcid = {True: f"Linux keeps the TLB's entries of {several} apart, so a switch among them need not flush; one to any other does.",
            False: "Linux does not tag entries with their address space here (no PCID), so a switch flushes all that are not global.",
            None: "Whether the TLB may hold entries of several address spaces at once is not stated here."}[a.host.pcid]
    pti = ("" if not stated or stated.pti is None else
           " It keeps page tables of its own (PTI), so that every system call changes tables too." if stated.pti else
           " It keeps no page tables of its own (no PTI), so a system call changes no table.")
    return Prose(pcid + pti)


def cold_said(a: Analysis) -> Prose:
    """What a new process pays in its first rounds."""
    first, last, spawn = a.cold_tax(), a.price_after(NEW), a.start("spawn_ns")
    paid = last.value * HELD
    return Prose(f"In its first round over {HELD} pages a new process pays {last.value:.0f} ns a page for translation, {first.value:.0f} "
                 "times what it pays in its last. There are no page faults in it, and the lines are in the caches. In all that is "
                 f"{format_ns(paid)}, where a fork took {format_ns(spawn.value)} before the process had its first instruction.")


def request_said(a: Analysis) -> Prose:
    """What a request costs by a fork and an exec, beside a worker."""
    whole, switch = a.start("exec_ns"), a.switch_ns("process")
    return Prose(f"A fork, an exec and an end take {format_ns(whole.value)}; a switch to a worker that waits, and back, "
                 f"{format_ns(switch.value)}. " + choose(whole / switch, {
                     "above": "So a warm worker pays for itself, by all that a start takes: the TLB's part is the least of it.",
                     "open": "Here a worker saves nothing."}))


# --- forks, and what is sparse


def fork_said(a: Analysis) -> Prose:
    """What a fork costs by page size."""
    base, large = (required(a.fork_ns.get(pages, ()), "no forks on both page sizes were measured").last for pages in (BASE, LARGE))
    size = format_size(int(a.fork_ns[BASE].xs[-1]) * a.base_page_bytes)
    return Prose(f"A fork with {size} resident takes {format_ns(base.value)} on {words(BASE)} and {format_ns(large.value)} on "
                 f"{words(LARGE)}. "
                 + choose(base / large, {"above": "It copies page tables, and those of large pages are few.",
                                         "open": "So the page size does not matter to it.", "below": "Here large pages make it dearer."}))


def copy_said(a: Analysis) -> Prose:
    """How much one write after a fork copies, and what the first on a large page takes."""
    (base_bytes, base_ns), (large_bytes, large_ns) = (a.single_write(pages) for pages in (BASE, LARGE))
    said = (f"One write to each large page's room after the fork copies {format_size(round(large_bytes.value))} on {words(LARGE)}, and "
            f"{format_size(round(base_bytes.value))} on {words(BASE)}; it takes {format_ns(large_ns.value)} and "
            f"{format_ns(base_ns.value)}. ")
    dense = {pages: curve.last.value for pages, curve in a.write_ns.items()}
    if len(dense) > 1:
        said += (f"Where each base page is written, a write takes {format_ns(dense[BASE])} on {words(BASE)}, and "
                 f"{format_ns(dense[LARGE])} on the others. ")
    return Prose(said + ("This kernel splits the large page first and copies a base page: it does not copy it all, but it is large no more."
                         if large_bytes.value < 2 * base_bytes.value else
                         "So a write of eight bytes copies a whole large page: the strongest argument against them."))


def sparse_said(a: Analysis) -> Prose:
    """What arenas with room around them take on large pages."""
    waste = a.waste()
    used = format_size(int(a.sparse["used_bytes"].iloc[0]))
    return Prose(f"Where each arena has a large page's room to itself, the {used} that are used take {waste.value:.1f} times as much "
                 f"memory on {words(LARGE)} as on {words(BASE)}. " + choose(waste, {
                     "above": "Side by side they would take no more than they use: what hurts is the room between them.",
                     "open": "So room between them costs nothing here."}))


# --- beside others


def load_said(a: Analysis) -> Prose:
    """What a stream beside it does to the price of translation."""
    ratio, price = a.under_load(), a.loaded
    size = format_size(a.far_lines * a.base_page_bytes)
    said = (f"Over {size} translation costs {price.intervals[0].value:.0f} ns a hop beside a thread that only runs, and "
            f"{price.last.value:.0f} beside one that streams {STREAMED_MIB[-1]} MiB. ")
    return Prose(said + choose(ratio, {
        "above": "The stream puts page tables out of the cache that both share, and walks then read memory.",
        "open": "What the stream does to page tables is less than what processes differ by.",
        "below": "So the stream does not slow walks here."}))


def tail_said(a: Analysis) -> Prose:
    """Whether the tail grows more than the middle."""
    def rise(name: str) -> Interval:
        return a.quantile(STREAMED_MIB[-1], name) / a.quantile(0, name)

    a.under_load()
    middle, tail = rise("p50"), rise("p99")
    said = (f"By slices of the chase, the median hop takes {middle.value:.2f} times as long under that load, and the 99th percentile "
            f"{tail.value:.2f} times. ")
    return Prose(said + choose(tail / middle, {"above": "The tail pays more than the middle.", "below": "The middle pays more than the "
                                                                                                        "tail.",
                                               "open": "Both pay alike, as far as can be told."}, slack=SAME))


def sibling_said(a: Analysis) -> Prose:
    """What a chase on the core's other thread does."""
    ratio = a.beside_sibling()
    return Prose(f"Beside a chase over many pages on the core's other hardware thread, a hop takes {ratio.value:.2f} times as long as "
                 "beside one that only runs. " + choose(ratio, {"above": "The two share the TLB, and what one fills the other loses.",
                                                     "open": "Nothing of the TLB is lost to it.", "below": "So it loses nothing to it."}))
