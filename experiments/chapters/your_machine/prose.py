"""The sentences of the chapter about the machine, chosen by its kind; each function of __all__ is glued under its name."""

from __future__ import annotations

from collections.abc import Callable

from experiments.article.setting import hypervisor_name, run_this, set_up, tlb
from experiments.chapters.your_machine.address import ENTRY_BYTES
from experiments.chapters.your_machine.analysis import Analysis
from experiments.inference import geometry, geometry_words
from experiments.inference.curves import select
from experiments.machine.host import is_arm, is_x86
from experiments.words.prose import Prose, count, escape_markdown, in_words, listed
from experiments.words.units import format_size

__all__ = ["set_up", "split_caption", "walk_here", "root", "levels_are_loads", "covers", "node_entries", "page_size", "leaf_size",
           "table_share", "fault_4_ns", "fault_5_ns", "fault_more_percent", "fifth", "index", "least_load_cycles", "most_load_cycles",
           "reach", "zen2_l2_ways", "zen5_l2_ways", "golden_cove_l1_ways", "m1_l1_ways", "m1_walk_cycles", "oryon_walk_low_cycles",
           "oryon_walk_high_cycles", "outgrow", "guest", "tlb_source", "cpuid_here", "geometry_lead", "geometry_verdicts",
           "geometry_walks", "tier", "memory", "count_pages", "thp", "change", "run_this"]

_ORDINALS = {2: "second", 3: "third"}


def brief(a: Analysis) -> Prose:
    """How far the TLB reaches, by what the machine states."""
    return tlb(a)


# --- the tree


def split_caption(a: Analysis) -> Prose:
    source = " {cite:p}`intel_sdm,amd_apm`" if is_x86(a.host) else " {cite:p}`linux_arm64_memory`" if is_arm(a.host) else ""
    begin = "A virtual address on this machine" if a.split.stated else f"The usual split of a {a.split.bits}-bit virtual address"
    sizes = {level.bits for level in a.split.levels}
    groups = f"{_levels(a)} groups" + (f" of {sizes.pop()} bits" if len(sizes) == 1 else "")
    return Prose(f"{begin}, and where it leads. Boxes are as wide as they have bits. From the left, {groups} index one node of the tree "
                 f"each, and the last {a.split.offset.bits} bits choose the byte in the page{source}.")


def _levels(a: Analysis) -> str:
    return in_words(len(a.split.levels))


def walk_here(a: Analysis) -> Prose:
    sentence = (f"This machine walks {_levels(a)} levels, in pages of {page_size(a)}." if a.split.stated else
                f"How many levels this machine's kernel walks is not stated where a program can read it; with pages of {page_size(a)}, "
                f"{_levels(a)} are usual.")
    if a.split.node_entries != 512:
        sentence += (f" A node fills such a page, so it holds {a.split.node_entries:,} entries, and a full group has "
                     f"{a.split.levels[-1].bits} bits.")
    sentence += f" The bits above {a.split.bits - 1} index nothing."
    if is_arm(a.host):
        sentence += " The names are Arm's; the principle is that of x86-64 {cite:p}`linux_arm64_memory`."
    return Prose(sentence)


def root(a: Analysis) -> str:
    return "the register CR3" if is_x86(a.host) else "the register TTBR0" if is_arm(a.host) else "a register"


def levels_are_loads(a: Analysis) -> str:
    return f"{_levels(a).capitalize()} levels are {_levels(a)} loads"


def covers(a: Analysis) -> str:
    return listed(format_size(level.covers_bytes) for level in reversed(a.split.levels))


def node_entries(a: Analysis) -> float:
    return float(a.split.node_entries)


def page_size(a: Analysis) -> str:
    return format_size(a.base_page_bytes)


def leaf_size(a: Analysis) -> str:
    return format_size(a.base_page_bytes * a.split.node_entries)


def table_share(a: Analysis) -> str:
    return f"1/{a.base_page_bytes // ENTRY_BYTES}"


def fault_4_ns(a: Analysis) -> float:
    return float(a.fault_ns[4])


def fault_5_ns(a: Analysis) -> float:
    return float(a.fault_ns[5])


def fault_more_percent(a: Analysis) -> float:
    return 100 * (fault_5_ns(a) / fault_4_ns(a) - 1)


def fifth(a: Analysis) -> Prose:
    cpu = "This machine's CPU" + ("" if a.host.hypervisor == "none" else ", as its hypervisor presents it,")
    used = "its kernel uses four" if a.host.page_table_levels == 4 else "how many its kernel uses is not stated"
    return Prose(
        "This machine is an arm64, whose choice is another one: addresses of 52 bits instead of 48 {cite:p}`linux_arm64_memory`."
        if is_arm(a.host) else
        "This machine uses five; booted with `no5lvl` it would use four {cite:p}`dawson_5level`." if a.host.page_table_levels == 5 else
        "Whether this machine's CPU could walk five levels is not stated." if a.host.la57 is None else
        f"{cpu} can walk five levels; {used}." if a.host.la57 else f"{cpu} cannot walk five levels.")


# --- the TLB and the caches


def _published(core: str, structure: str, quantity: str, end: int = 0) -> Callable[[Analysis], float]:
    """A number that somebody published of a core; end: 0 for the lower, 1 for the upper end of a range."""
    return lambda a: a.fact(core, structure, quantity)[end]


zen2_l2_ways = _published("Zen 2", "l2_tlb", "ways")
zen5_l2_ways = _published("Zen 5", "l2_tlb", "ways")
golden_cove_l1_ways = _published("Golden Cove", "l1_dtlb", "ways")
m1_l1_ways = _published("Apple M1 P core", "l1_dtlb", "ways")
m1_walk_cycles = _published("Apple M1 P core", "page_walker", "load_to_use")
oryon_walk_low_cycles = _published("Oryon", "page_walker", "load_to_use")
oryon_walk_high_cycles = _published("Oryon", "page_walker", "load_to_use", 1)


def least_load_cycles(a: Analysis) -> float:
    return float(select(a.cores, structure="l1_dtlb", quantity="load_to_use")["value_low"].min())


def most_load_cycles(a: Analysis) -> float:
    return float(select(a.cores, structure="l1_dtlb", quantity="load_to_use")["value_high"].max())


def index(a: Analysis) -> Prose:
    """Whether the offset in a page alone chooses the set of the first-level cache."""
    cache = next((c for c in a.host.caches if c.level == 1 and c.kind != "instruction"), None)
    if cache is None or not cache.sets or not cache.line_bytes:
        return Prose("How many sets this machine's first-level cache has is not stated.")
    span = cache.sets * cache.line_bytes
    sets = f"{cache.sets} sets of {cache.line_bytes}-byte lines span {format_size(span)}"
    if span > a.base_page_bytes:
        return Prose(f"On this machine that does not quite work out: {sets}, more than a page of {page_size(a)}, so the set depends on "
                     "bits that translation may change, and the designers had to see to it that two names of one byte lead to one place.")
    fits = "exactly a page" if span == a.base_page_bytes else "no more than a page"
    return Prose(f"On this machine that works out: {sets}, {fits}, so the offset alone chooses the set.")


def reach(a: Analysis) -> Prose:
    if a.reaches.empty:
        return Prose("For example, 64 entries reach 256 KiB in pages of 4 KiB, and 2,048 reach 8 MiB.")
    last = a.reaches["level"].max()
    spans = listed(f"{format_size(row.reach_bytes)} in pages of {format_size(row.page_bytes)}"
                   for row in a.reaches.itertuples() if row.level == last)
    return Prose(f"On this machine the last level reaches {spans}.")


def outgrow(a: Analysis) -> Prose:
    filled = a.caches.drop_duplicates("level").set_index("level")["filled_at_bytes"]
    fills = [f"{format_size(int(filled[level]))} to fill the {word}-level cache" for level, word in _ORDINALS.items() if level in filled]
    if not fills:
        return Prose("How large this machine's caches are is not stated, so where that begins has to be measured.")
    said = f"On this machine it would take a working set of {listed(fills)}. "
    if share := a.last_cache_share:
        level, fits, left = share
        said += (f"But it does not get the whole {_ORDINALS[level]}-level cache: lines side by side, which need hardly any table, leave it "
                 f"between {format_size(fits)} and {format_size(left)} ({{doc}}`stlb_cliff`), of {format_size(_size(a, level))} stated. "
                 f"\n\nThe table fills {format_size(fits)} at a working set of {format_size(fits * a.base_page_bytes // ENTRY_BYTES)}. ")
    return Prose(said + "The data want their part, too, so walks get dearer before that.")


def _size(a: Analysis, level: int) -> int:
    return int(a.caches.drop_duplicates("level").set_index("level")["size_bytes"][level])


def guest(a: Analysis) -> Prose:
    if a.host.hypervisor == "none":
        return Prose("This machine reports no hypervisor: one tree, one price.")
    if a.host.is_emulated:
        return Prose("This machine is emulated in software (QEMU's TCG), and what it measures is the emulator.")
    if a.host.has_nested_walks is False:
        return Prose(f"{_guest_of(a)}, which lends it no second tree: one tree, one price.")
    unsure = a.host.hypervisor == "unknown" and not is_x86(a.host)
    return Prose(("Whether this machine is a guest could not be found out. If it is," if unsure else
                  f"{_guest_of(a)}, so" if a.host.has_nested_walks else f"{_guest_of(a)}; unless its host shadows its page table,")
                 + " what it measures is the price of both trees, and a large page here may be large in name only: a guest cannot see on "
                 "what pages the host keeps its memory.")


def _guest_of(a: Analysis) -> str:
    host = "a hypervisor that does not give its name" if a.host.hypervisor == "unknown" else escape_markdown(hypervisor_name(a.host))
    return f"This machine is a guest of {host}"


# --- what the machine says of itself


def tlb_source(a: Analysis) -> Prose:
    sentence = "Of its TLBs, CPUID states this:" if a.host.tlb else "Of its TLBs, this machine states nothing."
    if codes := listed(map(escape_markdown, a.host.tlb_unknown_descriptors)):
        sentence = f"CPUID uses codes that this book does not know ({codes}). {sentence}"
    return Prose(sentence)


def cpuid_here(a: Analysis) -> Prose:
    what = "table" if a.host.tlb else "silence"
    return Prose("This machine is one of those, so the table is empty." if is_arm(a.host) else
                 "On this machine the instruction could not be asked, so the table is empty." if a.host.tlb_reason == "no-cpuid" else
                 f"This machine reports no hypervisor, so the {what} is the processor's own." if a.host.hypervisor == "none" else
                 f"{_guest_of(a)}, so the {what} is what the hypervisor lets through.")


# --- what the survey says


def geometry_lead(a: Analysis) -> Prose:
    found = a.geometry
    first, *others = found.levels
    sentences = [f"Here the stairs have {len(found.levels) + 1} treads. The first costs {found.first_tread:.1f} {found.unit} an access and "
                 f"ends at {count(first.entries.value)} pages."]
    sentences += [f"The next adds {level.hit_cost.value:.1f} and reaches to {count(level.entries.value)}."
                  for level in others if level.hit_cost]
    if first.is_alone:
        pass  # of a level that may be the second the ways are not these
    elif first.ways:
        sentences.append(f"Pages that collide show {first.ways} ways in the first level.")
    elif first.ways == 0:
        sentences.append(f"Pages {geometry.WAY_STRIDE} apart fit the first level as well as neighbours do: it has no sets to crowd.")
    return Prose(" ".join(sentences))


def geometry_verdicts(a: Analysis) -> Prose:
    return Prose("\n".join(f"- {sentence}" for sentence in geometry_words.sentences(a.geometry)))


def geometry_walks(a: Analysis) -> Prose:
    known = [walk for walk in a.geometry.walks if walk.cost]
    if len(known) < 2:
        return Prose("Walks in fewer than two places were measured here, so nothing compares them.")
    first, *_, last = known
    return Prose(f"With its table in {first.table_in} a walk adds {first.cost.value:,.0f} {a.geometry.unit}, with its table in "
                 f"{last.table_in} {last.cost.value:,.0f}: {last.cost.value / first.cost.value:.1f} times as much. *The cost of a TLB "
                 "miss* is all of that, on one machine.")


# --- what limits measuring, and what to do


def tier(a: Analysis) -> Prose:
    return Prose({"counters": "Hardware counters answer on this machine: walks are counted where the CPU has an event.",
                  "software": "On this machine walks are timed, not counted: there are times and software events.",
                  "timing": "On this machine walks are timed, not counted: there are times and nothing else."}[a.host.pmu.tier])


def memory(a: Analysis) -> Prose:
    usable = a.host.memory.usable_bytes
    if not usable:
        return Prose("How much memory is free is not stated, so no sweep can be sized.")
    return Prose(f"A sweep takes half of the usable memory at most; {format_size(usable)} were usable at the inspection (by "
                 f"{escape_markdown(a.host.memory.limit_source)}).")


def count_pages(a: Analysis) -> Prose:
    if not a.stated_entries:
        return Prose("On this machine, the steps that the next chapter finds are where larger pages begin to gain.")
    first, *others = map(count, a.stated_entries)
    second = f", up to {others[-1]} they save hits in the second level" if others else ""
    return Prose(f"By CPUID's numbers, larger pages save no translation here up to {first} hot pages{second}, and beyond that they save "
                 "walks.")


def thp(a: Analysis) -> Prose:
    small = f"a program gets pages of {page_size(a)}, unless it asks for pages from a pool"
    sentence = {
        "always": f"Transparent huge pages are on for everything here (`always`): a large allocation may lie on pages of {leaf_size(a)} "
                  "without your knowing. The kernels of this book ask for a size and check it",
        "madvise": f"Transparent huge pages come on request here (`madvise`): a program that does not ask gets pages of {page_size(a)}",
        "never": f"Transparent huge pages are off here (`never`): {small}",
        "absent": f"This kernel has no transparent huge pages: {small}",
    }.get(a.host.thp.enabled, "What this kernel does about transparent huge pages could not be read")
    return Prose(sentence + " {cite:p}`linux_transhuge`.")


# --- again


def change(a: Analysis) -> Prose:
    """Numba's twins walk the same staircase."""
    found = a.entries
    steps = f"steps at about {listed(f'{entries:,}' for entries in found)} pages, as here" if found else "the same steps as here"
    return Prose(f"**Change one thing:** `-p engine=numba` measures the staircase by the kernels' twins in Numba. Expect {steps}: a TLB "
                 "does not know what compiled a load. The times between the steps may be a little longer.")
