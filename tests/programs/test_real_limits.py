"""Commands under limits that Linux itself sets here: cgroups, seccomp filters, prctl, namespaces. Each
says what stands in its way, or works all the same."""

import contextlib
import ctypes
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.common import ROOT, needs_c, needs_root
from support.programs import TLB_SCRIPT, built
from support.stand_ins import seccomp

from tlb.machine import pools
from tlb.machine.memory import cgroup_folders
from tlb.system.reasons import REASON_TEXTS

pytestmark = [
    pytest.mark.endurance,
    pytest.mark.measuring,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    needs_root,
    needs_c,
]
MIB, HERE = 1 << 20, Path("/")
TRY = ("try", "--minutes", "1", "--within", "50")
POINT = ("--pages", "4k", "--layout", "spread", "--order", "random", "--lines")
PIDFD_OPEN, PROCESS_MADVISE = 434, 440  # asm-generic/unistd.h
libc = ctypes.CDLL(None, use_errno=True)


def without_thp(flags: int) -> Callable[[], None]:
    def act() -> None:
        if libc.prctl(41, 1, flags, 0, 0):  # PR_SET_THP_DISABLE
            os._exit(99)

    return act


def shell(script: str) -> list[str]:
    return ["sh", "-c", f'{script} || exit 99; exec "$@"', "sh"]


NAMESPACES = {
    "user": ["unshare", "-r"],
    "subset": ["unshare", "-mpf", *shell("mount -t proc -o subset=pid proc /proc")],
    "sys": ["unshare", "-m", *shell("mount -o bind,ro /sys /sys && mount -o remount,bind,ro /sys")],
}
FILTERS = {
    "pidfd": partial(seccomp, PIDFD_OPEN, errno.EPERM),
    "madvise": partial(seccomp, PROCESS_MADVISE, errno.EPERM),
    "madvise-absent": partial(seccomp, PROCESS_MADVISE, errno.ENOSYS),
    "no-thp": without_thp(0),
    "thp-if-advised": without_thp(2),
}
# Of both versions: what a group may use.
GROUPS = {
    # less than a busy machine leaves it, so that it waits for its quota and not for a CPU
    "cpu": {"cpu.max": "10000 100000", "cpu.cfs_quota_us": "10000"},
    "memory": {"memory.max": f"{256 * MIB}", "memory.limit_in_bytes": f"{256 * MIB}"},
    "hugetlb": {"hugetlb.2MB.max": "0", "hugetlb.2MB.limit_in_bytes": "0"},
    "cpuset": {"cpuset.mems": "0", "cpuset.cpus": "0"},
}


@contextlib.contextmanager
def group(controller: str) -> Iterator[list[str]]:
    """Make a cgroup below the top of the controller's tree; yield what starts a command in it."""
    made = _top(controller) / f"tlb-test-{os.getpid()}"
    switch = made.parent / "cgroup.subtree_control"  # of version 2
    is_off = switch.exists() and controller not in switch.read_text().split()
    try:
        if is_off:
            switch.write_text(f"+{controller}")
        made.mkdir()
        for name, limit in GROUPS[controller].items():
            if (made / name).exists():
                (made / name).write_text(limit)
    except OSError as error:
        pytest.skip(f"no cgroup of {controller} can be made here: {error}")
    try:
        yield shell(f"echo $$ > {made}/cgroup.procs")
    finally:
        for _ in range(100):  # until the last process has left it
            with contextlib.suppress(OSError):
                made.rmdir()
                break
            time.sleep(0.05)
        if is_off:
            switch.write_text(f"-{controller}")


def _top(controller: str) -> Path:
    """Return the top of the tree that has a controller: of version 1, or else of version 2."""
    for _, folder in cgroup_folders(HERE, controller):
        listed = folder / "cgroup.controllers"
        is_top = not (folder.parent / "cgroup.procs").exists()
        if is_top and (not listed.exists() or controller in listed.read_text().split()):
            return folder
    pytest.skip(f"this Linux shows no cgroups of {controller}")


@pytest.fixture
def under(tmp_path) -> Callable[..., tuple[int, str]]:
    """Run `tlb` under a limit; return its exit code and all that it printed."""

    def run(limit: str, *arguments: str) -> tuple[int, str]:
        with group(limit) if limit in GROUPS else contextlib.nullcontext() as start:
            command = [sys.executable, "-c", TLB_SCRIPT, str(tmp_path / "lock"), *arguments]
            done = subprocess.run(
                [*(start or NAMESPACES.get(limit, [])), *command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=FILTERS.get(limit),
            )
        if done.returncode == 99 or "unshare failed" in done.stdout:
            pytest.skip(f"Linux refuses this limit here: {limit} {done.stdout}")
        assert "Traceback" not in done.stdout
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("cpu", "CPU quota is active (0.1 CPUs)"),
        ("memory", "leaves"),
        ("hugetlb", "hugetlb cgroup is active"),
        ("pidfd", "refuses pidfd_open (EPERM)"),
        ("madvise", "refuses process_madvise (EPERM)"),
        ("madvise-absent", "refuses process_madvise (ENOSYS)"),
        ("no-thp", "disabled by prctl"),
        ("thp-if-advised", "disabled by prctl but where advised"),
        ("user", "user namespace is active"),
        ("subset", "Nothing states how much memory is free"),
    ],
)
def test_doctor_finds_the_limit(limit, words, under):
    status, said = under(limit, "doctor")
    assert status == 0 and words in " ".join(said.split())


RESERVE = ("pool", "reserve", "--pages", "2m", "--size", "2MiB")


@pytest.mark.parametrize(
    ("limit", "arguments", "code"),
    [
        ("pidfd", (*TRY, "--", "PROGRAM"), "linux-lacks"),
        ("pidfd", (*TRY, "--lever", "collapse", "--", "PROGRAM"), "linux-lacks"),
        ("pidfd", ("watch", "PID"), "linux-lacks"),
        ("madvise", (*TRY, "--lever", "collapse", "--", "PROGRAM"), "not-permitted"),
        ("madvise", (*TRY, "--pid", "PID", "--driver", "true"), "not-permitted"),
        ("madvise-absent", (*TRY, "--pid", "PID", "--driver", "true"), "linux-lacks"),
        ("no-thp", (*TRY, "--", "PROGRAM"), "thp-never"),
        ("no-thp", (*TRY, "--lever", "no-thp", "--", "PROGRAM"), "thp-never"),
        ("user", RESERVE, "setting-refused"),
        ("user", (*TRY, "--lever", "64k", "--", "PROGRAM"), "setting-refused"),
        ("user", ("watch", "PID"), "not-permitted"),
        ("sys", RESERVE, "setting-refused"),
        ("sys", (*TRY, "--lever", "64k", "--", "PROGRAM"), "setting-refused"),
        ("memory", ("measure", "page_chase", *POINT, str(1 << 18)), "memory-short"),
        ("subset", ("measure", "page_chase", *POINT, str(1 << 18)), "memory-short"),
    ],
)
def test_a_command_says_what_the_limit_refuses(limit, arguments, code, under, tmp_path):
    program = [str(built(tmp_path)), "mmap", "16", "4"]
    with subprocess.Popen([*program, "60000"], stdout=subprocess.DEVNULL) as running:
        given = {"PROGRAM": program, "PID": [str(running.pid)]}
        words = [part for word in arguments for part in given.get(word, [word])]
        try:
            status, said = under(limit, *words)
        finally:
            running.kill()
    assert status == 1 and REASON_TEXTS[code].sentence.removesuffix(".") in said


def test_what_waits_for_its_quota_is_reported(under, tmp_path):
    program = [str(built(tmp_path)), "mmap", "64"]
    status, said = under("cpu", *TRY, "--", *program, "4")
    assert status == 0 and "used up its CPU quota" in said, said
    status, said = under("cpu", "watch", "--seconds", "20", "--json", "--", *program, "999")
    assert status == 0 and re.search(r'"throttled": [1-9]', said), said


def test_pages_of_a_pool_that_the_cgroup_withholds_are_reported(under):
    if pools.changes():
        pytest.skip("pages are reserved already, and restoring would take them")
    pools.reserve("2m", 16 * MIB)
    try:
        status, said = under("hugetlb", *TRY, "--lever", "malloc-pool", "--", "true")
    finally:
        pools.restore()
    assert status == 1 and REASON_TEXTS["pool-empty"].sentence.removesuffix(".") in said


def test_a_program_that_needs_more_than_its_cgroup_has_is_what_ends(under, tmp_path):
    program = [str(built(tmp_path)), "mmap", "512", "1"]
    status, said = under("memory", *TRY, "--lever", "none", "--", *program)
    assert status == 4 and "is 256 MiB" in said


def test_a_cpu_outside_the_cpuset_is_refused(under):
    status, said = under("cpuset", "measure", "page_chase", "--cpu", "1", *POINT, "64")
    assert status == 2 and "--cpu 1" in said
    status, said = under("cpuset", "measure", "page_chase", *POINT, "64")
    assert status == 0 and '"cpu":0' in said


def test_a_restricted_proc_shows_the_same_machine():
    said = "from tlb.machine import host; print(host.machine_id(host.inspect_machine()))"
    command = [sys.executable, "-c", said]
    ids = [
        subprocess.run([*start, *command], cwd=ROOT, capture_output=True, text=True)
        for start in ([], NAMESPACES["subset"])
    ]
    if ids[1].returncode == 99:
        pytest.skip("Linux refuses to mount a restricted /proc here")
    assert ids[0].stdout == ids[1].stdout and not ids[1].returncode


def test_watching_fits_beside_a_program_where_reading_prices_does_not(under, tmp_path):
    program = [str(built(tmp_path)), "mmap", "160", "99"]
    status, said = under("memory", "watch", "--seconds", "10", "--json", "--", *program)
    assert status == 0 and re.search(r'"windows": \[\s*{', said), said


def test_a_restricted_proc_is_enough_to_compare(under, tmp_path):
    status, said = under("subset", *TRY, "--", str(built(tmp_path)), "mmap", "16", "4")
    assert status == 0 and "on huge pages" in said
