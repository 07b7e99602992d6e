"""A host in words: what it is (`describe`), what keeps it from measuring well and the remedy
(`advice`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from tlb.machine import background, settings
from tlb.machine.cpuid import Tlb
from tlb.machine.cpus import MeasuringCore
from tlb.machine.host import Host
from tlb.system.files import PREBUILT_ARCHIVE
from tlb.system.reasons import REASON_TEXTS, explain_reason
from tlb.system.units import format_size, page_size_name, parse_size

Severity = Literal["error", "warning", "note"]
ADVICE_SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the worst first


class Advice(NamedTuple):
    """One thing to mend: what it concerns, what was found (a sentence), and what to do (a
    sentence). severity: error if nothing can be measured, warning if something disturbs or
    distorts measurements, note if something else cannot be measured."""

    topic: str
    finding: str
    remedy: str
    severity: Severity = "warning"


# A load of a tenth of a CPU is what a desktop does by itself; above, something else is running.
_QUIET_LOAD = 0.1


def advice(host: Host) -> list[Advice]:
    """What to mend before measuring, the most important first; empty on a computer that measures
    well."""
    if host.os != "Linux":
        return [Advice("system", *REASON_TEXTS["not-linux"], severity="error")]
    return [
        *_counters(host),
        *_tools(host),
        *_memory(host),
        *_page_sizes(host),
        *_noise(host),
        *_background(host),
    ]


def commands(found: list[Advice]) -> list[str]:
    """Return the commands of remedies, each once."""
    return list(dict.fromkeys(filter(None, map(command, found))))


def command(advice: Advice) -> str:
    """Return the first command that a remedy quotes and that a shell runs as it is, or "". Those
    after it undo it or do the same on another system."""
    quoted = _COMMAND.search(advice.remedy)
    return quoted[1] if quoted else ""


def are_as_bad(found: list[Advice], least: Severity) -> bool:
    """Return whether some advice is as severe as `least`, or more."""
    return any(
        ADVICE_SEVERITIES.index(each.severity) <= ADVICE_SEVERITIES.index(least) for each in found
    )


# In backquotes; what somebody has to fill in, such as *, is no command to copy, and `tlb inspect`
# mends nothing.
_COMMAND = re.compile(r"`((?:echo|sudo|tlb pool|apt) [^`*$]+)`")


def _counters(host: Host) -> Iterator[Advice]:
    reason = host.pmu.reason
    if reason == "no-pmu" and host.hypervisor not in ("none", "unknown"):
        yield Advice(
            "virtual machine",
            f"This is a virtual machine ({host.hypervisor}) that shows no hardware counters: "
            "times are measured, walks are not counted.",
            REASON_TEXTS["no-pmu"].remedy,
            "note",
        )
    elif reason is not None:
        yield Advice("perf", *REASON_TEXTS[reason], severity="note")
    if host.tlb_reason is not None:
        yield Advice("TLB", *REASON_TEXTS[host.tlb_reason], severity="note")
    if host.tlb_unknown_descriptors:
        codes = ", ".join(host.tlb_unknown_descriptors)
        yield Advice(
            "TLB",
            f"CPUID describes a TLB with codes that this book does not know ({codes}).",
            "Look them up in Intel's manual (CPUID, leaf 2) and report them, with the CPU's name.",
            "note",
        )


def no_events(host: Host) -> Advice:
    """What to do about a CPU whose counters work and whose events the book does not know."""
    sentence, remedy = REASON_TEXTS["no-events"]
    return Advice("events", f"{sentence.removesuffix('.')} ({_named(host)}).", remedy, "note")


def _tools(host: Host) -> Iterator[Advice]:
    if host.c_compiler is None and not PREBUILT_ARCHIVE.is_file():
        yield Advice("compiler", *REASON_TEXTS["no-compiler"])


def _memory(host: Host) -> Iterator[Advice]:
    memory = host.memory
    if memory.limit_source == "unknown":
        yield Advice(
            "memory",
            "Nothing states how much memory is free.",
            "Mount /proc in this container, without subset=pid; no working set can be chosen without it.",
        )
    elif memory.limit_source not in ("MemAvailable", "MemFree"):
        is_own = memory.limit_source.startswith("RLIMIT")
        setting = "ulimit" if is_own else "the settings of this container or service"
        yield Advice(
            "memory",
            f"{memory.limit_source} leaves {format_size(memory.usable_bytes)} of the "
            f"{format_size(memory.available_bytes)} that are free.",
            f"Raise the limit ({setting}), or choose a max_working_set under half of it.",
        )


def _page_sizes(host: Host) -> Iterator[Advice]:
    if host.thp_setting == "never":
        yield Advice("THP", *REASON_TEXTS["thp-never"])
    elif host.thp_setting == "absent":
        yield Advice("THP", "This Linux kernel has no transparent huge pages.", _BUILT_WITH)
    yield from _between(host)
    for page, example in _POOLS.items():
        if page not in {pool.page for pool in host.pools}:
            sentence, remedy = REASON_TEXTS["page-size-unsupported"]
            yield Advice(f"pool {page}", f"{sentence.removesuffix('.')} ({page}).", remedy, "note")
        elif page not in {pool.page for pool in host.pools if pool.left}:
            yield Advice(
                f"pool {page}",
                f"The pool of {format_size(parse_size(page))} pages is empty.",
                example,
                "note",
            )


# Remedies.
_BUILT_WITH = "Use one built with CONFIG_TRANSPARENT_HUGEPAGE, which real-time kernels leave out."
_POOLS = {
    "2m": "Reserve pages, for example with `tlb pool reserve --pages 2m --size 1GiB`; "
    "`tlb pool restore` gives them back.",
    "1g": "Reserve pages soon after boot with `tlb pool reserve --pages 1g --size 4GiB`, or at boot "
    "with hugepagesz=1G hugepages=4; vm.nr_hugepages counts pages of the default size only.",
}
_BETWEEN = 64 << 10  # the size between base and huge page that the chapters measure


def _between(host: Host) -> Iterator[Advice]:
    """Of transparent pages between the base page and the huge page."""
    own = host.mthp.get(page_size_name(_BETWEEN)) or "never"
    if host.base_page_bytes >= _BETWEEN or host.thp_setting == "absent":
        return
    if not host.mthp:
        yield Advice(
            "mTHP",
            "This kernel has no transparent pages between the base page and the huge page.",
            "Use Linux 6.8 or newer for 64k pages; every other page size works without.",
            "note",
        )
    elif own == "never" or (own == "inherit" and host.thp.enabled == "never"):
        size = format_size(_BETWEEN)
        yield Advice(
            "mTHP",
            f"Transparent pages of {size} are switched off.",
            "Run `echo madvise | sudo tee "
            f"/sys/kernel/mm/transparent_hugepage/hugepages-{_BETWEEN >> 10}kB/enabled`; if that says "
            "inherit, the same for /sys/kernel/mm/transparent_hugepage/enabled.",
            "note",
        )


def _noise(host: Host) -> Iterator[Advice]:
    noise = host.noise
    if noise.governor not in (None, "performance"):
        yield Advice(
            "governor",
            f"The frequency governor is {noise.governor}: the clock changes while a point is "
            "measured.",
            "Run `sudo cpupower frequency-set -g performance` before a measurement for "
            "publication.",
        )
    if noise.turbo:
        yield Advice(
            "turbo",
            "Turbo is on: the clock depends on temperature and on what other cores do.",
            "Write 1 to /sys/devices/system/cpu/intel_pstate/no_turbo, or 0 to "
            "/sys/devices/system/cpu/cpufreq/boost.",
        )
    if noise.smt == "on":
        yield Advice(
            "SMT",
            "Each core runs two threads, which share its TLB: work on the sibling takes entries "
            "away.",
            "Keep the computer idle, or `echo off | sudo tee /sys/devices/system/cpu/smt/control`.",
        )
    if noise.load1 is not None and noise.load1 > _QUIET_LOAD:
        yield Advice(
            "load",
            f"The load over the last minute is {noise.load1:g}: something else is running.",
            "Stop it, or wait until it ends; points it disturbs are marked unstable.",
        )


def _background(host: Host) -> Iterator[Advice]:
    for task, words in background.active(host.background):
        yield Advice(task.name, f"{task.name} is active ({words}): {task.disturbs}", task.remedy)


def host_description(host: Host) -> list[tuple[str, str]]:
    """(label, value) of all a reader may want to know, in the order to show it; one line each, no
    markup."""
    return [*_cpu(host), *_pages(host), *_system(host)]


def _cpu(host: Host) -> list[tuple[str, str]]:
    measured = f"; measured: {_core(host.core)}" if host.core else ""
    caches = [
        (f"L{each.level} {each.kind}", f"{format_size(each.size_bytes)}{_ways(each.ways, None)}")
        for each in host.caches
    ]
    return [
        ("CPU", f"{host.cpu_model} ({host.microarchitecture})"),
        ("family, model, stepping", _signature(host)),
        ("microcode", host.microcode or "unknown"),
        ("CPUs", f"{len(host.usable_cpus)} usable of {host.logical_cpus}{measured}"),
        ("hypervisor", host.hypervisor),
        *(
            [("KVM, for guests of this machine", settings.kvm_in_words(host.kvm))]
            if host.kvm
            else []
        ),
        *caches,
        *((f"TLB level {tlb.level}, {tlb.kind}", _tlb(tlb)) for tlb in host.tlb),
        *([("TLB", explain_reason(host.tlb_reason))] if host.tlb_reason else []),
    ]


def _signature(host: Host) -> str:
    numbers = host.family, host.model, host.stepping
    return ", ".join("unknown" if n is None else f"{n:#x}" for n in numbers)


def _named(host: Host) -> str:
    """The CPU's name and numbers."""
    return f"{host.cpu_model}; family, model, stepping {_signature(host)}"


def _pages(host: Host) -> list[tuple[str, str]]:
    memory, levels = host.memory, host.page_table_levels
    spare = "; this CPU could walk five" if host.la57 and levels == 4 else ""
    sizes = ", ".join(f"{page} {setting}" for page, setting in host.mthp.items())
    why = f": {explain_reason(host.pmu.reason)}" if host.pmu.reason else ""
    total, usable = format_size(memory.total_bytes), format_size(memory.usable_bytes)
    return [
        ("page table", "unknown" if levels is None else f"{levels} levels{spare}"),
        ("base page", format_size(host.base_page_bytes)),
        ("THP", f"{host.thp_setting}; defrag {host.thp.defrag}"),
        ("mTHP", sizes or "no such pages"),
        *(
            (
                f"pool {pool.page}",
                f"{pool.total} pages, {pool.free} free, {pool.reserved} reserved, {pool.surplus} "
                "surplus",
            )
            for pool in host.pools
        ),
        ("counters", f"{host.pmu.tier}{why}"),
        ("memory", f"{total}, of which {usable} usable"),
        ("memory limit", memory.limit_source),
    ]


def _system(host: Host) -> list[tuple[str, str]]:
    noise = host.noise
    numa = [(background.NUMA, "on" if host.numa_balancing else "off")]
    return [
        *([] if host.numa_balancing is None else numa),
        *((name, words) for name, words in host.background.items() if name != background.NUMA),
        *(
            (f"against {name}", word)
            for name, word in host.mitigations.items()
            if word != "Not affected"
        ),
        ("governor", noise.governor or "not shown"),
        ("turbo", "not shown" if noise.turbo is None else "on" if noise.turbo else "off"),
        ("SMT", noise.smt),
        ("load, one minute", "unknown" if noise.load1 is None else f"{noise.load1:g}"),
        ("C compiler", host.c_compiler or explain_reason("no-compiler")),
        ("system", f"{host.os} {host.kernel_release}, {host.arch}"),
        *([("booted with", " ".join(host.boot))] if host.boot else []),
        *([("boot id", host.boot_id)] if host.boot_id else []),
    ]


def _core(core: MeasuringCore) -> str:
    clock = f", at most {core.highest_khz / 1e6:.2g} GHz" if core.highest_khz else ""
    return f"CPU {core.number}{f' ({core.kind})' if core.kind else ''}{clock}"


def _tlb(tlb: Tlb) -> str:
    ways = _ways(tlb.ways, tlb.ways_between)
    return f"{tlb.entries} entries of {', '.join(tlb.pages)}{ways} ({tlb.source})"


def _ways(ways: int | None, between: tuple[int, int] | None) -> str:
    if between:
        return f", {between[0]} to {between[1]} ways"
    return "" if ways is None else ", fully associative" if ways == 0 else f", {ways} ways"
