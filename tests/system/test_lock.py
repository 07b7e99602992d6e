"""The measuring lock: one measurement on a host, and no stale state after a kill."""

import multiprocessing
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.common import ROOT, needs_root

from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable

fork = multiprocessing.get_context("fork")


def wait_for(processes: list) -> None:
    for process in processes:
        process.join()
        assert process.exitcode == 0


HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tlb.system.files import measuring_lock
with measuring_lock(path=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(6000)
"""


@pytest.fixture
def lock_path(tmp_path) -> Path:
    return tmp_path / "tlb-measuring.lock"


@pytest.fixture
def holder(lock_path) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock_path), str(ROOT)], stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_measurement_is_refused_and_told_who_holds_the_lock(holder, lock_path):
    with pytest.raises(Unavailable) as refused, measuring_lock(path=lock_path):
        pytest.fail("two measurements at once")
    assert refused.value.code == "measuring-already"
    # with its command line; "" where the system has no list of locks
    detail = refused.value.detail
    assert detail == "" or detail.startswith(f"process {holder.pid}, {sys.executable} -c")
    assert (
        refused.value.detail or str(lock_path.stat().st_ino) not in Path("/proc/locks").read_text()
    )


def wait_for_lock(path: Path) -> None:
    with measuring_lock(wait=True, path=path):
        pass


def test_the_lock_can_be_taken_again_once_left_and_not_inside_itself(lock_path):
    for _ in range(2):
        with (
            measuring_lock(path=lock_path),
            pytest.raises(Unavailable),
            measuring_lock(path=lock_path),
        ):
            pytest.fail("two measurements at once")


def test_a_kernel_process_that_outlives_its_runner_keeps_the_lock(lock_path):
    with measuring_lock(path=lock_path) as fd:
        orphan = subprocess.Popen(["sleep", "6000"], pass_fds=(fd,))
    try:
        with pytest.raises(Unavailable), measuring_lock(path=lock_path):
            pytest.fail("two measurements at once")
    finally:
        orphan.kill()
        orphan.wait()
    with measuring_lock(path=lock_path):
        pass


def test_a_lock_file_deleted_while_it_is_held_does_not_lock_out_the_next(holder, lock_path):
    """A waiter must get the lock of the file that is there: nobody else sees that of the deleted
    one."""
    waiter = fork.Process(target=wait_for_lock, args=(lock_path,))
    waiter.start()
    waiter.join(0.3)
    lock_path.unlink()
    lock_path.touch()
    with measuring_lock(path=lock_path):
        holder.kill()
        waiter.join(0.3)
        assert waiter.exitcode is None, "the waiter took the lock of the deleted file"
    wait_for([waiter])


def test_the_lock_file_is_open_to_all_users_whatever_the_umask(lock_path):
    before = os.umask(0o077)
    try:
        with measuring_lock(path=lock_path):
            pass
        assert os.umask(0o077) == 0o077, "the umask was not put back"
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_path.stat().st_mode) == 0o666


@needs_root
def test_root_and_an_ordinary_user_share_the_lock():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        for owner in (0, 65534):
            lock_path = Path(folder) / f"lock-of-{owner}"
            with_user(owner, wait_for_lock, lock_path)
            assert lock_path.stat().st_uid == owner
            with measuring_lock(path=lock_path):
                assert with_user(65534, is_refused, lock_path) == 0
            with_user(65534, wait_for_lock, lock_path)


def is_refused(path: Path) -> None:
    with pytest.raises(Unavailable), measuring_lock(path=path):
        pytest.fail("two measurements at once")


def with_user(user: int, call, *args: Path) -> int:
    """Runs call(*args) in a process of `user`; its exit code, which is 0."""

    def run() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        call(*args)

    process = fork.Process(target=run)
    process.start()
    wait_for([process])
    return process.exitcode


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_lock_path_that_is_no_file_is_refused(lock_path, tmp_path, kind):
    target = tmp_path / "target"
    if kind == "link":
        target.write_text("precious")
    if kind.startswith("link"):
        lock_path.symlink_to(target)
    else:
        os.mkfifo(lock_path)
    with pytest.raises(Unavailable) as refused, measuring_lock(path=lock_path):
        pytest.fail("locked something that is no file")
    assert refused.value.code == "measuring-already"
    assert "remove it" in str(refused.value)
    assert kind != "link" or target.read_text() == "precious"
    assert target.exists() == (kind == "link")
