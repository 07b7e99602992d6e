"""What earlier versions of the book left in data/own is converted once."""

import hashlib
import json
from typing import Any

import pytest
from support.campaigns import MACHINE, NAME, tree
from support.common import make_record

from tlb.measure.record import Record
from tlb.measure.store import Store


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def line(record: Record, version: int) -> bytes:
    """As that version wrote it, by the format's description."""
    fields = record.model_dump(exclude_none=True) | {"schema_version": version}
    content = {"key": "0" * 16, "kernel_digest": "feedfeedfeedfeed", "record": fields}
    return json.dumps(content | {"digest": digest(content)}).encode() + b"\n"


@pytest.fixture
def folder(store):
    """Two versions' rows, a damaged line, a torn one, and a point asked for by two experiments."""
    (folder := store.root / MACHINE).mkdir(parents=True)
    first = make_record(lines=64, compiler="cc: cc 12")
    second = make_record(lines=128, repeat=1, mode="touch", options={"bytes": 7})
    damaged = line(make_record(lines=256), 2).replace(b'"cpu": 0', b'"cpu": 1')
    whole = line(first, 2) + damaged + line(second, 1)
    (folder / "page_chase.jsonl").write_bytes(whole + line(first, 2)[:100])
    (folder / "page_chase.quarantine.jsonl").write_bytes(b"broken\n")
    shape = {"kernel": "page_chase", "engine": "c", "pages": "4k", "layout": "spread"}
    shape |= {"order": "cycle", "region_ms": 60}
    ids = [
        digest(shape | {"lines": 64}),
        digest(shape | {"lines": 128, "mode": "touch", "options": [["bytes", 7]]}),
    ]
    grids = {NAME: {"page_chase": ids}, "tlb_blocking": {"page_chase": ids[:1]}}
    (folder / "grids.json").write_text(json.dumps(grids))
    return folder


def test_lines_of_both_versions_become_rows_once(store, folder):
    rows = store.load(MACHINE, NAME)
    assert rows["lines"].tolist() == [64, 128]
    assert rows["source"].tolist() == ["", "feedfeedfeedfeed"]
    assert rows["bytes"].tolist()[1] == 7
    assert store.load(MACHINE, "tlb_blocking")["lines"].tolist() == [64]
    kept = {name for name in tree(folder) if name.startswith("json-lines/")}
    names = {"page_chase.jsonl", "page_chase.quarantine.jsonl", "grids.json"}
    assert kept == {f"json-lines/{name}" for name in names}
    again = Store(store.root)
    again.append(MACHINE, make_record(lines=64, repeat=5, compiler="cc: cc 12"))
    assert again.load(MACHINE, NAME)["lines"].tolist() == [64, 128, 64]


def test_a_conversion_that_was_killed_before_the_files_moved_doubles_nothing(store, folder):
    before = tree(folder)
    store.load(MACHINE, NAME)
    for name, content in before.items():
        (folder / name).write_bytes(content)
    assert Store(store.root).load(MACHINE, NAME)["lines"].tolist() == [64, 128]


def test_documents_beside_the_rows_move_into_their_folder(store):
    folder = store.root / MACHINE
    folder.mkdir(parents=True)
    for name in ("machine", "machine-0123456789ab", "translation", "flags", "verdicts"):
        (folder / f"{name}.json").write_text(json.dumps({"name": name}))
    assert store.read_document(MACHINE, "flags") == {"name": "flags"}
    assert {*tree(folder)} == {
        "machine.json",
        "machine-0123456789ab.json",
        "translation.json",
        "documents/flags.json",
    }
    assert store.documents(MACHINE).keys() == {
        "flags",
        "machine",
        "machine-0123456789ab",
        "translation",
    }
