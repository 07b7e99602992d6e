"""The sentences of the chapter about guests, chosen by its Analysis; each function of __all__ is glued under its name.

Of guests they tell what `Analysis.guests` has, which need not be the reader's machine; of containers, memory nodes and what translates,
this machine's own.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import product

import pandas as pd

from experiments.article.chapter import literature
from experiments.article.setting import name_of, run_this, set_up, smaller
from experiments.chapters.virtualization import references
from experiments.chapters.virtualization.analysis import Analysis, pair_words
from experiments.chapters.virtualization.claims import SAME
from experiments.chapters.virtualization.grid import GUEST_PAGES, HOST_PAGES
from experiments.inference.intervals import Interval
from experiments.inference.splinter import HALF
from experiments.machine.host import is_x86
from experiments.words.pages import BASE, hardware, words
from experiments.words.prose import Prose, choose, escape_markdown, listed, side
from experiments.words.reasons import PAGE_REASONS, Unavailable, explain, if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "whose", "most_references", "practical_low", "practical_high", "lead", "translates", "compared", "clocks_said",
           "lacking", "matrix_said", "references_said", "levels_said", "steps_said", "touch_said", "containers_said", "numa_published",
           "numa_said", "inside_said", "change", "run_this"]

AGREE = 0.01  # by which two clocks may differ: a tick of the timer in a thousand
SAME_LOAD = 0.03  # by which a load of a guest that misses nothing may differ from a process's
# Why a machine may have no guest, beside lacking pages.
GUEST_REASONS = PAGE_REASONS | {"no-kvm", "kvm-permission", "kvm-refused", "guest-crashed", "guest-emulated", "not-x86", "engine-lacks",
                                "kernel-hung"}


def _published(quantity: str, column: str, _: Analysis) -> float:
    return float(literature("virtualization").set_index("quantity").loc[quantity, column])


most_references = partial(_published, "references of a cold nested walk", "references_count")
practical_low = partial(_published, "guest over native cost", "low_ratio")
practical_high = partial(_published, "guest over native cost", "high_ratio")
numa_published = partial(_published, "remote over local latency", "high_ratio")


def whose(a: Analysis) -> Prose:
    """Nothing where the guests are this machine's own."""
    guests = a.guests
    return Prose("" if guests is a else "No guest was measured on this machine. The guests in this chapter are those of the reference "
                 f"machine: {escape_markdown(name_of(guests.host, guests.is_simulated))}.")


# --- of guests


def _named(row: pd.Series) -> str:
    return pair_words(row["guest"], row["host"])


def _times(row: pd.Series) -> str:
    return f"{Interval.of(row, 'over_alike'):.2f} times"


def _size(a: Analysis, lines: float) -> str:
    return format_size(int(lines) * a.base_page_bytes)


def _ends(table: pd.DataFrame, column: str = "median") -> tuple[pd.Series, pd.Series]:
    return table.loc[table[column].idxmin()], table.loc[table[column].idxmax()]


def lead(a: Analysis) -> Prose:
    """`brief` of the guests that the chapter shows."""
    return brief(a.guests)


def brief(a: Analysis) -> Prose:
    """This machine's first pair of page sizes at the largest size, and the cheapest. Raises Unavailable."""
    far = a.far
    first, best = far.iloc[0], far.loc[far["median"].idxmin()]
    alike = f", {_times(first)} what the same load takes in a plain process on the same page size" if pd.notna(first["over_alike"]) else ""
    cheapest = "" if best.name == first.name else (
        f" The cheapest pair of page sizes is {_named(best)}, with {best['median']:.0f} ns.")
    return Prose(f"Over {_size(a, first['lines'])}, one line to each base page, a dependent load takes {first['median']:.0f} ns in a guest "
                 f"with {_named(first)}{alike}.{cheapest}")


def matrix_said(a: Analysis) -> Prose:
    a = a.guests
    told = []
    for guest, mine in a.far.groupby("guest", sort=False):
        low, high = _ends(mine)
        if len(mine) > 1:
            told.append(f"With {words(guest)} in the guest, the host's choice moves a load from {low['median']:.0f} ns on "
                        f"{words(low['host'])} "
                        f"to {high['median']:.0f} on {words(high['host'])}.")
    ratios = a.far.dropna(subset="over_alike")
    if len(ratios):
        least, most = _ends(ratios, "over_alike")
        told.append(f"Beside a plain process on the guest's page size, a load at {_size(a, a.sizes[-1])} takes {_times(most)} as long "
                    f"with {_named(most)}, the most of {len(ratios)} pairs.")
        if least["over_alike_high"] < 1 and hardware(least["host"]) != least["guest"]:
            told.append("A guest that is faster than the process beside it is no contradiction. Its pages lie in larger ones of the host, "
                        "so neighbours are neighbours in the host's memory, too, which a process's own small pages need not be.")
    with suppress(Unavailable):  # what the guest's chase costs where nothing is missed
        ratio = a.in_first_cache
        why = ": a guest's instructions are the processor's own." if side(ratio, slack=SAME_LOAD) == "open" else (
            ", which translation does not explain.")
        told.append(f"Where all lines fit into the first cache, a load in the guest takes {ratio:.2f} times a plain process's{why}")
    return Prose("\n\n".join(told) or "One pair of page sizes was measured, and nothing beside it.")


def references_said(a: Analysis) -> Prose:
    a = a.guests
    counts = a.priced.sort_values("formula", kind="stable")
    low, high = counts.iloc[0], counts.loc[counts["formula"].idxmax()]
    less = f"; a guest with {_named(low)} could need {low['formula']} and pays {low['price']:z.0f}" if low["cell"] != high["cell"] else ""
    why = (f"The processor here does not make these walks. It walks the shadow table, which takes {high['shadow']} references down to the "
           "smaller page. So the formula bounds what other machines pay, and it is not what tells these prices apart."
           if a.host.kvm and a.host.kvm.tables == "shadow" else
           "Walk caches and nested TLBs are why a walk that could take so many references does not take so long.")
    return Prose(f"At {_size(a, high['lines'])}, a guest with {_named(high)} could need {high['formula']} references and pays "
                 f"{high['price']:z.0f} ns"
                 f"{less}.\n\nWith its caches warm, the simulated walk of the first makes {high['warm']:.1f} references a load. {why}")


def levels_said(a: Analysis) -> Prose:
    try:
        lines, ratio = a.guests.five_levels
    except Unavailable:
        return Prose("No guest with five levels was measured here; it takes a CPU that has them and a KVM that passes them on.")
    return Prose(f"In a guest with five levels a load over {_size(a.guests, lines)} takes {ratio:.2f} times what it takes in one with four."
                 + choose(ratio, {"open": f" That is no difference, and one of {max(ratio.high - 1, 1 - ratio.low):.0%} would have "
                                          "shown."}))


def spanned(guests: Analysis) -> str:
    """What pairs of page sizes pay for translation between the two levels' entries, and what follows: a chase on pages of which an
    entry spans a piece pays all that base pages pay, one on whole huge pages nothing. Raises Unavailable."""
    cells = required({cell: share for cell, share in guests.shares.items() if cell[0]},
                     "no guest's chase shows the steps of base pages on base pages beside another's")
    outside = [share for cell, share in guests.shares.items() if not cell[0]]
    mixed = {side(share, HALF) for cell, share in cells.items() if references.smaller(*cell) == BASE}
    both = next((side(share, HALF) for cell, share in cells.items() if references.smaller(*cell) != BASE), "open")
    alone = {side(share, HALF) for share in outside}
    told = listed(f"a guest with {pair_words(*cell)} pays {share.value:.2f}" for cell, share in cells.items())
    return f"Between the two levels' entries, of what base pages on base pages pay for translation, {told}. " + (
        "There an entry spans more than the smaller page." if "below" in mixed else
        "These intervals do not show which page an entry spans." if mixed != {"above"} or both == "open" else
        "So an entry spans a huge page only if both the guest and its host use one." if both == "below" else
        f"Huge pages outside the guest pay {outside[0].value:.2f} as well: this computer's own are splintered, so no guest on it can have "
        "whole ones." if "above" in alone else
        "The data do not show whether this computer's own huge pages are whole, and a guest's can be no larger." if "below" not in alone
        else "Huge pages on both sides are splintered, though outside the guest they are whole.")


def steps_said(a: Analysis) -> Prose:
    told: dict[str, list[str]] = {}  # by where its two steps are, whose chases have them there
    for row in a.guests.steps.itertuples():
        name = pair_words(row.guest, row.host)
        places = dict.fromkeys(f"between {low:,.0f} and {high:,.0f}" if pd.notna(low) else f"not up to {row.most:,}"
                               for low, high in ((row.first_low, row.first_high), (row.second_low, row.second_high)))
        told.setdefault(", then ".join(places), []).append(name)
    found = "\n\n".join(f"{places[0].upper()}{places[1:]} lines: {listed(names)}." for places, names in told.items())
    spans = if_available(lambda: f"\n\n{spanned(a.guests)}") or ""
    return Prose(f"The price of translation leaves the first level of the TLB, and then the second.\n\n{found}{spans}")


def clocks_said(a: Analysis) -> Prose:
    ratios = a.guests.clocks
    lost = "" if abs(ratios.median() - 1) <= AGREE else (
        " More than that is lost between the two: leaving and entering the guest, and what else ran meanwhile.")
    return Prose(f"Over {len(ratios):,} processes, the time by the clock outside is {ratios.median():.4f} times the one by the guest's own "
                 f"clock in the median, and {((ratios - 1).abs() <= AGREE).sum():,} of them agree to {100 * AGREE:g} %.{lost}")


def touch_said(a: Analysis) -> Prose:
    a = a.guests
    low, high = _ends(a.touches)
    less = "" if low.name == high.name else (
        f" and {low['median']:,.0f} ns with {_named(low)}, {high['median'] / low['median']:,.0f} times less")
    return Prose(f"At {_size(a, high['lines'])} the first touch of a line to each {format_size(a.base_page_bytes)} costs "
                 f"{high['median']:,.0f} ns a line with {_named(high)}{less}.")


# --- of this machine

_WALKS_BOTH = "the processor walks the guest's tables and, for each of their addresses, the host's."
_TRANSLATES = {
    "none": "No module of KVM is loaded here, so this machine runs no guest.",
    "EPT": f"`kvm_intel` says that EPT is on: {_WALKS_BOTH}",
    "NPT": f"`kvm_amd` says that NPT is on: {_WALKS_BOTH}",
    "shadow": "KVM's module here is `{}`, and it keeps shadow tables: for each entry that the guest makes, it writes one that leads from "
              "the guest's virtual address straight to the host's physical one. The processor walks those, in one dimension, and the "
              "second is paid in software, when an entry is made.",
    "unknown": "KVM's module here is `{}`, which does not say what translates."}


def translates(a: Analysis) -> Prose:
    """What translates a guest's memory here, as the modules of KVM say."""
    if not is_x86(a.host):
        return Prose(f"The guest of this chapter is written for x86-64, and this machine is {escape_markdown(a.host.arch)}.")
    if a.host.kvm is None:
        return Prose("The description of this machine is older than this question, so what translates there is not known.")
    kvm = a.host.kvm
    unasked = "" if kvm.device or kvm.tables == "none" else " But there is no /dev/kvm to ask it with."
    return Prose(_TRANSLATES[kvm.tables].format(kvm.module) + unasked)


# By whether the host is bare metal, and whether it keeps shadow tables.
_COMPARED = {
    (True, True): "With shadow tables a walk has one dimension in the guest as outside, so a ratio above one is what a copy of the tables "
                  "costs, and no second dimension.",
    (True, False): "Outside, a walk has one dimension; in the guest it has two, and the ratio is the price of the second.",
    (False, True): "In the guest on it, the shadow table takes the place of the first. That makes two in both, and the ratio compares a "
                   "guest with a guest: it is not the price of virtualization over bare metal.",
    (False, False): "A guest on it would need a third, and a processor walks no more than two, so the outer host has to fold two of the "
                    "three tables into one. The ratio is the price of that, and not of virtualization over bare metal."}
_OUTER = " a process outside already pays for two dimensions, its own tables and the outer host's."
_HOST = {"none": "This host is bare metal.", "unknown": f"Whether this host is itself a guest could not be told. If it is,{_OUTER}"}


def compared(a: Analysis) -> Prose:
    """What a ratio of guest to native compares on this machine."""
    is_shadow = a.host.kvm is not None and a.host.kvm.tables == "shadow"
    return Prose(f"{_HOST.get(a.host.hypervisor, f'This host is itself a guest, so{_OUTER}')} "
                 f"{_COMPARED[a.host.hypervisor == 'none', is_shadow]}")


def lacking(a: Analysis) -> Prose:
    """Which cells have no rows, with the reasons of this run, or what the machine says of itself."""
    missing = [pair_words(*cell) for cell in product(GUEST_PAGES, HOST_PAGES) if cell not in a.cells]
    if not missing:
        return Prose(f"This machine gave all {len(a.cells)} pairs of page sizes.")
    why = "\n".join(dict.fromkeys(f"- {note.text}" for note in a.notes if note.code in GUEST_REASONS))
    what = f"No rows lie on {listed(missing)}." if a.cells else "No guest was measured on this machine." + (
        " It has no /dev/kvm." if not why and a.host.kvm and not a.host.kvm.device else "")
    return Prose(f"{what}\n\n{why}" if why else what)


def inside_said(a: Analysis) -> Prose:
    """What a guest can find out of its host, from inside, about this machine."""
    if a.host.hypervisor == "none":
        return Prose("This machine says that it is no guest, so nobody but itself decides on what pages its memory lies.")
    host = "Of this machine's own host," + (" if it is a guest, which could not be told," if a.host.hypervisor == "unknown" else "")
    if (pages := a.splintering()) is None:
        return Prose(f"{host} nothing was measured. `tlb geometry --pages 2m` asks in half a minute whether its large pages are whole.")
    return Prose(f"{host} the verdict on large pages is **{pages.verdict}**. {pages.evidence}")


# By whether the interval holds one, and whether all is within what two runs of one program may differ by.
_CONTAINED = {
    (True, True): "Namespaces change what a process sees and nothing of how its addresses are translated.",
    (True, False): "So nothing is found, but the repeats differ too much to rule out a difference of a hundredth or more.",
    (False, True): "The interval misses one by less than a hundredth, which is what two runs of one program may differ by.",
    (False, False): "That is a difference, and no page table explains it: look at what the namespaces were started with, such as a control "
                    "group's limits or another CPU."}


def containers_said(a: Analysis) -> Prose:
    ratio, table = a.container_ratio, a.containers
    is_open = side(ratio) == "open"
    what = _CONTAINED[is_open, ratio.high - ratio.low <= 2 * SAME if is_open else abs(ratio.value - 1) <= SAME]
    return Prose(f"Over all pairs a load in fresh namespaces takes {ratio:.4f} times a plain process's, and "
                 f"{((table['low'] <= 0) & (table['high'] >= 0)).sum()} of {len(table)} intervals of the difference hold zero. {what}")


def numa_said(a: Analysis) -> Prose:
    nodes = a.nodes
    far = nodes[nodes["over"].notna() & ~((nodes["memory"] == "local") & (nodes["tables"] == "local"))]
    if far.empty:
        why = next((note.text for note in a.notes if note.code == "single-node"), "" if len(nodes) else explain("single-node"))
        return Prose(why or "Remote memory was measured here, and nothing near to compare it with.")
    far = far[far["lines"] == far["lines"].max()]
    told = listed(f"{Interval.of(row, 'over'):.2f} times with {row['memory']} memory and {row['tables']} page tables"
                  for _, row in far.iterrows())
    return Prose(f"At {_size(a, far['lines'].iloc[0])}, the time of a load with both local becomes {told}.")


# --- again


def change(a: Analysis) -> Prose:
    size, curve = 64 << 20, required(a.guests.spread.get(("4k", "4k"), ()), "no guest had base pages on both sides")
    there = curve.at(size // a.base_page_bytes).value
    return smaller(a, size, f"about {there:.0f} ns a load of a guest with base pages on both sides", f"{curve.last.value:.0f}")
