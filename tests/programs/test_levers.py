"""What each lever does to the pages of a program with a known answer, and how it is told from its
absence."""

import os
import sys
from pathlib import Path
from threading import Event

import pytest
from support.common import LONG_S, needs_c, needs_root
from support.programs import answer, built

from tlb.programs import collapse, levers, snapshots
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun, run_program
from tlb.programs.trial import TrialAim, run_trial
from tlb.system import procfs
from tlb.system.reasons import Unavailable

MIB, PASSES = 64, 1
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = [
    pytest.mark.measures,
    needs_c,
    pytest.mark.skipif(
        procfs.chosen(HUGE) != "madvise", reason="takes large pages on request and not otherwise"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("far"))


def ran(
    program: Path, mode: str, lever: levers.Lever, passes: int = PASSES, after_s: float = 0.0
) -> tuple[ProgramRun, snapshots.MemorySnapshot]:
    """Run the program, and again with a longer wait at its end if a busy machine took no snapshot
    of all its memory."""
    for wait_ms in ("200", "2000", "20000"):
        command = [str(program), mode, str(MIB), str(passes), wait_ms]
        done = run_program(command, lever, limit_s=LONG_S, share=0.3, after_s=after_s)
        size_bytes = len(answer(MIB, passes))
        assert (done.status, done.left, done.written[0].size_bytes) == (0, 0, size_bytes)
        peak = snapshots.at_peak(done.snapshots)
        if peak is not None and peak.pages.resident_bytes >= MIB << 20:
            break
    assert peak is not None and peak.processes == 1 and peak.pages.resident_bytes >= MIB << 20
    return done, peak


def share(peak: snapshots.MemorySnapshot) -> float:
    return peak.pages.huge_bytes / peak.pages.anonymous_bytes


@pytest.mark.parametrize("mode", ["malloc", "pieces", "thread"])
def test_advice_reaches_what_malloc_and_mmap_give_in_any_size_and_thread(program, mode):
    (plain, without), (advised, with_lever) = (
        ran(program, mode, LEVERS["none"]),
        ran(program, mode, LEVERS["advise"]),
    )
    assert (without.pages.huge_bytes, without.reached, with_lever.reached) == (0, 0, 1)
    assert share(with_lever) > 0.8
    assert advised.written[0] == plain.written[0] and advised.minor_faults < plain.minor_faults / 2


def test_a_program_without_large_pages_has_none_by_any_advice(program):
    """Of two levers at once: the switch is inherited, whatever is asked for later."""
    with LEVERS["no-thp"].starting():
        _, peak = ran(program, "mmap", LEVERS["advise"])
        assert LEVERS["no-thp"].has_reached(os.getpid())
    assert (peak.pages.huge_bytes, peak.reached) == (0, 1)
    _, peak = ran(program, "mmap", LEVERS["no-thp"])
    assert (peak.pages.huge_bytes, peak.reached) == (0, 1)
    assert not LEVERS["no-thp"].has_reached(os.getpid())  # put back


@needs_root
def test_memory_is_joined_from_outside(program):
    for after_s, passes in ((0.2, 20), (2.0, 200), (10.0, 1000)):  # a busy machine maps it later
        done, peak = ran(program, "mmap", LEVERS["collapse"], passes=passes, after_s=after_s)
        assert done.collapsed is not None and done.collapsed.took_s > 0
        assert done.collapsed.at_s >= after_s
        if done.collapsed.bytes:
            break
    assert done.collapsed.bytes >= 0.8 * (MIB << 20) and share(peak) > 0.8


def test_memory_between_holes_is_collapsed_by_a_kernel_that_stops_at_a_hole(tmp_path, monkeypatch):
    """A process that never was, of 512 MiB whose every third huge page nothing is mapped in."""
    huge, pages, collapsed = 2 << 20, 256, set[int]()

    def stops(process: int, start: int, size_bytes: int) -> str:
        for page in range(start // huge, (start + size_bytes) // huge):
            if page % 3 == 0:
                return "EINVAL"
            collapsed.add(page)
        return ""

    start = 1 << 30
    resident = sum(page % 3 != 0 for page in range(start // huge, start // huge + pages)) * huge
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    sizes = {"KernelPageSize": 4, "Rss": resident >> 10} | dict.fromkeys(
        ("AnonHugePages", "ShmemPmdMapped", "Private_Hugetlb", "Shared_Hugetlb"), 0
    )
    (folder / "smaps").write_text(
        "\n".join(
            [
                f"{start:x}-{start + pages * huge:x} rw-p 00000000 00:00 0",
                *(f"{name}: {kib} kB" for name, kib in sizes.items()),
            ]
        )
        + "\n"
    )
    base = os.sysconf("SC_PAGE_SIZE")
    with (folder / "pagemap").open("wb") as file:  # as before the holes were made
        file.seek(start // base * 8)
        file.write((1 << 63).to_bytes(8, "little") * (pages * huge // base))
    monkeypatch.setattr(collapse, "_PROC", tmp_path)
    monkeypatch.setattr(collapse, "collapse_range_of_process", stops)
    monkeypatch.setattr(collapse, "_anonymous_huge_bytes", lambda pid: len(collapsed) * huge)
    assert collapse.collapse(os.getpid(), huge, Event()) == (resident, {"EINVAL"})


def test_a_static_program_is_not_reached_and_the_reason_says_so(tmp_path):
    static = built(tmp_path, "-static")
    with pytest.raises(Unavailable) as why:
        run_trial(
            TrialAim([str(static), "mmap", str(MIB), "1", "200"], LEVERS["advise"], within=0.1)
        )
    assert (why.value.code, "statically" in why.value.detail) == ("program-unfit", True)


PIECES = """
import mmap, os, random, sys, threading
wrong = []
def work(seed):
    drawn, held = random.Random(seed), []
    for _ in range(300):
        if held and drawn.random() < 0.4:
            piece, byte = held.pop(drawn.randrange(len(held)))
            if piece[:] != bytes([byte]) * len(piece):
                wrong.append(seed)
            piece.close()
        else:
            size, byte = drawn.choice([1, 5000, 70000, 300000, 3 << 20]), drawn.randrange(256)
            piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if piece[:].strip(b"\\0"):
                wrong.append(seed)
            piece[:] = bytes([byte]) * size
            held.append((piece, byte))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
[thread.start() for thread in threads]
child = os.fork()
if not child:
    work(9)
    os._exit(bool(wrong))
[thread.join() for thread in threads]
sys.exit(bool(wrong) or os.waitpid(child, 0)[1])
"""


def test_pieces_are_each_their_own_and_clean_among_threads_and_after_a_fork():
    # from 3.12 on Python warns of a fork among threads
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PIECES]
    done = run_program(command, LEVERS["advise"], limit_s=LONG_S, share=0.3)
    assert (
        done.status == 0
        and done.written[1].size_bytes == 0
        and any(each.reached for each in done.snapshots)
    )
