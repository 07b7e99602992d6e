"""The database of rows: what an experiment asked for is whose, and disks, links, kills and writers
at once lose nothing that was finished."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import campaigns
from support.campaigns import MACHINE, NAME, POINTS, assert_whole, put, repeats, says, tree
from support.common import make_record, needs_root
from support.stand_ins import in_a_child

from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.record import CounterReading, Point
from tlb.measure.row_database import RowDatabase
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

fork = multiprocessing.get_context("fork")


def lines_of(store: Store, name: str) -> list[int]:
    return sorted(store.load(MACHINE, name)["lines"])


# --- whose rows are whose


def test_a_row_is_of_each_experiment_that_asked_for_its_point_and_stands_there_once(store):
    mine, both, theirs = (make_record(lines=lines) for lines in (64, 128, 256))
    put(store, MACHINE, "first", mine, both)
    store.ask(MACHINE, "second", [both.point, theirs.point])
    assert (lines_of(store, "first"), lines_of(store, "second")) == ([64, 128], [128])
    store.append(MACHINE, theirs)
    assert (lines_of(store, "first"), lines_of(store, "second"), lines_of(store, "third")) == (
        [64, 128],
        [128, 256],
        [],
    )
    assert_whole(store, 3, "first", "second")
    assert store.experiments(MACHINE) == ["first", "second"]
    assert (store.kernels(MACHINE, "first"), store.kernels(MACHINE, "third")) == ([mine.kernel], [])


def test_a_second_result_that_counts_what_the_first_could_not_stands_in_its_place(store):
    uncounted = {"walk": CounterReading(reason="no-perf")}
    counted = {"walk": CounterReading(value=1e7, event="walks:u")}
    for ns, counters in ((6.5, uncounted), (7.5, counted), (1.0, uncounted), (2.0, counted)):
        put(store, MACHINE, NAME, make_record(ns_per_access=ns, counters=counters))
    assert store.load(MACHINE, NAME)["ns_per_access"].tolist() == [7.5]
    assert len(store.keys(MACHINE, NAME)) == 1


# --- kills, writers at once


def test_a_writer_killed_before_it_made_the_tables_leaves_no_rows_and_hinders_nothing(tmp_path):
    database = RowDatabase(tmp_path / "rows.sqlite")
    with sqlite3.connect(database.path) as made:
        made.execute("PRAGMA journal_mode=WAL")
    assert (database.rows(), database.records(), database.asked()) == ([], {}, {})
    record = make_record()
    database.append(record)
    assert database.records() == {record.key: record}


def run_and_die(root: Path) -> None:
    """A campaign that is killed at its first process."""
    MeasuringSetup.measured = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    campaigns.run(Store(root), POINTS)


def test_a_kill_between_the_asking_and_the_first_row_loses_nothing(store, scripted, run):
    scripted()
    run(POINTS[:2], name="another")
    killed = fork.Process(target=run_and_die, args=(store.root,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    # asked for, and there already
    assert (lines_of(store, NAME), lines_of(store, "another")) == ([64, 128], [64, 128])
    assert (run().measured, run().measured, lines_of(store, NAME)) == (1, 0, [64, 128, 256])
    assert_whole(store, 3)


def append_and_die(root: Path) -> None:
    put(Store(root), MACHINE, NAME, *(make_record(repeat=repeat) for repeat in range(3)))
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_writer_left_in_its_log_is_read(store):
    killed = fork.Process(target=append_and_die, args=(store.root,))
    killed.start()
    killed.join()
    for path in (store.root / MACHINE).glob("*-shm"):
        path.unlink()  # as after another boot
    assert repeats(store) == [0, 1, 2]


def ask_some(root: Path, writer: int) -> None:
    for lines in range(1, 11):
        point = Point(kernel=f"kernel-{writer}", lines=lines)
        Store(root).ask(MACHINE, f"chapter-{writer % 2}", [point])


def test_a_writer_is_opened_once_and_by_a_forked_process_anew(store, monkeypatch):
    """SQLite must not use a connection on both sides of a fork."""
    opened, connect = [], sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(a) or connect(*a, **k))

    def append(repeat: int) -> int:
        before = len(opened)
        store.append(MACHINE, make_record(repeat=repeat))
        return len(opened) - before

    store.ask(MACHINE, NAME, [make_record().point])
    assert (append(0), in_a_child(lambda: append(1)), append(2)) == (0, 1, 0)
    assert repeats(store) == [0, 1, 2]


def test_what_several_processes_ask_for_at_once_is_all_there(store):
    writers = [fork.Process(target=ask_some, args=(store.root, writer)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    asked = RowDatabase(store.root / MACHINE / "rows.sqlite").asked()
    assert {key: len(points) for key, points in asked.items()} == {
        (f"chapter-{writer % 2}", f"kernel-{writer}"): 10 for writer in range(4)
    }


def test_a_reader_changes_nothing_and_makes_nothing(store, path):
    def rows_and_log() -> dict[str, bytes]:  # what readers share in memory is no file of rows
        return {name: text for name, text in tree(store.root).items() if not name.endswith("-shm")}

    before = rows_and_log()
    assert repeats(store) == [0, 1, 2]
    assert len(store.keys(MACHINE, NAME)) == 3
    assert len(store.load("zen-9-00000000", NAME)) == 0
    assert rows_and_log() == before


def test_a_store_is_written_to_from_one_thread_after_the_other(store):
    with ThreadPoolExecutor(4) as threads:
        made = [make_record(repeat=repeat) for repeat in range(20)]
        keys = [*threads.map(lambda record: put(store, MACHINE, NAME, record)[0], made)]
    assert sorted(repeats(store)) == [*range(20)] and store.keys(MACHINE, NAME) == {*keys}


# --- disks


@needs_root
def test_a_disk_that_is_full_keeps_every_row_that_was_finished(store):
    def work() -> tuple[Unavailable, int, list[int]] | None:
        if not campaigns.mounted(store.root, b"size=128k"):
            return None
        put(store, MACHINE, NAME, make_record())
        finished = 1
        while True:
            try:
                store.append(MACHINE, make_record(repeat=finished))
                finished += 1
            except Unavailable as why:
                return why, finished, repeats(Store(store.root))

    store.root.mkdir()
    if (answer := in_a_child(work)) is None:
        pytest.skip("needs the right to mount, in a namespace")
    why, finished, kept = answer
    says(why, "disk-refused")
    assert kept == list(range(finished))


@needs_root
def test_a_disk_that_is_read_only_is_read_and_refuses_to_be_written_to(store):
    def work() -> tuple[Unavailable, list[int]] | None:
        if not campaigns.mounted(store.root):
            return None
        with pytest.raises(Unavailable) as why:
            Store(store.root).append(MACHINE, make_record(repeat=3))
        return why.value, repeats(Store(store.root))

    in_a_child(lambda: put(store, MACHINE, NAME, *(make_record(repeat=n) for n in range(3))))
    if (answer := in_a_child(work)) is None:
        pytest.skip("needs the right to mount, in a namespace")
    says(answer[0], "disk-refused")
    assert answer[1] == [0, 1, 2]


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\xff" * 4096, b"rows" * 999])
def test_a_damaged_file_is_one_sentence_and_stays_as_it_is(store, content):
    (store.root / MACHINE).mkdir(parents=True)
    (store.root / MACHINE / "rows.sqlite").write_bytes(content)
    before = tree(store.root)
    for call in (lambda: store.load(MACHINE, NAME), lambda: store.append(MACHINE, make_record())):
        with pytest.raises(Unavailable) as refused:
            call()
        says(refused.value, "file-damaged")
    assert tree(store.root) == before


def test_a_file_system_without_shared_memory_is_one_sentence(store, monkeypatch):
    """As NFS is: SQLite answers with another journal than its log."""

    class Elsewhere(sqlite3.Connection):
        def execute(self, query: str, *values: object) -> sqlite3.Cursor:
            is_log = query.startswith("PRAGMA journal_mode")
            return super().execute("PRAGMA journal_mode=DELETE" if is_log else query, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *words, **how: connect(*words, **how, factory=Elsewhere)
    )
    with pytest.raises(Unavailable) as refused:
        store.append(MACHINE, make_record())
    says(refused.value, "disk-refused")


def test_a_file_that_was_copied_while_it_was_written_to_is_whole(store, path, tmp_path):
    store.append(MACHINE, make_record(repeat=3))  # is in the log
    shutil.copytree(store.root, tmp_path / "copy")
    assert repeats(Store(tmp_path / "copy")) == [0, 1, 2, 3]
