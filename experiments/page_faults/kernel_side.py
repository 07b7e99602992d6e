"""The kernel's side of a fault: how many levels it walks, what it tells a host of free memory, and
where its time goes, as far as it lets this process look. Nothing is switched on for it."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from experiments.page_faults.grid import FILE_BYTES, LARGE
from tlb.lab import build, perf
from tlb.lab.events import Event
from tlb.machine import host, pmu
from tlb.machine.host import Host, is_x86
from tlb.page_sizes import BASE
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.processes import run_whole

SECONDS = 60
REGION_MS = (
    400  # by 4,000 samples a second 1,600 of them: a share of one percent to a quarter of it
)
SAMPLED_HZ = 4000
LEAST_SHARE = 0.005  # of a profile: below that are a handful of samples
BALLOON_DEVICE = (
    "0x0005"  # virtio 1.2, 5.5: the traditional memory balloon, and its bits of features
)
BALLOON = {
    0: "must-tell",
    1: "statistics",
    2: "deflate-when-short",
    3: "free-page-hints",
    4: "page-poison",
    5: "free-page-reports",
}
FIRST_HIGH = 1 << 47  # the first address that four levels do not have for a process
TRACEPOINT = "exceptions/page_fault_user"
_SYMBOL = re.compile(r"^\s*([0-9]+\.[0-9]+)%\s+\[([k.])\]\s+(\S+)", re.MULTILINE)


class KernelSide(BaseModel, extra="forbid", frozen=True):
    """The document `kernel_side` of data/."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str  # host.state()
    file_system: str  # of the folder for temporary files
    la57_flag: bool  # in /proc/cpuinfo, which the published line searches
    no5lvl: bool  # on the kernel's command line
    high_mapping: (
        bool | None
    )  # whether a mapping above 47 bits was given; None where it was not tried
    balloon: tuple[str, ...] | None  # what the guest's balloon does; None without one
    report_order: (
        int | None
    )  # free pages are told of in blocks of so many pages, as a power of two; None where nobody asks
    profiles: dict[
        str, dict[str, float]
    ]  # by page size: shares of the samples, by function, [k] in the kernel; of LEAST_SHARE and more
    traced: (
        tuple[int, int] | None
    )  # faults of one run as the kernel's tracepoint counts them, and as getrusage does
    lacking: dict[Literal["profiles", "traced"], str]  # why there are none: a reason's code


def make(profile: str) -> dict[str, Any]:
    """The document, whatever the profile. Raises Unavailable("not-linux")."""
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    lacking: dict[str, str] = {}
    profiles, traced = (
        _or_why(profiles_here, lacking, "profiles"),
        _or_why(traced_here, lacking, "traced"),
    )
    return KernelSide(
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        state=host.state(inspected),
        **words(),
        file_system=procfs.file_system(Path(tempfile.gettempdir()).resolve()),
        high_mapping=high_mapping(inspected),
        profiles=profiles or {},
        traced=traced,
        lacking=lacking,
    ).model_dump(mode="json")


def _or_why(look: Callable[[], Any], lacking: dict[str, str], what: str) -> Any:
    try:
        return look()
    except Unavailable as why:
        lacking[what] = why.code
        return None


def words(root: Path = Path("/")) -> dict[str, Any]:
    """What files say, by the document's fields."""
    flags = procfs.fields(procfs.text(root / "proc/cpuinfo")).get("flags", "").split()
    line = procfs.text(root / "proc/cmdline").split()
    balloon = None
    for device in sorted((root / "sys/bus/virtio/devices").glob("*")):
        if procfs.word(device / "device") == BALLOON_DEVICE:
            bits = procfs.text(device / "features").strip()
            balloon = tuple(name for bit, name in BALLOON.items() if bits[bit : bit + 1] == "1")
    order = procfs.number(
        root / "sys/module/page_reporting/parameters/page_reporting_order", signed=True
    )
    return {
        "la57_flag": "la57" in flags,
        "no5lvl": "no5lvl" in line,
        "balloon": balloon,
        "report_order": order
        if order is not None and order >= 0 and "free-page-reports" in (balloon or ())
        else None,
    }


def high_mapping(inspected: Host) -> bool | None:
    """Whether Linux gives a page at FIRST_HIGH: it does on request where the table has five levels,
    and nowhere else. None on other CPUs than x86-64."""
    if not is_x86(inspected) or inspected.base_page_bytes != mmap.PAGESIZE:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long],
    )
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    at = libc.mmap(
        FIRST_HIGH, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if at in (None, ctypes.c_void_p(-1).value):
        return False
    libc.munmap(at, mmap.PAGESIZE)
    return at >= FIRST_HIGH


def _command(pages: str) -> list[str]:
    lines = FILE_BYTES // host.base_page_bytes()
    asked = {"mode": "anonymous", "pages": pages, "lines": str(lines), "region-ms": str(REGION_MS)}
    return [
        *build.kernel("page_fault").command,
        *(word for name, value in asked.items() for word in (f"--{name}", value)),
    ]


def profiles_here() -> dict[str, dict[str, float]]:
    """Where the time of fresh memory's faults goes, by page size. Raises Unavailable: no-perf,
    perf-denied, perf-failed, no-symbols, and why a kernel could not be built."""
    found = perf.plan("none").perf
    if found is None:
        raise Unavailable("no-perf")
    return {pages: sampled(found, _command(pages)) for pages in (BASE, LARGE)}


def sampled(program: str, command: Sequence[str]) -> dict[str, float]:
    """The shares of a command's samples by function: `perf record` by the CPU's clock, which needs
    no counter. Where interrupts are off it cannot sample, and what passes there is put down to
    where they are on again."""
    with tempfile.NamedTemporaryFile() as kept:
        record = _run(
            [
                program,
                "record",
                "-q",
                "-F",
                str(SAMPLED_HZ),
                "-e",
                "cpu-clock",
                "-o",
                kept.name,
                "--",
                *command,
            ]
        )
        if record.returncode:
            raise Unavailable(
                "perf-denied" if pmu.denied(record.stderr) else "perf-failed",
                record.stderr.strip()[-200:],
            )
        report = _run([program, "report", "-i", kept.name, "--stdio", "--sort", "symbol"])
    return shares(report.stdout)


def shares(report: str) -> dict[str, float]:
    """The functions of a report, those of the kernel marked as perf marks them. Raises Unavailable:
    perf-failed without any, no-symbols where the kernel's have no names."""
    rows = [
        (f"[{where}] {name}", float(percent) / 100)
        for percent, where, name in _SYMBOL.findall(report)
    ]
    if not rows:
        raise Unavailable("perf-failed", "the report has no line of a function")
    if not any(symbol.startswith("[k] ") and not symbol.startswith("[k] 0x") for symbol, _ in rows):
        raise Unavailable("no-symbols")
    return {symbol: round(share, 4) for symbol, share in rows if share >= LEAST_SHARE}


def traced_here(root: Path = Path("/")) -> tuple[int, int]:
    """Faults of one gated run by the kernel's tracepoint and by getrusage. Raises Unavailable:
    no-tracefs where it is not mounted or not readable, for a look at it by perf would mount it;
    no-perf; and the reason of the count."""
    if not any(
        procfs.text(root / place / "events" / TRACEPOINT / "id")
        for place in ("sys/kernel/tracing", "sys/kernel/debug/tracing")
    ):
        raise Unavailable("no-tracefs", TRACEPOINT)
    found = perf.plan("none").perf
    if found is None:
        raise Unavailable("no-perf")
    event = Event(
        "user_faults",
        TRACEPOINT.replace("/", ":"),
        source="Linux arch/x86/include/asm/trace/exceptions.h",
    )
    run = perf.run(_command(BASE), perf.Plan(found, (event,)), SECONDS)
    counted = run.counters.get("user_faults")
    faults = re.search(r'"minor_faults": ([0-9]{1,18})', run.stdout)
    if counted is None or counted.value is None or faults is None:
        raise Unavailable(
            (counted.reason if counted else None) or "perf-failed", run.stderr.strip()[-200:]
        )
    return int(counted.value), int(faults[1])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run_whole(command, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable("perf-failed", f"no answer in {SECONDS} s") from None
    except OSError as error:
        raise Unavailable("no-perf", error.strerror or "") from None
