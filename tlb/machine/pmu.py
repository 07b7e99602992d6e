"""Whether this computer can count: a look at sysfs, and one `perf stat -j -e cycles:u -- true`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from tlb.machine import FrozenModel
from tlb.system import procfs
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session

Tier = Literal["counters", "software", "timing"]

# cpu; cpu_core, cpu_atom and cpu_lowpower of hybrid parts; armv8_pmuv3_0, armv8_cortex_a72 and the
# like; apple_firestorm_pmu (Linux, drivers/perf/apple_m1_cpu_pmu.c).
_CPU_PMU = re.compile(r"cpu(_core|_atom|_lowpower)?|armv[89]_\w{1,40}|apple_\w{1,40}_pmu")
# perf 6.13.0 ends each object with a comma.
_LAST_COMMA = re.compile(r",\s*\}\s*$")


class Pmu(FrozenModel):
    """What perf can count here. Tiers: hardware counters; software events alone; nothing, so times
    alone."""

    tier: Tier
    reason: str | None = None  # a code of tlb.system.reasons, None for the tier "counters"
    devices: tuple[str, ...] = ()  # the CPU's PMUs in sysfs; hybrid CPUs have two
    paranoid: int | None = None  # kernel.perf_event_paranoid


def look(root: Path, probe: Callable[[], tuple[Tier, str | None]]) -> Pmu:
    """The PMU of the system under `root`, whose tier `probe` finds by trying."""
    tier, reason = probe()
    paranoid = procfs.number(root / "proc/sys/kernel/perf_event_paranoid", signed=True)
    return Pmu(tier=tier, reason=reason, devices=tuple(listed(root)), paranoid=paranoid)


def listed(root: Path) -> dict[str, tuple[int, ...]]:
    """The CPU's PMUs in the sysfs under `root`, sorted, each with its CPUs; none where it does not
    list them."""
    folder = root / "sys/bus/event_source/devices"
    return {
        name: procfs.cpu_list(procfs.text(folder / name / "cpus"))
        for name in procfs.names(folder)
        if _CPU_PMU.fullmatch(name)
    }


def of_cpu(cpu: int, pmus: Mapping[str, tuple[int, ...]]) -> str | None:
    """The name of the PMU that counts on `cpu`: of a hybrid part the one that lists it, else the
    one there is; None where that leaves none or a choice."""
    own = [name for name, cpus in pmus.items() if cpu in cpus]
    own = own or [name for name, cpus in pmus.items() if not cpus]
    return own[0] if len(own) == 1 else None


def probe(
    run: Callable[..., subprocess.CompletedProcess[str]] = run_in_own_session,
    which: Callable[[str], str | None] = shutil.which,
) -> tuple[Tier, str | None]:
    """The tier and, below "counters", the reason code. A test gives its own `run` and `which`."""
    perf, idle = which("perf"), which("true")
    if perf is None or idle is None:
        return "timing", "no-perf" if perf is None else "perf-failed"
    try:
        # As counts will be asked for: a perf before 5.19 has no -j. In another locale perf
        # translates, and prints decimal commas.
        done = run(
            [perf, "stat", "-j", "-e", "cycles:u", "--", idle],
            timeout=PROBE_TIMEOUT_S,
            env=os.environ | {"LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return "timing", "perf-failed"
    return classify(done.returncode, done.stderr)


def rows(text: str) -> Iterator[dict]:
    """The JSON objects among the lines of a text: what `perf stat -j` prints, one an event."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(_LAST_COMMA.sub("}", line))
            if isinstance(row, dict):
                yield row


def classify(status: int, stderr: str) -> tuple[Tier, str | None]:
    """What the answer of `perf stat -j -e cycles:u` means. Status 0 alone proves nothing."""
    answer = stderr.lower()
    # Ubuntu's wrapper, with the linux-tools of another kernel
    if "perf not found for kernel" in answer:
        return "timing", "no-perf"
    if status and denied(answer):
        return "timing", "perf-denied"
    if status:  # 129: every perf knows cycles; what an old one does not know is -j
        return "timing", "event-unknown" if status == 129 else "perf-failed"
    counts = [row for row in rows(stderr) if "cycles" in str(row.get("event"))]
    # of a hybrid part, the row of the core that ran
    if any(re.fullmatch(r"[0-9]+(\.[0-9]+)?", str(row.get("counter-value"))) for row in counts):
        return "counters", None
    if "<not supported>" in answer:
        return "software", "no-pmu"
    return ("software", "not-counted") if "<not counted>" in answer else ("timing", "perf-failed")


# What perf says where perf_event_open is refused: by kernel.perf_event_paranoid 3 and 4 (EACCES),
# by a container's seccomp filter (EPERM, or ENOSYS under gVisor and old profiles); from
# tools/perf/util/evsel.c, evsel__open_strerror.
_DENIED = re.compile(
    r"paranoid|permission|not permitted|access to performance monitoring|function not implemented",
    re.IGNORECASE,
)


def denied(stderr: str) -> bool:
    """Whether perf says that it may not count."""
    return bool(_DENIED.search(stderr))
