"""What else Linux does to memory by itself while a program runs, and what limits its container
sets: read, never part of a state.

Rows do not depend on it by their key (host.state_digest): it is provenance. A task that this Linux does
not have is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tlb.machine import memory, settings
from tlb.system import processes, procfs
from tlb.system.units import format_size, list_in_words, page_size_name

_HERE, _MM = Path("/"), Path("sys/kernel/mm")
# each starts a monitor of its own
_DAMON_MODULES = ("damon_reclaim", "damon_lru_sort", "damon_stat")
_YES = ("Y", "1")
NUMA = "NUMA balancing"  # which a description also has as a field, for it is part of a state
_QUIET = ("off", "none")  # how the words of a task begin that disturbs nothing


class Task(NamedTuple):
    """One thing that may run. read: what it does now, in words; "" where this Linux has none.
    disturbs, remedy: sentences for `tlb doctor`, "" where another of its lines says it."""

    name: str
    read: Callable[[Path], str]
    disturbs: str
    remedy: str


def _damon(root: Path) -> str:
    """The monitors that run, with what they look at and what they do about it."""
    admin = root / _MM / "damon/admin/kdamonds"
    running = [
        f"kdamond {number}, {_contexts(folder)}"
        for number, folder in procfs.numbered(admin, r"([0-9]{1,4})")
        if procfs.word(folder / "state") == "on"
    ]
    parameter = root / "sys/module/{}/parameters/enabled"
    modules = {name: procfs.word(Path(str(parameter).format(name))) for name in _DAMON_MODULES}
    running += [name for name, enabled in modules.items() if enabled in _YES]
    if running:
        return "on: " + "; ".join(running)
    return "off" if admin.is_dir() or any(modules.values()) else ""


def _contexts(kdamond: Path) -> str:
    """Such as "paddr, scheme pageout"."""
    words = []
    for _, context in procfs.numbered(kdamond / "contexts", r"([0-9]{1,4})"):
        words.append(procfs.word(context / "operations"))
        for _, scheme in procfs.numbered(context / "schemes", r"([0-9]{1,4})"):
            if action := procfs.word(scheme / "action"):
                words.append(f"scheme {action}")
    return ", ".join(filter(None, words)) or "unknown"


def _ksm(root: Path) -> str:
    run, sharing = (procfs.number(root / _MM / "ksm" / name) for name in ("run", "pages_sharing"))
    return "" if run is None else f"{'on' if run == 1 else 'off'}; {sharing or 0} pages shared"


def _khugepaged(root: Path) -> str:
    """Off for memory that does not ask, unless some size of transparent page is for all."""
    thp, sizes = settings.thp(root), settings.mthp(root)
    if thp.enabled == "absent":
        return ""
    # before Linux 6.8 the largest has no setting of its own
    largest = sizes.pop(page_size_name(thp.page_bytes or 2 << 20), "inherit")
    for_all = {thp.enabled if words == "inherit" else words for words in (largest, *sizes.values())}
    pages, sleep, untouched = (
        thp.khugepaged.get(name, "unknown")
        for name in ("pages_to_scan", "scan_sleep_millisecs", "max_ptes_none")
    )
    if "always" in for_all:
        holds = f"a huge page may hold {untouched} untouched base pages"
        return f"on: {pages} pages every {sleep} ms; {holds}"
    if for_all == {"never"}:
        return "off"
    return f"off but for memory that asks for huge pages: {pages} pages every {sleep} ms"


def _swap(root: Path) -> str:
    """Without the devices' names: a file's path may name a person."""
    lines = [line.split() for line in procfs.text(root / "proc/swaps").splitlines()[1:]]
    sizes = [int(line[2]) for line in lines if re.fullmatch("[0-9]+", "".join(line[2:3]))]
    swappiness = procfs.number(root / "proc/sys/vm/swappiness")
    zswap = procfs.word(root / "sys/module/zswap/parameters/enabled")
    if swappiness is None and not lines:
        return ""
    devices = "none"
    if sizes:
        total = format_size(1024 * sum(sizes))
        devices = f"on: {total} on {len(sizes)} device{'s' * (len(sizes) != 1)}"
    swaps = "unknown" if swappiness is None else swappiness
    return f"{devices}; swappiness {swaps}; zswap {'on' if zswap in _YES else 'off'}"


def _numa(root: Path) -> str:
    mode = settings.numa_balancing(root)
    return "" if mode is None else "on" if mode else "off"


def _limits(controller: str) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        limits = sorted(memory.cgroup_limits(root, controller).items())
        return list_in_words(f"{name} {format_size(limit)}" for name, limit in limits) or "none"

    return read


CPU_QUOTA, THP_OF_PROCESS = "CPU quota", "THP of this process"


def _cpu_quota(root: Path) -> str:
    """The smallest quota from this process's cgroup up to the root (Linux,
    Documentation/admin-guide/cgroup-v2.rst, cpu.max; scheduler/sched-bwc.rst)."""
    shares = []
    for _, folder in memory.cgroup_folders(root, "cpu"):
        new = procfs.text(folder / "cpu.max").split()
        old = [procfs.text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        for pair in (new, old):
            if len(pair) == 2 and all(part.isdigit() and int(part) for part in pair):
                shares.append(int(pair[0]) / int(pair[1]))
    return f"{min(shares):g} CPUs" if shares else "none"


def throttled(root: Path = _HERE, process: str = "self") -> int:
    """Periods in which a process's cgroups, up to the root, have had to wait for their quota."""
    folders = memory.cgroup_folders(root, "cpu", process)
    stats = [procfs.text(folder / "cpu.stat") for _, folder in folders]
    return sum(map(int, re.findall(r"^nr_throttled ([0-9]{1,18})$", "\n".join(stats), re.M)))


def _thp_of_process(root: Path) -> str:
    """What prctl(2) says, which a program inherits from what started it."""
    enabled = procfs.fields(procfs.text(root / "proc/self/status")).get("THP_enabled", "")
    if root == _HERE and processes.thp_flags() > 1:
        return "disabled by prctl but where advised"
    return {"0": "disabled by prctl", "1": "none"}.get(enabled.strip(), "")


def user_namespace(root: Path = Path("/")) -> str:
    """Such as "on: user 0 is the host's user 1000"; "none" in the host's own (user_namespaces(7))."""
    first = procfs.text(root / "proc/self/uid_map").split()[:3]
    if len(first) < 3 or first == ["0", "0", "4294967295"]:
        return "none" if first else ""
    return f"on: user {first[0]} is the host's user {first[1]}"


def _seccomp(root: Path) -> str:
    """Such as "on: refuses pidfd_open (EPERM)"."""
    status = procfs.fields(procfs.text(root / "proc/self/status"))
    if root != _HERE or status.get("Seccomp", "").strip() != "2":
        return "none" if status else ""
    refused = [f"{call} ({error})" for call, error in processes.refused_system_calls().items()]
    return (
        f"on: refuses {list_in_words(refused)}" if refused else "none of the calls that are needed"
    )


TASKS = (
    Task(
        CPU_QUOTA,
        _cpu_quota,
        "once a period's CPU time is used up, all threads wait for the next one, in the middle of "
        "what is timed.",
        "Run without a quota (Docker: no --cpus; Kubernetes: no CPU limit, or a whole number of "
        "CPUs with the static CPU manager).",
    ),
    Task(
        THP_OF_PROCESS,
        _thp_of_process,
        "transparent huge pages are switched off for this process and for all that it starts.",
        "Start it from a shell or service that does not call prctl(PR_SET_THP_DISABLE).",
    ),
    Task(
        "seccomp filter",
        _seccomp,
        "`tlb watch` and `tlb try` cannot follow processes, or cannot move their memory to huge "
        "pages.",
        "Allow these system calls in the seccomp profile of this container or service.",
    ),
    Task(
        "user namespace",
        user_namespace,
        "settings under /sys and /proc/sys are the host's, so none is changed from here.",
        "Run `tlb pool` on the host.",
    ),
    # damon_ptep_mkold() of mm/damon/ops-common.c clears a page's accessed bit and sets its folio's
    # flag `young` instead, which smaps counts as referenced: what `tlb watch` reads stays right.
    # Documentation/admin-guide/mm/damon/usage.rst has the schemes' actions.
    Task(
        "DAMON",
        _damon,
        "it clears accessed bits to see what is used, takes CPU time for that, and a scheme acts "
        "on memory that was "
        "idle (pageout takes it back). `tlb watch` still counts the pages whose bits it cleared.",
        "Run `echo off | sudo tee /sys/kernel/mm/damon/admin/kdamonds/*/state` for the "
        "measurement and write `on` afterwards, which keeps "
        "its settings. A module such as damon_reclaim is switched off by its parameter `enabled`.",
    ),
    Task(
        "KSM",
        _ksm,
        "it merges pages of equal content that programs offer; a write to one is then a fault, "
        "and the scan takes CPU time.",
        "Run `echo 0 | sudo tee /sys/kernel/mm/ksm/run` for the measurement.",
    ),
    Task(
        "khugepaged",
        _khugepaged,
        "it may replace base pages of any program by a huge one, and the program waits while it "
        "copies.",
        "Run `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`: then it takes "
        "only memory that asks.",
    ),
    Task(
        "swap",
        _swap,
        "a page that was idle may be written out, and its next touch is a fault that reads a disk.",
        "Run `sudo swapoff -a` for the measurement if memory allows, and `sudo swapon -a` "
        "afterwards.",
    ),
    # Documentation/admin-guide/sysctl/kernel.rst, numa_balancing.
    Task(
        NUMA,
        _numa,
        "it unmaps pages to see which node uses them: each such page costs a fault, and may be "
        "moved.",
        "Run `echo 0 | sudo tee /proc/sys/kernel/numa_balancing` for the measurement.",
    ),
    # doctor's line about memory names the limit that counts
    Task("memory cgroup", _limits("memory"), "", ""),
    Task(
        "hugetlb cgroup",
        _limits("hugetlb"),
        "a program that maps more of a pool of huge pages is ended by SIGBUS as it touches them.",
        "Raise the limit in the settings of this container or service, or measure fewer huge "
        "pages.",
    ),
)


def look(root: Path) -> dict[str, str]:
    """Task -> what it does now, of those that this Linux has."""
    return {task.name: words for task in TASKS if (words := task.read(root))}


def active(background: Mapping[str, str]) -> Iterator[tuple[Task, str]]:
    """The tasks that may disturb a measurement, each with its words."""
    return (
        (task, background[task.name])
        for task in TASKS
        if task.disturbs and not background.get(task.name, "off").startswith(_QUIET)
    )
