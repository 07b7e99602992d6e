"""Disks that refuse a write of the store: the file stays as it was, and the reason says which disk
and why."""

import errno
import os
import stat

import pytest
from support.common import make_record, needs_root
from support.lab import KERNEL, MACHINE, ROWS, failing, repeats, tree

from tlb.reasons import Unavailable

REFUSALS = [
    (errno.ENOSPC, "disk-full"),
    (errno.EFBIG, "disk-full"),
    (errno.EROFS, "disk-read-only"),
]


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
@pytest.mark.parametrize("where", ["open", "write", "part of the write", "fsync"])
def test_a_disk_that_refuses_leaves_the_file_as_it_was(
    store, path, monkeypatch, where, code, reason
):
    before = tree(store.root)
    name = {"part of the write": "write"}.get(where, where)
    after, take = (3, 100) if where == "part of the write" else (0, None)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), code, after, take))
        with pytest.raises(Unavailable) as refused:
            store.append(MACHINE, make_record(repeat=3), KERNEL)
    assert refused.value.code == reason
    assert ROWS in str(refused.value) and "\n" not in str(refused.value)
    assert tree(store.root) == before
    store.append(MACHINE, make_record(repeat=3), KERNEL)
    assert repeats(store) == [0, 1, 2, 3]


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
@pytest.mark.parametrize("after", range(2))
def test_a_disk_that_refuses_during_a_quarantine_loses_nothing(
    store, path, monkeypatch, after, code, reason
):
    path.write_bytes(path.read_bytes() + b"broken\n")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(os.write, code, after))
        with pytest.raises(Unavailable) as refused:
            store.append(MACHINE, make_record(repeat=3), KERNEL)
    assert refused.value.code == reason
    assert path.read_bytes() == before
    assert not path.with_name(f".{path.name}.tmp").exists()
    store.append(MACHINE, make_record(repeat=3), KERNEL)
    assert repeats(store) == [0, 1, 2, 3]
    quarantine = f"{MACHINE}/{ROWS}.quarantine.jsonl"
    rows = {name: content for name, content in tree(store.root).items() if name.endswith(".jsonl")}
    assert rows == {f"{MACHINE}/{ROWS}.jsonl": path.read_bytes(), quarantine: b"broken\n"}
    assert not list(path.parent.glob(".*.tmp"))


def test_a_disk_that_takes_nothing_is_full_and_not_an_endless_loop(store, monkeypatch):
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(Unavailable, match="disk is full"):
        store.append(MACHINE, make_record(), KERNEL)


def test_a_line_is_one_write_and_is_synced_with_its_new_folders(store, monkeypatch):
    calls: list[str] = []
    write, sync = os.write, os.fsync

    def seen(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    monkeypatch.setattr(
        os, "write", lambda fd, data: (calls.append("write " + seen(fd)), write(fd, data))[1]
    )
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync " + seen(fd)), sync(fd))[1])
    file, folder = store.root / MACHINE / f"{ROWS}.jsonl", store.root / MACHINE
    store.append(MACHINE, make_record(), KERNEL)
    assert calls == [f"write {file}", f"sync {file}", f"sync {folder}", f"sync {store.root}"]
    calls.clear()
    store.append(MACHINE, make_record(repeat=1), KERNEL)
    assert calls == [f"write {file}", f"sync {file}"]


@needs_root
def test_a_mended_file_stays_its_owners_when_root_mends_it(store, path):
    os.chown(path, 65534, 65534)
    os.chmod(path, 0o664)
    path.write_bytes(path.read_bytes() + b"broken\n")
    store.append(MACHINE, make_record(repeat=3), KERNEL)
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (65534, 65534, 0o664)
