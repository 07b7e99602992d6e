"""The sentences of the chapter about page faults, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.article.chapter import literature
from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.page_faults.analysis import FILE, FILE_AT_ONCE, FILE_READY, FRESH, FRESH_LARGE, FRESH_READY, Analysis
from experiments.chapters.page_faults.grid import LARGE
from experiments.inference.intervals import Interval
from experiments.machine.host import is_x86
from experiments.words.pages import BASE, words
from experiments.words.prose import Prose, Side, choose, count, in_words, listed, side
from experiments.words.reasons import REASONS, if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "lead", "file_said", "written_said", "fresh_said", "ready_said", "walks_said", "group_said", "statistics_said",
           "matter_said", "buckets_said", "levels_said", "buys_said", "churn_said", "beyond_said", "chunks_said", "first_said",
           "again_said", "host_said", "profile_said", "traced_said", "change", "run_this"]

SAME = 0.1  # of a time: what no reader would notice
SEVERAL = 1.5  # pages a fault, from which on a time a page is no time a fault
SIGNIFICANT = 0.05  # of a test: as is the custom
LEAST_PAIRS = 5  # of which an interval covers nine in ten


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def brief(a: Analysis) -> Prose:
    """What a page of a file and of fresh memory takes, and how many the published fault enters."""
    found, fresh = a.page_ns(FILE), a.page_ns(FRESH)
    said = (f"{'On this machine' if a.host.hypervisor == 'none' else 'In this guest'}, the first touch of a page takes {found.value:.0f} "
            f"ns in a file that is in memory, and {fresh.value:,.0f} in fresh memory.")
    if a.pages_a_fault < SEVERAL:
        return Prose(f"{said} Each faults by itself.")
    return Prose(f"{said} A fault in the file takes {a.fault_ns(FILE).value:,.0f} ns: it maps {a.pages_a_fault:.0f} pages at once "
                 "(fault-around).")


def file_said(a: Analysis) -> Prose:
    """The published loop: a time a page, and how many faults that is."""
    published = a.published[4].mean
    said = (f"The published program calls {published:.1f} ns a page fault. It divides by pages. Here the same loop takes "
            f"{a.page_ns(FILE).value:.0f} ns a page, and the kernel counts ")
    if a.pages_a_fault < SEVERAL:
        return Prose(said + "a fault for each of them, so a page is a fault here.")
    return Prose(f"{said}one fault in {a.pages_a_fault:.0f} of them. This is *fault-around*: when a file page is missing, Linux maps its "
                 "neighbours in the page cache too, 64 KiB in all by default (`fault_around_bytes`). So one fault takes "
                 f"{a.fault_ns(FILE).value:,.0f} ns, and the program reports a fault shared among the pages that it maps. A program that "
                 "touches one page here and one there pays the whole.")


def written_said(a: Analysis) -> Prose:
    """What it makes of a file's pages that they were written at once."""
    apart, whole = a.page_ns(FILE), a.page_ns(FILE_AT_ONCE)
    faults = float(a.touch(FILE_AT_ONCE)["faults_per_access"])
    system = if_available(lambda: a.side.file_system)
    where = f" ({system})" if system and system != "unknown" else ""
    said = (f"That file was written page by page. The same bytes written at once take {whole.value:.0f} ns a page, and a fault enters "
            f"{count(1 / faults) if faults > 0 else 'all'} of them. ")
    return Prose(said + choose(apart / whole, {
        "above": f"The file system{where} keeps what came in one write in large folios, which the kernel maps with less work than single "
                 "pages. So the time per page depends on how the file was written, too.",
        "open": f"To this file system{where} it is all one.", "below": f"To this file system{where} it is no gain."}, slack=SAME))


def fresh_said(a: Analysis) -> Prose:
    """Say what a page of fresh memory takes on base pages and on large ones, beside the published faults of bare metal."""
    fresh = a.page_ns(FRESH)
    said = (f"Fresh memory has no neighbours to map. Each page takes a fault of its own, {fresh.value:,.0f} ns, in which the kernel "
            "allocates the page, zeroes it and maps it. ")
    if a.host.hypervisor != "none":
        said += (f"That is the price in this guest: the published faults spent {a.published_means[4]:,.0f} ns on average in "
                 "`handle_mm_fault` on an Ice Lake server. In a guest the host may have to find each page as well. ")
    if (large := if_available(a.page_ns, FRESH_LARGE)) is None:
        return Prose(said.rstrip())
    return Prose(said + f"On {words(LARGE)} a base page's worth takes {large.value:,.0f} ns" + choose(fresh / large, {
        "above": f", for one fault zeroes {count(1 / float(a.touch(FRESH_LARGE)['faults_per_access']))} of them in one go.",
        "open": ", no less.", "below": ", which is more."}, slack=SAME))


def ready_said(a: Analysis) -> Prose:
    """What it saves to have the kernel enter all pages beforehand, of a file and of fresh memory."""
    pairs = {name: (a.page_ns(touched), a.page_ns(ready)) for name, touched, ready in (
        ("a file", FILE, FILE_READY), ("fresh memory", FRESH, FRESH_READY)) if {touched, ready} <= a.touches.keys()}
    required(pairs, "no memory was populated")
    told = listed(f"one of {name} takes {ready.value:,.0f} ns in place of {touched.value:,.0f}" for name, (touched, ready) in pairs.items())
    saves = any(side(touched / ready, slack=SAME) == "above" for touched, ready in pairs.values())
    return Prose(f"Where the kernel enters all pages before the first is touched, {told}, all in all. " + (
        "What that saves is the way into the kernel and back; " if saves else "The way into the kernel and back is not what costs here: ") +
        "to find the pages, to zero and to enter them is still to be done. It moves the cost to where a program can choose to pay it.")


def walks_said(a: Analysis) -> Prose:
    """What the kernel's other walks take, of a filled mapping beside an empty one."""
    row = a.touch(FRESH)
    return Prose("A fault is not its only walk. Of a mapping that nobody touched munmap and mprotect take next to nothing; once it is "
                 f"filled munmap takes {float(row['unmap_ns_per_access']):.0f} ns a page, mprotect "
                 f"{float(row['protect_ns_per_access']):.0f}, and a fork, which copies the table, {float(row['fork_ns_per_access']):.0f}.")


def group_said(a: Analysis) -> Prose:
    """What it costs that pages are charged to a memory cgroup."""
    ratio, pairs = a.group_ratio, len(a.grouped)
    said = (f"Charged to a memory cgroup of its own a page takes {ratio.value:.3f} times as long as at the root of the hierarchy, which "
            f"charges nobody; the two took turns in {in_words(pairs)} process{'es' * (pairs > 1)}. ")
    if pairs < LEAST_PAIRS:
        return Prose(said + "So few tell no charge from noise.")
    return Prose(said + choose(ratio, {
        "above": "So the charge is felt.",
        "below": "So what is charged is faster here, which no charge explains: the two turns differ otherwise.",
        "open": f"So the charge, if any, is lost in the noise: {abs(ratio.high - 1):.1%} would have shown."}))


def statistics_said(a: Analysis) -> Prose:
    """The published statistics, done again from what was printed."""
    test = a.published_test
    printed = literature("page_fault_difference").iloc[0]
    return Prose(f"From the printed means, intervals and counts alone Student's test can be done again: t = {test.t:.2f} with "
                 f"{test.freedom} degrees of freedom, and p = {test.p:.1e}. The article prints t = {printed['t']:.2f} and "
                 f"p = {printed['p_value']:.1e}.\n\nThe difference is no accident of those boots. It is also "
                 f"{test.difference.value:.2f} ns, or {test.relative:.2%}.")


def matter_said(a: Analysis) -> Prose:
    """Say how much of it would matter; and the same on this machine's data."""
    test = a.published_test
    spread = a.published[4].deviation / a.published[4].mean
    said = (f"In standard deviations the effect is large, {test.effect:.1f} of them, because the boots differ by {spread:.2%} from each "
            f"other. In time it is small: a program that did nothing but fault would lose {test.relative:.2%}, and one that spends a tenth "
            f"of its time in faults {test.relative / 10:.3%}. *Significant* means that there is a difference, not that it matters.")
    own = if_available(lambda: a.own_test)
    if own is None:
        return Prose(said)
    in_pairs = side(a.group_ratio, slack=0.0) == "above"
    return Prose(f"{said}\n\nThe same test here, of pages in a memory cgroup and outside, gives t = {own.t:.2f} with {own.freedom} degrees "
                 f"and p = {own.p:.2g}, for {own.relative:+.1%}. " + (
                     "It is significant, and worth as much as that percentage." if own.p < SIGNIFICANT else
                     "It is not significant, though pair by pair the charge was felt: the test does not know which two took turns, and "
                     "processes differ from each other by more." if in_pairs else
                     "It is not significant: these processes differ from each other by more."))


def buckets_said(a: Analysis) -> Prose:
    """What the published histograms hold: a mode that moves, and a mean that hardly does."""
    most, means = a.published_buckets.groupby("page_table_levels")["share"].max(), a.published_means
    return Prose(f"The fullest bucket moves up by one, which doubles its name. The mean moves from {means[4]:.2f} ns to {means[5]:.2f}, or "
                 f"{means[5] / means[4] - 1:.1%}. Faults of nearly equal length lie on both sides of a bucket's end, and a small shift "
                 f"carries many across: neither fullest bucket has half of the faults ({most[4]:.0%} and {most[5]:.0%}).")


def levels_said(a: Analysis) -> Prose:
    """How many levels this machine walks, by the kernel's words, and whether the CPU has more."""
    levels = required([a.host.page_table_levels] if a.host.page_table_levels else [], "the kernel does not say", "no-data")[0]
    said = f"This machine walks {in_words(levels)} levels"
    if not is_x86(a.host):
        return Prose(said + "; its kernel was built for as many, and no parameter changes it.")
    asked = if_available(lambda: a.side)
    if levels > 4:
        said += ", which its CPU has and its kernel took by default. Booted with `no5lvl`, it walks four"
    elif a.host.la57:
        said += " though its CPU has five" + (", for it was booted with `no5lvl`" if asked and asked.no5lvl else "")
    else:
        said += ", and its CPU shows no fifth" if a.host.la57 is False else ", and whether its CPU has a fifth is not stated"
    if asked is None or asked.high_mapping is None:
        return Prose(said + ".")
    flag = "lists" if asked.la57_flag else "does not list"
    given = "gives" if asked.high_mapping else "gives no"
    return Prose(f"{said}. `/proc/cpuinfo` {flag} `la57`, and the kernel {given}{' a' if asked.high_mapping else ''} mapping above 47 "
                 f"bits: the two {'agree' if asked.la57_flag == asked.high_mapping else 'disagree'}.")


def buys_said(a: Analysis) -> Prose:
    """What a fifth level buys, in bytes, beside this machine's memory."""
    direct, wide = 1 << 46, 1 << 55  # Documentation/arch/x86/x86_64/mm.rst: the direct mapping of all memory
    return Prose(f"On x86-64 four levels of nine bits and an offset of twelve make 48, or {format_size(1 << 48)}. Half of that is the "
                 f"kernel's, and a quarter of the whole maps all memory: {format_size(direct)}. Five translate 57, and the same map has "
                 f"{wide >> 50} PiB. This machine has {format_size(a.host.memory.total_bytes // 2**30 * 2**30)}.")


def churn_said(a: Analysis) -> Prose:
    """What it costs threads to map memory for each record, alone and together."""
    mapped, kept = a.churn("unmap"), a.churn("keep")
    required(mapped, "no threads mapped memory")
    required(kept, "the control was not measured")
    alone = mapped.at(1) / kept.at(1)
    said = f"One thread that maps a chunk for each record takes {alone.value:.0f} times as long for it as one that keeps its memory. "
    most = a.most_real_threads
    if most == 1:
        return Prose(said + "There is one CPU, so no two threads fault at once here.")
    gains = [curve.at(1) / curve.at(most) for curve in (mapped, kept)]
    return Prose(said + f"With {in_words(most)} threads, a CPU each, they find {gains[0].value:.2f} times as many records a second, and "
                 f"{gains[1].value:.2f} times where memory is kept. " + choose(gains[1] / gains[0], {
                     "above": "What is missing from the first is what they wait for each other in the kernel: one address space, whose "
                              "changes are told to every CPU that runs in it.",
                     "open": "So mapping scales as well as searching does, as far as so few threads show.",
                     "below": "So mapping scales better than searching does, whose copies share a cache."}, slack=SAME))


def beyond_said(a: Analysis) -> Prose:
    """That threads beyond the CPUs wait for a turn."""
    rows = required(a.rates[a.rates["is_beyond"].astype(bool)], "each thread had a CPU", "no-data")
    return Prose(f"Up to {in_words(int(rows['threads'].max()))} threads were published, with a CPU each. Beyond "
                 f"{in_words(a.most_real_threads)} those here take turns, so those points say how a full machine fares, and not how a "
                 "table scales.")


def chunks_said(a: Analysis) -> Prose:
    """The same with chunks that large pages can hold."""
    base, large = a.churned(BASE), a.churned(LARGE)
    return Prose(f"With chunks as large as a large page a record takes {base.value / 1e3:,.0f} µs on base pages and "
                 f"{large.value / 1e3:,.0f} on {words(LARGE)}. " + choose(base / large, {
                     "above": "A fault in place of hundreds is most of the gain.", "open": "Fewer faults gain nothing here.",
                     "below": "Fewer faults cost more here."}, slack=SAME))


def _found_again(a: Analysis, prices: Mapping[str, Interval]) -> dict[str, Side]:
    """By page size whether a page's price has more in it than this kernel's work; of those that have something to be held against."""
    found = {pages: if_available(a.found_again, price, pages) for pages, price in prices.items()}
    return {pages: where for pages, where in found.items() if where}


def first_said(a: Analysis) -> Prose:
    """What memory takes that the kernel finds for a new process, beside memory that one process uses over and over."""
    prices = {pages: price for pages in (BASE, LARGE) if (price := if_available(a.first_ns, pages))}
    required(prices, "no memory was left alone")
    over = {pages: a.page_ns(FRESH if pages == BASE else FRESH_LARGE).value for pages in prices}
    told = listed(f"{price.value:,.0f} ns on {words(pages)}, where the other takes {over[pages]:,.0f}," for pages, price in
                  prices.items()).rstrip(",")
    found = set(_found_again(a, prices).values())
    return Prose("What one process takes and gives back over and over is the same memory, as above. What the kernel finds for a new "
                 f"process may have been free for long. A base page's worth of it takes {told}. " + (
                     "So a part of what was free was not there." if "above" in found else
                     "Processes differ: for some a part of what was free was not there." if "open" in found else
                     "So what was free was there."))


def again_said(a: Analysis) -> Prose:
    """What memory takes that was given back, and touched again at once and after a wait."""
    pairs = {pages: pair for pages in (BASE, LARGE) if (pair := if_available(a.waited, pages))}
    required(pairs, "no memory was left alone and touched again")
    told = "; ".join(f"on {words(pages)} {soon.value:,.0f} ns at once and {late.value:,.0f} after {seconds:g} s"
                     for pages, (soon, late, seconds) in pairs.items())
    soon, late = (set(_found_again(a, {pages: pair[place] for pages, pair in pairs.items()}).values()) for place in (0, 1))
    said = f"Touched again, a base page's worth of memory that was given back takes this: {told}. "
    if late | soon <= {"below"}:
        return Prose(said + "So nothing was taken away in that time, or what came back is another part of memory that was not.")
    return Prose(said + ("Even at once it need not be the same memory that comes back. " if "above" in soon else "") + (
        "Somebody had taken it away, and had to find it again: that is not this kernel, which counts it as free all the while."
        if "above" in late | soon else
        "Processes differ: for some of them somebody had taken it away, who is not this kernel, and had to find it again."))


def host_said(a: Analysis) -> Prose:
    """What this guest tells its host of free memory."""
    if a.host.hypervisor == "none":
        return Prose("On bare metal nobody is below the kernel: free memory stays where it is.")
    told = a.side
    if told.balloon is None:
        return Prose("This guest has no balloon of virtio's, so if its host takes memory back, it does so by what it sees itself.")
    said = f"This guest has a balloon, by which its host can ask for memory ({listed(told.balloon) or 'with no features'}). "
    if told.report_order is None:
        return Prose(said + "It does not report free pages, so what is free stays backed until somebody asks.")
    block = format_size(a.base_page_bytes << told.report_order)
    said += f"It reports free blocks of {block} and more, some two seconds after they came free, and the host takes each from under it. "
    late = {pages: pair[1] for pages in (BASE, LARGE) if (pair := if_available(a.waited, pages))}
    if _found_again(a, late) != {BASE: "below", LARGE: "above"}:
        return Prose(said + "Pages that lie scattered are in no such block, and are not told of.")
    return Prose(said + "Pages that lie scattered are in no such block, and are not told of: what large pages gave back is whole, and "
                        "comes back dear; base pages find others that were never reported.")


def profile_said(a: Analysis) -> Prose:
    """Where a fault's time goes on both page sizes."""
    if len(a.profiles):
        top = a.profiles.sort_values("base", ascending=False).iloc[0]
        large = a.profiles.sort_values("large", ascending=False).iloc[0]
        names = [row["symbol"].split(" ", 1)[1] for row in (top, large)]
        return Prose(f"On base pages most samples of one function fall on `{names[0]}` ({top['base']:.0%}), on large ones on `{names[1]}` "
                     f"({large['large']:.0%}). A clock's interrupt takes the samples, so where interrupts are off it comes late: a share "
                     "tells where to look, and a difference of shares what to ask. It is no time.")
    return Prose(_sentence(a.side.lacking.get("profiles", "no-data")))


def traced_said(a: Analysis) -> Prose:
    """Faults by the kernel's tracepoint, or why there is none."""
    if a.side.traced:
        traced, counted = a.side.traced
        return Prose(f"The kernel's own tracepoint saw {count(traced)} faults from user space in a region in which getrusage counts "
                     f"{count(counted)}.")
    return Prose(_sentence(a.side.lacking.get("traced", "no-data")))


def _sentence(code: str) -> str:
    return " ".join(REASONS[code])
