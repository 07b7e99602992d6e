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
from tlb.machine.changed_settings import (
    DEFRAG,
    KSM_PAGES,
    KSM_RUN,
    KSM_SLEEP,
    SWAP,
    ZRAM,
    borrow,
    restore,
)
from tlb.system.reasons import REASONS

POOL = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
JOURNAL = "run/every-load-settings.json"
MODES = ("always", "defer", "defer+madvise", "madvise", "never")
# What a measurement does, in its order.
STEPS = [
    *((DEFRAG, mode) for mode in MODES),
    (KSM_PAGES, "20000"),
    (KSM_SLEEP, "5"),
    (KSM_RUN, "1"),
    (KSM_RUN, "2"),
    (ZRAM, "4096000"),
    (SWAP, "on"),
    (POOL, "512"),
    (POOL, "3"),
    (DEFRAG, "never"),
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
        for name, value in (
            (KSM_RUN, "0"),
            (KSM_PAGES, "100"),
            (KSM_SLEEP, "20"),
            (ZRAM, "0"),
            (POOL, "3"),
            ("proc/swaps", "Filename\n"),
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{value}\n")
        (root / DEFRAG).parent.mkdir(parents=True)
        self.set(root, DEFRAG, "madvise")
        self.first = self.all()

    def set(self, root: Path, name: str, wanted: str) -> None:
        if name in self.refused:
            raise OSError(16, "Device or resource busy")
        if name == ZRAM and changed_settings.value(SWAP, root) == "on":
            raise OSError(16, "Device or resource busy")
        text = {
            SWAP: "Filename\n" + "/dev/zram0 partition\n" * (wanted == "on"),
            DEFRAG: " ".join(f"[{mode}]" if mode == wanted else mode for mode in MODES),
        }.get(name, wanted)
        path = root / ("proc/swaps" if name == SWAP else name)
        new = path.with_name("new")
        new.write_text(f"{text}\n")
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


def test_all_is_borrowed_and_put_back_the_last_first(kernel):
    for name, wanted in STEPS:
        borrow(name, wanted, kernel.root)
        assert changed_settings.value(name, kernel.root) == wanted
    assert changed_settings.changes(kernel.root)[DEFRAG].before == "madvise"
    restored = restore(kernel.root)
    assert [one.name for one in restored] == [
        POOL,
        SWAP,
        ZRAM,
        KSM_RUN,
        KSM_SLEEP,
        KSM_PAGES,
        DEFRAG,
    ][-len(restored) :]
    assert not any(one.why for one in restored) and kernel.all() == kernel.first
    assert not (kernel.root / JOURNAL).exists() and restore(kernel.root) == []


def test_somebody_else_s_value_stays_and_is_told(kernel):
    borrow(DEFRAG, "never", kernel.root)
    borrow(KSM_RUN, "1", kernel.root)
    kernel.set(kernel.root, DEFRAG, "always")
    run, defrag = restore(kernel.root)
    assert (run.now, defrag.now) == ("0", "always") and not run.why
    assert defrag.why.endswith(REASONS["setting-changed"].remedy) and restore(kernel.root) == []


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"boot": "", "changes": {"housekeeping": {"etc/passwd": {"before": "", "written": []}}}}',
    ],
)
def test_a_journal_that_cannot_be_trusted_stops_everything(kernel, content):
    (kernel.root / JOURNAL).write_bytes(content)
    for act in (lambda: borrow(DEFRAG, "never", kernel.root), lambda: restore(kernel.root)):
        assert refusal(act) == "setting-journal"
    assert kernel.all() == kernel.first and (kernel.root / JOURNAL).read_bytes() == content


def test_borrowing_puts_back_at_its_end_and_before_its_start(kernel):
    borrow(KSM_RUN, "1", kernel.root)  # left by a process that was killed
    with pytest.raises(RuntimeError), changed_settings.borrowing(kernel.root):
        assert kernel.all() == kernel.first
        borrow(DEFRAG, "always", kernel.root)
        raise RuntimeError
    assert kernel.all() == kernel.first and changed_settings.changes(kernel.root) == {}


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
        with changed_settings.borrowing(root):
            for name, wanted in steps:
                borrow(name, wanted, root)
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
            with changed_settings.borrowing(root):
                assert all_now() == first
        else:
            assert not any(one.why for one in restore(root))
        assert all_now() == first and changed_settings.changes(root) == {}
    return done


def test_a_kill_at_some_steps_is_put_right_by_the_next_start(kernel):
    assert put_back_after(range(0, 90, 13), kernel.root, STEPS, kernel.set, kernel.all) == 7


@pytest.mark.endurance
@pytest.mark.measuring  # or a campaign beside it would see its settings change
@pytest.mark.skipif(
    not os.access(Path("/", DEFRAG), os.W_OK) or not os.access("/run", os.W_OK),
    reason="its own settings are root's",
)
def test_kills_leave_this_computer_s_own_settings_as_they_were():
    root = Path("/")
    assert not changed_settings.changes(root), (
        "settings are borrowed now: `tlb housekeeping restore` first"
    )
    steps = [(DEFRAG, "never"), (DEFRAG, "defer")] + [
        (name, "21") for name in (KSM_SLEEP,) if changed_settings.value(name, root)
    ]
    now = {name: changed_settings.value(name, root) for name in (DEFRAG, KSM_SLEEP)}
    assert (
        put_back_after(
            range(10),
            root,
            steps,
            changed_settings._set,
            lambda: {name: changed_settings.value(name, root) for name in now},
        )
        >= 8
    )
