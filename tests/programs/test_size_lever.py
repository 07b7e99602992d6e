"""The lever `64k` and --setting: which settings of Linux it changes, under a made-up root, and that all are put back;
on this computer, that the program gets such pages, and that a kill leaves no setting changed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.common import LONG_S, ROOT, needs_c, refusal, wait_until
from support.programs import built

from tlb.machine import changed_settings
from tlb.programs import levers
from tlb.programs.levers import LEVERS, only_size
from tlb.programs.runs import run_program
from tlb.system import files, procfs

THP = Path("sys/kernel/mm/transparent_hugepage")
WORDS = ("always", "inherit", "madvise", "never")
HERE = Path("/")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these settings")


def put(root: Path, name: str, wanted: str) -> None:
    new = root / THP / "new"
    new.write_text(" ".join(f"[{word}]" if word == wanted else word for word in WORDS))
    os.rename(new, root / name)


def words(root: Path) -> dict[int, str]:
    return {
        kib: changed_settings.value(name, root)
        for kib, name in changed_settings.sizes(root).items()
    }


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    (tmp_path / "run").mkdir()
    for kib, word in ((16, "never"), (64, "never"), (1024, "always"), (2048, "inherit")):
        (tmp_path / THP / f"hugepages-{kib}kB").mkdir(parents=True)
        put(tmp_path, f"{THP}/hugepages-{kib}kB/enabled", word)
    monkeypatch.setattr(changed_settings, "_set", put)
    return tmp_path


def test_one_size_alone_is_allowed_meanwhile(root):
    before = words(root)
    with only_size(root):
        assert words(root) == {16: "never", 64: "madvise", 1024: "never", 2048: "never"}
        assert {*changed_settings.changes(root, "try")} == {
            name for kib, name in changed_settings.sizes(root).items() if kib != 16
        }
    assert words(root) == before and not (root / files.SETTINGS_JOURNAL).exists()


def test_other_settings_are_changed_meanwhile(root):
    before = words(root)
    small, large = (f"transparent_hugepage/hugepages-{kib}kB/enabled" for kib in (64, 2048))
    lever = levers.settings_lever([f"{small}=always", f"/sys/kernel/mm/{large}=never"], root)
    with lever.environment():
        assert words(root) == before | {64: "always", 2048: "never"}
    assert words(root) == before and not (root / files.SETTINGS_JOURNAL).exists()
    for wrong in (small, f"{small}=never", "ksm/run=1", "../../etc/passwd=x"):
        assert refusal(levers.settings_lever, [wrong], root) == "bad-parameter"


can_set = pytest.mark.skipif(
    64 not in changed_settings.sizes(HERE)
    or not os.access(HERE / changed_settings.sizes(HERE)[64], os.W_OK)
    or procfs.chosen(HERE / THP / "enabled") not in ("always", "madvise"),
    reason="takes root, Linux 6.8 and transparent huge pages",
)


@pytest.mark.measures
@pytest.mark.measuring  # or a campaign beside it would see its settings change
@can_set
@needs_c
def test_a_program_gets_pages_of_64_kib(tmp_path):
    before, command = words(HERE), [str(built(tmp_path)), "mmap", "64", "1", "200"]
    plain, sized = (
        run_program(command, LEVERS[name], limit_s=LONG_S, share=0.3) for name in ("advise", "64k")
    )
    assert words(HERE) == before
    assert sized.written[0] == plain.written[0]
    assert max(each.pages.huge_bytes for each in sized.snapshots) == 0
    assert plain.minor_faults < sized.minor_faults < (64 << 20) / 4096 / 4
    stats = Path(HERE / changed_settings.sizes(HERE)[64]).with_name("stats")
    assert not stats.is_dir() or sized.given_bytes >= 0.9 * (64 << 20)


@pytest.mark.measuring
@can_set
def test_a_command_that_is_killed_leaves_no_setting_changed():
    before = words(HERE)
    script = """
from tlb.programs.guard import running_guard
from tlb.programs.levers import LEVERS
from tlb.programs.runs import run_program
with running_guard():
    run_program(["sleep", "6000"], LEVERS["64k"], limit_s=6000, share=0.01)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) as process:
        wait_until(lambda: words(HERE) != before)
        changed = words(HERE)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    assert changed != before
    assert (
        wait_until(lambda: words(HERE) == before) and not Path("/", files.SETTINGS_JOURNAL).exists()
    )
