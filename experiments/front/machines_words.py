"""What the machines of data/ show together, and what none of them has: sentences of the page of machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.front.machines import Analysis, Machine
from experiments.front.profile import PARTS
from experiments.front.profiles import DIFFERS, beside
from experiments.lab import events
from experiments.machine.host import is_arm
from experiments.machine.microarchitecture import UNKNOWN
from experiments.words.prose import Prose, count, escape_markdown, in_words, listed, many
from experiments.words.reasons import Unavailable, required

__all__ = ["lead", "reach_said", "spread_said", "splinters_said", "alone_said", "unread_said", "wanted_said"]

_NAMED = 6  # machines that a sentence names
_AGREES = 0.05  # of the entries found: a survey places a capacity to a few per cent, and other CPUs' numbers lie farther apart
ENTRIES = {level: (f"entries_level_{level}", f"stated_level_{level}") for level in (1, 2)}  # as found or, where nothing was, as stated
# Of what every machine may have, what a quantity's value follows from.
_BECAUSE = {
    "load_first_level": "the core answers it alone, and cores differ in little but their clock",
    "hit_last_level": "the core answers it alone, and cores differ in little but their clock",
    "walk_past_last_level": "it depends on the cache that holds the page table just there",
    "walk_over_2_gib": "it waits for memory and, in a guest, for the host's table too",
    "walk_table_l2": "the core and its own cache answer it",
    "walk_table_l3": "it waits for a cache that the host's other guests use as well",
    "walk_table_memory": "it waits for memory and, in a guest, for the host's table too",
    **dict.fromkeys(("gain_thp", "gain_2m", "gain_1g"), "what a larger page saves is what the host leaves of it"),
    "gain_64k": "it depends on whether a core joins neighbouring entries",
    "fault_fresh": "it is the kernel's work, and the hypervisor's",
    "fault_fresh_large": "it is the kernel's work, most of it clearing memory",
    "fault_file": "it is the kernel's work, and the hypervisor's"}


def _name(machines: Sequence[Machine]) -> str:
    """Machines by their labels, each once."""
    return listed(escape_markdown(label) for label in dict.fromkeys(each.label for each in machines))


def lead(a: Analysis) -> Prose:
    """How many machines there are, and of which kind."""
    every = a.machines
    kinds = {("is virtual", "are virtual"): sum(each.is_guest is True for each in every),
             ("is on bare metal", "are on bare metal"): sum(each.is_guest is False for each in every),
             ("has hardware counters", "have hardware counters"): sum(each.counts for each in every),
             ("has a host that cuts large pages into small ones", "have hosts that cut large pages into small ones"):
                 sum(each.pages == "splintered" for each in every)}
    told = listed(f"{in_words(number)} {words[number > 1]}" for words, number in kinds.items() if number)
    who = f": {_name(every)}" if len(every) <= _NAMED else ""
    return Prose(f"{in_words(len(every)).capitalize()} {'machine is' if len(every) == 1 else 'machines are'} in `data/`{who}."
                 + (f" Of these, {told}." if told else ""))


def reach_said(a: Analysis) -> Prose:
    """What the processor decides: how many translations it holds, and whether it says so."""
    last = required(a.with_value(*ENTRIES[2]), "no machine's last level is known")
    least, most = last[0], last[-1]
    few, many_ = (count(each.value(*ENTRIES[2])) for each in (least, most))
    how = (f"reaches from {few} pages ({_name([least])}) to {many_} ({_name([most])})" if few != many_ else
           f"is {few} pages on {_name(last) if len(last) <= _NAMED else 'each'}")
    off = {each.name: abs(each.value("entries_level_2") / each.value("stated_level_2") - 1) for each in last
           if each.quantity("entries_level_2") and each.quantity("stated_level_2")}
    wrong = [each for each in last if off.get(each.name, 0.0) > _AGREES]
    agrees = "" if not off else (f" What CPUID states of it, chases find to within {100 * max(off.values()):.1f} %." if not wrong else
                                 f" On {_name(wrong[:_NAMED])} chases find another number than CPUID states.")
    return Prose(f"**How far a TLB reaches is the processor's.** The last level {how}, because it is silicon: no kernel, host or setting "
                 f"adds an entry.{agrees}")


def spread_said(a: Analysis) -> Prose:
    """Which price differs most from machine to machine, and which least."""
    factors: dict[str, tuple[float, Machine, Machine]] = {}
    for name in _BECAUSE:
        having = _comparable(a.with_value(name))
        if len(having) > 1 and having[0].value(name) > 0:
            factors[name] = having[-1].value(name) / having[0].value(name), having[0], having[-1]
    if len(factors) < 2:
        raise Unavailable("too-few-points", "two machines with two quantities of the profile in common are compared")
    most, least = (pick(factors, key=lambda name: factors[name][0]) for pick in (max, min))
    (far, low, high), (near, *_) = factors[most], factors[least]
    pair = {found.a.name: found.verdict for found in beside(low.profile, high.profile)} if low.profile and high.profile else {}
    doubt = "" if pair.get(most) == DIFFERS else " Even so, the intervals of these two leave open whether they differ."
    return Prose(f"**Some prices travel and others do not.** A {_what(low, least)} differs least, by a factor of {near:.2f}: "
                 f"{_BECAUSE[least]}. A {_what(low, most)} differs most, by {far:.1f}, from {_price(low, most)} on {_name([low])} to "
                 f"{_price(high, most)} on {_name([high])}: {_BECAUSE[most]}.{doubt}")


def _comparable(machines: list[Machine]) -> list[Machine]:
    """Those that the present versions of the kernels measured; all, where none is."""
    return [each for each in machines if not each.is_earlier] or machines


def _what(of: Machine, name: str) -> str:
    found = next(found for found in of.profile.quantities if found.name == name) if of.profile else None
    assert found is not None  # it has a value
    words = escape_markdown(found.words)
    return {"pages": f"gain by {words}", "faults": f"first touch of a {words}"}.get(found.part, words)


def _price(of: Machine, name: str) -> str:
    found = of.quantity(name)
    assert found is not None and found.value is not None
    return f"{found.value:.3g}" if found.unit == "ratio" else f"{found.value:,.3g} ns" if found.value < 1000 else f"{found.value:,.0f} ns"


def splinters_said(a: Analysis) -> Prose:
    """What the host decides: whether a large page is one."""
    cut, whole = ([each for each in a.with_value("gain_thp", "gain_2m") if each.pages == kind] for kind in ("splintered", "whole"))
    if not cut and not whole:
        return Prose("**What a host makes of large pages** is known of no machine here.")
    if cut and whole:
        return Prose(f"**Whether large pages help is the host's.** Where it leaves them whole, they make a chase over 2 GiB "
                     f"{_gains(whole)} as fast; where it cuts them up, {_gains(cut)}, because an entry then holds a piece, and only the "
                     "walk gets shorter.")
    if whole:
        return Prose(f"**Large pages are whole on each machine** of which it is known: they make a chase over 2 GiB {_gains(whole)} as "
                     "fast, because an entry holds all of one.")
    each = "each host of which it is known" if len(cut) > 1 else "the one host of which it is known"
    told = sum(bool(found.interval and found.interval.low > 1) for each in cut for found in [each.quantity("gain_thp") or each.quantity(
        "gain_2m")] if found)
    sure = "" if told == len(cut) else f", and on {many(told)} of {in_words(len(cut))} by more than chance"
    return Prose(f"**Whether large pages help is the host's,** and {each} cuts them up: they make a chase over 2 GiB {_gains(cut)} as fast"
                 f"{sure}. That comes of a shorter walk alone, because an entry holds a piece. What whole ones would give, none of these "
                 "machines shows.")


def _gains(machines: Sequence[Machine]) -> str:
    low, high = (f"{each.value('gain_thp', 'gain_2m'):.2f}" for each in (machines[0], machines[-1]))
    return f"{low} times" if low == high else f"{low} to {high} times"


def alone_said(a: Analysis) -> Prose:
    """Whether machines share a processor, and so whether it can be told apart from its host."""
    known = Counter(each.host.microarchitecture for each in a.machines if each.host and not each.is_own)
    shared = [name for name, number in known.items() if number > 1 and name != UNKNOWN]
    if shared:
        return Prose(f"{listed(map(escape_markdown, shared[:_NAMED]))} {'is' if len(shared) == 1 else 'are'} here on more than one "
                     "machine: what differs between those is not the processor's.")
    return Prose("No two of these machines have the same processor, so what one's processor does and what its host does, they alone cannot "
                 "tell apart. A second machine of a kind that is here would.")


def unread_said(a: Analysis) -> Prose:
    """Of which machines something is not shown, and why; which quantities none has."""
    lines = [f"- {escape_markdown(each.label)}: {escape_markdown(why)}" for each in a.machines for why in each.why]
    known = {q.name for each in a.profiled for q in each.profile.quantities if q.value is not None}  # type: ignore[union-attr]
    lacking = {q.name: f"{PARTS[q.part]}: {q.words}" for each in a.profiled for q in each.profile.quantities  # type: ignore[union-attr]
               if q.name not in known}
    by_part = Counter(words.partition(":")[0] for words in lacking.values())
    none = f"No machine has a value of {many(len(lacking))} quantities of the profile ({listed(by_part)})." if lacking else (
        "Each quantity of the profile has a value on one machine at least." if known else "")
    return Prose("\n\n".join(filter(None, [none, "Not shown:\n\n" + "\n".join(lines) if lines else ""])) or "Nothing is left out.")


# --- what is wanted


class Want(NamedTuple):
    """A kind of machine: whether one is of it, what it would show that a noisy guest cannot, and what to type on one."""

    what: str
    has: Callable[[Machine], bool]
    why: str
    command: str


def _times_walks(each: Machine) -> bool:
    """Whether it counts cycles of walks, which not every processor has an event for."""
    return each.counts and each.host is not None and any(
        event.quantity == "walk_cycles" and event.event for event in events.quantities(each.host.microarchitecture))


WANTED = (
    Want("Counters", lambda each: each.counts,
         "A guest without them times a load, and has to take its walk's share from a control. Counters say how often it walked.",
         ".venv/bin/tlb run stlb_cliff -p profile full && .venv/bin/tlb bundle"),
    Want("Counters of a walk's cycles", _times_walks,
         "Walks are counted here, and how long one takes is inferred from time. A processor that counts the cycles of its walks (Intel's "
         "cores do) says it without a control, and its walks that run beside other work.",
         ".venv/bin/tlb run stlb_cliff -p profile full && .venv/bin/tlb bundle"),
    Want("arm64", lambda each: bool(each.host and is_arm(each.host)),
         "All that is here is of one architecture, so nothing tells what follows from x86-64: base pages of 16 and 64 KiB, contiguous "
         "entries that join by the kernel's hint, flushes that hardware broadcasts.",
         "make book PROFILE=full MINUTES=40 && .venv/bin/tlb bundle"),
    Want("Two nodes", lambda each: each.has_nodes,
         "A walk whose table lies on the other node pays for the way on each step. A guest of one node has no other, and where its host "
         "puts its memory it cannot see.",
         ".venv/bin/tlb run virtualization -p profile full && .venv/bin/tlb bundle"),
    Want("Bare metal with whole large pages", lambda each: each.is_guest is False and each.pages == "whole",
         "A guest's large page is as large as its host lets it be, and its walk has two dimensions. Only bare metal shows a walk of one, "
         "and what an entry gains that spans 2 MiB.",
         ".venv/bin/tlb run hugepages -p profile full && .venv/bin/tlb bundle"),
)


def wanted(machines: Sequence[Machine]) -> list[Want]:
    """What no machine is. Of counters of cycles nothing is asked before there are counters."""
    lacks = [want for want in WANTED if not any(want.has(each) for each in machines)]
    return [want for want in lacks if want is not WANTED[1] or WANTED[0] not in lacks]


def wanted_said(a: Analysis) -> Prose:
    """What no machine in data/ is, each with why, and with a command."""
    lacks = wanted([each for each in a.machines if not each.is_own])
    if not lacks:
        return Prose("Each kind of machine that this page asks for is there. What helps now is a second one of any kind: it tells what is "
                     "the processor's from what is its host's.")
    return Prose("\n\n".join(f"**{want.what}.** {want.why}\n\n```sh\n{want.command}\n```" for want in lacks))
