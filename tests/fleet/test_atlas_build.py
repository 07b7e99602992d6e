"""An atlas is made of its inputs and nothing else: every row once, the rest as it was stated, and
the old one whole after any fault."""

import errno
import os
from pathlib import Path

import pandas as pd
from support import bundles
from support.campaigns import tree
from support.common import refusal

from tlb.fleet import ask, atlas
from tlb.measure import columns
from tlb.measure.store import Store


def answer(folder: Path, sql: str) -> list[tuple]:
    with ask.opened(folder) as connection:
        return [*ask.ask(connection, sql)]


def test_every_row_of_the_ledger_is_there_once_as_analyses_read_it(data, whole):
    store, expected = Store(data), {}
    for machine in store.machines():
        for key, record in store.records(machine).items():
            laid_out = pd.DataFrame([columns.flat_row(record.model_dump(mode="json"))])
            (row,) = columns.rows_frame(laid_out).to_dict("records")
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
