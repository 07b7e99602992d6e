"""How a chapter's rows were measured and how to measure one's own: text of its page."""

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

# Up to this working set, the first version of the kernels measures what later ones do.
_ALIKE_BYTES = 256 << 20
_POINT = [name for name in Point.model_fields if name != "options"]  # columns of their own
# Names of the hypervisors that are not abbreviations.
_NAMES = ("Hyper-V", "VMware", "Xen", "bhyve", "Parallels", "VirtualBox")
_HYPERVISORS = {name.lower(): name for name in _NAMES}

# --- the machine


def hypervisor_name(host: Host) -> str:
    """Return the hypervisor as its makers write it: KVM, Hyper-V."""
    return _HYPERVISORS.get(host.hypervisor.lower(), host.hypervisor.upper())


def machine(a: Analysis) -> str:
    """Return a phrase: CPU, their number, memory, whether it is a guest or stands in."""
    host = a.host
    where = {
        "none": "bare metal",
        "unknown": "bare metal or a guest, which could not be determined",
    }.get(host.hypervisor, f"a virtual machine under {hypervisor_name(host)}")
    model = " ".join(host.cpu_model.split()) or "an unnamed CPU"
    memory = format_size(host.memory.total_bytes // 2**30 * 2**30)
    text = (
        f"{'simulated: ' if a.is_simulated else ''}{model} ({host.microarchitecture}), "
        f"{len(host.usable_cpus)} CPUs, {memory} of memory, {where}"
    )
    if a.about.stands_in:
        text += "; it stands in for the reference machine, where this chapter was not measured"
    return text


def guest_note(a: Analysis) -> str:
    """Say whether page walks on this machine have two dimensions."""
    host = a.host
    if host.is_emulated:
        return (
            "An emulator runs it, which translates each address in a program of its own: what is "
            "measured is that program, and no number here is a processor's."
        )
    if host.has_nested_walks is False:
        lends = f"under {hypervisor_name(host)}, which lends it no second table"
        return (
            f"It runs {'on bare metal' if host.hypervisor == 'none' else lends}: a translation is "
            "one walk of one page table, and what is measured is the processor's own."
        )
    guest = "It is a guest. Unless its host shadows its page table, each"
    if host.hypervisor == "unknown":
        guest = "Whether it is a guest could not be determined. If it is, each"
    elif host.has_nested_walks:
        guest = "It is a guest. Each"
    return (
        f"{guest} step of its page walk yields a guest-physical address that the host must "
        "translate in turn, so a walk here has two dimensions, and the host decides on what page "
        "size. Costs past the STLB hold the host's part, then, and they are what a tenant of such "
        "a machine pays."
    )


def stated_tlb(a: Analysis) -> str:
    """Say what CPUID states of the TLB for base pages, and how far it reaches."""
    levels = data_tlbs(a.host)
    if not levels:
        reason = explain(a.host.tlb_reason or "no-geometry")
        return f"CPUID states no TLB geometry here: {reason}"
    entries = [f"{count(level.entries)} entries at level {level.level}" for level in levels]
    reach = [format_size(level.entries * a.base_page_bytes) for level in levels]
    return (
        f"CPUID states {' and '.join(entries)} for {format_size(a.base_page_bytes)} data pages, "
        f"a reach of {' and '.join(reach)}."
    )


def _counters(a: Analysis) -> str:
    reason = "" if len(counted(a.frame, "walk")) else why_not_counted(a.frame, "walk", a.host)
    if reason == "no-data":
        return "Walks are timed, not counted: these processes were asked for no counter."
    if a.is_simulated:
        return "This machine is simulated: these counts were computed, not measured."
    if reason:
        return f"Walks are timed, not counted: {explain(reason)}"
    return "Hardware counters answer here, so walks are counted beside being timed."


def about_pages(notes: Iterable[Note]) -> str:
    """List the notes that explain why a page size was unavailable, as Markdown; "" for none."""
    return "\n".join(dict.fromkeys(f"- {note.text}" for note in notes if note.code in PAGE_REASONS))


# --- what was measured on it


def set_up(a: Analysis) -> str:
    """List the machine, its system and what was measured there, as Markdown."""
    items = {
        "Machine": f"{escape_markdown(machine(a))}.",
        "System": system(a, {*a.frame.get("state", ())}),
        "Measured": _measured(a.frame),
    }
    if len(a.frame):
        items |= {"Large pages": _large(a.frame), "Counters": _counters(a)}
    if documents := _other_documents(a):
        items["Documents"] = documents
    return "\n".join(f"- **{name}.** {text}" for name, text in items.items())


def earlier_kernels(frame: pd.DataFrame) -> str:
    """Say which kernels measured these rows in an earlier version, and its effect; "" for none."""
    if frame.empty:
        return ""
    programs = pd.MultiIndex.from_frame(frame[["kernel", "engine"]])
    now = {program: build.declared_measures(*program) for program in programs.unique()}
    earlier = frame[frame["measures"] < programs.map(now)]
    if earlier.empty:
        return ""
    names = listed([f"`{kernel}`" for kernel in sorted({*earlier["kernel"]})])
    text = f"**These times were taken with an earlier version of {names}.**"
    far = earlier.query(
        f"pages == {BASE!r} and layout == 'spread' and working_set_bytes > {_ALIKE_BYTES}"
    )
    if (far["measures"] == 1).any():
        text += f" Those above {format_size(_ALIKE_BYTES)} are up to 1.5 times too high."
    return text


def _other_documents(a: Analysis) -> str:
    """Name the documents of a published page that belong to another state than its rows."""
    if not a.about.is_this:  # this computer's own are always of its present state
        for name in (*a.documents, *a.on_request):
            if_available(getattr, a, name)  # read, which notes its state
    states = {*a.frame.get("state", ())} or {hosts.state(a.host)}
    of = "the rows of this page" if len(a.frame) else "the description above"
    return " ".join(
        f"`{name}.json` was measured in another state of this machine (`{state}`) than {of} "
        f"(`{'`, `'.join(sorted(states))}`)."
        for name, state in sorted(a.states.items())
        if state not in states
    )


def system(a: Analysis, states: Collection[str]) -> str:
    """Return Linux and its settings in the states of the machine in which rows were measured."""
    try:
        described = [a.about.described(state) for state in sorted(states)] or [a.host]
    except Unavailable:
        return (
            "This was measured under other settings of the machine (another Linux, compiler or "
            "option), which were not recorded. The machine was last described with "
            f"{_settings(a.host)}"
        )
    return " Other rows: ".join(map(_settings, described))


def _settings(host: Host) -> str:
    name = host.c_compiler and (host.c_compiler.partition(": ")[2] or host.c_compiler)
    compiler = f"; compiler: {escape_markdown(name)}" if name else ""
    return (
        f"{host.os} {escape_markdown(host.kernel_release)}, {host.arch}, base pages of "
        f"{format_size(host.base_page_bytes)}; transparent huge pages: `{host.thp.enabled}`, "
        f"defragmenting: `{host.thp.defrag}`{compiler}."
    )


def _large(frame: pd.DataFrame) -> str:
    """Name the page sizes that the rows had; a pool's present size says nothing of that time."""
    most = frame.groupby("backing")["arena_bytes"].max().to_dict()
    kinds = ordered(most)
    given = [words(kind) for kind in kinds if PAGES[kind].source in ("thp", "mthp")]
    for kind in kinds:
        if PAGES[kind].source == "pool":
            given.append(f"{words(kind)} (up to {format_size(int(most[kind]))} a process)")
    if not given:
        return "No process had any."
    return f"Given, and read back from the kernel in each process: {listed(given)}."


def _measured(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "Nothing; the page shows what the machine states, and documents."
    sizes, days = processes(frame), sorted(frame["started_at"].str[:10].unique())
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    each = " to ".join(map(str, dict.fromkeys([sizes.min(), sizes.max()])))
    return (
        f"{count(len(frame))} measurements {when}, {each} for each of {count(len(sizes))} points."
    )


def processes(frame: pd.DataFrame) -> pd.Series:
    """Return the number of processes of each point of a chapter's rows."""
    return frame.groupby(point_columns(frame), dropna=False).size()


def point_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that identify a point of these rows, options of their kernels included."""
    known = {*frame["kernel"]} & {*kernels.CATALOGUE}
    options = {option for kernel in known for option in kernels.declaration(kernel).options}
    return [name for name in (*_POINT, *sorted(options)) if name in frame]


# --- measuring it oneself


def change(a: Analysis) -> str:
    """Offer to measure one process a point. Raises Unavailable("too-few-points") without rows."""
    sizes = processes(required(a.frame, "nothing was measured"))
    once = _seconds(a.frame) * len(sizes) / len(a.frame)
    return (
        f"**Change one thing:** `-p repeats=1` runs each of {count(len(sizes))} points once, in "
        f"{_time(once)} by the times of this page. Expect curves of the same shape without "
        "intervals, and no claim decided: one process decides nothing. The next run without it "
        "keeps that process and adds the others."
    )


def smaller(a: Analysis, size_bytes: int) -> str:
    """Offer to end all sweeps at a size, with the time that this page's took up to there."""
    size, part = format_size(size_bytes), _seconds(a.frame[kernels.is_within(a.frame, size_bytes)])
    return (
        f"**Change one thing:** `-p max_working_set={size.replace(' ', '')}` ends every sweep at "
        f"{size}. Up to there the measurements of this page took {_time(part)}."
    )


def _seconds(frame: pd.DataFrame) -> float:
    return float(frame["wall_ns"].sum()) / 1e9


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def run_this(a: Analysis) -> str:
    """Return the commands that measure this chapter on the reader's computer, and their time."""
    took = ""
    if len(a.frame):  # without rows it has no columns either
        took = f"The processes of this page took {_time(_seconds(a.frame))} in all. "
    other = " What else the chapter builds and runs takes extra time."
    return f"""```sh
.venv/bin/tlb run {a.chapter}
.venv/bin/tlb compare reference this {a.chapter}
```

{took}Your run stops after `minutes` minutes (10 by default) at the latest.\
{other if a.documents else ""} The first command ends with the path of the executed notebook,
`_build/runs/{a.chapter}.ipynb`. Its rows are in `data/own`, so a second run measures only what is \
missing. The second command compares your machine with the reference, quantity by quantity; it
decides nothing about points with fewer than five processes. `make book MINUTES=0` builds the pages
from the rows that exist."""
