"""Count a running process: `perf stat` attached for a while; page sizes by `perf record`."""

from __future__ import annotations

import platform
import re
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from tlb.machine import cpus, pmu
from tlb.measure import perf
from tlb.measure.gate import Gate, dying_with_us, output_file, plain_locale
from tlb.measure.perf import Plan
from tlb.measure.perf_json import derive, parse
from tlb.measure.perf_plan import stat_words
from tlb.measure.record import Quantity
from tlb.system.processes import PROBE_S, run_whole, status_within

# What samples loads with their addresses: Intel's mem-loads by PEBS, of 30 cycles and more as
# perf-mem(1) asks for, and AMD's IBS.
_SAMPLERS = ("cpu/mem-loads,ldlat=30/P", "ibs_op//")
# as perf-script(1) prints data_page_size; "N/A" for an address without a page
_SIZE = re.compile(r"([0-9]+)([KMG])", re.ASCII)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def page_sizes(plan: Plan, pid: int, seconds: float) -> dict[int, int] | str:
    """Return sampled loads by size of the page they read, bytes (perf-record(1), --data-page-size),
    or a reason code."""
    if plan.perf is None or "walk" in plan.lacking:
        return plan.lacking.get("walk", "no-perf")
    if platform.machine() not in cpus.X86:
        return "no-events"  # Arm's SPE samples loads too, which is not read here
    refused = "not-supported"
    with tempfile.TemporaryDirectory(prefix="tlb-watch-") as folder:
        samples = str(Path(folder) / "samples")
        for event in _SAMPLERS:
            record = [plan.perf, "record", "-q", "-e", event, "-d", "--data-page-size"]
            record += ["-o", samples, "-p", str(pid), "--", "sleep", f"{seconds:.3f}"]
            try:
                done = run_whole(record, timeout=seconds + PROBE_S, env=plain_locale())
                if done.returncode == 0:
                    return _sizes_of(plan.perf, samples) or "not-counted"
            except (OSError, subprocess.TimeoutExpired):
                return "perf-failed"
            refused = "perf-denied" if pmu.denied(done.stderr) else refused
    return refused


def _sizes_of(perf: str, samples: str) -> dict[int, int]:
    """Return the number of samples by page size; empty if perf script fails. Raises OSError,
    subprocess.TimeoutExpired."""
    script = [perf, "script", "-i", samples, "-F", "data_page_size"]
    done = run_whole(script, timeout=PROBE_S, env=plain_locale())
    sizes = filter(None, map(_SIZE.fullmatch, done.stdout.split()))
    counts = Counter(int(size[1]) * _UNITS[size[2]] for size in sizes)
    return {} if done.returncode else dict(counts)


class Counting:
    """A perf that counts a repeat's group of a process while its gate is open (perf-stat(1), --pid,
    --control).

    Attached anew for each record: enabling one perf again and again loses counts. If it refuses
    (not `is_on`), someone else must answer at the gate.
    """

    def __init__(self, plan: Plan, pid: int, gate: Gate, repeat: int):
        self._plan, self._group = plan, plan.group(repeat)
        self._output, self._errors = output_file(), output_file()
        command = stat_words([plan.perf or "perf"], self._group, "-p", str(pid), *gate.perf_words)
        command += ["-o", f"/proc/self/fd/{self._output.fileno()}"]
        self._perf = subprocess.Popen(
            dying_with_us(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=plain_locale(),
            start_new_session=True,
            pass_fds=(*gate.fds, self._output.fileno()),
        )
        self.is_on = gate.is_heard(self._perf, PROBE_S)

    def end(self) -> dict[str, Quantity]:
        """Detach; return the counted quantities."""
        if self.is_on:
            self._perf.send_signal(signal.SIGINT)  # upon which it prints
        status = status_within(self._perf, PROBE_S)
        with self._output as output, self._errors as errors:
            output.seek(0)
            errors.seek(0)
            counts = parse(output.read(), self._group) if self.is_on else {}
            return self._plan.quantities(counts, self._group, perf.refusal(status, errors.read()))


def counted(plan: Plan, pid: int, seconds: float, repeat: int = 0) -> dict[str, Quantity]:
    """Return what a process and its threads count in so many seconds, or why not.

    repeat: selects the plan's group; other groups are left out. New threads count too.
    """
    lacking = {quantity: Quantity(reason=reason) for quantity, reason in plan.lacking.items()}
    group = plan.group(repeat)
    if not group or plan.perf is None:
        return lacking
    more = ["-p", str(pid), "--", "sleep", f"{seconds:.3f}"]
    command = stat_words([plan.perf], group, *more)
    try:
        done = run_whole(command, timeout=seconds + PROBE_S, env=plain_locale())
    except (OSError, subprocess.TimeoutExpired):
        return lacking | {
            event.quantity: Quantity(reason="perf-failed", event=event.event) for event in group
        }
    counts = parse(done.stderr, group)
    if done.returncode or not counts:
        reason = "perf-denied" if pmu.denied(done.stderr) else "perf-failed"
        counts = {event.quantity: Quantity(reason=reason, event=event.event) for event in group}
    parts = [
        event for event in plan.derived if {event.derived[0], event.derived[2]} <= counts.keys()
    ]
    return lacking | counts | derive(counts, parts)
