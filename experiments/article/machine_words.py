"""What every chapter may say of the machine that it is about: functions of an Analysis, each glued under its name."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.article.analysis import Analysis
from experiments.inference.counts import counted, why_not_counted
from experiments.machine.host import Host, data_tlbs
from experiments.words.prose import Prose, count
from experiments.words.reasons import PAGE_REASONS, Note, explain
from experiments.words.units import format_size

# Names of those hypervisors that are no abbreviation.
_HYPERVISORS = {"hyper-v": "Hyper-V", "vmware": "VMware", "xen": "Xen", "bhyve": "bhyve", "parallels": "Parallels",
                "virtualbox": "VirtualBox"}


def hypervisor_name(host: Host) -> str:
    """The hypervisor as its makers write it: KVM, Hyper-V."""
    return _HYPERVISORS.get(host.hypervisor.lower(), host.hypervisor.upper())


def name_of(host: Host, is_simulated: bool = False) -> str:
    """A machine in a phrase: its CPU, its CPUs, its memory, and whether it is a guest."""
    where = {"none": "bare metal", "unknown": "bare metal or a guest, which could not be told"}.get(
        host.hypervisor, f"a virtual machine under {hypervisor_name(host)}")
    model_name = " ".join(host.cpu_model.split()) or "an unnamed CPU"
    return (f"{'simulated: ' if is_simulated else ''}{model_name} ({host.microarchitecture}), {len(host.usable_cpus)} CPUs, "
            f"{format_size(host.memory.total_bytes // 2**30 * 2**30)} of memory, {where}")


def machine(a: Analysis) -> str:
    """The machine in a phrase, and where it stands in for the reference, that it does."""
    return name_of(a.host, a.is_simulated) + (
        "; it stands in for the reference machine, where this chapter was not measured" if a.about.stands_in else "")


def guest_note(a: Analysis) -> Prose:
    """Whether a walk here has a second dimension."""
    if a.host.is_emulated:
        return Prose("An emulator runs it, which translates each address in a program of its own: what is measured is that program, and no "
                     "number here is a processor's.")
    if a.host.has_nested_walks is False:
        where = "on bare metal" if a.host.hypervisor == "none" else f"under {hypervisor_name(a.host)}, which lends it no second table"
        return Prose(f"It runs {where}: a translation is one walk of one page table, and what is measured is the processor's own.")
    guest = ("Whether it is a guest could not be told. If it is, each" if a.host.hypervisor == "unknown" else
             "It is a guest. Each" if a.host.has_nested_walks else "It is a guest. Unless its host shadows its page table, each")
    return Prose(f"{guest} step of its page walk yields a guest-physical address that the host must translate in turn, so a "
                 "walk here has two dimensions, and the host decides on what page size. Costs past the STLB hold the host's part, "
                 "then, and they are what a tenant of such a machine pays.")


def tlb(a: Analysis) -> Prose:
    """What CPUID states of the TLB for base pages, and how far it reaches."""
    levels = data_tlbs(a.host)
    if not levels:
        return Prose("CPUID states no TLB geometry here: " + explain(a.host.tlb_reason or "no-geometry"))
    entries = " and ".join(f"{count(level.entries)} entries at level {level.level}" for level in levels)
    reach = " and ".join(format_size(level.entries * a.base_page_bytes) for level in levels)
    return Prose(f"CPUID states {entries} for {format_size(a.base_page_bytes)} data pages, a reach of {reach}.")


def counters(a: Analysis) -> Prose:
    """Whether walks are counted beside being timed."""
    if a.is_simulated:
        return Prose("This machine is simulated: these counts were computed, not measured.")
    return Prose("Hardware counters answer here, so walks are counted beside being timed." if len(counted(a.frame, "walk")) else
                 "Walks are timed, not counted: " + explain(why_not_counted(a.frame, "walk", a.host)))


def about_pages(notes: Iterable[Note]) -> str:
    """Of a run's notes those that say why a page size was not to be had, each once, as a list in Markdown; "" for none."""
    return "\n".join(dict.fromkeys(f"- {note.text}" for note in notes if note.code in PAGE_REASONS))
