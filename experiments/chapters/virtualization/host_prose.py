"""What a machine can say of guests without one: what translates there, what is compared with what, containers, nodes, its own host."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.article.machine_words import Prose, Said, about_pages, escape_markdown, say_each
from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization import costs as virtual_costs
from experiments.chapters.virtualization.claims import SAME
from experiments.chapters.your_machine.address import is_x86, listed
from experiments.inference.curves import PAGE
from experiments.inference.geometry import Backing
from experiments.lab.grid import GUEST_PAGES, HOST_PAGES
from experiments.machine.host import Host
from experiments.words.reasons import REASONS, explain
from experiments.words.units import format_size

# Why a machine may have no guest, beside lacking pages.
GUEST_REASONS = ("no-kvm", "kvm-permission", "kvm-refused", "guest-crashed", "guest-emulated", "not-x86", "engine-lacks", "kernel-hung")


def say(frame: pd.DataFrame, host: Host, notes: Sequence[str] = (), backing: Backing | None = None) -> Said:
    """Every sentence that takes no guest. backing: what this machine's large pages are made of, where that was measured."""
    return {"translates": Prose(translates(host)), "compared": Prose(compared(host)), "lacking": lacking(frame, host, notes),
            "inside_said": Prose(inside(host, backing))} | say_each({
                "containers_said": lambda: _containers(frame), "numa_said": lambda: _nodes(frame, notes)})


def translates(host: Host) -> str:
    """What translates a guest's memory here, as the modules of KVM say."""
    if not is_x86(host):
        return f"The guest of this chapter is written for x86-64, and this machine is {escape_markdown(host.arch)}."
    if host.kvm is None:
        return "The description of this machine is older than this question, so what translates there is not known."
    if host.kvm.tables == "none":
        return "No module of KVM is loaded here, so this machine runs no guest."
    said = {
        "EPT": "`kvm_intel` says that EPT is on: the processor walks the guest's tables and, for each of their addresses, the host's.",
        "NPT": "`kvm_amd` says that NPT is on: the processor walks the guest's tables and, for each of their addresses, the host's.",
        "shadow": f"KVM's module here is `{host.kvm.module}`, and it keeps shadow tables: for each entry that the guest makes, it writes "
                  "one that leads from the guest's virtual address straight to the host's physical one. The processor walks those, in "
                  "one dimension, and the second is paid in software, when an entry is made.",
        "unknown": f"KVM's module here is `{host.kvm.module}`, which does not say what translates."}[host.kvm.tables]
    return said + ("" if host.kvm.device else " But there is no /dev/kvm to ask it with.")


def compared(host: Host) -> str:
    """What a ratio of guest to native compares on this machine."""
    tables = host.kvm.tables if host.kvm else "unknown"
    if host.hypervisor == "none":
        if tables == "shadow":
            return ("This host is bare metal. With shadow tables a walk has one dimension in the guest as outside, so a ratio above one is "
                    "what a copy of the tables costs, and no second dimension.")
        return ("This host is bare metal. Outside, a walk has one dimension; in the guest it has two, and the ratio is the price of the "
                "second.")
    start = ("This host is itself a guest, so" if host.hypervisor != "unknown" else
             "Whether this host is itself a guest could not be told. If it is,")
    start += " a process outside already pays for two dimensions, its own tables and the outer host's. "
    if tables == "shadow":
        return start + ("In the guest on it, the shadow table takes the place of the first. That makes two in both, and the ratio "
                        "compares a guest with a guest: it is not the price of virtualization over bare metal.")
    return start + ("A guest on it would need a third, and a processor walks no more than two, so the outer host has to fold two of the "
                    "three tables into one. The ratio is the price of that, and not of virtualization over bare metal.")


def lacking(frame: pd.DataFrame, host: Host, notes: Sequence[str]) -> Prose:
    """Which cells have no rows, with the reasons of this run, or what the machine says of itself."""
    there = virtual.cells(frame)
    missing = [virtual.cell_name(guest, page) for guest in GUEST_PAGES for page in HOST_PAGES if (guest, page) not in there]
    if not missing:
        return Prose(f"This machine gave all {len(there)} pairs of page sizes.")
    known = tuple(REASONS[code].sentence.removesuffix(".") for code in GUEST_REASONS if code in REASONS)
    why = "\n".join(f"- {note}" for note in dict.fromkeys(notes) if note.startswith(known))
    why = "\n".join(one for one in (why, about_pages(notes)) if one)
    what = "No guest was measured on this machine." if not there else f"No rows lie on {listed(missing)}."
    if not why and not there and host.kvm is not None and not host.kvm.device:
        what += " It has no /dev/kvm."
    return Prose(what + (f"\n\n{why}" if why else ""))


def inside(host: Host, backing: Backing | None) -> str:
    """What a guest can find out of its host, from inside, about this machine."""
    if host.hypervisor == "none":
        return "This machine says that it is no guest, so nobody but itself decides on what pages its memory lies."
    doubt = " if it is a guest, which could not be told," if host.hypervisor == "unknown" else ""
    if backing is None:
        return (f"Of this machine's own host,{doubt} nothing was measured. `tlb geometry --pages 2m` asks in half a minute whether its "
                "large pages are whole.")
    return f"Of this machine's own host,{doubt} the verdict on large pages is **{backing.verdict}**. {backing.evidence}"


def _containers(frame: pd.DataFrame) -> str:
    ratio = virtual_costs.container_ratio(frame)
    table = virtual_costs.containers(frame)
    hold = int(((table["low"] <= 0) & (table["high"] >= 0)).sum())
    said = (f"Over all pairs a load in fresh namespaces takes {ratio.value:.4f} times a plain process's ({ratio.low:.4f} to "
            f"{ratio.high:.4f}), and {hold} of {len(table)} intervals of the difference hold zero.")
    if ratio.low <= 1 <= ratio.high and ratio.high - ratio.low > 2 * SAME:
        return said + " So nothing is found, but the repeats differ too much to rule out a difference of a hundredth or more."
    if ratio.low <= 1 <= ratio.high:
        return said + " Namespaces change what a process sees and nothing of how its addresses are translated."
    if abs(ratio.value - 1) <= SAME:
        return said + " The interval misses one by less than a hundredth, which is what two runs of one program may differ by."
    return said + (" That is a difference, and no page table explains it: look at what the namespaces were started with, such as a control "
                   "group's limits or another CPU.")


def _nodes(frame: pd.DataFrame, notes: Sequence[str]) -> str:
    found = virtual_costs.nodes(frame)
    far = found[found["over"].notna() & ~((found["memory"] == "local") & (found["tables"] == "local"))]
    if far.empty:
        reason = REASONS["single-node"].sentence.removesuffix(".")
        why = next((note for note in notes if note.startswith(reason)), explain("single-node") if not len(found) else "")
        return why or "Remote memory was measured here, and nothing near to compare it with."
    told = [f"{row.over:.2f} times ({row.over_low:.2f} to {row.over_high:.2f}) with {row.memory} memory and {row.tables} page tables"
            for row in far[far["lines"] == far["lines"].max()].itertuples()]
    return f"At {format_size(int(far['lines'].max()) * PAGE)}, the time of a load with both local becomes {listed(told)}."
