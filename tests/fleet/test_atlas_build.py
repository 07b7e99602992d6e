"""An atlas is a pure function of its inputs: every field of every row once, the same bytes by whatever way, and whole after any fault."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

pa = pytest.importorskip("pyarrow")  # `make fleet` has it
import pyarrow.parquet as pq  # noqa: E402
from support import atlas as made  # noqa: E402
from support.atlas import KERNEL, chase, host, of, put  # noqa: E402
from support.common import ROOT, make_record  # noqa: E402
from support.lab import says  # noqa: E402
from support.synthetic import Paged  # noqa: E402

import experiments.fleet  # noqa: E402
from experiments.fleet import atlas_build, atlas_inputs, atlas_plan, atlas_schema  # noqa: E402
from experiments.fleet.atlas_build import MANIFEST, build, read  # noqa: E402
from experiments.fleet.atlas_inputs import Staged  # noqa: E402
from experiments.fleet.atlas_plan import plan  # noqa: E402
from experiments.fleet.atlas_schema import VERSION  # noqa: E402
from experiments.lab import lines  # noqa: E402
from experiments.lab.record import Quantity, Record  # noqa: E402
from experiments.lab.store import Store  # noqa: E402
from experiments.words.reasons import Unavailable  # noqa: E402


def named(atlas: Path) -> dict[str, bytes]:
    """The bytes of what the manifest names, and its own."""
    return {part.path: (atlas / part.path).read_bytes() for part in read(atlas).parts} | {MANIFEST: (atlas / MANIFEST).read_bytes()}


def records(atlas: Path) -> dict[tuple[str, str], Record]:
    """By machine and key."""
    rows = {}
    for part in read(atlas).parts:
        if part.table == atlas_schema.ROWS:
            table = pq.read_table(atlas / part.path, partitioning=None)
            kernel = part.path.split("/")[1].removeprefix("kernel=")
            for machine, key, record in zip(table["machine"], table["key"], atlas_schema.records(kernel, table), strict=True):
                assert rows.setdefault((str(machine), str(key)), record) is record, "a row is there twice"
    return rows


def ledger(data: Path) -> dict[tuple[str, str], Record]:
    store = Store(data)
    return {(machine, key): record for machine in store.machines()
            for key, record in store.records(machine, [path.stem for path in (data / machine).glob("*.jsonl")]).items()}


def copied(data: Path, to: Path, *machines: str) -> Path:
    for machine in machines:
        shutil.copytree(data / machine, to / machine)
    return to


def test_every_row_of_the_ledger_is_there_once_with_every_field(data: Path, whole: Path):
    expected = ledger(data)
    assert len(expected) > 500 and records(whole) == expected
    assert read(whole).rows == len(expected) == sum(part.rows for part in read(whole).parts if part.table == "rows")
    odd = [record for (machine, _), record in records(whole).items() if record.kernel == "graph_walk"]
    assert sorted(odd, key=repr) == sorted(made.odd_records(), key=repr)


def test_columns_are_typed_and_say_their_unit():
    rows = atlas_schema.SCHEMAS[atlas_schema.ROWS]
    assert set(Record.model_fields) - {"kernel"} <= set(rows.names)
    units = {field.name: field.metadata[b"unit"].decode() for field in rows if field.metadata}
    stated = {"ns_per_access": "ns/access", "wall_ns": "ns", "working_set_bytes": "B", "core_ghz": "GHz", "region_ms": "ms"}
    assert stated.items() <= units.items()
    numbers = {field.name for field in rows if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)}
    assert {name for name in numbers if name.endswith(("_ns", "_bytes", "_ms", "_ghz", "_access"))} <= set(units)


def test_the_same_inputs_give_the_same_bytes_in_whatever_order_and_however_many_builds(data: Path, whole: Path, tmp_path: Path):
    given = [data / machine for machine in Store(data).machines()]
    atlas = tmp_path / "atlas"
    for some in (given[7:], given[:3] * 2, given[3:8]):
        build(atlas, some[::-1], processes=1)
    assert named(atlas) == named(whole)


def test_one_more_machine_touches_only_its_own_parts(data: Path, tmp_path: Path):
    machines = Store(data).machines()
    atlas = tmp_path / "atlas"
    build(atlas, [data / machine for machine in machines if "zen-4" not in machine], processes=1)
    before = {path: (atlas / path).stat().st_mtime_ns for path in named(atlas)}
    built = build(atlas, [data], processes=1)
    after = {path: (atlas / path).stat().st_mtime_ns for path in named(atlas)}
    assert built.new_inputs == 1 and {path for path in after if after[path] != before.get(path)} == {
        MANIFEST, *(path for path in after if "zen-4" in path)}
    again = build(atlas, [data], processes=1)
    assert (again.new_inputs, again.new_parts) == (0, 0)


def test_a_part_is_halved_where_it_is_large_and_no_further(monkeypatch: pytest.MonkeyPatch):
    inputs = {f"{n:016x}": Staged(machine=f"zen-5-{n:08x}", microarchitecture="zen-5", measured_until="2025-01-01T00:00:00Z",
                                  rows={"rows/kernel=page_chase": 1 + n % 7, "machines": 1}) for n in range(300)}
    monkeypatch.setattr(atlas_plan, "MOST_ROWS", 40)
    planned = [part for part in plan(inputs) if part.group == "rows/kernel=page_chase"]
    rows = [sum(inputs[digest].rows[part.group] for digest in part.inputs) for part in planned]
    assert sum(rows) == sum(1 + n % 7 for n in range(300)) and max(rows) <= 40 and len(rows) > 300 * 4 / 40
    assert Counter(machine for part in planned for machine in part.machines).most_common(1)[0][1] == 1
    more = inputs | {"f" * 16: Staged(machine="zen-5-ffffffff", microarchitecture="zen-5", measured_until="2025-01-01T00:00:00Z",
                                      rows={"rows/kernel=page_chase": 3})}
    changed = {part.path for part in plan(more)} - {part.path for part in plan(inputs)}
    assert len(changed) in (1, 2)
    assert plan(dict(reversed(inputs.items()))) == plan(inputs)


def test_several_parts_hold_together_what_one_would(data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(atlas_plan, "MOST_ROWS", 60)
    machines = Store(data).machines()
    for some in (machines[:5], machines[5:]):
        build(tmp_path / "atlas", [data / machine for machine in some], processes=1)
    assert records(tmp_path / "atlas") == records(whole) and len(read(tmp_path / "atlas").parts) > len(read(whole).parts)


def test_two_inputs_of_one_machine_are_one_machine(tmp_path: Path):
    """A later one has more rows and another kernel's, a row that counted what the first could not, and the newer documents."""
    a, b = host(kernel="6.1.0"), host(kernel="6.9.0")
    rows = of(Paged(), chase("4k"), a)
    early = put(tmp_path / "early" / "zen-5-00000001", a, rows, {"entries_level_1": 1.0})
    record = Record.model_validate(json.loads(rows[0])["record"])
    counted = lines.write(record.model_copy(update={"counters": {"walk": Quantity(value=1.0)}, "wall_ns": 1.0}), KERNEL)[1]
    late = put(tmp_path / "late" / "zen-5-00000001", b, [counted, *rows[3:], *of(Paged(), chase("4k"), b, day=9)], {"entries_level_1": 2.0})
    atlases = [tmp_path / name for name in ("one", "two", "three")]
    for atlas, order in zip(atlases, ([early, late], [late, early], [late]), strict=True):
        for path in order:
            build(atlas, [path], processes=1)
    assert named(atlases[0]) == named(atlases[1])
    both = records(atlases[0])
    assert len(both) == 20 and sum("walk" in record.counters for record in both.values()) == 1
    (profile,) = [part for part in read(atlases[0]).parts if part.table == "profile"]
    assert pq.read_table(atlases[0] / profile.path, partitioning=None)["value"].to_pylist() == [2.0]
    (machines,) = [part for part in read(atlases[0]).parts if part.table == "machines"]
    described = pq.read_table(atlases[0] / machines.path, partitioning=None).to_pylist()
    assert {(row["kernel_release"], row["is_described"]) for row in described} == {("6.1.0", True), ("6.9.0", True)}
    build(atlases[0], [late], anew=True, processes=1)
    assert named(atlases[0]) == named(atlases[2])


def test_lines_that_do_not_prove_whole_are_counted_and_left_out(data: Path, tmp_path: Path):
    copied(data, tmp_path / "data", "cpu-00000000")
    path = tmp_path / "data" / "cpu-00000000" / "page_chase.jsonl"
    rows = path.read_bytes()
    other = lines.write(make_record(kernel="graph_walk"), KERNEL)[1]  # of another kernel than its file
    path.write_bytes(rows.replace(b'"repeat":1', b'"repeat":7', 1) + other + rows[:100])
    path.with_name("page_chase.quarantine.jsonl").write_bytes(rows)
    built = build(tmp_path / "atlas", [tmp_path / "data"], processes=1)
    (staged,) = built.manifest.inputs.values()
    assert (built.manifest.rows, staged.broken, staged.microarchitecture) == (3, 2, atlas_inputs.UNKNOWN)


def test_a_bundle_is_the_folder_that_it_was_packed_from(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As far as an atlas goes: what is in it, and what it is refused for, is the bundle's own matter."""
    folder = data / "zen-5-00000001"
    (tmp_path / "zen-5-00000001.tlb.zip").write_bytes(b"packed")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    opened = SimpleNamespace(checked=lambda path: SimpleNamespace(machine=folder.name, files=files))
    monkeypatch.setattr(experiments.fleet, "bundle", opened, raising=False)
    build(tmp_path / "atlas", [tmp_path], processes=1)
    assert build(tmp_path / "atlas", [folder], processes=1).new_inputs == 0
    build(tmp_path / "other", [folder], processes=1)
    assert named(tmp_path / "atlas") == named(tmp_path / "other")


def test_what_is_no_input_is_a_reason(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nothing"):
        with pytest.raises(Unavailable) as why:
            build(tmp_path / "atlas", [path], processes=1)
        says(why.value, "no-bundle")
    assert not (tmp_path / "atlas").exists()


def test_of_many_inputs_those_that_are_refused_are_named_and_the_rest_goes_on_without_them(data: Path, tmp_path: Path):
    some = copied(data, tmp_path / "some", *Store(data).machines()[3:5])
    odd = [some / "odd.tlb.zip", some / "other.tlb.zip"]
    for path in odd:
        path.write_bytes(b"nothing")
    with pytest.raises(Unavailable) as why:
        build(tmp_path / "atlas", odd, processes=1)
    says(why.value, "bundle-unsafe")
    built = build(tmp_path / "atlas", [some], processes=1)
    assert built.new_inputs == 2 and [path for path in odd if any(str(path) in str(why) for why in built.refused)] == odd
    build(tmp_path / "other", [copied(data, tmp_path / "good", *Store(data).machines()[3:5])], processes=1)
    assert named(tmp_path / "atlas") == named(tmp_path / "other")


def test_a_folder_that_holds_something_else_is_left_alone(data: Path, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(Unavailable) as why:
        build(tmp_path, [data], processes=1)
    says(why.value, "no-atlas")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_atlas_of_another_version_is_left_alone(data: Path, whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "atlas")
    manifest = tmp_path / "atlas" / MANIFEST
    manifest.write_bytes(manifest.read_bytes().replace(b'"version":%d' % VERSION, b'"version":%d' % (VERSION + 1)))
    before = manifest.read_bytes()
    for act in (lambda: build(tmp_path / "atlas", [data], processes=1), lambda: read(tmp_path / "atlas")):
        with pytest.raises(Unavailable) as why:
            act()
        says(why.value, "no-atlas")
    assert manifest.read_bytes() == before


@pytest.mark.parametrize("where", ["write_table", "replace"])
def test_a_full_disk_leaves_the_old_atlas_whole_and_the_next_build_goes_on(where: str, data: Path, tmp_path: Path,
                                                                            monkeypatch: pytest.MonkeyPatch):
    atlas, some = tmp_path / "atlas", [data / machine for machine in Store(data).machines()[3:6]]
    build(atlas, some[:1], processes=1)
    before = named(atlas)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr({"write_table": atlas_build.pq, "replace": atlas_build}[where], where, full)
        with pytest.raises(Unavailable) as why:
            build(atlas, some, processes=1)
    says(why.value, "disk-full")
    assert named(atlas) == before and not [*atlas.rglob("*.tmp")]
    for _ in range(2):  # the second takes away what the first replaced
        build(atlas, some, processes=1)
    build(tmp_path / "other", some, processes=1)
    assert named(atlas) == named(tmp_path / "other")
    assert {path.relative_to(atlas).as_posix() for path in atlas.rglob("*") if path.is_file()} == set(named(atlas))


def test_what_is_cut_off_is_built_again_from_its_input_or_is_a_reason(data: Path, whole: Path, tmp_path: Path):
    atlas = tmp_path / "atlas"
    shutil.copytree(whole, atlas)
    part = next(part for part in read(atlas).parts if "zen-5" in part.path and part.table == "rows")
    os.truncate(atlas / part.path, part.size_bytes - 1)
    extra = put(tmp_path / "more" / "zen-5-00000009", host(), of(Paged(), chase("4k"), host()))
    with pytest.raises(Unavailable) as why:
        build(atlas, [extra], processes=1)
    says(why.value, "atlas-broken")
    build(atlas, [data], processes=1)
    assert named(atlas) == named(whole)


@pytest.mark.endurance
def test_what_is_published_here_comes_back_from_an_atlas_to_the_bit(tmp_path: Path):
    build(tmp_path, [ROOT / "data"])
    assert records(tmp_path) == ledger(ROOT / "data")
