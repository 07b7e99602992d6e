"""Samples of a program's CPU clock by perf, which need no hardware counter."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tlb.machine import pmu
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session
from tlb.system.reasons import Unavailable

SAMPLING_PERIOD_NS = 250_000
CodeLocation = tuple[str, int]  # where an instruction is: a file, and the offset in it
LOCATION_IN_LINUX = ("", 0)  # all samples in Linux itself
CodeSamples = Counter[CodeLocation]  # by the instruction that was about to finish
_EVENT = re.compile(r"^\s*(\d+)\s+([\d.]+):\s+(.*)$", re.MULTILINE)  # process, seconds, what
_HEX = re.compile("[0-9a-f]+")
_MAPPED = re.compile(
    r"PERF_RECORD_MMAP2? (-?\d+)/\d+: \[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+) .*?\]: "
    r"\S+ (.*)"
)
_FORKED = re.compile(r"PERF_RECORD_FORK\((\d+):\d+\):\((\d+):\d+\)")
Mapping = tuple[int, int, int, str]  # start, end, offset in the file, file


def recording(file: Path) -> list[str]:
    """Return the words before a command that record its samples in a file."""
    lacking = "--no-bpf-event", "--no-buildid", "--no-buildid-cache"  # which take perf a second
    event = "-e", "cpu-clock", "-c", str(SAMPLING_PERIOD_NS)
    return ["perf", "record", "-q", *lacking, *event, "-o", str(file), "--"]


@contextmanager
def scratch() -> Iterator[tuple[Path | None, str]]:
    """Yield a file for samples; or None, and why there cannot be any."""
    with tempfile.TemporaryDirectory(prefix="tlb-where-") as folder:
        file, code, said = Path(folder, "perf.data"), "", ""
        if not shutil.which("perf"):
            code = "no-perf"
        elif (
            done := run_in_own_session([*recording(file), "true"], timeout=PROBE_TIMEOUT_S)
        ).returncode:
            code = "perf-denied" if pmu.denied(done.stderr) else "perf-failed"
            said = done.stderr.strip().partition("\n")[0]
        yield (None, str(Unavailable(code, said))) if code else (file, "")


def read(file: Path) -> tuple[float, CodeSamples]:
    """Return what perf recorded, as `parse` does."""
    shown = ["--show-mmap-events", "--show-task-events", "-F", "pid,time,ip"]
    return parse(
        run_in_own_session(["perf", "script", "-i", str(file), *shown], timeout=None).stdout
    )


def parse(text: str) -> tuple[float, CodeSamples]:
    """Return the seconds that a program took, without perf's own, and its samples, from the output
    of `perf script` with mappings and tasks."""
    mapped: dict[int, list[Mapping]] = {}
    samples, times = CodeSamples(), list[float]()
    for line in _EVENT.finditer(text):
        pid, time, event = line.groups()
        times += [float(time)] if times or "COMM exec" in event else []
        if _HEX.fullmatch(event):
            address = int(event, 16)
            samples[
                LOCATION_IN_LINUX if address >> 63 else _code(mapped.get(int(pid), []), address)
            ] += 1
        elif found := _MAPPED.match(event):
            start, size, offset = (int(number, 16) for number in found.group(2, 3, 4))
            mapped.setdefault(int(found[1]), []).append((start, start + size, offset, found[5]))
        elif found := _FORKED.match(event):
            child, parent = map(int, found.groups())
            if child != parent:  # a process, and no thread
                mapped[child] = list(mapped.get(parent, []))
    return (times[-1] - times[0] if times else 0.0), samples


def _code(mapped: list[Mapping], address: int) -> CodeLocation:
    """Return the place of an address: of the latest mapping that has it."""
    for start, end, offset, file in reversed(mapped):
        if start <= address < end:
            return file, address - start + offset
    return "?", 0
