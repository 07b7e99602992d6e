"""What an inspection says in the chapter about the machine: sentences that the machine's kind chooses."""

from __future__ import annotations

import html
import re

import pandas as pd

from experiments.article.machine_words import Prose, Said, cache_bytes, data_tlbs, escape_markdown, pages
from experiments.article.render import Html
from experiments.chapters.your_machine import tables as reach
from experiments.chapters.your_machine.address import ENTRY_BYTES, WORDS, Split, is_arm, is_x86, listed, split
from experiments.machine.doctor import advice
from experiments.machine.host import Host
from experiments.words.units import format_size

_ORDINALS = {1: "first", 2: "second", 3: "third"}
_HYPERVISORS = {"kvm": "KVM", "xen": "Xen", "vmware": "VMware", "qemu": "QEMU", "hyper-v": "Hyper-V",
                "virtualbox": "VirtualBox", "acrn": "ACRN"}


def portrait(host: Host, cores: pd.DataFrame, faults: pd.DataFrame) -> Said:
    """The chapter's phrases, numbers and sentences; every key is there for every kind of machine.

    cores, faults: the literature's frames `microarchitectures` and `page_fault_levels`.
    """
    fault = faults[faults["benchmark"] == "lat_pagefault"].set_index("page_table_levels")["ns_per_fault"]
    return {
        **_tree(host),
        **reach.published(cores),
        "fault_4_ns": float(fault[4]),
        "fault_5_ns": float(fault[5]),
        "fault_more_percent": 100 * (float(fault[5]) / float(fault[4]) - 1),
        "fifth": Prose(_fifth(host)),
        "index": Prose(_index(host)),
        "reach": Prose(_reach(host)),
        "outgrow": Prose(_outgrow(host)),
        "guest": Prose(_guest(host)),
        "tlb_source": Prose(_tlb_source(host)),
        "cpuid_here": Prose(_cpuid_here(host)),
        "tier": Prose(_tier(host)),
        "memory": Prose(_memory(host)),
        "count_pages": Prose(_count_pages(host)),
        "thp": Prose(_thp(host)),
    }


# --- the tree ---


def _tree(host: Host) -> Said:
    parts = split(host)
    count = WORDS[len(parts.levels)]
    register = "CR3" if is_x86(host) else "TTBR0" if is_arm(host) else ""
    return {
        "split_caption": Prose(_split_caption(host, parts)),
        "walk_here": Prose(_walk_here(host, parts)),
        "root": f"the register {register}" if register else "a register",
        "levels_are_loads": f"{count.capitalize()} levels are {count} loads",
        "covers": listed(format_size(level.covers_bytes) for level in reversed(parts.levels)),
        "node_entries": float(parts.node_entries),
        "page_size": format_size(host.base_page_bytes),
        "leaf_size": format_size(host.base_page_bytes * parts.node_entries),
        "table_share": f"1/{host.base_page_bytes // ENTRY_BYTES}",
    }


def _split_caption(host: Host, parts: Split) -> str:
    cited = "intel_sdm,amd_apm" if is_x86(host) else "linux_arm64_memory" if is_arm(host) else ""
    usual = f"The usual split of a {parts.bits}-bit virtual address"
    begin = "A virtual address on this machine" if parts.stated else usual
    sizes = {level.bits for level in parts.levels}
    groups = f"{WORDS[len(parts.levels)]} groups" + (f" of {sizes.pop()} bits" if len(sizes) == 1 else "")
    return (
        f"{begin}, and where it leads. Boxes are as wide as they have bits. From the left, {groups} index "
        f"one node of the tree each, and the last {parts.offset.bits} bits choose the byte in the page"
        + (f" {{cite:p}}`{cited}`." if cited else ".")
    )


def _walk_here(host: Host, parts: Split) -> str:
    count, size = WORDS[len(parts.levels)], format_size(host.base_page_bytes)
    said = f"This machine walks {count} levels, in pages of {size}."
    if not parts.stated:
        said = (
            "How many levels this machine's kernel walks is not stated where a program can read it; "
            f"with pages of {size}, {count} are usual."
        )
    if parts.node_entries != 512:
        said += (
            f" A node fills such a page, so it holds {parts.node_entries:,} entries, and a full group has "
            f"{parts.levels[-1].bits} bits."
        )
    said += f" The bits above {parts.bits - 1} index nothing."
    if is_arm(host):
        said += " The names are Arm's; the principle is that of x86-64 {cite:p}`linux_arm64_memory`."
    return said


def _fifth(host: Host) -> str:
    if is_arm(host):
        return (
            "This machine is an arm64, whose choice is another one: addresses of 52 bits instead of 48 "
            "{cite:p}`linux_arm64_memory`."
        )
    if host.page_table_levels == 5:
        return "This machine uses five; booted with `no5lvl` it would use four {cite:p}`dawson_5level`."
    if host.la57 is None:
        return "Whether this machine's CPU could walk five levels is not stated."
    cpu = "This machine's CPU" + ("" if host.hypervisor == "none" else ", as its hypervisor presents it,")
    if not host.la57:
        return f"{cpu} cannot walk five levels."
    used = "its kernel uses four" if host.page_table_levels == 4 else "how many its kernel uses is not stated"
    return f"{cpu} can walk five levels; {used}."


# --- the TLB and the caches ---


def _index(host: Host) -> str:
    cache = next((c for c in host.caches if c.level == 1 and c.kind != "instruction"), None)
    if cache is None or not cache.sets or not cache.line_bytes:
        return "How many sets this machine's first-level cache has is not stated."
    span, page = cache.sets * cache.line_bytes, host.base_page_bytes
    sets = f"{cache.sets} sets of {cache.line_bytes}-byte lines span {format_size(span)}"
    if span <= page:
        fits = "exactly a page" if span == page else "no more than a page"
        return f"On this machine that works out: {sets}, {fits}, so the offset alone chooses the set."
    return (
        f"On this machine that does not quite work out: {sets}, more than a page of {format_size(page)}, so "
        "the set depends on bits that translation may change, and the designers had to see to it that two "
        "names of one byte lead to one place."
    )


def _reach(host: Host) -> str:
    rows = reach.reaches(host)
    if not rows:
        return "For example, 64 entries reach 256 KiB in pages of 4 KiB, and 2,048 reach 8 MiB."
    last = [row for row in rows if row.level == rows[-1].level]
    spans = [f"{format_size(row.reach_bytes)} in pages of {format_size(row.page_bytes)}" for row in last]
    return f"On this machine, level {last[0].level} reaches {listed(spans)}."


def _outgrow(host: Host) -> str:
    each = host.base_page_bytes // ENTRY_BYTES
    fills = [
        f"a working set of {format_size(size * each)} to fill the {_ORDINALS[level]}-level cache"
        for level in (2, 3)
        if (size := cache_bytes(host, level))
    ]
    if not fills:
        return "How large this machine's caches are is not stated, so where that begins has to be measured."
    return (
        f"On this machine it would take {listed(fills)}. But the table is not alone there: the data want "
        "their part, so walks get dearer before that."
    )


def _guest(host: Host) -> str:
    if host.hypervisor == "none":
        return "This machine reports no hypervisor: one tree, one price."
    if host.hypervisor == "qemu-tcg":
        return "This machine is emulated in software (QEMU's TCG), and what it measures is the emulator."
    price = (
        "what it measures is the price of both trees, and a large page here may be large in name only: "
        "a guest cannot see on what pages the host keeps its memory."
    )
    if host.hypervisor == "unknown" and not is_x86(host):
        return f"Whether this machine is a guest could not be found out. If it is, {price}"
    return f"This machine is a guest{_under(host)}, so {price}"


def _under(host: Host) -> str:
    if host.hypervisor == "unknown":
        return " of a hypervisor that does not give its name"
    return f" of {_HYPERVISORS.get(host.hypervisor, escape_markdown(host.hypervisor))}"


# --- what the machine says of itself ---


def _tlb_source(host: Host) -> str:
    said = "Of its TLBs, CPUID states this:" if host.tlb else "Of its TLBs, this machine states nothing."
    if codes := [escape_markdown(code) for code in host.tlb_unknown_descriptors]:
        said = f"CPUID uses codes that this book does not know ({listed(codes)}). {said}"
    return said


def _cpuid_here(host: Host) -> str:
    if is_arm(host):
        return "This machine is one of those, so the table is empty."
    if host.tlb_reason == "no-cpuid":
        return "On this machine the instruction could not be asked, so the table is empty."
    what = "table" if host.tlb else "silence"
    if host.hypervisor == "none":
        return f"This machine reports no hypervisor, so the {what} is the processor's own."
    return f"This machine is a guest{_under(host)}, so the {what} is what the hypervisor lets through."


# --- what limits measuring ---


def _tier(host: Host) -> str:
    return {
        "counters": "Hardware counters answer on this machine: walks are counted where the CPU has an event.",
        "software": "On this machine walks are timed, not counted: there are times and software events.",
        "timing": "On this machine walks are timed, not counted: there are times and nothing else.",
    }[host.pmu.tier]


def _memory(host: Host) -> str:
    memory = host.memory
    if not memory.usable_bytes:
        return "How much memory is free is not stated, so no sweep can be sized."
    return (
        f"A sweep takes half of the usable memory at most; {format_size(memory.usable_bytes)} were usable at "
        f"the inspection (by {escape_markdown(memory.limit_source)})."
    )


def advice_list(host: Host) -> Html:
    """What `tlb doctor` says, an item each. A command may break after its slashes: it fits a narrow page."""
    found = advice(host)
    if not found:
        nothing = "Nothing was found that keeps this machine from measuring well."
        return Html(f'<div class="tlb-advice"><p>{nothing}</p></div>', nothing)
    items = [(one.topic, f"{one.finding} {one.remedy}") for one in found]
    markup = "".join(f"<li><strong>{html.escape(a)}:</strong> {_code(b)}</li>" for a, b in items)
    plain = "\n".join(f"{a}: {b}" for a, b in items)
    return Html(f'<div class="tlb-advice"><ul>{markup}</ul></div>', plain)


def _code(text: str) -> str:
    """Plain text as HTML, with `code` between backticks."""
    parts = re.split(r"`([^`]+)`", text)
    marks = [f"<code>{html.escape(part).replace('/', '/<wbr>')}</code>" for part in parts[1::2]]
    return "".join(html.escape(part) + mark for part, mark in zip(parts[::2], [*marks, ""], strict=True))


# --- what to do ---


def _count_pages(host: Host) -> str:
    entries = [tlb.entries for tlb in data_tlbs(host)]
    if not entries:
        return "On this machine, the steps that the next chapter finds are where larger pages begin to gain."
    said = f"By CPUID's numbers, larger pages save no translation here up to {pages(entries[0])} hot pages"
    if len(entries) > 1:
        said += f", up to {pages(entries[-1])} they save hits in the second level"
    return f"{said}, and beyond that they save walks."


def _thp(host: Host) -> str:
    small = format_size(host.base_page_bytes)
    large = format_size(host.base_page_bytes * split(host).node_entries)
    said = {
        "always": "Transparent huge pages are on for everything here (`always`): a large allocation may lie "
        f"on pages of {large} without your knowing. The kernels of this book ask for a size and check it",
        "madvise": "Transparent huge pages come on request here (`madvise`): a program that does not ask "
        f"gets pages of {small}",
        "never": f"Transparent huge pages are off here (`never`): a program gets pages of {small}, unless it "
        "asks for pages from a pool",
        "absent": f"This kernel has no transparent huge pages: a program gets pages of {small}, unless it "
        "asks for pages from a pool",
    }
    other = "What this kernel does about transparent huge pages could not be read"
    return said.get(host.thp.enabled, other) + " {cite:p}`linux_transhuge`."
