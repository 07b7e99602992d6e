"""A bundle from end to end: packed, the same bytes each time, checked, added whole or not at all,
and never over what is there."""

import json
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import bundles
from support.campaigns import tree
from support.common import ended, refusal

from experiments.overview import profile
from tlb.cli import bundle as commands
from tlb.fleet import accept, archive, check, lines, pack
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.record import Record
from tlb.measure.store import Store
from tlb.system import files

MACHINE, OF_CHAPTER = bundles.MACHINE, profile.of_chapter
LATER = [
    bundles.row(
        256, layout, started_at="2025-03-01T00:00:00Z", wall_ns=wall, arena_bytes=256 * 4096
    )
    for layout, wall in (("spread", 1.3e8), ("packed", 1.4e8))
]


def of(rows: list[Record], host: Host = bundles.HOST) -> bytes:
    """A bundle of a machine with these rows."""
    data = b"".join(lines.written(row) for row in rows)
    described = json.dumps(host.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"
    return check.sealed(
        hosts.machine_id(host),
        bundles.files() | {"page_chase.jsonl": data, "machine.json": described},
    )


def opened(rows: list[Record], host: Host = bundles.HOST) -> check.Bundle:
    return check.opened(of(rows, host))


@pytest.fixture(autouse=True)
def no_quantities(monkeypatch) -> None:
    """What a profile says of rows is others' tests' concern, and takes longer than all else here;
    the commands' test has a real one."""
    monkeypatch.setattr(
        profile,
        "of_chapter",
        lambda chapter: profile.Profile(machine=chapter.machine, quantities=()),
    )


@pytest.fixture
def data(tmp_path) -> Store:
    """data/ with the machine in it, taken in from a bundle."""
    store = Store(tmp_path / "data")
    accept.add(store, check.opened(bundles.good()))
    return store


def test_what_was_packed_comes_out_the_same(tmp_path):
    store, path = Store(tmp_path / "own"), tmp_path / "a.tlb.zip"
    bundles.filled(store)
    packed = pack.write(store, MACHINE, path)
    accepted = check.opened(archive.read(path))
    assert (accepted.machine, accepted.host) == (MACHINE, bundles.HOST)
    assert [*accepted.records()] == bundles.ROWS
    assert packed.left_out == [] and accepted.states == {bundles.STATE: len(bundles.ROWS)}
    assert json.loads(accepted.files["flushes.json"]) == bundles.FLUSHES
    first = path.read_bytes()
    os.utime(store.root / MACHINE / "machine.json", (0, 0))
    pack.write(store, MACHINE, path)
    assert path.read_bytes() == first and {*tmp_path.iterdir()} == {tmp_path / "own", path}


def test_documents_of_other_versions_and_chapters_stay(tmp_path):
    store = Store(tmp_path / "own")
    bundles.filled(store)
    store.ask(MACHINE, "my_own_notebook", [bundles.ROWS[0].point])
    for name in ("flags", "mine", "lacking"):
        store.write_document(MACHINE, name, {"x": 1})
    packed = pack.write(store, MACHINE, tmp_path / "a.tlb.zip")
    assert packed.left_out == ["flags.json, of another version", "mine.json, of another version"]
    assert check.opened(archive.read(tmp_path / "a.tlb.zip")).grids.keys() == {bundles.EXPERIMENT}


@pytest.mark.parametrize("lack", ["rows", "machine"])
def test_nothing_is_packed_of_nothing(lack, tmp_path):
    store = Store(tmp_path / "own")
    if lack == "rows":
        store.write_machine(MACHINE, bundles.HOST.model_dump(mode="json"))
    assert refusal(pack.write, store, MACHINE, tmp_path / "a.tlb.zip") == "no-data"
    assert not (tmp_path / "a.tlb.zip").exists()


# --- into data/


def test_rows_come_into_data_as_they_are_and_all_else_is_made_anew(data):
    folder = data.root / MACHINE
    assert (
        data.machines() == [MACHINE]
        and [*data.records(MACHINE, ["page_chase"]).values()] == bundles.ROWS
    )
    assert {path.name for path in data.root.iterdir()} == {MACHINE}
    assert b"4 | 0 | 4 |" in (folder / "README.md").read_bytes()


def renamed(**changes: Any) -> Host:
    """The same kind of computer, and another one."""
    return bundles.HOST.model_copy(update={"installation": "fedcba9876543210"} | changes)


def test_what_is_there_already_changes_nothing(data):
    before = tree(data.root)
    for content, known in ((bundles.good(), 4), (of(bundles.ROWS[1:]), 3)):
        added = accept.add(data, check.opened(content))
        assert (added.rows, added.known) == (0, known) and tree(data.root) == before


def stored(data: Store) -> check.Bundle:
    """What data/ has of the machine, as a bundle."""
    return pack.pack(data, MACHINE).bundle


@pytest.mark.parametrize("is_newer", [True, False])
def test_a_bundle_adds_rows_and_the_newer_description_and_rewrites_none(tmp_path, is_newer):
    data, host = Store(tmp_path), bundles.HOST.model_copy(update={"kernel_release": "6.2.0"})
    later = [row.model_copy(update={"state": hosts.state(host)}) for row in LATER]
    # Of a key that is there.
    again = bundles.row(noisy="uneven", started_at="2025-02-02T00:00:00Z", wall_ns=2e8)
    old, new = check.opened(bundles.good()), opened([again, *later] if is_newer else later, host)
    one, two = (old, new) if is_newer else (new, old)
    accept.add(data, one)
    before = data.published(MACHINE)
    added = accept.add(data, two)
    after = data.published(MACHINE)
    assert (added.rows, added.known) == ((2, 1) if is_newer else (4, 0))
    assert len(after) == 6 and [row for row in after if row in before] == before
    assert data.read_machine(MACHINE)["kernel_release"] == "6.2.0"
    earlier = data.read_document(MACHINE, f"machine-{bundles.STATE}")
    assert earlier["kernel_release"] == bundles.HOST.kernel_release
    assert data.load(MACHINE, bundles.EXPERIMENT).shape[0] == 4  # the points that were asked for
    assert stored(data).hosts.keys() == {bundles.STATE, hosts.state(host)}


@pytest.mark.parametrize("is_back", [True, False])
def test_a_row_that_began_before_the_one_in_front_of_it_is_remarked(is_back):
    rows = [*LATER, bundles.ROWS[0]] if is_back else [bundles.ROWS[0], *LATER]
    remarks = " ".join(commands.remarks(opened(rows)))
    assert ("1 rows began before" in remarks) is is_back


@pytest.mark.parametrize(("ms", "is_short"), [(29, True), (31, False)])
def test_rows_that_were_timed_for_less_than_half_of_their_region_are_remarked(ms, is_short):
    row = bundles.row().model_copy(update={"region_ms": 60, "elapsed_ns": ms * 1e6})
    bundle = SimpleNamespace(states={}, hosts={}, records=lambda: [row])
    assert any("less than half" in remark for remark in commands.remarks(bundle)) is is_short


OTHER_ORDER = bundles.row(checksum="f" * 16, started_at="2025-05-05T05:05:05Z")


@pytest.mark.parametrize(
    ("code", "rows", "host"),
    [
        ("bundle-known", bundles.ROWS, renamed()),
        ("bundle-known", [*LATER, bundles.ROWS[0]], renamed()),
        ("bundle-impossible", LATER, renamed(kernel_release="6.3.0")),  # a state of another machine
        ("bundle-impossible", [OTHER_ORDER], renamed()),
        ("bundle-impossible", LATER, bundles.HOST),  # whose name is another computer's in data/
    ],
)
def test_what_data_knows_better_is_refused(code, rows, host, data):
    if host == bundles.HOST:
        data.write_machine(MACHINE, renamed().model_dump(mode="json"))
    before = tree(data.root)
    assert refusal(accept.add, data, opened(rows, host)) == code
    assert tree(data.root) == before and {path.name for path in data.root.iterdir()} == {MACHINE}


# --- kills

STEPS = {"add", "_write", "staged", "put_folder", "write_bytes"}
STEPS |= {"rename", "rmtree", "sync_folder", "_exchanged", "replace", "write_published"}


def killed(step: int, data: Path, accepted: check.Bundle) -> bool:
    """Adds a bundle in a process of its own, which is killed as it enters or leaves its `step`-th
    call of STEPS; whether it was."""
    left = step

    def dies(frame: Any, event: str, argument: object) -> None:
        nonlocal left
        if event in ("call", "return") and frame.f_code.co_name in STEPS:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            sys.setprofile(dies)
            accept.add(Store(data), accepted)
            sys.setprofile(None)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.endurance
@pytest.mark.parametrize("is_exchanged", [True, False])
def test_a_kill_leaves_either_what_was_or_what_is_to_be(is_exchanged, tmp_path, monkeypatch):
    """At every step; where the file system cannot exchange two names, the next `add` puts back what
    was."""
    if not is_exchanged:
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    accepted, finished = opened(LATER), Store(tmp_path / "finished")
    accept.add(finished, check.opened(bundles.good()))
    shutil.copytree(finished.root, tmp_path / "begun")
    before = tree(finished.root)
    accept.add(finished, accepted)
    after, seen = tree(finished.root), set()
    for step in count(1):
        root = tmp_path / f"data-{step}"
        shutil.copytree(tmp_path / "begun", root)
        was_killed = killed(step, root, accepted)
        there = {name: content for name, content in tree(root).items() if not name.startswith(".")}
        if is_exchanged or there:
            assert there in (before, after), step
        seen.add("after" if there == after else "before" if there else "between")
        if not was_killed:
            break
        if there != after:
            accept.add(Store(root), accepted)
            assert tree(root) == after
    assert there == after and step > 20
    assert seen == {"before", "after"} | (set() if is_exchanged else {"between"})


# --- the commands


def run(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    return ended(monkeypatch, *map(str, arguments)), *capsys.readouterr()


def test_three_commands_bring_a_machine_from_one_data_into_another(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(profile, "of_chapter", OF_CHAPTER)
    monkeypatch.setattr(profile, "refresh", list)
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "theirs"))
    bundles.filled(Store(tmp_path / "theirs").own)
    path, ours = tmp_path / "x.tlb.zip", Store(tmp_path / "ours")
    for name in (MACHINE, f"own/{MACHINE}"):
        code, out, _ = run(monkeypatch, capsys, "bundle", name, "--output", path)
        assert code == 0 and "4 rows of page_chase; " in out and bundles.STATE in out
    monkeypatch.setenv("TLB_DATA", str(ours.root))
    code, out, _ = run(monkeypatch, capsys, "check-bundle", path)
    assert code == 0 and "Intel Xeon 9000" in out and "unknown 4" in out
    assert not ours.root.exists()
    code, out, _ = run(monkeypatch, capsys, "add-bundle", path)
    assert code == 0 and "4 new rows" in out and ours.machines() == [MACHINE]
    assert len(profile.read(ours, MACHINE).quantities) == 30
    for command in ("check-bundle", "add-bundle"):
        code, _, err = run(monkeypatch, capsys, command, path)
        assert code == 1 and len(err.splitlines()) == 1 and "already" in err
    folder = ["bundle", MACHINE, "--output", ours.root]
    code, _, err = run(monkeypatch, capsys, *folder)
    assert code == 2 and len(err.splitlines()) == 1 and [*tmp_path.glob(".*")] == []
