"""An atlas is made of its inputs and nothing else: every row once, the rest as it was stated, and
the old one whole after any fault."""

import errno
import os
import shutil
from pathlib import Path

from support import bundles
from support.atlas import KERNEL
from support.common import make_record, refusal
from support.lab import tree

from tlb.fleet import ask, atlas
from tlb.lab import columns, lines
from tlb.lab.store import Store


def answer(folder: Path, sql: str) -> list[tuple]:
    with ask.opened(folder) as connection:
        return [*ask.ask(connection, sql)]


def test_every_row_of_the_ledger_is_there_once_as_analyses_read_it(data, whole):
    store, expected = Store(data), {}
    for machine in store.machines():
        for key, record in store.records(
            machine, [path.stem for path in (data / machine).glob("*.jsonl")]
        ).items():
            (row,) = columns.frame([record], [KERNEL]).to_dict("records")
            expected[machine, key] = tuple(
                row[name]
                for name in ("kernel", "lines", "ns_per_access", "state", "noisy", "started_at")
            )
    found = answer(
        whole,
        "SELECT machine, key, kernel, lines, ns_per_access, state, noisy, started_at FROM rows",
    )
    assert len(found) == len(expected) > 500 and {row[:2]: row[2:] for row in found} == expected


def test_parts_are_sorted_and_several_hold_together_what_one_would(
    data, whole, tmp_path, monkeypatch
):
    monkeypatch.setattr(atlas, "PART_ROWS", 100)
    atlas.build(tmp_path / "atlas", [data])
    assert len([*(tmp_path / "atlas/rows/kernel=page_chase").iterdir()]) > 3
    sql = "SELECT * FROM rows ORDER BY machine, key"
    assert repr(answer(tmp_path / "atlas", sql)) == repr(answer(whole, sql))
    first = answer(whole, "SELECT layout, pages, lines FROM rows WHERE kernel = 'page_chase'")
    assert first == sorted(first)


def test_lines_that_do_not_prove_whole_are_counted_and_left_out(data, tmp_path):
    shutil.copytree(data / "cpu-00000000", tmp_path / "data/cpu-00000000")
    path = tmp_path / "data/cpu-00000000/page_chase.jsonl"
    rows = path.read_bytes()
    other = lines.write(make_record(kernel="graph_walk"), KERNEL)[
        1
    ]  # of another kernel than its file
    path.write_bytes(rows.replace(b'"repeat":1', b'"repeat":7', 1) + other + rows[:100])
    path.with_name("page_chase.quarantine.jsonl").write_bytes(rows)
    built = atlas.build(tmp_path / "atlas", [tmp_path / "data"])
    assert (built.rows, built.broken) == (3, 2)
    assert answer(tmp_path / "atlas", "SELECT DISTINCT microarchitecture FROM rows") == [
        ("unknown",)
    ]


def test_a_bundle_is_checked_and_one_that_is_refused_is_named_and_left_out(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/good.tlb.zip").write_bytes(bundles.good())
    (tmp_path / "in/odd.tlb.zip").write_bytes(bundles.good()[:-1])
    (tmp_path / "in/same.tlb.zip").write_bytes(bundles.good())
    built = atlas.build(tmp_path / "atlas", [tmp_path / "in"])
    assert (built.rows, built.machines, [why.code for why in built.refused]) == (
        4,
        1,
        ["bundle-unsafe", "bundle-known"],
    )
    assert "odd.tlb.zip" in str(built.refused[0])
    assert answer(tmp_path / "atlas", "SELECT machine, cpu_model FROM machines") == [
        (bundles.MACHINE, bundles.HOST.cpu_model)
    ]
    before = tree(tmp_path / "atlas")
    assert (
        refusal(atlas.build, tmp_path / "atlas", [tmp_path / "in/odd.tlb.zip"]) == "bundle-unsafe"
    )
    assert tree(tmp_path / "atlas") == before


def test_what_is_no_input_or_no_atlas_is_a_reason(data, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    for inputs, code in (
        ([tmp_path / "mine"], "no-bundle"),
        ([tmp_path / "nothing"], "no-bundle"),
        ([data], "no-atlas"),
    ):
        assert refusal(atlas.build, tmp_path / "mine", inputs) == code
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_full_disk_leaves_the_old_atlas_whole(data, tmp_path, monkeypatch):
    some = [data / machine for machine in Store(data).machines()[3:6]]
    atlas.build(tmp_path / "atlas", some[:1])
    before = tree(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(atlas.pq, "write_table", full)
        assert refusal(atlas.build, tmp_path / "atlas", some) == "disk-full"
    assert tree(tmp_path) == before
    atlas.build(tmp_path / "atlas", some)
    assert len(answer(tmp_path / "atlas", "FROM machines WHERE is_latest")) == 3
