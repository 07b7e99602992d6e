"""Settings that are borrowed: journalled first, put back in the reverse order, never somebody
else's. Under a made-up root; where this process may, an endurance run also kills it on this
computer's own settings."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support.common import refusal

from tlb.machine import changed_settings
from tlb.machine.changed_settings import borrow, restore

POOL = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
SMALL, MIDDLE, LARGE = SIZES = [
    f"sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled" for kib in (64, 512, 2048)
]
JOURNAL = "run/every-load-settings.json"
WORDS = ("always", "inherit", "madvise", "never")
# What a command may do, in its order.
STEPS = [
    *((SMALL, word) for word in WORDS),
    (MIDDLE, "never"),
    (MIDDLE, "inherit"),
    (LARGE, "always"),
    (POOL, "512"),
    (POOL, "3"),
    (SMALL, "never"),
]
fork = multiprocessing.get_context("fork")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has these settings and locks"
)


class Kernel:
    """Settings under `root` that answer as Linux's do; `refused` are names that it does not set."""

    def __init__(self, root: Path) -> None:
        self.root, self.refused = root, set()
        for folder in ("run", "proc"):
            (root / folder).mkdir(parents=True)
        (root / POOL).parent.mkdir(parents=True)
        (root / POOL).write_text("3\n")
        for name in SIZES:
            (root / name).parent.mkdir(parents=True)
            self.set(root, name, "madvise")
        self.first = self.all()

    def set(self, root: Path, name: str, wanted: str) -> None:
        if name in self.refused:
            raise OSError(16, "Device or resource busy")
        words = " ".join(f"[{word}]" if word == wanted else word for word in WORDS)
        path = root / name
        new = path.with_name("new")
        new.write_text(f"{words if name in SIZES else wanted}\n")
        os.rename(new, path)

    def all(self) -> dict[str, str]:
        return {
            name: changed_settings.value(name, self.root)
            for name in changed_settings.names(self.root)
        }


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Kernel:
    made = Kernel(tmp_path / "root")
    monkeypatch.setattr(changed_settings, "_set", made.set)
    return made


def lend(name: str, wanted: str, root: Path) -> None:
    borrow(name, wanted, root, "try")


def give_back(root: Path) -> list[changed_settings.RestoredSetting]:
    return restore(root, "try")


def test_all_is_borrowed_and_put_back_the_last_first(kernel):
    for name, wanted in STEPS:
        lend(name, wanted, kernel.root)
        assert changed_settings.value(name, kernel.root) == wanted
    assert changed_settings.changes(kernel.root, "try")[SMALL].before == "madvise"
    restored = give_back(kernel.root)
    assert [one.name for one in restored] == [LARGE, MIDDLE, SMALL]  # the pool is as it was
    assert not any(one.why for one in restored) and kernel.all() == kernel.first
    assert not (kernel.root / JOURNAL).exists() and give_back(kernel.root) == []


def test_somebody_else_s_value_stays_and_is_told(kernel):
    lend(SMALL, "never", kernel.root)
    lend(LARGE, "never", kernel.root)
    kernel.set(kernel.root, SMALL, "always")
    large, small = give_back(kernel.root)
    assert (large.now, small.now) == ("madvise", "always") and not large.why
    assert "our change is no longer recorded" in small.why and give_back(kernel.root) == []


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"boot": "", "changes": {"try": {"etc/passwd": {"before": "", "written": []}}}}',
    ],
)
def test_a_journal_that_cannot_be_trusted_stops_everything(kernel, content):
    (kernel.root / JOURNAL).write_bytes(content)
    for act in (lambda: lend(SMALL, "never", kernel.root), lambda: give_back(kernel.root)):
        assert refusal(act) == "file-damaged"
    assert kernel.all() == kernel.first and (kernel.root / JOURNAL).read_bytes() == content


def test_borrowing_puts_back_at_its_end_and_before_its_start(kernel):
    lend(LARGE, "never", kernel.root)  # left by a process that was killed
    with pytest.raises(RuntimeError), changed_settings.borrowing(kernel.root, "try"):
        assert kernel.all() == kernel.first
        lend(SMALL, "always", kernel.root)
        raise RuntimeError
    assert kernel.all() == kernel.first and changed_settings.changes(kernel.root, "try") == {}


# --- kills


def killed_at(
    step: int, root: Path, steps: list[tuple[str, str]], set_one: Callable[[Path, str, str], None]
) -> bool:
    """Whether a process that does the steps and puts all back was killed, at the `step`-th of the
    moments around each write."""

    def work() -> None:
        moments = count()

        def around(act: Callable[..., None]) -> Callable[..., None]:
            def acting(*arguments: object) -> None:
                for do in (lambda: None, lambda: act(*arguments)):
                    do()
                    if next(moments) == step:
                        os.kill(os.getpid(), signal.SIGKILL)

            return acting

        changed_settings._set, changed_settings._write = (
            around(set_one),
            around(changed_settings._write),
        )
        with changed_settings.borrowing(root, "try"):
            for name, wanted in steps:
                lend(name, wanted, root)
        os._exit(0)

    child = fork.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def put_back_after(
    kills: range,
    root: Path,
    steps: list[tuple[str, str]],
    set_one: Callable[..., None],
    all_now: Callable[[], object],
) -> int:
    """How many of them were killed; whatever they had changed is as it was after the next start."""
    first, done = all_now(), 0
    for step in kills:
        done += killed_at(step, root, steps, set_one)
        if step % 2:  # the next start
            with changed_settings.borrowing(root, "try"):
                assert all_now() == first
        else:
            assert not any(one.why for one in give_back(root))
        assert all_now() == first and changed_settings.changes(root, "try") == {}
    return done


def test_a_kill_at_some_steps_is_put_right_by_the_next_start(kernel):
    assert put_back_after(range(0, 70, 10), kernel.root, STEPS, kernel.set, kernel.all) == 7


@pytest.mark.endurance
@pytest.mark.measuring  # or a campaign beside it would see its settings change
@pytest.mark.skipif(
    not changed_settings.sizes()
    or not all(os.access(Path("/", name), os.W_OK) for name in changed_settings.sizes().values())
    or not os.access("/run", os.W_OK),
    reason="its own settings are root's",
)
def test_kills_leave_this_computer_s_own_settings_as_they_were():
    root, names = Path("/"), [*changed_settings.sizes().values()][:2]
    assert not changed_settings.changes(root, "try"), (
        "settings are borrowed now: `tlb pool restore` first"
    )
    steps = [(name, word) for name in names for word in ("never", "inherit")]

    def now() -> dict[str, str]:
        return {name: changed_settings.value(name, root) for name in names}

    assert put_back_after(range(10), root, steps, changed_settings._set, now) >= 8
