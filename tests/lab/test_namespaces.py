"""Fresh namespaces: what runs in them is what runs outside, and where they are not fresh nothing is measured."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.common import ROOT, lacking, make_record, software_plan
from support.fake_perf import alive, install
from support.kernels import measured as measured_point
from support.kernels import why_not as why_not_point
from support.lab import run as run_points
from support.stand_ins import in_a_child

from experiments.lab import build, measure, namespaces, perf, session
from experiments.lab.campaign import Outcome
from experiments.lab.events import SOFTWARE
from experiments.lab.record import KernelReport, Point, Record
from experiments.lab.store import Store
from experiments.words.reasons import REASONS, Unavailable

STATE = "00112233aabb"
PLAIN = Point(kernel="page_chase", lines=300, region_ms=1)
INSIDE = PLAIN.model_copy(update={"mode": namespaces.MODE})
REPORT = make_record(lines=300).model_dump(include=set(KernelReport.model_fields))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")


@pytest.fixture
def fresh() -> tuple[str, ...]:
    """The words before a command; a test that takes them needs a computer that has namespaces, by unshare's own word."""
    by_hand = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    if shutil.which("unshare") is None or (done := subprocess.run(by_hand, capture_output=True, text=True)).returncode:
        lacking("unshare" if shutil.which("unshare") is None else f"what namespaces take ({done.stderr.strip()})")
    return namespaces.prefix("/bin/sh")


def run(words: tuple[str, ...], *command: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words, *command], **{"capture_output": True, "text": True, "timeout": 60, **how})  # type: ignore[call-overload]


def measured(point: Point = INSIDE, plan: perf.Plan = perf.NO_COUNTERS) -> Record:
    return measured_point(point, plan=plan)


def why_not(point: Point = INSIDE, code: str = "no-namespaces") -> str:
    return why_not_point(point, code)


@pytest.fixture
def unshare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a shell script in the place of unshare, before which the cache of what was proved is emptied, and after."""

    def fake(text: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "unshare").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "unshare").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    namespaces._proved.cache_clear()
    yield fake
    namespaces._proved.cache_clear()


# --- what is in them


def test_each_of_the_four_is_another_than_here(fresh):
    """By the inodes behind the links, which are what the kernel of Linux compares (namespaces(7))."""
    here = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("user", "mnt", "pid", "net")]
    for _ in range(2):
        said = run(fresh, "stat", "-L", "-c", "%i", *(f"/proc/self/ns/{kind}" for kind in ("user", "mnt", "pid", "net"))).stdout
        there = [int(line) for line in said.split()]
        assert len(there) == 4 and not set(there) & set(here)


def test_inside_a_process_is_the_first_one_is_root_and_sees_no_network_but_its_own(fresh):
    said = run(fresh, "sh", "-c", "echo $$; id -u; tail -n +3 /proc/self/net/dev | cut -d: -f1").stdout.split()
    assert said[:2] == ["1", "0"] and set(said[2:]) <= {"lo", "sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0",
                                                       "ip6_vti0", "ip6gre0"}  # what modules put into every one


@pytest.mark.parametrize("status", [0, 1, 2, 3, 77])
def test_an_exit_status_comes_out_as_it_went_in(fresh, status: int):
    done = run(fresh, "sh", "-c", f"echo said; echo why >&2; exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "said\n", "why\n")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS])
def test_a_fault_ends_the_process_with_its_signal(fresh, number: signal.Signals):
    done = run(fresh, sys.executable, "-c", f"import ctypes, mmap, tempfile; {FAULTS[number]}")
    assert done.returncode == -number


@pytest.mark.parametrize("counts", [False, True], ids=["alone", "under perf"])
def test_a_kernel_that_is_killed_from_outside_ran_out_of_memory(fresh, kernel, tmp_path: Path, counts: bool):
    """As Linux does it: from inside, the first process of a pid namespace is out of a signal's reach."""
    kernel(f"sleep {(marker := 93.25 + counts)}; :")
    plan = perf.Plan(install(tmp_path / "perf", {event.event: 1.0 for event in SOFTWARE}), SOFTWARE) if counts else perf.NO_COUNTERS

    def kill() -> None:
        while not (found := [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if name_of(pid) == "kernel\n"
                             and any(f"sleep {marker}" in line_of(child) for child in children_of(pid))]):
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(Unavailable) as why:
        measured(plan=plan)
    assert (why.value.code, why.value.detail) == ("oom-killed", "page_chase with 1 MiB")
    assert alive(f"sleep {marker}") == []


# What a processor or the kernel of Linux sends by itself: a load from nowhere, a load past the end of a file.
FAULTS = {
    signal.SIGSEGV: "ctypes.string_at(0)",
    signal.SIGBUS: "f = tempfile.TemporaryFile(); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); "
                   "f.truncate(0); m[0]",
}


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def line_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


# --- the same kernel, measured in them


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.parametrize("engine", [pytest.param("c", marks=pytest.mark.needs("a C compiler")), "numba"])
def test_the_same_walk_is_measured_inside_and_outside(fresh, engine: str):
    points = [point.model_copy(update={"engine": engine}) for point in (PLAIN, INSIDE)]
    plain, inside = (measured(point) for point in points)
    assert [plain.point, inside.point] == points and (plain.mode, inside.mode) == ("", "namespaces")
    for field in ("seed", "checksum", "cpu", "backing", "lines", "working_set_bytes", "arena_bytes", "stride_bytes"):
        assert getattr(plain, field) == getattr(inside, field), field
    assert (plain.steal_ms is None) == (inside.steal_ms is None)


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_a_cpu_that_is_named_is_the_one_that_measures(fresh):
    for cpu in (min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))):
        assert measure.measure(INSIDE, state=STATE, usable_bytes=2**30, cpu=cpu).cpu == cpu


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_the_gate_of_perf_is_opened_from_inside(fresh, tmp_path: Path):
    program = install(tmp_path, {event.event: 100.0 + place for place, event in enumerate(SOFTWARE)})
    record = measured(plan=perf.Plan(program, SOFTWARE))
    assert [record.counters[event.quantity].value for event in SOFTWARE] == [100, 101]


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "perf that counts faults")
@pytest.mark.parametrize("pages", [1, 17, 1000])
def test_perf_counts_the_same_faults_through_the_namespaces(fresh, tmp_path: Path, pages: int):
    """perf counts unshare too, which sleeps long before a kernel has warmed up. This program opens the gate at once, and a slow
    unshare may then fault once more on its way to sleep."""
    cc, binary = build.compiler(), str(tmp_path / "gate_faults")
    assert cc is not None
    subprocess.run([*cc.command, *build.FLAGS, "-Wno-unused-function", "-o", binary, ROOT / "tests/support/gate_faults.c"], check=True)
    runs = [perf.run([*fresh, binary, "--lines", str(pages)], software_plan(), 60) for _ in range(4)]
    assert {(done.stdout, done.status) for done in runs} == {("done\n", 0)}
    assert min(done.counters["minor_faults"].value or 0 for done in runs) == pages


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; the other tests are an ordinary user's then")
def test_an_ordinary_user_measures_in_them_too(fresh):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        os.chmod(folder, 0o755)
        binary = shutil.copy(build.kernel("page_chase").command[0], folder)
        nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")
        done = run((*nobody, *fresh), binary, "--lines", "300", "--region-ms", "1", cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert KernelReport.model_validate_json(done.stdout).lines == 300


@pytest.mark.needs("setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of another user takes root")
def test_a_folder_of_another_user_is_closed_to_root_inside_and_that_is_said(fresh, kernel):
    with tempfile.TemporaryDirectory() as folder:
        log = kernel("echo started")
        closed = Path(folder) / "closed"
        closed.mkdir()
        program = Path(shutil.copy(log.with_name("kernel"), closed))
        os.chmod(folder, 0o755)
        os.chown(closed, 65534, 65534)
        closed.chmod(0o700)
        with pytest.raises(Unavailable) as why:
            namespaces.prefix(str(program))
    assert (why.value.code, f"{program} cannot be executed" in why.value.detail) == ("no-namespaces", True)
    assert not log.exists()


# --- what the kernel is told and what it says


def say(report: dict[str, object]) -> str:
    return f"printf '%s\\n' {shlex.quote(json.dumps(report))}"


def test_a_kernel_is_told_nothing_of_the_mode(fresh, kernel):
    told = []
    for point in (PLAIN, INSIDE):
        log = kernel(say(REPORT))
        assert measured(point).point == point
        told.append(log.read_text())
    assert told[0] == told[1] and "mode" not in told[0]


@pytest.mark.parametrize("mode", ["touch", "plain"])
def test_a_kernel_that_ran_in_a_mode_of_its_own_is_not_relabelled(fresh, kernel, mode: str):
    kernel(say(REPORT | {"mode": mode}))
    assert "asked for" in why_not(code="kernel-garbage")


def test_a_report_of_a_plain_process_is_none_of_another_mode(kernel):
    kernel(say(REPORT))
    assert "asked for" in why_not(PLAIN.model_copy(update={"mode": "other"}), "kernel-garbage")


@pytest.mark.parametrize(("words", "status", "code"), [
    ('{"reason": "pool-empty", "detail": "8 needed, 0 free"}', 3, "pool-empty"), ("8 needed, 0 free", 2, "bad-parameter"),
    ("8 needed, 0 free", 3, "kernel-garbage"), ("8 needed, 0 free", 7, "kernel-crashed")])
def test_what_a_kernel_says_of_its_failure_comes_out(fresh, kernel, words: str, status: int, code: str):
    kernel(f"echo {shlex.quote(words)} >&2; exit {status}")
    assert "8 needed, 0 free" in why_not(code=code)


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_of_another_kernel_it_is_no_mode():
    for name in ("prefault", "page_gather"):
        why_not(Point(kernel=name, order="sequential" if name == "prefault" else "cycle", lines=8, mode="namespaces"), "bad-parameter")


# --- where there are none


def test_without_unshare_it_is_said_and_the_plain_process_is_measured(unshare, kernel, monkeypatch):
    kernel(say(REPORT))
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if name == "unshare" else real(name, *rest))
    assert why_not() == "there is no unshare"
    assert "apt install util-linux" in REASONS["no-namespaces"].remedy
    assert measured(PLAIN).mode == ""


def test_an_unshare_that_changes_nothing_is_found_out(unshare, kernel):
    unshare('while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    log = kernel(say(REPORT))
    assert why_not() == "unshare left the old ones: user, mnt, pid, net"
    assert not log.exists()


@pytest.mark.parametrize(("option", "kind"), [("--net", "net"), ("--mount", "mnt")])
def test_one_that_is_left_as_it_was_is_named(fresh, unshare, kernel, option: str, kind: str):
    real = shutil.which("unshare")
    unshare(f'for word do shift; [ "$word" = {option} ] || set -- "$@" "$word"; done; exec {real} "$@"')
    kernel(say(REPORT))
    assert why_not() == f"unshare left the old ones: {kind}"


@pytest.mark.parametrize("words", ["unshare: unshare failed: Operation not permitted",
                                   "unshare: write failed /proc/self/uid_map: Operation not permitted", "unshare: bad option"])
def test_a_refusal_is_quoted(unshare, kernel, words: str):
    unshare(f"echo {shlex.quote(words)} >&2; exit 1")
    log = kernel(say(REPORT))
    assert why_not().startswith(words) and not log.exists()


def test_a_refusal_without_a_word_gives_its_exit_status(unshare, kernel):
    unshare("exit 7")
    kernel(say(REPORT))
    assert why_not().startswith("exit status 7")


def test_an_unshare_that_hangs_is_given_up_with_all_that_it_started(unshare, kernel, monkeypatch):
    monkeypatch.setattr(namespaces, "PATIENCE_S", 0.3)
    unshare("sleep 94.25; :")
    kernel(say(REPORT))
    assert why_not().startswith("unshare gave no answer")
    assert alive("sleep 94.25") == []


def test_a_limit_of_none_is_a_reason_that_names_it(fresh):
    """A real one: each user namespace has a limit of its own, so this computer's stays as it is."""
    text = ("from pathlib import Path; from experiments.lab import namespaces; from experiments.words.reasons import Unavailable\n"
            "Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
            "try: namespaces.prefix('/bin/sh')\nexcept Unavailable as why: print(why.code, why.detail)")
    before = Path("/proc/sys/user/max_user_namespaces").read_text()
    done = run(fresh, sys.executable, "-c", text, cwd=ROOT)
    assert done.stdout.startswith("no-namespaces ") and done.stdout.endswith("; user.max_user_namespaces is 0\n"), done
    assert Path("/proc/sys/user/max_user_namespaces").read_text() == before


@pytest.mark.parametrize(("settings", "found"), [
    ({}, []), ({"user/max_user_namespaces": 15000, "kernel/unprivileged_userns_clone": 1}, []),
    ({"kernel/apparmor_restrict_unprivileged_userns": 0}, []), ({"user/max_user_namespaces": "none"}, []),
    ({"user/max_user_namespaces": 0}, ["user.max_user_namespaces is 0"]),
    ({"kernel/unprivileged_userns_clone": 0, "kernel/apparmor_restrict_unprivileged_userns": 1},
     ["kernel.unprivileged_userns_clone is 0", "kernel.apparmor_restrict_unprivileged_userns is 1"]),
])
def test_the_settings_that_forbid_them_are_named(tmp_path: Path, settings: dict, found: list[str]):
    for name, value in settings.items():
        path = tmp_path / "proc/sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    assert namespaces.forbidden(tmp_path) == found


def test_they_are_proved_once_a_process(fresh, unshare, kernel, tmp_path: Path):
    unshare(f'echo asked >> {tmp_path / "log"}; exec {shutil.which("unshare")} "$@"')
    kernel(say(REPORT))
    for _ in range(3):
        measured()
    assert (tmp_path / "log").read_text().split() == ["asked"] * 4  # the proof, and three kernels


# --- a grid of both


def test_a_grid_keeps_the_two_apart_and_without_namespaces_has_one_of_them(fresh, unshare, kernel, own_lock, store: Store, monkeypatch):
    kernel(say(REPORT))

    def go() -> Outcome:
        return run_points(store, [PLAIN, INSIDE], 2, name="virtualization", machine="here", retry_share=0)

    unshare("exit 1")
    outcome = go()
    assert (outcome.measured, {point: why.code for point, why in outcome.lacking.items()}) == (2, {INSIDE: "no-namespaces"})
    monkeypatch.undo()
    kernel(say(REPORT))
    monkeypatch.setattr("experiments.lab.campaign.measuring_lock", contextlib.nullcontext)
    outcome = go()
    assert (outcome.measured, outcome.cached, outcome.lacking) == (2, 2, {})
    assert sorted(store.load("here", "virtualization")["mode"]) == ["", "", "namespaces", "namespaces"]


# --- nothing is left behind


def test_what_runs_inside_ends_with_the_unshare_outside(fresh):
    """Whatever it is: a kernel sees to that by itself only once it has begun."""
    with subprocess.Popen([*fresh, "sleep", "95.25"]) as child:
        while not any(line.startswith("sleep") for line in alive("sleep 95.25", 0)):
            assert child.poll() is None
            time.sleep(0.02)
        child.kill()
    assert alive("sleep 95.25") == []


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "setpriv")
@pytest.mark.parametrize("counts", [False, True], ids=["alone", "under perf"])
def test_a_runner_that_is_killed_leaves_no_process(fresh, tmp_path: Path, counts: bool):
    """The kernel is perf's grandchild, and each of the three ends with its parent."""
    region_ms = 59_371 + counts
    plan = f"perf.Plan({install(tmp_path, {event.event: 1.0 for event in SOFTWARE})!r}, perf.SOFTWARE)" if counts else "perf.NO_COUNTERS"
    text = ("from experiments.lab import measure; from experiments.lab import perf; from experiments.lab.record import Point\n"
            f"measure.measure(Point(kernel='page_chase', lines=300, mode='namespaces', region_ms={region_ms}), "
            f"state='{STATE}', usable_bytes=2**30, plan={plan})")
    marker, binary = f"--region-ms {region_ms}", Path(build.kernel("page_chase").command[0]).name
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT) as runner:
        deadline = time.monotonic() + 60
        while not any(line.split()[0].endswith(binary) for line in alive(marker, 0)):
            assert runner.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        runner.kill()
    assert alive(marker) == [] and alive(str(tmp_path / "perf")) == []


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_a_kernel_past_its_time_is_ended_with_its_namespaces(fresh, monkeypatch):
    monkeypatch.setattr(session, "HANG_S", 0.7)
    monkeypatch.setattr(session, "HANG_TIMES", 0.0)
    why_not(INSIDE.model_copy(update={"region_ms": 59_373}), "kernel-hung")
    assert alive("--region-ms 59373") == []


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="not Linux")
def test_a_proof_in_one_process_says_nothing_of_its_children(fresh, unshare):
    """The cache is this process's; a child that has lost the right to namespaces runs the proof of its parent, and no kernel."""
    unshare("echo gone >&2; exit 1")
    with pytest.raises(Unavailable, match="gone"):
        in_a_child(lambda: namespaces.prefix("/bin/sh"))
