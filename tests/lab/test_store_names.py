"""Names of machines and experiments: none leads out of the store, and each is resolved or refused
in one sentence."""

import errno
import re

import pytest
from support.common import make_record
from support.lab import KERNEL, MACHINE, NAME, ROWS, put, repeats, tree

from tlb.reasons import Unavailable

HOSTILE = ["../x", "", "A", "a" * 65, "a\n", None]


@pytest.mark.parametrize("name", [*HOSTILE, "this", "reference", "literature", "own"])
def test_no_hostile_machine_name_reaches_the_disk(store, name):
    calls = [
        lambda: store.ask(name, NAME, [make_record().point]),
        lambda: store.append(name, make_record(), KERNEL),
        lambda: store.records(name, [ROWS]),
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


@pytest.mark.parametrize("link", ["folder", "file", "file to nowhere", "quarantine", "temporary"])
def test_no_symbolic_link_leads_out_of_the_store(store, path, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / f"{ROWS}.jsonl"
    if link != "file to nowhere":
        target.write_bytes(path.read_bytes())
    before = tree(outside)
    if link == "folder":
        path.parent.rename(tmp_path / "moved")
        path.parent.symlink_to(outside)
    elif link.startswith("file"):
        path.unlink()
        path.symlink_to(target)
    else:
        path.write_bytes(path.read_bytes() + b"broken\n")
        other = f"{ROWS}.quarantine.jsonl" if link == "quarantine" else f".{path.name}.tmp"
        path.with_name(other).symlink_to(target)
    try:
        store.append(MACHINE, make_record(repeat=3), KERNEL)
    except Unavailable as e:
        assert e.code == "bad-parameter"
    except OSError as e:
        assert (link, e.errno) == ("quarantine", errno.ELOOP)
    else:
        assert link == "temporary"  # it is removed, and the new file is a file of its own
        assert not path.is_symlink()
    assert tree(outside) == before
    if link in ("folder", "file"):
        with pytest.raises(Unavailable, match="symbolic link"):
            store.load(MACHINE, NAME)


def test_own_rows_lie_apart_and_never_behind_a_link(store, path, tmp_path):
    before = tree(store.root)
    put(store.own, MACHINE, NAME, KERNEL, make_record(repeat=7))
    assert (repeats(store), repeats(store.own), store.machines()) == ([0, 1, 2], [7], [MACHINE])
    assert set(tree(store.root)) - set(before) == {
        f"own/{MACHINE}/{name}" for name in (f"{ROWS}.jsonl", "grids.json")
    }
    (store.root / "own").rename(tmp_path / "own")
    for target in (tmp_path / "own", store.root):
        (store.root / "own").symlink_to(target)
        for call in (
            lambda: store.own.load(MACHINE, NAME),
            lambda: store.own.append(MACHINE, make_record(), KERNEL),
        ):
            with pytest.raises(Unavailable, match="symbolic link"):
                call()
        (store.root / "own").unlink()
    assert tree(store.root) == before


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
    (store.root / "reference").write_text(f"{MACHINE}\n")
    assert store.resolve("reference") == store.reference() == MACHINE
