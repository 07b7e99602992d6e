"""The Linux kernel's side of a fault, read without switching anything on: how many levels it walks,
which free memory it reports to a host, and where its time goes."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from experiments.page_faults.grid import ARTICLE_FILE_BYTES, HUGE_PAGE_KIND
from tlb.machine import host, pmu
from tlb.machine.host import Host, is_x86
from tlb.measure import build, perf
from tlb.measure.record import utc_now
from tlb.system import procfs
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session
from tlb.system.reasons import Unavailable

REGION_MS = 400  # 1,600 samples, of which a share of one percent is known to a quarter of it
SAMPLED_HZ = 4000
LEAST_SHARE = 0.005  # of a profile: less is a handful of samples
BALLOON_DEVICE = "0x0005"  # virtio 1.2, 5.5: the traditional memory balloon; its bits of features
BALLOON_FEATURE_BITS = {
    0: "must-tell",
    1: "statistics",
    2: "deflate-when-short",
    3: "free-page-hints",
    4: "page-poison",
    5: "free-page-reports",
}
FIRST_HIGH = 1 << 47  # the first address that a process can have with five levels only
_SYMBOL = re.compile(r"^\s*([0-9]+\.[0-9]+)%\s+(\[[k.]\]\s+\S+)", re.MULTILINE)


class KernelFaultDocument(BaseModel, extra="forbid", frozen=True):
    """The document `kernel_side` of data/.

    file_system: of the folder for temporary files. la57_flag: in /proc/cpuinfo, which the published
    line searches. high_mapping: whether a mapping above 47 bits was given; None if not tried.
    balloon: what the guest's balloon does; None without one. report_order: free pages are reported
    in blocks of so many pages, as a power of two. profiles: by page size, shares of the samples by
    function, [k] in the kernel. traced: of earlier documents, faults of one run by the kernel's
    tracepoint and by getrusage. lacking: reason codes.
    """

    schema_version: Literal[1] = 1
    measured_at: str
    state: str  # host.state_digest()
    file_system: str
    la57_flag: bool
    no5lvl: bool  # on the kernel's command line
    high_mapping: bool | None
    balloon: tuple[str, ...] | None
    report_order: int | None
    profiles: dict[str, dict[str, float]]
    traced: tuple[int, int] | None = None
    lacking: dict[Literal["profiles", "traced"], str]


def make_kernel_fault_document(profile: str) -> dict[str, Any]:
    """Return the document, the same for each profile. Raises Unavailable("not-linux")."""
    inspected = host.inspect_machine()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    profiles: dict[str, dict[str, float]] = {}
    lacking: dict[Literal["profiles", "traced"], str] = {}
    try:
        profiles = profiles_here()
    except Unavailable as why:
        lacking["profiles"] = why.code
    return KernelFaultDocument(
        measured_at=utc_now(),
        state=host.state_digest(inspected),
        **kernel_settings(),
        file_system=procfs.file_system(Path(tempfile.gettempdir()).resolve()),
        high_mapping=high_mapping(inspected),
        profiles=profiles,
        lacking=lacking,
    ).model_dump(mode="json")


def kernel_settings(root: Path = Path("/")) -> dict[str, Any]:
    """Return la57_flag, no5lvl, balloon and report_order by the files under `root`."""
    flags = procfs.fields(procfs.text(root / "proc/cpuinfo")).get("flags", "").split()
    balloon = None
    for device in sorted((root / "sys/bus/virtio/devices").glob("*")):
        if procfs.word(device / "device") == BALLOON_DEVICE:
            bits = procfs.text(device / "features").strip()
            balloon = tuple(
                name for bit, name in BALLOON_FEATURE_BITS.items() if bits[bit : bit + 1] == "1"
            )
    parameters = root / "sys/module/page_reporting/parameters"
    order = procfs.number(parameters / "page_reporting_order", signed=True)
    is_reporting = "free-page-reports" in (balloon or ()) and order is not None and order >= 0
    return {
        "la57_flag": "la57" in flags,
        "no5lvl": "no5lvl" in procfs.text(root / "proc/cmdline").split(),
        "balloon": balloon,
        "report_order": order if is_reporting else None,
    }


def high_mapping(inspected: Host) -> bool | None:
    """Return whether Linux gives a page at FIRST_HIGH, which it does on request with five levels.
    None on other CPUs than x86-64."""
    if not is_x86(inspected) or inspected.base_page_bytes != mmap.PAGESIZE:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    size, integer, pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, integer, integer, integer, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    at = libc.mmap(FIRST_HIGH, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0)
    if at in (None, pointer(-1).value):
        return False
    libc.munmap(at, mmap.PAGESIZE)
    return at >= FIRST_HIGH


def profiles_here() -> dict[str, dict[str, float]]:
    """Return where the time of fresh memory's faults goes, by page size. Raises Unavailable:
    no-perf, perf-denied, perf-failed, not-permitted, and why a kernel could not be built."""
    program = perf.plan("none").perf
    if program is None:
        raise Unavailable("no-perf")
    lines = ARTICLE_FILE_BYTES // host.base_page_bytes()
    options = f"--mode anonymous --lines {lines} --region-ms {REGION_MS} --pages".split()
    command = [*build.kernel("page_fault").command, *options]
    return {pages: sampled(program, [*command, pages]) for pages in (BASE_PAGES, HUGE_PAGE_KIND)}


def sampled(program: str, command: Sequence[str]) -> dict[str, float]:
    """Return the shares of a command's samples by function: `perf record` by the CPU's clock, which
    needs no counter. Time with interrupts off is counted where they are switched on again."""
    with tempfile.NamedTemporaryFile() as kept:
        options = f"record -q -F {SAMPLED_HZ} -e cpu-clock -o {kept.name} --".split()
        record = _run([program, *options, *command])
        if record.returncode:
            code = "perf-denied" if pmu.denied(record.stderr) else "perf-failed"
            raise Unavailable(code, record.stderr.strip()[-200:])
        report = _run([program, "report", "-i", kept.name, "--stdio", "--sort", "symbol"])
    return function_shares(report.stdout)


def function_shares(report: str) -> dict[str, float]:
    """Return the shares of a report's functions, [k] in the kernel. Raises Unavailable: perf-failed
    without any, not-permitted if those of the kernel have no names."""
    rows = {" ".join(name.split()): float(n) / 100 for n, name in _SYMBOL.findall(report)}
    if not rows:
        raise Unavailable("perf-failed", "the report has no line of a function")
    if not any(re.match(r"\[k\] (?!0x)", symbol) for symbol in rows):
        raise Unavailable(
            "not-permitted",
            "functions of Linux have no names in a profile",
            "As root, run `sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`.",
        )
    return {symbol: round(share, 4) for symbol, share in rows.items() if share >= LEAST_SHARE}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run_in_own_session(command, timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable("perf-failed", f"no answer in {PROBE_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise Unavailable("no-perf", error.strerror or "") from None
