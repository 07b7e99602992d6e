"""Every fault that a measurement is to survive: the reason it gives, the remedy it says, and that all else goes on.

In the order of the list in the issue. Each test goes the public way, from a run to what is stored. Where another file
tests a fault through and through, its name stands beside the heading.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import itertools
import json
import multiprocessing
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from support.common import ROOT, lacking, make_record

from experiments.article import chapter as chapters
from experiments.lab import build, measure, noise, perf
from experiments.lab import campaign as experiment
from experiments.lab.build import Kernel
from experiments.lab.record import Point, Record
from experiments.lab.store import Health, Store
from experiments.machine import compiler as compilers
from experiments.machine import doctor, host, pmu
from experiments.machine import memory as limits
from experiments.machine.compiler import Compiler
from experiments.system import procfs
from experiments.words.reasons import REASONS, Unavailable, explain

pytestmark = pytest.mark.measures
needs_c = pytest.mark.needs("a C compiler")
needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
MACHINE, NAME, STATE = "test-machine", "stlb_cliff", "00112233aabb"
MIB = 2**20
POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (64, 128, 256)]
VICTIM = POINTS[1]  # what befalls this point must not befall the others


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def run(store: Store, own_lock: Path) -> Callable[..., experiment.Outcome]:
    """Runs an experiment of three small points, one process each; `how` replaces its arguments."""

    def go(points: list[Point] = POINTS, repeats: int = 1, **how: Any) -> experiment.Outcome:
        what = {"machine": MACHINE, "store": store, "state": STATE, "plan": perf.NO_COUNTERS, "usable_bytes": 2**30, "quiet": True}
        return experiment.run(NAME, points, repeats, **(what | how))

    return go


def rows(store: Store) -> pd.DataFrame:
    return store.load(MACHINE, NAME)


def says(why: Unavailable, code: str) -> None:
    """The reason is this one, in one line that ends with what to do about it."""
    assert why.code == code, why
    assert str(why).endswith(REASONS[code].remedy) and len(str(why).splitlines()) == 1


def only_the_victim_lacks(outcome: experiment.Outcome, store: Store, code: str) -> None:
    assert list(outcome.lacking) == [VICTIM]
    says(outcome.lacking[VICTIM], code)
    assert sorted(rows(store)["lines"]) == [64, 256]


@pytest.fixture
def befall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Replaces the kernel by a shell script which, for the victim, does something else than $REAL "$@"; a folder of its own."""

    def fake(text: str) -> Path:
        real = build.kernel("page_chase")
        folder = tmp_path / "befall"
        folder.mkdir(exist_ok=True)
        script = folder / "kernel"
        script.write_text(f'#!/bin/sh\nREAL={shlex.quote(real.command[0])}\nHERE={shlex.quote(str(folder))}\n'
                          f'case "$*" in *"--lines {VICTIM.lines} "*)\n{text}\nexit;; esac\nexec "$REAL" "$@"\n')
        script.chmod(0o755)
        monkeypatch.setattr(build, "kernel", lambda name, engine="c": Kernel(name, engine, (str(script),), real.digest))
        return folder

    return fake


def in_a_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a process of its own, whose limits, mask and user it may change."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def target() -> None:
        try:
            there.send(work())
        except BaseException as error:
            there.send(error)

    child = context.Process(target=target)
    child.start()
    answer = here.recv() if here.poll(120) else TimeoutError("no answer in two minutes")
    child.kill()
    child.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer


# --- perf missing, hanging, denied; no PMU (test_perf.py, test_host.py)

LIMITED = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is {}:
  -1: Allow use of (almost) all events by all users
"""
EPERM = """Error:
The sys_perf_event_open() syscall returned with 1 (Operation not permitted) for event (cycles:u).
/bin/dmesg | grep -i perf may provide additional information.
"""
UNKNOWN_CPU = "no table has a row for this"
# Hardware events are not supported; software events count. Before it starts a kernel this perf gives up.
NO_PMU = r"""case "$*" in *--control*) exit 255;;
*faults*|*clock*) echo '{"counter-value": "1.0", "unit": "", "event": "x", "event-runtime": 1000, "pcnt-running": 100.00}' >&2;;
*" -x"*) echo '<not supported>,,cycles:u,0,100.00,,' >&2;;
*) echo '{"counter-value": "<not supported>", "unit": "", "event": "x", "event-runtime": 0, "pcnt-running": 100.00}' >&2;; esac
"""


@pytest.fixture
def only_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """A PATH with this script as its perf, or without one."""

    def use(text: str | None) -> None:
        folder = tmp_path / "path"
        folder.mkdir()
        (folder / "true").symlink_to(shutil.which("true"))
        if text is not None:
            (folder / "perf").write_text(f"#!/bin/sh\n{text}\n")
            (folder / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(perf, "_PROBE_S", 0.3)
        monkeypatch.setattr(pmu, "_TIMEOUT_S", 0.3)

    return use


@needs_c
@pytest.mark.parametrize(("text", "code"), [
    pytest.param(None, "no-perf", id="missing"),
    pytest.param(f"exec {shutil.which('sleep')} 60", "perf-failed", id="hanging"),
    pytest.param(f"cat >&2 <<'END'\n{LIMITED.format(3)}END\nexit 255", "perf-denied", id="denied at paranoid 3"),
    pytest.param(f"cat >&2 <<'END'\n{LIMITED.format(4)}END\nexit 255", "perf-denied", id="denied at paranoid 4"),
    pytest.param(f"cat >&2 <<'END'\n{EPERM}END\nexit 255", "perf-denied", id="denied by seccomp"),
    pytest.param(NO_PMU, "no-pmu", id="without a PMU"),
])
def test_a_perf_that_counts_nothing_leaves_the_times_with_the_reason_beside_them(only_perf, run, store, text, code):
    build.kernel("page_chase")  # which takes programs that this PATH does not have
    only_perf(text and text.replace("cat ", f"{shutil.which('cat')} "))
    outcome = run(plan=perf.plan(UNKNOWN_CPU))
    assert (outcome.measured, outcome.lacking) == (3, {})
    frame = rows(store)
    assert (frame["ns_per_access"] > 0).all() and frame["core_cycles_per_access"].isna().all()
    assert set(frame["core_cycles_reason"]) == {code}
    here = host.inspect()
    assert (here.pmu.tier == "counters", here.pmu.reason) == (False, code)
    assert REASONS[code].remedy in [advice.remedy for advice in doctor.advice(here)]


class _Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter))]


def forbid_perf_event_open() -> None:
    """As the default filter of a container does, for this process and its children: seccomp(2), answer EPERM."""
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    steps = (_Filter * 4)(_Filter(0x20, 0, 0, 0), _Filter(0x15, 0, 1, number), _Filter(0x06, 0, 0, 0x50000 | errno.EPERM),
                          _Filter(0x06, 0, 0, 0x7FFF0000))  # load the number; equal? fail : allow
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(_Program(4, steps)), 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP


@pytest.mark.needs("a C compiler", "perf that counts faults")
def test_a_real_seccomp_filter_denies_the_counters_and_not_the_times():
    def work() -> Record:
        forbid_perf_event_open()
        return measure.measure(VICTIM, state=STATE, usable_bytes=2**30, plan=perf.plan(UNKNOWN_CPU))

    record = in_a_child(work)
    assert record.ns_per_access > 0
    assert {record.counters[name].reason for name in ("minor_faults", "task_clock_ns", "core_cycles")} == {"perf-denied"}
    assert "in a container" in explain("perf-denied")


# --- pool empty or partial; THP never; 1g unsupported (test_kernels.py)

SYS = Path("/sys/kernel/mm")


@pytest.fixture
def laid_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kernels see other files in the place of those of /sys, in a mount namespace of each one's own: nobody else does."""

    def lay(*replaced: tuple[Path, str | None]) -> None:
        if shutil.which("unshare") is None:
            lacking("unshare")
        mounts = []
        for number, (path, content) in enumerate(replaced):
            if not path.exists():
                pytest.skip(f"this kernel has no {path}")
            other = tmp_path / f"other{number}"
            other.mkdir() if content is None else other.write_text(content)
            mounts.append(f"mount --bind {shlex.quote(str(other))} {path}")
        real = build.kernel("page_chase")
        inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$0" "$@"']))
        if subprocess.run([*inside, "true"], capture_output=True).returncode:
            pytest.skip("needs the right to mount, in a namespace")
        monkeypatch.setattr(build, "kernel", lambda name, engine="c": Kernel(name, engine, (*inside, *real.command), real.digest))

    return lay


def on_pages(pages: str, **changes: object) -> list[Point]:
    """The victim on these pages, the others on 4k."""
    return [point.model_copy(update={"pages": pages, **changes} if point == VICTIM else {}) for point in POINTS]


def lacks(outcome: experiment.Outcome, code: str) -> str:
    """The detail of the one point that could not be measured."""
    (why,) = outcome.lacking.values()
    says(why, code)
    assert outcome.measured == 2
    return why.detail


@needs_c
@pytest.mark.parametrize(("pages", "kib"), [("2m", 2048), ("1g", 1048576)])
def test_an_empty_pool_is_a_reason_and_points_without_it_are_measured(run, pages: str, kib: int):
    pool = SYS / f"hugepages/hugepages-{kib}kB"
    lines = 2**32  # 16 TiB of pages, which no pool has
    outcome = run(on_pages(pages, lines=lines), usable_bytes=2**60)
    detail = lacks(outcome, "pool-empty" if pool.exists() else "page-size-unsupported")
    assert not pool.exists() or f"{lines * 4 // kib} pages of {pages} needed, " in detail


@needs_c
def test_a_pool_that_holds_only_a_part_says_how_many_are_there(run):
    pool = SYS / "hugepages/hugepages-2048kB"
    if not pool.exists() or int((pool / "nr_overcommit_hugepages").read_text()):
        pytest.skip("no pool of 2 MiB pages here, or one that grows by itself")
    free = int((pool / "free_hugepages").read_text())
    detail = lacks(run(on_pages("2m", lines=512 * (free + 2)), usable_bytes=2**60), "pool-empty")
    assert f"{free + 2} pages of 2m needed, {free} free" in detail


@needs_c
def test_thp_never_is_a_reason_and_points_without_it_are_measured(laid_over, run):
    laid_over((SYS / "transparent_hugepage/enabled", "always madvise [never]\n"))
    lacks(run(on_pages("thp")), "thp-never")


@needs_c
def test_thp_forbidden_to_this_process_alone_never_passes_for_thp(own_lock, store, run):
    if procfs.chosen(SYS / "transparent_hugepage/enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")

    def work() -> tuple[int, str, bool]:
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
        outcome = run(on_pages("thp"))
        (why,) = outcome.lacking.values()
        return outcome.measured, why.code, REASONS[why.code].remedy in str(why)

    measured, code, remedy = in_a_child(work)
    assert measured == 2 and code in ("backing-partial", "thp-never") and remedy


@needs_c
def test_a_gigabyte_page_that_kernel_or_cpu_lacks_is_a_reason(laid_over, run):
    laid_over((SYS / "hugepages", None))
    lacks(run(on_pages("1g"), usable_bytes=2**31), "page-size-unsupported")


@needs_c
@pytest.mark.parametrize("code", ["pool-empty", "thp-never", "mthp-off", "backing-partial", "page-size-unsupported", "memory-short"])
def test_what_a_kernel_says_is_lacking_reaches_whoever_asked_with_its_remedy(befall, run, store, code: str):
    befall(f"""echo '{{"reason": "{code}", "detail": "3 needed, 0 free"}}' >&2; exit 3""")
    outcome = run(repeats=2)
    assert outcome.lacking[VICTIM].detail == "3 needed, 0 free"
    assert list(outcome.lacking) == [VICTIM] and outcome.measured == 4
    says(outcome.lacking[VICTIM], code)


# --- RLIMIT_MEMLOCK, RLIMIT_AS, cgroup v1 and v2 (test_host.py)


@needs_c
def test_a_limit_on_locked_memory_takes_nothing_away_since_kernels_lock_nothing(run, store):
    def work() -> tuple[int, int | None]:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        return run(plan=perf.plan(UNKNOWN_CPU)).measured, host.inspect().memory.memlock_bytes

    assert in_a_child(work) == (3, 0)
    assert len(rows(store)) == 3


ADDRESS_SPACE = 5 << 28  # 1.25 GiB, of which a kernel takes 1 to align its arena


@pytest.fixture
def little_address_space(monkeypatch: pytest.MonkeyPatch) -> host.Host:
    """Kernels run under a real RLIMIT_AS; this computer, inspected under it."""
    real = build.kernel("page_chase")
    limited = ("sh", "-c", f'ulimit -v {ADDRESS_SPACE >> 10} && exec "$0" "$@"', *real.command)
    monkeypatch.setattr(build, "kernel", lambda name, engine="c": Kernel(name, engine, limited, real.digest))
    return host.inspect(here=host.Platform(rlimits=limits.Rlimits(address_space_bytes=ADDRESS_SPACE)))


@needs_c
def test_a_limit_on_address_space_sizes_the_run_so_that_all_it_takes_is_measured(little_address_space, run, store):
    memory = little_address_space.memory
    if memory.limit_source != "RLIMIT_AS":
        pytest.skip("less than 256 MiB of memory is free here")
    half = int(memory.usable_bytes * experiment.MEMORY_SHARE)
    most = half // (4096 + measure.SIDE_BYTES_PER_LINE)
    outcome = run([Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (64, most, most + 1)], usable_bytes=half)
    assert {point.lines for point in outcome.lacking} == {most + 1} and sorted(rows(store)["lines"]) == [64, most]
    says(*outcome.lacking.values(), "memory-short")
    (advice,) = (advice for advice in doctor.advice(little_address_space) if advice.topic == "memory")
    assert advice.finding.startswith("RLIMIT_AS leaves 256 MiB") and "ulimit" in advice.remedy


@needs_c
def test_address_space_that_is_short_all_the_same_is_a_reason_and_no_crash(little_address_space, run, store):
    outcome = run([*POINTS, Point(kernel="page_chase", lines=ADDRESS_SPACE // 4096, region_ms=1)], usable_bytes=2**60)
    assert outcome.measured == 3
    says(*outcome.lacking.values(), "memory-short")


V1 = {"proc/self/cgroup": "5:memory:/job\n", "proc/self/mountinfo": "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n",
      "cg/memory.limit_in_bytes": str(2**40), "cg/job/memory.limit_in_bytes": str(6 * MIB), "cg/job/memory.usage_in_bytes": str(2 * MIB)}
V2 = {"proc/self/cgroup": "0::/a/job\n", "proc/self/mountinfo": "31 23 0:28 / /cg rw - cgroup2 none rw\n",
      "cg/a/memory.max": str(6 * MIB), "cg/a/memory.current": str(2 * MIB), "cg/a/job/memory.max": str(64 * MIB)}


@needs_c
@pytest.mark.parametrize(("files", "source"), [pytest.param(V1, "cgroup v1 memory.limit_in_bytes", id="v1"),
                                               pytest.param(V2, "cgroup v2 memory.max", id="v2")])
def test_a_chapter_takes_half_at_most_of_what_the_smallest_cgroup_limit_leaves(tmp_path, monkeypatch, own_lock, files, source):
    root = tmp_path / "root"
    for name, content in ({"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 9999999 kB\n"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    limited = host.inspect(root)
    assert (limited.memory.usable_bytes, limited.memory.limit_source) == (4 * MIB, source)
    monkeypatch.setattr(chapters.host, "inspect", lambda: limited)
    values = chapters.check_parameters("stlb_cliff", {"machine": "this", "profile": "smoke", "repeats": 1, "engine": "c"})
    chapter = chapters.Chapter("stlb_cliff", values, Store(tmp_path / "data"))
    frame = chapter.measure("stlb_cliff")
    assert frame["arena_bytes"].max() <= 2 * MIB == chapter.profile.max_working_set
    assert len(frame) > 20 and any("2 MiB, half of the memory that is free" in note for note in chapter.notes)
    (advice,) = (advice for advice in doctor.advice(limited) if advice.topic == "memory")
    assert source in advice.finding and "half of it" in advice.remedy


# --- OOM kill and SIGBUS (test_measure.py); a kernel that crashes, hangs, prints garbage, NaN or a negative time


@needs_c
@pytest.mark.parametrize(("text", "code"), [
    pytest.param("kill -KILL $$", "oom-killed", id="is killed because memory ran out"),
    pytest.param("kill -BUS $$", "memory-short", id="gets SIGBUS"),
    pytest.param("kill -SEGV $$", "kernel-crashed", id="crashes"),
    pytest.param("exit 1", "kernel-crashed", id="gives up"),
    pytest.param("exit 0", "kernel-crashed", id="says nothing"),
    pytest.param("echo Segmentation fault", "kernel-garbage", id="prints garbage"),
    pytest.param('"$REAL" "$@" | sed \'s/"ns_per_access": [^,]*/"ns_per_access": NaN/\'', "kernel-garbage", id="prints NaN"),
    pytest.param('"$REAL" "$@" | sed \'s/"ns_per_access": /&-/\'', "kernel-garbage", id="prints a negative time"),
    pytest.param('"$REAL" "$@" | sed \'s/"elapsed_ns": /&-/\'', "kernel-garbage", id="prints a negative region"),
    pytest.param('"$REAL" "$@" | head --bytes=200', "kernel-garbage", id="prints half a record"),
])
def test_a_kernel_process_that(befall, run, store, text: str, code: str):
    befall(text)
    only_the_victim_lacks(run(repeats=1), store, code)


@needs_c
def test_a_kernel_process_that_hangs_is_ended_and_the_others_are_measured(befall, run, store, monkeypatch):
    monkeypatch.setattr(measure, "HANG_S", 0.5)
    befall("echo $$ > $HERE/pid; exec sleep 61")
    outcome = run()
    only_the_victim_lacks(outcome, store, "kernel-hung")
    assert not psutil.pid_exists(int((store.root.parent / "befall/pid").read_text()))


# --- an affinity mask without CPU 0; a CPU that goes away


@needs_c
def test_a_mask_without_cpu_0_is_kept_to(run, store):
    mask = os.sched_getaffinity(0) - {0}
    if not mask:
        pytest.skip("CPU 0 is all there is here")

    def work() -> tuple[int, tuple[int, ...]]:
        os.sched_setaffinity(0, mask)
        return run().measured, host.inspect().usable_cpus

    assert in_a_child(work) == (3, tuple(sorted(mask)))
    assert set(rows(store)["cpu"]) <= mask


GONE = "echo 'CPU 7 is not one this process may use.' >&2; exit 2"


@needs_c
def test_when_the_cpu_goes_away_the_next_process_takes_another(befall, run, store):
    folder = befall(f'if [ -e "$HERE/once" ]; then exec "$REAL" "$@"; fi; touch "$HERE/once"; {GONE}')
    outcome = run()
    assert (folder / "once").exists() and (outcome.measured, outcome.lacking) == (3, {})


@needs_c
def test_a_cpu_that_stays_away_is_a_reason_and_not_a_wrong_parameter(befall, run, store):
    folder = befall(f'echo >> "$HERE/tries"; {GONE}')
    outcome = run()
    only_the_victim_lacks(outcome, store, "cpu-gone")
    assert (folder / "tries").read_text().count("\n") == 1 + experiment.RETRIES


@needs_c
def test_a_cpu_that_was_named_is_never_silently_replaced(befall, run, store):
    named = max(os.sched_getaffinity(0))
    folder = befall(f'echo "$@" >> "$HERE/tries"; {GONE}')
    only_the_victim_lacks(run(cpu=named), store, "cpu-gone")
    assert set(rows(store)["cpu"]) == {named}
    assert (folder / "tries").read_text().count("\n") == 1


# --- migrations, context switches, steal (test_noise.py); noisy points retried and marked


@needs_c
def test_migrations_switches_and_steal_of_a_process_are_in_its_row(run, store, monkeypatch):
    looks = itertools.count()
    stolen_ms = 3 * noise.tick_ms()  # between any look and the next
    monkeypatch.setattr(noise, "stolen_ms", lambda: dict.fromkeys(range(4096), stolen_ms * next(looks)))
    outcome = run()
    frame = rows(store)
    assert (frame["migrations"] == 0).all() and (frame["steal_ms"] == stolen_ms).all()
    assert frame[["voluntary_switches", "involuntary_switches", "major_faults"]].ge(0).all(axis=None)
    assert set(frame["noisy"]) <= {"stolen", "faulted"} and outcome.noisy == 3 and (frame["tries"] > 1).any()


MARKS = {
    "migrated": '"$REAL" "$@" | sed \'s/"migrations": 0/"migrations": 2/\'',
    "faulted": '"$REAL" "$@" | sed \'s/"major_faults": 0/"major_faults": 1/\'',
    "uneven": '"$REAL" "$@" | sed \'s/"batch_ns_per_access": [[][^]]*/"batch_ns_per_access": [1, 1, 2, 2/\'',
}


@pytest.fixture
def no_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    """This computer's own hypervisor adds no mark."""
    monkeypatch.setattr(noise, "stolen_ms", lambda: {})


@needs_c
@pytest.mark.usefixtures("no_steal")
@pytest.mark.parametrize("mark", MARKS)
def test_a_point_that_stays_noisy_is_tried_three_times_more_and_then_marked(befall, run, store, mark: str):
    folder = befall(f'echo >> "$HERE/tries"; {MARKS[mark]}')
    outcome = run(retry_share=100.0)  # whatever this computer's own noise costs the other two
    assert (outcome.measured, outcome.lacking) == (3, {})
    frame = rows(store).set_index("lines")
    assert (frame["noisy"][VICTIM.lines], frame["tries"][VICTIM.lines]) == (mark, 4)
    assert (folder / "tries").read_text().count("\n") == 4
    assert outcome.noisy >= 1 and outcome.retries >= 3 and "marked as noisy" in str(outcome)


@needs_c
@pytest.mark.usefixtures("no_steal")
def test_the_first_quiet_try_is_kept_and_has_no_mark(befall, run, store):
    befall('echo >> "$HERE/tries"; out=$("$REAL" "$@" | sed \'s/"batch_ns_per_access": [[][^]]*/"batch_ns_per_access": [1, 1/\')\n'
           'if [ $(wc -l < "$HERE/tries") -lt 3 ]; then echo "$out" | sed \'s/"migrations": 0/"migrations": 2/\'; else echo "$out"; fi')
    run(retry_share=100.0)
    frame = rows(store).set_index("lines")
    assert (frame["noisy"][VICTIM.lines], frame["tries"][VICTIM.lines]) == ("", 3)


class Scripted:
    """Stands for measure.measure: each call gives the next of (mark, ns per access), then quiet ones."""

    def __init__(self, *tries: tuple[str, float] | Unavailable) -> None:
        self.tries = list(tries)
        self.asked: list[Point] = []

    def __call__(self, point: Point, repeat: int, *, state: str, **_: object) -> Record:
        self.asked.append(point)
        given = self.tries.pop(0) if self.tries else ("", 5.0)
        if isinstance(given, Unavailable):
            raise given
        return make_record(**point.model_dump(), repeat=repeat, state=state, noisy=given[0], ns_per_access=given[1])


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    def use(*tries: tuple[str, float] | Unavailable) -> Scripted:
        fake = Scripted(*tries)
        monkeypatch.setattr(experiment.measure, "measure", fake)
        monkeypatch.setattr(experiment.build, "kernel", lambda name, engine: Kernel(name, engine, ("true",), "a" * 16))
        return fake

    return use


@pytest.mark.parametrize(("tries", "kept"), [
    ([("stolen", 1.0), ("", 9.0), ("", 1.0)], ("", 9.0, 2)),  # the first quiet one, be it the slowest
    ([("stolen", 1.0), ("uneven", 2.0), ("stolen", 3.0), ("migrated", 4.0)], ("migrated", 4.0, 4)),  # the last, not the fastest
    ([("stolen", 4.0), ("uneven", 3.0), ("stolen", 2.0), ("migrated", 1.0)], ("migrated", 1.0, 4)),
    ([("stolen", 2.0), Unavailable("oom-killed")], ("stolen", 2.0, 1)),  # a noisy number is better than none
])
def test_which_try_is_kept_is_decided_by_its_mark_and_never_by_its_time(scripted, run, store, tries, kept):
    scripted(*tries)
    run(POINTS[:1])
    (row,) = rows(store).itertuples()
    assert (row.noisy, row.ns_per_access, row.tries) == kept


def test_on_a_computer_that_is_always_noisy_second_tries_add_a_quarter_and_no_more(scripted, run, store):
    fake = scripted(*[("stolen", 1.0)] * 2000)
    points = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 164)]
    outcome = run(points, repeats=4)
    assert outcome.measured == outcome.noisy == 400 and set(rows(store)["noisy"]) == {"stolen"}
    assert 1.2 * 400 < len(fake.asked) == 400 + outcome.retries < 1.25 * 400 + 2 * experiment.RETRIES
    thirds = [Counter(rows(store)["tries"][part]) for part in (slice(0, 133), slice(267, 400))]
    assert abs(thirds[0][1] - thirds[1][1]) < 25  # no part of the run uses up what belongs to the rest


# --- Ctrl-C, SIGTERM and kill -9 of the runner (test_experiment.py, test_cli.py, test_kernels.py)

# A command of `tlb` that measures thirty points of 1 ms and then one of a minute.
RUNNER = """
import sys
from pathlib import Path
from experiments import cli
from experiments.lab import campaign as experiment, perf
from experiments.system import files
from experiments.lab.record import Point
from experiments.lab.store import Store
root = sys.argv.pop()
experiment.measuring_lock = lambda: files.measuring_lock(path=Path(root) / "lock")
points = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 94)]
long = Point(kernel="page_chase", lines=64, region_ms=60_000)
def go():
    for part in (points, [long]):
        experiment.run("stlb_cliff", part, 1, machine="test-machine", store=Store(root), state="00112233aabb",
                       plan=perf.NO_COUNTERS, usable_bytes=1 << 30, quiet=True)
cli.app.command("go")(go)
cli.main()
"""
@needs_c
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_runner_that_is_ended_leaves_no_kernel_and_the_same_run_goes_on(store, run, number: signal.Signals, status: int):
    store.root.mkdir()
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, "go", str(store.root)], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's & ignores it
    kernels: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while not kernels and runner.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        kernels = [child for child in psutil.Process(runner.pid).children(recursive=True) if "60000" in _words(child)]
    runner.send_signal(number)
    out, err = runner.communicate(timeout=30)
    assert kernels, err
    psutil.wait_procs(kernels, timeout=10)
    assert not [kernel for kernel in kernels if kernel.is_running() and kernel.status() != psutil.STATUS_ZOMBIE]
    assert (runner.returncode, out) == (status, "")
    assert err == ("" if status < 0 else "Interrupted; what was finished is kept, and the same command goes on from there.\n")
    assert store.check(MACHINE, NAME) == Health(30, 0, 0, 0)
    again = run([Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 95)])
    assert (again.cached, again.measured) == (30, 1)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# --- ENOSPC, EROFS and EDQUOT at each write (test_store.py)

REFUSALS = [pytest.param(getattr(errno, name), code, id=name)
            for name, code in (("ENOSPC", "disk-full"), ("EDQUOT", "disk-full"), ("EROFS", "disk-read-only"))]


def refuse(patch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """Makes every opening for writing, and every new folder, at or under a path fail."""

    def wrapped(call: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def instead(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder) and writes(*args, **kwargs):
                raise OSError(number, os.strerror(number), str(path))
            return call(path, *args, **kwargs)

        return instead

    def by_flags(flags: int = 0, *_: object, **__: object) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def by_mode(mode: str = "r", *_: object, **__: object) -> bool:
        return not set("wax+").isdisjoint(mode)

    patch.setattr(os, "open", wrapped(os.open, by_flags))
    patch.setattr(os, "mkdir", wrapped(os.mkdir, lambda *_, **__: True))
    patch.setattr(io, "open", wrapped(io.open, by_mode))
    patch.setattr(builtins, "open", wrapped(builtins.open, by_mode))


@pytest.mark.parametrize(("number", "code"), REFUSALS)
@pytest.mark.parametrize("what", ["the results", "machine.json", "the quarantine", "the build folder", "the card", "the notebook",
                                  "the site's sources"])
def test_a_disk_that_refuses(tmp_path, monkeypatch, scripted, run, store, what: str, number: int, code: str):
    def chapter() -> chapters.Chapter:
        values = chapters.check_parameters("stlb_cliff", {"machine": "this", "profile": "smoke", "repeats": 1, "engine": "numba"})
        return chapters.Chapter("stlb_cliff", values, store)

    path = store.root / MACHINE / f"{NAME}.jsonl"
    folder, act = {
        "the results": (store.root, lambda: run()),
        "machine.json": (store.root, lambda: chapter().measure("stlb_cliff")),
        "the quarantine": (path.with_name(f"{NAME}.quarantine.jsonl"), lambda: run(repeats=2)),
        "the build folder": (tmp_path / "build", lambda: build.kernel("page_chase")),
        "the card": (store.root / host.machine_id(host.inspect()) / "README.md", lambda: chapter().measure("stlb_cliff")),
        "the notebook": (tmp_path / "runs", lambda: chapters.execute("stlb_cliff", tmp_path / "runs/x.ipynb", {})),
        "the site's sources": (tmp_path / "_build", lambda: chapters.book("smoke", {}, "reference")),
    }[what]
    if what == "the build folder":
        monkeypatch.setenv("TLB_BUILD", str(folder))
        monkeypatch.setattr(build, "compiler", lambda: Compiler(("cc",), "cc 1.0"))
    elif what != "perf's counts":
        scripted()
    if what == "the quarantine":
        run()
        path.write_bytes(path.read_bytes() + b"broken\n")
    if what == "the site's sources":
        (tmp_path / "book").symlink_to(chapters.BOOK)
        monkeypatch.setattr(chapters, "ROOT", tmp_path)
        monkeypatch.setattr(chapters, "table_of_contents", lambda: [])
    before = path.read_bytes() if path.exists() else b""
    with monkeypatch.context() as patch, pytest.raises(Unavailable) as why:
        refuse(patch, folder, number)
        act()
    says(why.value, code)
    assert (path.read_bytes() if path.exists() else b"") == before
    if what in ("the results", "the quarantine", "machine.json", "the card"):
        act()  # the same once more, with room again
        assert sum(len(store.load(machine, NAME)) for machine in store.machines()) >= 3


@pytest.mark.parametrize(("number", "code"), REFUSALS)
def test_a_compiler_that_cannot_write_is_a_full_disk_and_no_broken_compiler(tmp_path, monkeypatch, number: int, code: str):
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    failing = tmp_path / "cc"
    failing.write_text(f"#!/bin/sh\necho 'ld: final link failed: {os.strerror(number)}' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: Compiler((str(failing),), "cc 1.0"))
    with pytest.raises(Unavailable) as why:
        build.kernel("page_chase")
    says(why.value, code)
    assert list((tmp_path / "build/kernels").iterdir()) == []


@needs_root
def test_a_disk_that_really_is_full_and_then_read_only_keeps_every_line_that_was_finished(scripted, run, store):
    scripted()
    points = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 264)]

    def work() -> tuple[list[Unavailable], Health, int] | None:
        libc, place = ctypes.CDLL(None, use_errno=True), str(store.root).encode()
        # A mount namespace of this process alone (CLONE_NEWNS), detached from the others (MS_REC | MS_PRIVATE).
        if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x4000 | 0x40000, None) or libc.mount(
                b"tmpfs", place, b"tmpfs", 0, b"size=64k"):
            return None
        refused = []
        for again in range(2):
            try:
                run(points)
            except Unavailable as why:
                refused.append(why)
            if not again:
                libc.mount(None, place, None, 32 | 1, None)  # MS_REMOUNT | MS_RDONLY
        return refused, store.check(MACHINE, NAME), len(rows(store))

    store.root.mkdir()
    if (answer := in_a_child(work)) is None:
        pytest.skip("needs the right to mount, in a namespace")
    (full, read_only), health, finished = answer
    says(full, "disk-full")
    says(read_only, "disk-read-only")
    assert health == Health(finished, 0, 0, 0) and 0 < finished < len(points)


# --- two runs at once (test_cli.py, test_store.py)


@needs_c
def test_of_two_runs_at_once_the_second_is_told_to_wait_and_changes_nothing(run, store):
    with experiment.measuring_lock(), pytest.raises(Unavailable) as why:
        run()
    says(why.value, "measuring-already")
    assert not store.root.exists()
    assert run().measured == 3


# --- store lines that are not whole (test_store.py)


def flipped(line: bytes) -> bytes:
    at = line.index(b'"ns_per_access":') + 17
    return line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


def of_schema(line: bytes, version: int) -> bytes:
    content = json.loads(line)
    del content["digest"]
    content["record"]["schema_version"] = version
    return _signed(content)


def _signed(content: dict) -> bytes:
    from experiments.lab.store import _canonical, _sha16

    return _canonical({**content, "digest": _sha16(content)})


@pytest.mark.parametrize(("damage", "kept"), [
    pytest.param(lambda line: line[:-40], "quarantine", id="truncated"),
    pytest.param(flipped, "quarantine", id="bit-flipped"),
    pytest.param(lambda line: line.replace(b'"digest":"', b'"digest":"0')[:-1] + b"}", "quarantine", id="with a wrong digest"),
    pytest.param(lambda line: of_schema(line, 0), "results", id="of an older schema"),
])
def test_a_stored_line_is_never_read_but_measured_again_when(scripted, run, store, damage, kept: str):
    fake = scripted()
    run()
    path = store.root / MACHINE / f"{NAME}.jsonl"
    lines = path.read_bytes().splitlines()
    bad = damage(lines[1])
    assert bad != lines[1]
    path.write_bytes(b"\n".join([lines[0], bad, lines[2]]) + b"\n")
    lost = {json.loads(lines[1])["record"]["lines"]}
    assert set(rows(store)["lines"]) == {64, 128, 256} - lost
    fake.asked.clear()
    assert (run().measured, run().cached) == (1, 3)
    assert {point.lines for point in fake.asked} == lost and len(rows(store)) == 3
    where = path if kept == "results" else path.with_name(f"{NAME}.quarantine.jsonl")
    assert bad in where.read_bytes().splitlines()


def test_a_last_line_that_a_power_cut_tore_is_dropped_and_measured_again(scripted, run, store):
    scripted()
    run()
    path = store.root / MACHINE / f"{NAME}.jsonl"
    path.write_bytes(path.read_bytes()[:-60])
    assert len(rows(store)) == 2 and (run().measured, len(rows(store))) == (1, 3)
    assert store.check(MACHINE, NAME) == Health(3, 0, 0, 0)


# --- compiler, flags, kernel release or THP setting changed (test_build.py, test_host.py)


@needs_c
@pytest.mark.parametrize("changed", ["compiler", "flags", "kernel release", "THP setting"])
def test_everything_is_measured_again_and_old_rows_are_kept_after_a_change_of(run, store, tmp_path, monkeypatch, changed: str):
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    enabled = tmp_path / "root/sys/kernel/mm/transparent_hugepage/enabled"
    enabled.parent.mkdir(parents=True)
    enabled.write_text("always [madvise] never\n")

    def state() -> str:
        return host.state(host.inspect(tmp_path / "root", host.Platform(kernel_release=release)))

    release = "6.12.1"
    assert run(state=state()).measured == 3
    before = rows(store)
    if changed == "compiler":
        newer = tmp_path / "cc"
        real = shlex.join(compilers.compiler().command)
        newer.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "cc 99.0" && exit\nexec {real} "$@"\n')
        newer.chmod(0o755)
        monkeypatch.setenv("CC", str(newer))
        monkeypatch.setattr(build, "compiler", compilers.compiler.__wrapped__)
    elif changed == "flags":
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O3"))
    elif changed == "kernel release":
        release = "6.12.2"
    else:
        enabled.write_text("[always] madvise never\n")
    again = run(state=state())
    assert (again.measured, again.cached) == (3, 0) and run(state=state()).cached == 3
    after = rows(store)
    assert len(after) == 6
    pd.testing.assert_frame_equal(after.head(3), before)
    assert set(zip(after["kernel_digest"].head(3), after["state"].head(3), strict=True)).isdisjoint(
        zip(after["kernel_digest"].tail(3), after["state"].tail(3), strict=True))


# --- clock steps


@needs_c
def test_a_clock_that_steps_changes_the_date_of_a_row_and_no_number(run, store, monkeypatch):
    dates = itertools.cycle([datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)])  # on and back again

    class Stepping(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return next(dates)

    monkeypatch.setattr(measure, "datetime", Stepping)
    monkeypatch.setattr(time, "time", lambda: pytest.fail("the wall clock was used to measure"))
    monkeypatch.setattr(time, "time_ns", lambda: pytest.fail("the wall clock was used to measure"))
    outcome = run()
    frame = rows(store)
    assert outcome.measured == 3 and outcome.elapsed_s > 0
    assert set(frame["started_at"]) <= {"2038-01-19T03:14:08Z", "1970-01-01T00:00:00Z"}
    assert (frame["wall_ns"] > frame["elapsed_ns"]).all() and (frame["elapsed_ns"] > 0).all()
    assert run().cached == 3


def test_no_kernel_reads_a_clock_that_can_be_set():
    for path in sorted(build.KERNELS.glob("*.[chp]*")):
        if path.is_file():
            text = path.read_text()
            assert not any(word in text for word in ("CLOCK_REALTIME", "gettimeofday", "time.time(", "time(NULL)")), path.name


# --- /proc and /sys fields absent, localised, enormous, not UTF-8 (test_host.py)

PROC = ["proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/loadavg", "proc/self/cgroup", "proc/self/mountinfo", "etc/machine-id",
        "proc/sys/kernel/perf_event_paranoid", "sys/devices/system/cpu/present", "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "sys/devices/system/cpu/cpu0/cache/index0/size", "sys/devices/system/cpu/smt/control"]
LOCALISED = "Speicher gesamt: 16.777.216 kB\nverfügbar: 1,5 GB\n[immer] auf Anfrage nie\ncpu0 1.000 2,5 ３ ٤ 5 6 7 8\n"


@pytest.mark.parametrize("content", [
    pytest.param(None, id="absent"),
    pytest.param(LOCALISED.encode(), id="localised"),
    pytest.param(b"MemTotal: " + b"9" * 3 * MIB + b" kB\n", id="enormous"),
    pytest.param(b"MemAvailable: 99999999999999999999999999 kB\ncpu0 " + b"9" * 99 + b"\n", id="of enormous numbers"),
    pytest.param(b"\xff\xfe\x00MemTotal: \xe9 kB\n\x80\x81[\xc3]\n", id="not UTF-8"),
    pytest.param(b"", id="empty"),
])
def test_fields_of_proc_and_sys_may_be(tmp_path: Path, content: bytes | None):
    for name in PROC if content is not None else []:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    here = host.inspect(tmp_path, host.Platform(os="Linux"))
    assert host.Host.model_validate_json(here.model_dump_json()) == here
    assert (here.memory.usable_bytes, here.memory.limit_source) == (0, "unknown") or here.memory.limit_source.startswith("RLIMIT")
    assert noise.stolen_ms(tmp_path) == {}
    if here.memory.limit_source == "unknown":
        assert "Mount /proc in this container; no working set can be chosen without it." in [a.remedy for a in doctor.advice(here)]
    with pytest.raises(Unavailable) as why:
        measure.measure(VICTIM, state=host.state(here), usable_bytes=min(here.memory.usable_bytes, 1))
    says(why.value, "memory-short")


@needs_c
@pytest.mark.usefixtures("no_steal")
def test_without_a_statement_of_steal_a_row_has_none_and_no_zero(run, store):
    run()
    assert rows(store)["steal_ms"].isna().all()


# --- a compiler that optimises the chase away; cc that fails (test_build.py)

CHASE, DRAWS, GATHER = "for (uint64_t i = hops / 16; i; i--) {", "for (; i + 16 <= draws; i += 16) {", "for (; rounds; rounds--)"
LEFT_OUT = {  # what -> the kernel, where, in the place of what, what, and the order that runs it
    "the whole chase": ("page_chase", "chase.h", CHASE, f"return p;\n{CHASE}", "cycle"),
    "half of the hops": ("page_chase", "chase.h", CHASE, CHASE.replace("16", "32"), "cycle"),
    "one hop in a round": ("page_chase", "chase.h", "i = hops % 16;", "i = (hops - 1) % 16;", "cycle"),
    "every draw": ("page_chase", "page_chase.c", DRAWS, f"return loaded;\n{DRAWS}", "random"),
    "the gathered loads": ("page_gather", "page_gather.c", "(unsigned char)base[index[i]]", "0 * base[index[i]]", "cycle"),
    "the gather's loop": ("page_gather", "page_gather.c", GATHER, f"return rounds * lines;\n{GATHER}", "cycle"),
}


@needs_c
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_compiler_that_leaves_accesses_out_gives_no_number(tmp_path, monkeypatch, what: str):
    name, where, before, after, order = LEFT_OUT[what]
    shutil.copytree(build.KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "kernels" / where
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    monkeypatch.setattr(build, "KERNELS", tmp_path / "kernels")
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    point = Point(kernel=name, lines=4096 + 5, order=order, region_ms=1)
    with pytest.raises(Unavailable) as why:
        measure.measure(point, state=STATE, usable_bytes=2**30)
    says(why.value, "kernel-garbage")


def test_a_compiler_that_fails_is_a_reason_with_another_engine_as_its_remedy(tmp_path, monkeypatch, run, store):
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo cc 1.0 && exit\necho 'cc: error: no headers' >&2; exit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    monkeypatch.setattr(build, "compiler", compilers.compiler.__wrapped__)
    with pytest.raises(Unavailable) as why:
        run()
    says(why.value, "compile-failed")
    assert "no headers" in why.value.detail and "--engine numba" in str(why.value)


# --- root and an ordinary user

# What a clock or the scheduler decides. Counters are left out too: perf_event_paranoid may deny them to one of the two.
CHANCE = {"accesses", "elapsed_ns", "ns_per_access", "batch_ns_per_access", "core_ghz", "prepare_ns", "wall_ns", "started_at", "steal_ms",
          "voluntary_switches", "involuntary_switches", "tries", "noisy", "counters"}


@needs_root
@needs_c
@pytest.mark.parametrize(("kernel", "layout", "order"), [("page_chase", "spread", "cycle"), ("page_chase", "packed", "random"),
                                                         ("page_gather", "spread", "cycle")])
def test_root_and_an_ordinary_user_get_the_same_record_but_for_times(monkeypatch, kernel: str, layout: str, order: str):
    point = Point(kernel=kernel, lines=1000, layout=layout, order=order, region_ms=1)

    def work(user: int) -> dict[str, Any]:
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        here = host.inspect()
        record = measure.measure(point, 3, state=host.state(here), usable_bytes=2**30)
        return record.model_dump(exclude=CHANCE) | {"machine": host.machine_id(here)}

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("TLB_BUILD", folder)
        build.kernel(kernel)
        root, nobody = in_a_child(lambda: work(0)), in_a_child(lambda: work(65534))
    assert root == nobody
    assert {"checksum", "backing", "minor_faults", "seed", "arena_bytes", "cpu", "state"} <= root.keys()
