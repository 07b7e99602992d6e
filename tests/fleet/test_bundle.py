"""A bundle from end to end: packed, the same bytes each time, checked, added whole or not at all,
and never over what is there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support import bundles
from support.lab import says, tree

from experiments.overview import judged, profile
from tlb import cli
from tlb.cli import bundle as commands
from tlb.fleet import accept, archive, check, pack
from tlb.lab import lines
from tlb.lab.record import Record
from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.reasons import Unavailable
from tlb.system import files

MACHINE = bundles.MACHINE
LATER = [
    bundles.row(
        256, layout, started_at="2025-03-01T00:00:00Z", wall_ns=wall, arena_bytes=256 * 4096
    )
    for layout, wall in (("spread", 1.3e8), ("packed", 1.4e8))
]


def of(rows: list[Record], host: Host = bundles.HOST) -> bytes:
    """A bundle of a machine with these rows."""
    data = b"".join(lines.write(row, bundles.KERNEL)[1] for row in rows)
    described = json.dumps(host.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"
    return check.sealed(
        hosts.machine_id(host),
        bundles.files() | {"page_chase.jsonl": data, "machine.json": described},
    )


def opened(rows: list[Record], host: Host = bundles.HOST) -> check.Bundle:
    return check.opened(of(rows, host))


@pytest.fixture(autouse=True)
def no_quantities(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a profile says of rows is others' tests' concern, and takes longer than all else here;
    the commands' test has a real one."""
    monkeypatch.setattr(
        profile,
        "of_chapter",
        lambda chapter: profile.Profile(machine=chapter.machine, quantities=()),
    )


@pytest.fixture
def data(tmp_path: Path) -> Store:
    """data/ with the machine in it, taken in from a bundle."""
    store = Store(tmp_path / "data")
    accept.add(store, check.opened(bundles.good()))
    return store


def test_what_was_packed_comes_out_the_same(tmp_path: Path):
    store, path = Store(tmp_path / "own"), tmp_path / "a.tlb.zip"
    bundles.filled(store)
    packed = pack.write(store, MACHINE, path)
    accepted = check.opened(archive.read(path))
    assert (accepted.machine, accepted.host) == (MACHINE, bundles.HOST) and list(
        accepted.records()
    ) == bundles.ROWS
    assert (packed.rows, packed.states, packed.left_out) == (len(bundles.ROWS), [bundles.STATE], [])
    assert (
        accepted.files["page_chase.jsonl"]
        == (store.root / MACHINE / "page_chase.jsonl").read_bytes()
    )
    assert json.loads(accepted.files["flushes.json"]) == bundles.FLUSHES
    first = path.read_bytes()
    os.utime(store.root / MACHINE / "machine.json", (0, 0))
    pack.write(store, MACHINE, path)
    assert path.read_bytes() == first and {*tmp_path.iterdir()} == {tmp_path / "own", path}


def test_of_two_rows_with_one_key_that_goes_which_readers_take(tmp_path: Path):
    store = Store(tmp_path / "own")
    counted = bundles.row(
        counters={"walk": {"value": 3.0, "event": "cycles:u"}}, started_at="2025-02-01T00:00:00Z"
    )
    bundles.filled(store, rows=[bundles.row(counters={"walk": {"reason": "no-pmu"}}), counted])
    pack.write(store, MACHINE, path := tmp_path / "a.tlb.zip")
    assert list(check.opened(archive.read(path)).records()) == [counted]


def test_documents_of_other_versions_and_chapters_stay(tmp_path: Path):
    store = Store(tmp_path / "own")
    bundles.filled(store)
    store.ask(MACHINE, "my_own_notebook", [bundles.ROWS[0].point])
    for name, content in (
        ("flags", {"x": 1}),
        ("mine", {"x": 1}),
        ("verdicts", {"x": 1}),
        ("lacking", {"x": 1}),
    ):
        store.write_document(MACHINE, name, content)
    packed = pack.write(store, MACHINE, tmp_path / "a.tlb.zip")
    assert packed.left_out == ["flags.json, of another version", "mine.json, of another version"]
    assert check.opened(archive.read(tmp_path / "a.tlb.zip")).grids.keys() == {bundles.EXPERIMENT}


@pytest.mark.parametrize("lack", ["rows", "machine"])
def test_nothing_is_packed_of_nothing(lack: str, tmp_path: Path):
    store = Store(tmp_path / "own")
    if lack == "rows":
        store.write_machine(MACHINE, bundles.HOST.model_dump(mode="json"))
        store.write_document(MACHINE, "grids", {})
    with pytest.raises(Unavailable) as why:
        pack.write(store, MACHINE, tmp_path / "a.tlb.zip")
    says(why.value, "no-data")
    assert not (tmp_path / "a.tlb.zip").exists()


def test_what_is_packed_would_be_taken_or_is_not_packed(tmp_path: Path):
    store = Store(tmp_path / "own")
    bundles.filled(store, rows=[bundles.row(seed=1)])
    with pytest.raises(Unavailable) as why:
        pack.write(store, MACHINE, tmp_path / "a.tlb.zip")
    assert why.value.code == "bundle-impossible" and [*tmp_path.iterdir()] == [tmp_path / "own"]


# --- into data/


def test_rows_come_into_data_as_they_are_and_all_else_is_made_anew(data: Store):
    folder = data.root / MACHINE
    assert (
        data.machines() == [MACHINE]
        and [*data.records(MACHINE, ["page_chase"]).values()] == bundles.ROWS
    )
    assert (folder / "page_chase.jsonl").read_bytes() == bundles.files()["page_chase.jsonl"]
    assert {path.name for path in data.root.iterdir()} == {MACHINE}
    card = b"# not what was measured\n"
    other = Store(data.root.parent / "other")
    accept.add(other, check.opened(check.sealed(MACHINE, bundles.files() | {"README.md": card})))
    assert tree(other.root) == tree(data.root)
    assert b"4 | 0 | 4 |" in (folder / "README.md").read_bytes()


def test_a_newer_bundle_adds_rows_and_rewrites_none(data: Store):
    before = (data.root / MACHINE / "page_chase.jsonl").read_bytes()
    other = bundles.row(
        noisy="uneven", started_at="2025-02-02T00:00:00Z", wall_ns=2e8
    )  # of a key that is there
    newer = bundles.HOST.model_copy(update={"kernel_release": "6.2.0"})
    added = accept.add(
        data,
        opened(
            [other, *[row.model_copy(update={"state": hosts.state(newer)}) for row in LATER]], newer
        ),
    )
    after = (data.root / MACHINE / "page_chase.jsonl").read_bytes()
    assert (
        (added.rows, added.known) == (2, 1) and after.startswith(before) and after.count(b"\n") == 6
    )
    assert data.read_machine(MACHINE)["kernel_release"] == "6.2.0"
    assert (
        data.read_document(MACHINE, f"machine-{bundles.STATE}")["kernel_release"]
        == bundles.HOST.kernel_release
    )
    assert (
        data.load(MACHINE, bundles.EXPERIMENT).shape[0] == 4
    )  # the points that were asked for; the new bundle's grids ask for no others
    contributed_again = check.opened(
        check.sealed(
            MACHINE,
            {
                name: (data.root / MACHINE / name).read_bytes()
                for name in (
                    "machine.json",
                    f"machine-{bundles.STATE}.json",
                    "page_chase.jsonl",
                    "grids.json",
                    "flushes.json",
                )
            },
        )
    )
    assert contributed_again.hosts.keys() == {bundles.STATE, hosts.state(newer)}


def test_an_older_bundle_leaves_the_description_that_is_newer(tmp_path: Path):
    data, newer = (
        Store(tmp_path / "data"),
        bundles.HOST.model_copy(update={"kernel_release": "6.2.0"}),
    )
    accept.add(
        data, opened([row.model_copy(update={"state": hosts.state(newer)}) for row in LATER], newer)
    )
    accept.add(data, check.opened(bundles.good()))
    assert data.read_machine(MACHINE)["kernel_release"] == "6.2.0"
    assert (
        data.read_document(MACHINE, f"machine-{bundles.STATE}")["kernel_release"]
        == bundles.HOST.kernel_release
    )
    told = commands.remarks(
        check.opened(
            check.sealed(
                MACHINE,
                {
                    name: (data.root / MACHINE / name).read_bytes()
                    for name in (
                        "machine.json",
                        f"machine-{bundles.STATE}.json",
                        "page_chase.jsonl",
                        "grids.json",
                    )
                },
            )
        )
    )
    assert any("1 rows began before" in line for line in told)


def renamed(**changes: Any) -> Host:
    """The same kind of computer, and another one."""
    return bundles.HOST.model_copy(update={"installation": "fedcba9876543210"} | changes)


REFUSED: dict[str, tuple[str, Callable[[Store], bytes]]] = {
    "another machine's rows under a new name": (
        "bundle-known",
        lambda data: of(bundles.ROWS, renamed()),
    ),
    "one of another machine's rows among others": (
        "bundle-known",
        lambda data: of([*LATER, bundles.ROWS[0]], renamed()),
    ),
    "rows of another machine's state": (
        "bundle-impossible",
        lambda data: of(LATER, renamed(kernel_release="6.3.0")),
    ),
    "lines visited in another order than elsewhere": (
        "bundle-impossible",
        lambda data: of(
            [bundles.row(checksum="f" * 16, started_at="2025-05-05T05:05:05Z")], renamed()
        ),
    ),
    "a fingerprint that another machine has": (
        "bundle-impossible",
        lambda data: fingerprinted(data),
    ),
}


def fingerprinted(data: Store) -> bytes:
    """data/ describes another computer under the same name, as one of four billion would be called."""
    data.write_machine(MACHINE, renamed().model_dump(mode="json"))
    return of(LATER)


@pytest.mark.parametrize("name", REFUSED)
def test_what_data_knows_better_is_refused(name: str, data: Store):
    code, make = REFUSED[name]
    content = make(data)
    before = tree(data.root)
    with pytest.raises(Unavailable) as why:
        accept.add(data, check.opened(content))
    says(why.value, code)
    assert tree(data.root) == before and {path.name for path in data.root.iterdir()} == {MACHINE}


def test_what_is_there_already_changes_nothing(data: Store):
    before = tree(data.root)
    for content, known in ((bundles.good(), 4), (of(bundles.ROWS[1:]), 3)):
        added = accept.add(data, check.opened(content))
        assert (added.rows, added.known) == (0, known) and tree(data.root) == before


def test_another_computer_of_the_same_kind_is_added_beside(data: Store):
    host = renamed()
    rows = [
        row.model_copy(update={"started_at": row.started_at.replace("2025-01", "2025-03")})
        for row in bundles.ROWS
    ]
    accept.add(data, opened(rows, host))
    assert data.machines() == sorted([MACHINE, hosts.machine_id(host)])


# --- kills

STEPS = {
    "add",
    "_merged",
    "_written",
    "staged",
    "put_folder",
    "write_bytes",
    "rename",
    "rmtree",
    "sync_folder",
    "_exchanged",
    "replace",
}


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
@pytest.mark.parametrize("way", ["exchanged", "renamed"])
def test_a_kill_leaves_either_what_was_or_what_is_to_be(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At every step; where the file system cannot exchange two names, the next `add` puts back what
    was."""
    if way == "renamed":
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    accepted, begun, finished = (
        opened(LATER),
        Store(tmp_path / "begun"),
        Store(tmp_path / "finished"),
    )
    for store in (begun, finished):
        accept.add(store, check.opened(bundles.good()))
    before = tree(finished.root)
    accept.add(finished, accepted)
    after, seen = tree(finished.root), set()
    for step in count(1):
        root = tmp_path / f"data-{step}"
        shutil.copytree(begun.root, root)
        was_killed = killed(step, root, accepted)
        there = {name: content for name, content in tree(root).items() if not name.startswith(".")}
        if way == "exchanged" or there:
            assert there in (before, after), step
        seen.add("after" if there == after else "before" if there else "between")
        if not was_killed:
            break
        if there != after:
            accept.add(Store(root), accepted)
            assert tree(root) == after
    assert (
        there == after
        and seen >= {"before", "after"}
        and (way == "exchanged") == ("between" not in seen)
        and step > 20
    )


def test_a_folder_comes_back_that_a_kill_left_aside(tmp_path: Path):
    (tmp_path / ".old").mkdir()
    files.unfinished(tmp_path / "a", tmp_path / ".old")
    assert (tmp_path / "a").is_dir() and not (tmp_path / ".old").exists()


# --- the commands


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["tlb", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, *capsys.readouterr()


def test_three_commands_bring_a_machine_from_one_data_into_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(profile, "of_chapter", bundles.OF_CHAPTER)
    monkeypatch.setattr(judged, "refresh", list)
    monkeypatch.setattr(profile, "refresh", list)
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "theirs"))
    bundles.filled(Store(tmp_path / "theirs").own)
    path = tmp_path / "x.tlb.zip"
    code, out, _ = run(monkeypatch, capsys, "bundle", MACHINE, "--output", path)
    assert (
        code == 0
        and f"4 rows of page_chase, in the state {bundles.STATE};" in out
        and "check-bundle" in out
    )
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "ours"))
    code, out, _ = run(monkeypatch, capsys, "check-bundle", path)
    assert (
        code == 0
        and "Intel Xeon 9000" in out
        and "unknown 4" in out
        and not (tmp_path / "ours").exists()
    )
    code, out, _ = run(monkeypatch, capsys, "add-bundle", path)
    assert code == 0 and "4 new rows" in out and Store(tmp_path / "ours").machines() == [MACHINE]
    assert len(profile.read(Store(tmp_path / "ours"), MACHINE).quantities) == 30
    for command in ("check-bundle", "add-bundle"):
        code, _, err = run(monkeypatch, capsys, command, path)
        assert code == 1 and len(err.splitlines()) == 1 and "already" in err
    path.write_bytes(b"nothing")
    assert run(monkeypatch, capsys, "check-bundle", path)[0] == 1
    code, _, err = run(
        monkeypatch, capsys, "bundle", MACHINE, "--output", tmp_path / "ours"
    )  # a folder, which stays as it is
    assert code == 2 and len(err.splitlines()) == 1 and [*tmp_path.glob(".*")] == []
