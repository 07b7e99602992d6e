"""grids.json: which rows are whose. A row is stored once, whoever asks; where they are wrong, the
next run mends them."""

import hashlib
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from support import lab
from support.common import make_record
from support.lab import KERNEL, MACHINE, NAME, POINTS, ROWS, assert_whole, put, says, tree

from tlb.lab.lines import point_id
from tlb.lab.measuring_setup import Rig
from tlb.lab.record import Option, Point
from tlb.lab.store import Store
from tlb.reasons import Unavailable

fork = multiprocessing.get_context("fork")
ID = "0123456789abcdef"


def grids_file(store: Store) -> Path:
    return store.root / MACHINE / "grids.json"


def lines_of(store: Store, name: str) -> list[int]:
    return sorted(store.load(MACHINE, name)["lines"])


# --- whose rows are whose


def test_the_id_of_a_point_is_the_same_in_every_version_of_the_code():
    """A change would make all rows nobody's; these are computed from the format's description."""
    asked = {
        "engine": "c",
        "kernel": "page_chase",
        "layout": "spread",
        "lines": 4096,
        "order": "cycle",
        "pages": "4k",
        "region_ms": 60,
    }
    for more, fields in (
        ({}, {}),
        (
            {"mode": "touch", "options": [["bytes", 7]], "stride_pages": 2},
            {"mode": "touch", "options": (Option("bytes", 7),), "stride_pages": 2},
        ),
    ):
        text = json.dumps(asked | more, sort_keys=True, separators=(",", ":"))
        assert (
            point_id(Point(kernel="page_chase", lines=4096, **fields))
            == hashlib.sha256(text.encode()).hexdigest()[:16]
        )


def test_a_row_is_of_each_experiment_that_asked_for_its_point_and_stands_there_once(store):
    mine, both, theirs = (make_record(lines=lines) for lines in (64, 128, 256))
    put(store, MACHINE, "first", KERNEL, mine, both)
    store.ask(MACHINE, "second", [both.point, theirs.point])
    assert (lines_of(store, "first"), lines_of(store, "second")) == ([64, 128], [128])
    store.append(MACHINE, theirs, KERNEL)
    assert (lines_of(store, "first"), lines_of(store, "second"), lines_of(store, "third")) == (
        [64, 128],
        [128, 256],
        [],
    )
    assert_whole(store, 3, "first", "second")
    assert store.experiments(MACHINE) == ["first", "second"]
    assert (store.kernels(MACHINE, "first"), store.kernels(MACHINE, "third")) == ([mine.kernel], [])


def test_the_grids_are_never_read_or_written_through_a_symbolic_link(store, path, tmp_path):
    grids_file(store).rename(tmp_path / "elsewhere.json")
    grids_file(store).symlink_to(tmp_path / "elsewhere.json")
    before = tree(tmp_path)
    for call in (
        lambda: store.ask(MACHINE, NAME, POINTS),
        lambda: store.load(MACHINE, NAME),
        lambda: store.experiments(MACHINE),
    ):
        with pytest.raises(Unavailable, match="symbolic link"):
            call()
    assert tree(tmp_path) == before


# --- kills, writers at once


def run_and_die(root: Path) -> None:
    """A campaign that is killed at its first process."""
    Rig.measured = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    lab.run(Store(root), POINTS)


def test_a_kill_between_the_asking_and_the_first_row_loses_nothing(store, scripted, run):
    scripted()
    run(POINTS[:2], name="another")
    killed = fork.Process(target=run_and_die, args=(store.root,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert (lines_of(store, NAME), lines_of(store, "another")) == (
        [64, 128],
        [64, 128],
    )  # asked for, and there already
    assert (run().measured, run().measured, lines_of(store, NAME)) == (1, 0, [64, 128, 256])
    assert_whole(store, 3)


def ask_some(root: Path, writer: int) -> None:
    for lines in range(1, 11):
        Store(root).ask(
            MACHINE, f"chapter-{writer % 2}", [Point(kernel=f"kernel-{writer}", lines=lines)]
        )


def test_writers_of_the_grids_at_once_lose_nothing_that_one_of_them_asked_for(store):
    writers = [fork.Process(target=ask_some, args=(store.root, writer)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert json.loads(grids_file(store).read_bytes()) == {
        f"chapter-{half}": {
            f"kernel-{writer}": sorted(
                point_id(Point(kernel=f"kernel-{writer}", lines=lines)) for lines in range(1, 11)
            )
            for writer in (half, half + 2)
        }
        for half in range(2)
    }
    assert [path.name for path in grids_file(store).parent.iterdir()] == ["grids.json"]


# --- what a crash, a disk or a stranger may leave


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"stlb_cliff": {"page_chase": ["0123456789abc',
        b"\xff",
        *(
            json.dumps(value).encode()
            for value in (
                {NAME: {ROWS: ID}},
                {NAME: {ROWS: [7]}},
                {NAME: {ROWS: [ID + "\n"]}},
                {NAME: {"../outside": [ID]}},
                {"../x": {ROWS: [ID]}},
            )
        ),
        b"[" * 200_000,
        b'{"stlb_cliff": ' + b"9" * 100_000 + b"}",
    ],
    ids=lambda text: text[:48].decode("ascii", "replace"),
)
def test_grids_that_are_none_are_one_sentence_for_whoever_reads_or_asks(store, scripted, run, text):
    scripted()
    run()
    grids_file(store).write_bytes(text)
    before = tree(store.root)
    for call in (store.load, store.keys):
        with pytest.raises(Unavailable, match=f"{MACHINE} has no readable grids.json") as refused:
            call(MACHINE, NAME)
        says(refused.value, "no-data")
    for call in (lambda: store.experiments(MACHINE), run):
        with pytest.raises(Unavailable):
            call()
    assert tree(store.root) == before
