"""Whether this computer can count: a look at sysfs, and one `perf stat -e cycles:u -- true`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from experiments import procfs

Tier = Literal["counters", "software", "timing"]

# cpu; cpu_core and cpu_atom of hybrid parts; armv8_pmuv3_0, armv8_cortex_a72 and the like.
_CPU_PMU = re.compile(r"cpu(_core|_atom)?|armv[89]_\w{1,40}")
_TIMEOUT_S = 20  # `true` under perf takes milliseconds; a machine so busy that it takes longer cannot measure


class Pmu(BaseModel):
    """What perf can count here. Tiers: hardware counters; software events alone; nothing, so times alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: Tier
    reason: str | None = None  # a code of experiments.reasons, None for the tier "counters"
    devices: tuple[str, ...] = ()  # the CPU's PMUs in sysfs; hybrid CPUs have two
    paranoid: int | None = None  # kernel.perf_event_paranoid


def look(root: Path, probe: Callable[[], tuple[Tier, str | None]]) -> Pmu:
    """The PMU of the system under `root`, whose tier `probe` finds by trying."""
    tier, reason = probe()
    try:
        names = sorted(path.name for path in (root / "sys/bus/event_source/devices").iterdir())
    except OSError:
        names = []
    return Pmu(
        tier=tier,
        reason=reason,
        devices=tuple(name for name in names if _CPU_PMU.fullmatch(name)),
        paranoid=procfs.number(root / "proc/sys/kernel/perf_event_paranoid"),
    )


def probe(
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
    which: Callable[[str], str | None] = shutil.which,
) -> tuple[Tier, str | None]:
    """The tier and, below "counters", the reason code. A test gives its own `run` and `which`."""
    perf, idle = which("perf"), which("true")
    if perf is None or idle is None:
        return "timing", "no-perf" if perf is None else "perf-failed"
    try:
        done = run(
            [perf, "stat", "-x", ",", "-e", "cycles:u", "--", idle],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            env=os.environ | {"LC_ALL": "C"},  # elsewhere perf translates, and prints decimal commas
        )
    except (OSError, subprocess.SubprocessError):
        return "timing", "perf-failed"
    return classify(done.returncode, done.stderr)


def classify(status: int, stderr: str) -> tuple[Tier, str | None]:
    """What the answer of `perf stat -x , -e cycles:u` means. Status 0 alone proves nothing."""
    said = stderr.lower()
    if "perf not found for kernel" in said:  # Ubuntu's wrapper, with the linux-tools of another kernel
        return "timing", "no-perf"
    if status != 0:
        denied = any(word in said for word in ("paranoid", "permission", "not permitted"))
        return "timing", "perf-denied" if denied else "perf-failed"
    if "<not supported>" in said:
        return "software", "no-pmu"
    if "<not counted>" in said:
        return "software", "not-counted"
    counted = re.search(r"^([0-9]+),[^,]*,[^,]*cycles", said, re.MULTILINE)
    return ("counters", None) if counted else ("timing", "perf-failed")
