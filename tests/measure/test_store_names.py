"""Names of machines and experiments: none leads out of the store, and each is resolved or refused
in one sentence."""

import re

import pytest
from support.campaigns import MACHINE, NAME, put, repeats, tree
from support.common import make_record

from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

HOSTILE = ["../x", "", "A", "a" * 65, "a\n", None]


@pytest.mark.parametrize("name", [*HOSTILE, "this", "reference", "literature", "own"])
def test_no_hostile_machine_name_reaches_the_disk(store, name):
    calls = [
        lambda: store.ask(name, NAME, [make_record().point]),
        lambda: store.append(name, make_record()),
        lambda: store.records(name),
        lambda: store.load(name, NAME),
        lambda: store.keys(name, NAME),
        lambda: store.write_machine(name, {}),
        lambda: store.read_machine(name),
    ]
    if name not in ("this", "reference"):
        calls.append(lambda: store.resolve(name))
    for call in calls:
        with pytest.raises(Unavailable) as refused:
            call()
        assert refused.value.code == "bad-parameter"
        assert "\n" not in str(refused.value)
        assert repr(str(name)[:80]) in refused.value.detail
    assert not store.root.exists()


@pytest.mark.parametrize("name", ["", "rows.sqlite", "rows.sqlite-wal", "rows.parquet"])
def test_no_symbolic_link_leads_out_of_the_store(store, path, tmp_path, name):
    """The machine's folder, or one of its files."""
    (outside := tmp_path / "outside").mkdir()
    link = path.parent / name
    if link.exists():
        link.rename(outside / "moved")
    link.symlink_to(outside / "moved")
    before = tree(outside)
    other = Store(store.root)
    for call in (
        lambda: other.load(MACHINE, NAME),
        lambda: other.experiments(MACHINE),
        lambda: other.append(MACHINE, make_record(repeat=3)),
        lambda: other.ask(MACHINE, NAME, [make_record().point]),
    ):
        with pytest.raises(Unavailable, match="symbolic link"):
            call()
            if name == "rows.parquet":  # which no writer reads
                other.load(MACHINE, NAME)
    assert tree(outside) == before


def test_own_rows_lie_apart_and_never_behind_a_link(store, path, tmp_path):
    before = tree(store.root)
    put(store.own, MACHINE, NAME, make_record(repeat=7))
    assert (repeats(store), repeats(store.own), store.machines()) == ([0, 1, 2], [7], [MACHINE])
    more = set(tree(store.root)) - set(before)
    assert more and all(name.startswith(f"own/{MACHINE}/rows.sqlite") for name in more)
    (store.root / "own").rename(tmp_path / "own")
    for target in (tmp_path / "own", store.root):
        (store.root / "own").symlink_to(target)
        for call in (
            lambda: store.own.load(MACHINE, NAME),
            lambda: store.own.append(MACHINE, make_record()),
        ):
            with pytest.raises(Unavailable, match="symbolic link"):
                call()
        (store.root / "own").unlink()
    assert tree(store.root).keys() == before.keys()


def test_machine_names_are_resolved_or_refused_in_one_sentence(store, path):
    assert store.resolve(MACHINE) == MACHINE
    assert store.resolve("this") == "this"
    assert store.resolve("this", this="ice-lake-00000000") == "ice-lake-00000000"
    for missing, says in (
        ("reference", "^data/reference names no machine$"),
        ("not-here", "^no machine 'not-here' in data/$"),
    ):
        with pytest.raises(Unavailable) as refused:
            store.resolve(missing)
        assert re.search(says, refused.value.detail)
        assert refused.value.code == "no-data"
    store.write_machine("zen-9-00000000", {})  # without rows
    (store.root / "a-link").symlink_to(store.root / MACHINE)
    assert store.machines() == [MACHINE, "zen-9-00000000"]
    (store.root / "reference").write_text(f"{MACHINE}\n")
    assert store.resolve("reference") == store.reference() == MACHINE
