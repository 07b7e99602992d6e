"""How a chapter's rows came about and how to get one's own: the blocks at the two ends of its page,
functions of its Analysis."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pandas as pd

from tlb.inference.counts import counted, why_not_counted
from tlb.lab import build, kernels
from tlb.lab.record import Point
from tlb.machine import host as hosts
from tlb.machine.host import Host, data_tlbs
from tlb.page_sizes import BASE, PAGES, ordered, words
from tlb.prose import count, escape_markdown, listed
from tlb.reasons import PAGE_REASONS, Note, Unavailable, explain, if_available, required
from tlb.report.analysis import Analysis
from tlb.units import format_size

_ALIKE_BYTES = (
    256 << 20
)  # up to so much on base pages, the first version of the kernels measures what later ones do
_POINT = [
    name for name in Point.model_fields if name != "options"
]  # which are columns of their own


# Names of those hypervisors that are no abbreviation.
_HYPERVISORS = {
    "hyper-v": "Hyper-V",
    "vmware": "VMware",
    "xen": "Xen",
    "bhyve": "bhyve",
    "parallels": "Parallels",
    "virtualbox": "VirtualBox",
}


def hypervisor_name(host: Host) -> str:
    """The hypervisor as its makers write it: KVM, Hyper-V."""
    return _HYPERVISORS.get(host.hypervisor.lower(), host.hypervisor.upper())


def name_of(host: Host, is_simulated: bool = False) -> str:
    """A machine in a phrase: its CPU, its CPUs, its memory, and whether it is a guest."""
    where = {
        "none": "bare metal",
        "unknown": "bare metal or a guest, which could not be determined",
    }.get(host.hypervisor, f"a virtual machine under {hypervisor_name(host)}")
    model_name = " ".join(host.cpu_model.split()) or "an unnamed CPU"
    return (
        f"{'simulated: ' if is_simulated else ''}{model_name} ({host.microarchitecture}), {len(host.usable_cpus)} CPUs, "
        f"{format_size(host.memory.total_bytes // 2**30 * 2**30)} of memory, {where}"
    )


def machine(a: Analysis) -> str:
    """The machine in a phrase, and where it stands in for the reference, that it does."""
    return name_of(a.host, a.is_simulated) + (
        "; it stands in for the reference machine, where this chapter was not measured"
        if a.about.stands_in
        else ""
    )


def guest_note(a: Analysis) -> str:
    """Whether a walk here has a second dimension."""
    if a.host.is_emulated:
        return (
            "An emulator runs it, which translates each address in a program of its own: what is measured is that program, and no "
            "number here is a processor's."
        )
    if a.host.has_nested_walks is False:
        where = (
            "on bare metal"
            if a.host.hypervisor == "none"
            else f"under {hypervisor_name(a.host)}, which lends it no second table"
        )
        return f"It runs {where}: a translation is one walk of one page table, and what is measured is the processor's own."
    guest = (
        "Whether it is a guest could not be determined. If it is, each"
        if a.host.hypervisor == "unknown"
        else "It is a guest. Each"
        if a.host.has_nested_walks
        else "It is a guest. Unless its host shadows its page table, each"
    )
    return (
        f"{guest} step of its page walk yields a guest-physical address that the host must translate in turn, so a "
        "walk here has two dimensions, and the host decides on what page size. Costs past the STLB hold the host's part, "
        "then, and they are what a tenant of such a machine pays."
    )


def stated_tlb(a: Analysis) -> str:
    """What CPUID states of the TLB for base pages, and how far it reaches."""
    levels = data_tlbs(a.host)
    if not levels:
        return "CPUID states no TLB geometry here: " + explain(a.host.tlb_reason or "no-geometry")
    entries = " and ".join(
        f"{count(level.entries)} entries at level {level.level}" for level in levels
    )
    reach = " and ".join(format_size(level.entries * a.base_page_bytes) for level in levels)
    return f"CPUID states {entries} for {format_size(a.base_page_bytes)} data pages, a reach of {reach}."


def counters(a: Analysis) -> str:
    """Whether walks are counted beside being timed."""
    if a.is_simulated:
        return "This machine is simulated: these counts were computed, not measured."
    return (
        "Hardware counters answer here, so walks are counted beside being timed."
        if len(counted(a.frame, "walk"))
        else "Walks are timed, not counted: " + explain(why_not_counted(a.frame, "walk", a.host))
    )


def about_pages(notes: Iterable[Note]) -> str:
    """Of a run's notes those that say why a page size was not to be had, each once, as a list in
    Markdown; "" for none."""
    return "\n".join(dict.fromkeys(f"- {note.text}" for note in notes if note.code in PAGE_REASONS))


def set_up(a: Analysis) -> str:
    """What the page's numbers were measured on and how, item by item; what nothing was measured for
    has none."""
    items = {
        "Machine": f"{escape_markdown(machine(a))}.",
        "System": system(a, {*a.frame.get("state", ())}),
        "Measured": _measured(a.frame),
    }
    if len(a.frame):
        items |= {"Large pages": _large(a.frame), "Counters": _counted(a)}
    if documents := _other_documents(a):
        items["Documents"] = documents
    return "\n".join(f"- **{name}.** {said}" for name, said in items.items())


def earlier_kernels(frame: pd.DataFrame) -> str:
    """Say which kernels measured these rows in an earlier version than they now have, and what that
    did to the times; "" for none."""
    if frame.empty:
        return ""
    programs = list(zip(frame["kernel"], frame["engine"], strict=True))
    now = {program: build.declared_measures(*program) for program in {*programs}}
    earlier = frame[
        frame["measures"] < pd.Series([now[program] for program in programs], index=frame.index)
    ]
    if earlier.empty:
        return ""
    kernels = [f"`{kernel}`" for kernel in sorted({*earlier["kernel"]})]
    told = f"**These times were taken with an earlier version of {listed(kernels)}.**"
    far = (
        (earlier["pages"] == BASE)
        & (earlier["layout"] == "spread")
        & (earlier["working_set_bytes"] > _ALIKE_BYTES)
    )
    if (far & (earlier["measures"] == 1)).any():
        told += f" Those above {format_size(_ALIKE_BYTES)} are up to 1.5 times too high."
    return told


def _other_documents(a: Analysis) -> str:
    """Which of a published page's documents were made in another state of the machine than its
    rows, or than it is described in."""
    for name in (
        () if a.about.is_this else (*a.documents, *a.on_request)
    ):  # this computer's own are of its present state
        if_available(lambda name=name: getattr(a, name))
    states = {*a.frame.get("state", ())} or {hosts.state(a.host)}
    other = [(name, state) for name, state in sorted(a.states.items()) if state not in states]
    of = "the rows of this page" if len(a.frame) else "the description above"
    return " ".join(
        f"`{name}.json` was measured in another state of this machine (`{state}`) than {of} (`{'`, `'.join(sorted(states))}`)."
        for name, state in other
    )


def system(a: Analysis, states: Collection[str]) -> str:
    """Return the kernel and its settings in the states in which something was measured, which need
    not include the one that the machine was described in last."""
    try:
        hosts = [a.about.described(state) for state in sorted(states)] or [a.host]
    except Unavailable:
        return (
            "This was measured under other settings of the machine (another Linux, compiler or option), which were not recorded. The "
            f"machine was last described with {_settings(a.host)}"
        )
    return " Other rows: ".join(map(_settings, hosts))


def _settings(host: Host) -> str:
    compiler = (
        f"; compiler: {escape_markdown(host.c_compiler.partition(': ')[2] or host.c_compiler)}"
        if host.c_compiler
        else ""
    )
    return (
        f"{host.os} {escape_markdown(host.kernel_release)}, {host.arch}, base pages of {format_size(host.base_page_bytes)}; "
        f"transparent huge pages: `{host.thp.enabled}`, defragmenting: `{host.thp.defrag}`{compiler}."
    )


def _large(frame: pd.DataFrame) -> str:
    """Which page sizes there were while measuring: how many pages a pool has today is no record of
    what it gave."""
    most = frame.groupby("backing")["arena_bytes"].max().to_dict()
    of_pools = [
        f"{words(pages)} (up to {format_size(int(most[pages]))} a process)"
        for pages in ordered(most)
        if PAGES[pages].source == "pool"
    ]
    others = [words(pages) for pages in ordered(most) if PAGES[pages].source in ("thp", "mthp")]
    given = listed([*others, *of_pools])
    return (
        f"Given, and read back from the kernel in each process: {given}."
        if given
        else "No process had any."
    )


def _counted(a: Analysis) -> str:
    if not len(counted(a.frame, "walk")) and why_not_counted(a.frame, "walk", a.host) == "no-data":
        return "Walks are timed, not counted: these processes were asked for no counter."
    return counters(a)


def _measured(frame: pd.DataFrame) -> str:
    if not len(frame):
        return "Nothing; the page shows what the machine states, and documents."
    sizes, days = processes(frame), sorted(frame["started_at"].str[:10].unique())
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    each = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
    return (
        f"{count(len(frame))} measurements {when}, {each} for each of {count(len(sizes))} points."
    )


def processes(frame: pd.DataFrame) -> pd.Series:
    """How many processes each point of a chapter's rows has."""
    return frame.groupby(point_columns(frame), dropna=False).size()


def point_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that tell two points of these rows apart; of a kernel's own options those that
    the catalogue gives it."""
    options = {
        option
        for kernel in {*frame["kernel"]} & {*kernels.CATALOGUE}
        for option in kernels.of(kernel).options
    }
    return [name for name in (*_POINT, *sorted(options)) if name in frame]


def change(a: Analysis) -> str:
    """What a chapter offers to change that has no better idea: one process a point. Raises
    Unavailable("too-few-points")."""
    sizes = processes(required(a.frame, "nothing was measured"))
    once = _seconds(a.frame) * len(sizes) / len(a.frame)
    return (
        f"**Change one thing:** `-p repeats=1` runs each of {count(len(sizes))} points once, in {_time(once)} by the times of "
        "this page. Expect curves of the same shape without intervals, and no claim decided: one process decides nothing. The "
        "next run without it keeps that process and adds the others."
    )


def smaller(a: Analysis, size_bytes: int) -> str:
    """What a chapter offers whose sweeps may end earlier: the parameter, and the time that the rest
    of this page's sweeps took."""
    size, part = format_size(size_bytes), _seconds(a.frame[kernels.is_within(a.frame, size_bytes)])
    return (
        f"**Change one thing:** `-p max_working_set={size.replace(' ', '')}` ends every sweep at {size}. Up to there the "
        f"measurements of this page took {_time(part)}."
    )


def _seconds(frame: pd.DataFrame) -> float:
    """What these processes took, each from its start to its end."""
    return float(frame["wall_ns"].sum()) / 1e9


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def run_this(a: Analysis) -> str:
    """The commands that measure this chapter on the reader's computer, how long that takes, and
    where the result lies."""
    took = (
        f"The processes of this page took {_time(_seconds(a.frame))} in all. "
        if len(a.frame)
        else ""
    )
    other = " What else the chapter builds and runs comes on top." if a.documents else ""
    return f"""```sh
.venv/bin/tlb run {a.chapter}
.venv/bin/tlb compare reference this {a.chapter}
```

{took}Yours end when the parameter `minutes` says, at the latest.{other} The first command ends with the path of the executed notebook,
`_build/runs/{a.chapter}.ipynb`; its rows lie in `data/own`, so a second run measures only what is missing. The second command sets your
machine beside the reference, quantity by quantity; of points with fewer than five processes it decides nothing. `make book MINUTES=0` makes
pages like this one of what is there."""
