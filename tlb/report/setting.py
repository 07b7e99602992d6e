"""How a chapter's rows were measured and how to measure one's own: text of its page."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pandas as pd

from tlb.machine import host as hosts
from tlb.machine.host import Host, data_tlbs
from tlb.measure import build, kernels
from tlb.measure.row_tables import processes_per_point
from tlb.report.analysis import Analysis
from tlb.stats.curves import counter_curve, missing_counter_reason
from tlb.system.page_sizes import PAGE_KINDS, ordered_page_sizes, page_words
from tlb.system.reasons import (
    PAGE_REASON_CODES,
    Unavailable,
    UnmeasuredNote,
    explain_reason,
    none_if_unavailable,
)
from tlb.system.units import escape_markdown, format_size, list_in_words, with_thousands

_IN_SHORT = {  # why a page size has no rows
    "pool-empty": "pool empty",
    "thp-never": "switched off",
    "page-size-unsupported": "not offered",
    "backing-partial": "given only in part",
    "memory-short": "too little memory",
    "linux-lacks": "this Linux lacks it",
}
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
        f"{len(host.usable_cpus)} CPU{'s' * (len(host.usable_cpus) > 1)}, {memory} of memory, {where}"
    )
    if a.about.stands_in:
        text += "; it stands in for the reference machine, where this chapter was not measured"
    return text


def stated_tlb(a: Analysis) -> str:
    """Say what CPUID states of the TLB for base pages, and how far it reaches; else what our survey
    of the machine found, or why nothing is known."""
    levels = data_tlbs(a.host)
    if not levels and a.entries:
        found = list_in_words(f"{with_thousands(entries)} pages" for entries in a.entries)
        covered = list_in_words(format_size(entries * a.base_page_bytes) for entries in a.entries)
        return (
            f"The machine states nothing of it. We found that {found} fit, a reach of {covered} on "
            f"{format_size(a.base_page_bytes)} pages; the last number is of all levels together."
        )
    if not levels:
        return explain_reason(a.host.tlb_reason or "no-geometry")
    entries = [
        f"{with_thousands(level.entries)} entries at level {level.level}" for level in levels
    ]
    reach = [format_size(level.entries * a.base_page_bytes) for level in levels]
    return (
        f"CPUID states {' and '.join(entries)} for {format_size(a.base_page_bytes)} data pages, "
        f"a reach of {' and '.join(reach)}."
    )


def _counters(a: Analysis) -> str:
    reason = (
        ""
        if len(counter_curve(a.measured_rows, "walk"))
        else missing_counter_reason(a.measured_rows, "walk", a.host.pmu.reason)
    )
    if reason == "no-data":
        return "Walks are timed, not counted: no hardware counter was read."
    if a.is_simulated:
        return "This machine is simulated: these counts were computed, not measured."
    if reason:
        return f"Walks are timed, not counted: {explain_reason(reason)}"
    return "Hardware counters work here, so walks are counted as well as timed."


def _counted_processes(a: Analysis) -> str:
    """Return what perf stat counted of the processes of this chapter's kernels, whichever page they
    ran for, as counts are kept by kernel; "" if of none."""
    sessions = [
        one
        for one in a.about.counted_sessions()
        if one.kernel in {*a.measured_rows.get("kernel", ())}
    ]
    names = {
        "page_faults": "page faults",
        "context_switches": "context switches",
        "cpu_migrations": "migrations",
    }
    totals = {
        words: sum(one.totals[name].value or 0.0 for one in sessions if name in one.totals)
        for name, words in names.items()
    }
    if not sessions:
        return ""
    counts = list_in_words(f"{total:,.0f} {words}" for words, total in totals.items())
    number = sum(one.sessions for one in sessions)
    return (
        f"`perf stat` counted {counts} in {number:,} processes of these kernels, those of other "
        "pages and of rows that are left out among them."
    )


def about_pages(notes: Iterable[UnmeasuredNote]) -> str:
    """Say in one line which page sizes were not measured on this computer, and why, as Markdown;
    "" if all were. Nothing is noted of a published machine."""
    found = [note for note in notes if note.code in PAGE_REASON_CODES]
    if not found:
        return ""
    lacking = []
    for note in found:
        pages = list_in_words(map(page_words, ordered_page_sizes(note.pages)))
        lacking.append(f"{pages} ({_IN_SHORT[note.code]})")
    return f"Not measured on this computer: {'; '.join(lacking)}. See `tlb doctor`."


# --- what was measured on it


def set_up(a: Analysis) -> str:
    """List the machine, its system and what was measured there, as Markdown."""
    others = {(point.kernel, point.engine, by) for point, by in a.about.replaced.items()}
    items = {
        "Machine": f"{escape_markdown(machine(a))}.",
        "System": system(a, {*a.measured_rows.get("state", ())}),
        "Measured": f"{_measured(a)} {earlier_kernels(a.measured_rows)}".strip(),
    }
    if len(a.measured_rows):
        items |= {"Huge pages": _large(a.measured_rows), "Counters": _counters(a)}
    if others:
        items["Left out"] = " ".join(
            f"Rows of `{kernel}` by {engine} that were measured with {escape_markdown(by)}."
            for kernel, engine, by in sorted(others)
        )
    if processes := _counted_processes(a):
        items["Processes"] = processes
    if documents := _other_documents(a):
        items["Documents"] = documents
    return "\n".join(f"- **{name}.** {text}" for name, text in items.items())


def earlier_kernels(frame: pd.DataFrame) -> str:
    """Say which kernels measured these rows in an earlier version; "" for none."""
    if frame.empty:
        return ""
    programs = pd.MultiIndex.from_frame(frame[["kernel", "engine"]])
    now = {program: build.declared_measures(*program) for program in programs.unique()}
    earlier = frame[frame["measures"] < programs.map(now)]
    if earlier.empty:
        return ""
    names = list_in_words([f"`{kernel}`" for kernel in sorted({*earlier["kernel"]})])
    return f"**These times were taken with an earlier version of {names}.**"


def _other_documents(a: Analysis) -> str:
    """Name the documents of a published page that belong to another state than its rows."""
    if not a.about.is_this:  # this computer's own are always of its present state
        for name in (*a.documents, *a.on_request):
            none_if_unavailable(getattr, a, name)  # read, which notes its state
    states = {*a.measured_rows.get("state", ())} or {hosts.state_digest(a.host)}
    of = "the rows of this page" if len(a.measured_rows) else "the description above"
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
            "These measurements were made under earlier settings of the machine (another Linux, "
            "compiler or option), which were not recorded. Its last description has "
            f"{_settings(a.host)}"
        )
    return " Other rows: ".join(map(_settings, described))


def _settings(host: Host) -> str:
    name = host.c_compiler and (host.c_compiler.partition(": ")[2] or host.c_compiler)
    compiler = f"; compiler: {escape_markdown(name)}" if name else ""
    return (
        f"{host.os} {escape_markdown(host.kernel_release)}, {host.arch}, base pages of "
        f"{format_size(host.base_page_bytes)}; {_thp(host)}{compiler}."
    )


def _thp(host: Host) -> str:
    if host.thp.enabled == "absent":
        return "transparent huge pages: none"
    return f"transparent huge pages: `{host.thp.enabled}`, defragmenting: `{host.thp.defrag}`"


def _large(frame: pd.DataFrame) -> str:
    """Name the page sizes that the rows had; a pool's present size says nothing of that time."""
    most = frame.groupby("backing")["arena_bytes"].max().to_dict()
    kinds = ordered_page_sizes(most)
    given = [page_words(kind) for kind in kinds if PAGE_KINDS[kind].source in ("thp", "mthp")]
    for kind in kinds:
        if PAGE_KINDS[kind].source == "pool":
            given.append(f"{page_words(kind)} (up to {format_size(int(most[kind]))} a process)")
    if not given:
        makes = frame["kernel"].eq("collapse_chase") | frame["mode"].eq("collapse")
        some = ", some of which Linux then collapsed into huge ones" if makes.any() else ""
        return f"All measurements used base pages{some}."
    return f"Used, and confirmed by Linux in each process: {list_in_words(given)}."


def _measured(a: Analysis) -> str:
    frame = a.measured_rows
    if frame.empty and a.measured_besides:
        return a.measured_besides
    if frame.empty and a.about.is_this:
        return "No rows of this computer."
    if frame.empty:
        return (
            "No rows. The page shows what the machine reports about itself, and separate documents."
        )
    sizes, days = processes_per_point(frame), sorted(frame["started_at"].str[:10].unique())
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    each = " to ".join(map(str, dict.fromkeys([sizes.min(), sizes.max()])))
    return f"{with_thousands(len(frame))} measurements {when}, {each} for each of {with_thousands(len(sizes))} points."


# --- measuring it oneself


def once(a: Analysis, expect: str) -> str:
    """Offer to run each point once; "" if this page's rows are of one run each. expect: what then
    looks as before."""
    if len(a.measured_rows) and processes_per_point(a.measured_rows).max() == 1:
        return ""
    return (
        f"**Change one thing:** `-p repeats=1` runs each point once. Expect {expect}, but no "
        "intervals and no verdicts on times."
    )


def smaller(a: Analysis, size_bytes: int) -> str:
    """Offer to end all sweeps at a size, with the time that this page's took up to there."""
    size = format_size(size_bytes)
    text = f"**Change one thing:** `-p max_working_set={size.replace(' ', '')}` ends every sweep at {size}."
    part = a.measured_rows[kernels.is_within(a.measured_rows, size_bytes)]
    if len(part):
        text += f" Up to that size, the measurements of this page took {_time(_seconds(part))}."
    return text


def _seconds(frame: pd.DataFrame) -> float:
    return float(frame["wall_ns"].sum()) / 1e9


def _time(seconds: float) -> str:
    if seconds >= 60:
        return f"{seconds / 60:.1f} minutes"
    whole = max(1, round(seconds))
    return f"{whole} second{'s' if whole > 1 else ''}"


def run_this(a: Analysis) -> str:
    """Return the commands that measure this chapter on the reader's computer, and their time."""
    took = ""
    if len(a.measured_rows):  # without rows it has no columns either
        took = f"The measurements of this page took {_time(_seconds(a.measured_rows))} in all. "
    other = " The other programs that this chapter builds and runs take extra time."
    return f"""```sh
.venv/bin/tlb run {a.chapter}
.venv/bin/tlb compare reference this {a.chapter}
```

{took}Your own run measures for at most the `minutes` set at the top of \
the notebook; `-p minutes=20` allows more.{other if a.documents else ""} The first command prints the \
path of the executed notebook,
`_build/runs/{a.chapter}.ipynb`. What it measures is kept in `data/own`, so a second run measures \
only what is missing. The second command compares your machine with the reference, quantity by \
quantity; it draws no conclusion from points with fewer than five processes. To build the pages
from what you have, without measuring, run `make book MINUTES=0`."""
