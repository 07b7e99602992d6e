"""The pools of huge pages: what is asked, what is got, and that all of it is put back. Under a
made-up root, never this computer's own."""

import errno
import multiprocessing
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tlb.machine import changed_settings, pools
from tlb.system.reasons import Unavailable
from tlb.system.units import parse_size

MIB = 2**20
JOURNAL = "run/every-load-settings.json"
COUNTS = {"total": "nr", "free": "free", "reserved": "resv", "surplus": "surplus"}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has these pools and locks"
)


class Kernel:
    """Pools under `root` that answer as Linux's do (mm/hugetlb.c, set_max_huge_pages), with `most`
    pages of each size to give."""

    def __init__(self, root: Path, most: int = 10**6, **pools: dict[str, int]) -> None:
        self.root, self.most, self.asked = root, most, []
        for page, counts in (pools or {"p2m": {}, "p1g": {}}).items():
            self.put(page[1:], **dict.fromkeys(COUNTS, 0) | counts)
        (root / "run").mkdir(exist_ok=True)

    def folder(self, page: str) -> Path:
        return self.root / "sys/kernel/mm/hugepages" / f"hugepages-{parse_size(page) // 1024}kB"

    def put(self, page: str, **counts: int) -> None:
        self.folder(page).mkdir(parents=True, exist_ok=True)
        for name, count in counts.items():
            path = self.folder(page) / f"{COUNTS[name]}_hugepages"
            whole = path.with_name(f"{path.name}.{os.getpid()}")
            whole.write_text(f"{count}\n")
            os.rename(
                whole, path
            )  # in one step: nobody who looks at sysfs meanwhile reads half of a number

    def get(self, page: str, name: str = "total") -> int:
        return int((self.folder(page) / f"{COUNTS[name]}_hugepages").read_text())

    def use(self, page: str, count: int) -> None:
        self.put(page, free=self.get(page, "free") - count)

    def set(self, root: Path, name: str, wanted: str) -> None:
        page, count = pools._page(name), int(wanted)
        self.asked.append((page, count))
        total, free, reserved, surplus = (self.get(page, name) for name in COUNTS)
        while (
            surplus and count > total - surplus
        ):  # growing: first surplus pages become persistent ones
            surplus -= 1
        fresh = max(0, min(count - (total - surplus), self.most - total))
        total, free = total + fresh, free + fresh
        spare = max(
            0, min(total - surplus - count, free - reserved)
        )  # shrinking: what nobody holds goes back
        total, free = total - spare, free - spare
        surplus += max(0, total - surplus - count)  # and what is held becomes surplus
        self.put(page, total=total, free=free, surplus=surplus)

    def persistent(self, page: str = "2m") -> int:
        return self.get(page) - self.get(page, "surplus")

    def journal(self) -> dict:
        """The value before and those written since, by page size."""
        changes = pools.changes(self.root).items()
        return {page: (change.before, change.written) for page, change in changes}


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Callable[..., Kernel]:
    def made(**how: object) -> Kernel:
        kernel = Kernel(tmp_path, **how)
        monkeypatch.setattr(changed_settings, "_set", kernel.set)
        return kernel

    return made


# --- reserve


@pytest.mark.parametrize("size_bytes", [1, 2 * MIB, 8 * MIB])
def test_a_pool_with_enough_is_left_alone_and_takes_no_root(machine, monkeypatch, size_bytes):
    kernel = machine(p2m={"total": 4, "free": 4})
    denied(monkeypatch)
    got = pools.reserve("2m", size_bytes, kernel.root)
    assert (got.free, got.total, got.added, got.why, kernel.asked) == (4, 4, 0, "", [])
    assert pools.changes(kernel.root) == {}


def test_a_kernel_that_gives_fewer_is_told_with_the_remedy_and_what_it_gave_stays(machine):
    kernel = machine(most=2)
    got = pools.reserve("1g", 4 * 2**30, kernel.root)
    assert (got.wanted, got.free, got.total, got.added) == (4, 2, 2, 2)
    assert "(2 of 4 pages of 1g are free). Reserve fewer" in got.why
    assert kernel.journal() == {"1g": ("0", ["2"])}
    assert [one.why for one in pools.restore(kernel.root)] == [""] and kernel.get("1g") == 0


# --- crashes


def test_the_journal_is_on_the_disk_before_the_pool_is_written(machine, monkeypatch):
    kernel, done = machine(), []

    def noted(name: str, act: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: (done.append(name), act(*arguments))[1]

    monkeypatch.setattr(os, "fsync", noted("fsync", os.fsync))
    monkeypatch.setattr(os, "replace", noted("replace", os.replace))
    monkeypatch.setattr(changed_settings, "_set", noted("set", kernel.set))
    pools.reserve("2m", 8 * MIB, kernel.root)
    written = ["fsync", "replace", "fsync"]  # a file's and its folder's
    assert done == [*written, "set", *written]


# --- the journal


def test_another_boot_s_journal_is_void(machine):
    kernel = machine()
    boot = kernel.root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    pools.reserve("2m", 8 * MIB, kernel.root)
    boot.write_text("second\n")  # whose pool has the same size by its own settings
    assert pools.restore(kernel.root) == [] and kernel.get("2m") == 4
    pools.reserve("2m", 12 * MIB, kernel.root)
    assert pools.restore(kernel.root) == [("2m", 6, 4, "")]


# --- who may, and two at once


def denied(monkeypatch) -> None:
    """Tests may run as root, to whom nothing is denied."""
    real = os.open

    def guarded(path: str | Path, flags: int, *more: object, **how: object) -> int:
        if Path(path).name == "nr_hugepages" and flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", guarded)


def test_without_root_the_command_for_sudo_is_given_in_full_and_nothing_is_touched(
    machine, monkeypatch
):
    kernel = machine(p2m={"total": 1})
    denied(monkeypatch)
    with pytest.raises(Unavailable) as caught:
        pools.reserve("2m", 5 * MIB, kernel.root)
    assert (
        caught.value.code == "setting-refused" and os.strerror(errno.EACCES) in caught.value.detail
    )
    sudo, program, *arguments = shlex.split(re.search(r"`(.+?)`", str(caught.value))[1])
    assert sudo == "sudo" and Path(program).is_absolute()
    assert arguments == ["pool", "reserve", "--pages", "2m", "--size", "6MiB"]
    assert kernel.asked == [] and not (kernel.root / JOURNAL).exists()


@pytest.mark.slow
def test_processes_at_once_leave_a_journal_that_restores(machine):
    kernel = machine(p2m={"total": 3})
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(4)

    def reserving(count: int) -> None:
        start.wait()
        for more in range(10):
            pools.reserve("2m", (4 * more + count) * 2 * MIB, kernel.root)

    processes = [fork.Process(target=reserving, args=(count,)) for count in range(1, 5)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert kernel.get("2m", "free") == 40 and kernel.journal() == {"2m": ("3", ["43"])}
    assert pools.restore(kernel.root) == [("2m", 43, 3, "")]


def test_pages_in_use_are_told_and_the_journal_stays_until_they_are_let_go(machine):
    kernel = machine(p2m={"total": 1})
    pools.reserve("2m", 8 * MIB, kernel.root)
    kernel.use("2m", 3)
    (one,) = pools.restore(kernel.root)
    assert (one.total, kernel.persistent()) == (4, 1)  # one was used before, one was free
    assert "3 pages are still in use" in one.why and "Run the same command again once" in one.why
    (again,) = pools.restore(kernel.root)
    assert again.why == one.why
    kernel.put("2m", total=1, surplus=0)  # the programs end
    assert pools.restore(kernel.root) == [("2m", 1, 1, "")] and pools.changes(kernel.root) == {}


@pytest.mark.parametrize(
    ("page", "counts", "code"),
    [
        ("2m", {"free": 0}, "pool-empty"),
        ("2m", {"free": 3, "reserved": 3}, "pool-empty"),
        ("2m", {"free": 3}, None),
        ("32m", {}, "page-size-unsupported"),
    ],
)
def test_what_needs_a_pool_is_refused_before_anything_runs(tmp_path, page, counts, code):
    Kernel(tmp_path, p2m={"total": 3} | counts)
    try:
        pools.check(page, tmp_path)
        assert code is None
    except Unavailable as why:
        assert why.code == code
