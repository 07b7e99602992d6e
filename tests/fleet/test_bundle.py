"""Bundles: what is in one, that it comes back whole, and 100 hostile ones, each refused in a
sentence."""

import datetime
import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support import bundles
from support.bundles import HOST, MACHINE, ROWS, files, packed, with_rows, with_values
from support.common import ROOT, ended, refusal
from support.synthetic import Stated

from tlb.fleet import bundle, public_text
from tlb.fleet.bundle import add
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.record import CounterReading
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

PUBLISHED = Store(ROOT / "data")
FLUSHES = "documents/flushes.json"


def rows_of(store: Store, machine: str) -> list[str]:
    return sorted(record.model_dump_json() for record, _ in store.published(machine))


# --- good ones


def test_a_machine_comes_back_as_it_was(tmp_path):
    read, store = bundle.read(bundles.good()), Store(tmp_path)
    assert (read.machine, read.host) == (MACHINE, HOST)
    assert sorted(record.model_dump_json() for record, _ in read.rows) == sorted(
        record.model_dump_json() for record in ROWS
    )
    assert {experiment for _, asked in read.rows for experiment in asked} == {bundles.EXPERIMENT}
    assert add(store, read)[1:] == (len(ROWS), 0)
    assert add(store, read)[1:] == (0, len(ROWS))
    assert store.read_document(MACHINE, "flushes") == bundles.FLUSHES
    assert bundles.made(store, MACHINE) == bundles.good()  # to the byte


def test_rows_are_added_to_those_that_are_there(tmp_path):
    store, more = Store(tmp_path / "a"), Store(tmp_path / "b")
    add(store, bundle.read(bundles.good()))
    bundles.filled(more, rows=[*ROWS, bundles.row(256), bundles.row(64, repeat=1)])
    more.append(MACHINE, bundles.row(512))  # which no experiment asked for
    assert add(store, bundle.read(bundles.made(more, MACHINE)))[1:] == (2, len(ROWS))
    assert len(rows_of(store, MACHINE)) == len(ROWS) + 2


# bundles.row(60) began before ROWS, bundles.row(256) after them.
@pytest.mark.parametrize(
    ("rows", "is_replaced"), [(ROWS, 0), ([bundles.row(60)], 0), ([bundles.row(256)], 1)]
)
def test_documents_are_replaced_by_a_bundle_with_newer_rows_alone(rows, is_replaced, tmp_path):
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    add(store, bundle.read(bundles.good()))
    bundles.filled(other, rows=rows)
    other.write_document(MACHINE, "flushes", bundles.FLUSHES | {"pti": True})
    add(store, bundle.read(bundles.made(other, MACHINE)))
    assert store.read_document(MACHINE, "flushes")["pti"] == bool(is_replaced)


def test_a_row_that_counted_more_replaces_the_one_that_is_there(tmp_path):
    store = Store(tmp_path / "data")
    for number, reading in enumerate([{"reason": "no-perf"}, {"value": 1e7}]):
        (own := tmp_path / str(number)).mkdir()
        rows = [bundles.row(64, counters={"walk": CounterReading(**reading)})]
        bundles.filled(Store(own), rows=rows)
        assert add(store, bundle.read(bundles.made(Store(own), MACHINE)))[1:] == (1, 0)
    assert len(rows_of(store, MACHINE)) == 1


# Zen 5 has rows with codes of reasons that were merged, and a profile with names of Linux's functions.
@pytest.mark.parametrize(
    ("machine", "left_out"),
    [
        pytest.param("emerald-rapids-64b9489c", 0, marks=pytest.mark.endurance),
        ("zen-5-b15e0e32", 1),
    ],
)
def test_a_published_machine_comes_back_whole(machine, left_out, tmp_path):
    contents = bundle.collect(PUBLISHED, machine)
    read, store = bundle.read(bundle.pack(contents)), Store(tmp_path)
    add(store, read)
    assert read.machine == machine and len(contents.left_out) == left_out
    assert rows_of(store, machine) == rows_of(PUBLISHED, machine)


@pytest.mark.parametrize("machine", PUBLISHED.machines())
def test_no_published_description_loses_a_word(machine):
    for path in sorted((PUBLISHED.root / machine).glob("machine*.json")):
        host = Host.model_validate_json(path.read_bytes())
        assert bundle.public_host(host) == host


NAMES = ["db17", "db-17.example.com", "janes-laptop", "alice", "/srv/alice/x", "10.0.0.7", "a@b"]
NAMES += ["4711081512345"]  # a serial number


@pytest.mark.parametrize("name", NAMES)
def test_names_in_a_description_are_left_out_and_rows_keep_their_state(name, tmp_path):
    changes = {
        "kernel_release": f"6.1.0-{name}",
        "c_compiler": f"gcc: gcc ({name}) 12.2.0",
        "cpu_model": f"Intel Xeon 9000 {name}",
        "background": {"swap": f"on {name}"},
        "mitigations": {"meltdown": f"Mitigation: {name}"},
    }
    host = Stated(changes=changes).host()
    store = Store(tmp_path)
    rows = [bundles.row(64, state=hosts.state_digest(host), compiler=f"gcc: gcc ({name}) 12.2.0")]
    read = bundle.read(bundles.made(store, bundles.filled(store, host, rows)))
    assert json.loads(read.files[FLUSHES])["state"] == hosts.state_digest(read.host)
    text = json.dumps(read.host.model_dump(mode="json")) + read.rows[0][0].model_dump_json()
    assert name not in text and read.rows[0][0].state == hosts.state_digest(read.host)
    assert read.host.c_compiler == "gcc 12.2.0" and read.host.kernel_release == "6.1.0"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (public_text.keep_public_words, "cc: cc (Debian 12.2.0-14+deb12u1) 12.2.0"),
        (public_text.keep_public_words, "gcc: gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5)"),
        (public_text.keep_public_words, "clang: Ubuntu clang version 18.1.3 (1ubuntu1)"),
        (public_text.linux_release, "6.8.0-45-generic"),
        (public_text.linux_release, "5.14.0-427.13.1.el9_4.x86_64"),
        (public_text.linux_release, "5.15.167.4-microsoft-standard-WSL2"),
        (public_text.keep_public_words, "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"),
        (public_text.keep_public_words, "AMD EPYC 7763 64-Core Processor"),
        (public_text.keep_public_words, "Neoverse-N1"),
    ],
)
def test_common_names_and_versions_are_kept_whole(parse, text):
    assert parse(text) == text


# --- hostile ones


def described(**changes: Any) -> Callable[[], bytes]:
    """A bundle whose description has other fields, a path to them with dots."""

    def change(content: dict[str, Any]) -> None:
        for path, value in changes.items():
            *folders, last = path.split("__")
            place = content
            for folder in folders:
                place = place[folder]
            place[last] = value

    return lambda: bundles.changed(bundle.MACHINE, change)


def flushes(**changes: Any) -> Callable[[], bytes]:
    return lambda: bundles.changed(FLUSHES, lambda content: content | changes)


def member(name: str, content: bytes = b"{}") -> Callable[[], bytes]:
    return lambda: packed([*files().items(), (name, content)])


def document(text: bytes) -> Callable[[], bytes]:
    return lambda: packed(files() | {FLUSHES: text})


def values(**changes: Any) -> Callable[[], bytes]:
    return lambda: with_values(**changes)


def without(name: str) -> Callable[[], bytes]:
    return lambda: packed({one: text for one, text in files().items() if one != name})


def link(name: str) -> Callable[[], bytes]:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return lambda: packed([*files().items(), (entry, b"/etc/passwd")])


def repeated(change: Callable[[pa.Table], pa.Table]) -> Callable[[], bytes]:
    return lambda: with_rows(change(bundles.rows_table()))


def cast(name: str, kind: pa.DataType) -> Callable[[], bytes]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        column = table[name].cast(kind)
        return table.set_column(place, pa.field(name, kind), column)

    return repeated(change)


def truncated(share: float) -> Callable[[], bytes]:
    return lambda: bundles.good()[: int(len(bundles.good()) * share)]


def bomb(name: str, size: int) -> Callable[[], bytes]:
    return lambda: packed(files() | {name: bytes(size)})


def long_list() -> bytes:
    """A file of a few kB whose rows have many millions of values."""
    table = bundles.rows_table().slice(0, 1)
    numbers = pa.array([[6.5] * 30_000_000], pa.list_(pa.float64()))
    place = table.schema.get_field_index("batch_ns_per_access")
    file = io.BytesIO()
    parquet.write_table(
        table.set_column(place, "batch_ns_per_access", numbers), file, compression="zstd"
    )
    return packed(files() | {bundle.ROWS_FILE_NAME: file.getvalue()})


def overwritten(at: int) -> Callable[[], bytes]:
    def damaged() -> bytes:
        content = bytearray(files()[bundle.ROWS_FILE_NAME])
        content[at] ^= 0xFF
        return packed(files() | {bundle.ROWS_FILE_NAME: bytes(content)})

    return damaged


FREE_TEXTS = [
    "cpu_model", "kernel_release", "c_compiler", "vendor", "microcode", "hypervisor", "os", "arch",
    "installation", "boot_id", "xen_guest", "thp__enabled", "thp__defrag", "noise__governor",
    "noise__smt", "memory__limit_source", "pmu__reason", "tlb_reason",
]  # fmt: skip
HOSTILE: dict[str, Callable[[], bytes]] = {
    # the file
    "empty": lambda: b"",
    "text": lambda: b"not a zip",
    **{f"the first {share:.0%}": truncated(share) for share in (0.1, 0.5, 0.9, 0.99)},
    "no members": lambda: packed({}),
    "no rows": without("rows.parquet"),
    "no description": without("machine.json"),
    "two rows": member("rows.parquet"),
    "two descriptions": member("machine.json"),
    **{
        f"a member {name}": member(name)
        for name in (
            "../machine.json", "/etc/passwd", "documents/../../x.json", "documents/", "x", "rows.PARQUET",
            "documents/a/b.json", "machine-xyz.json", "C:\\x.json", "documents/\u202e.json",
            "quantities.json", "README.md", "documents/unknown.json", "machine-0123456789ab.json",
        )
    },
    "a link": link("documents/flags.json"),
    "a linked description": link("machine-0123456789ab.json"),
    "many members": lambda: packed(
        files() | {f"documents/d{number}.json": b"{}" for number in range(100)}
    ),
    "a bomb of a document": bomb("documents/flushes.json", 8 << 20),
    "a bomb of rows": bomb("rows.parquet", 80 << 20),
    # documents
    "no JSON": document(b"{"),
    "a list": document(b"[]"),
    "invalid UTF-8": document(b'{"state": "\xff"}'),
    "a key twice": lambda: document(
        files()[FLUSHES].replace(b"{", b'{\n  "pti": true,', 1)
    )(),
    "NaN": described(noise__load1=float("nan")),
    "Infinity": document(b'{"pti": Infinity}'),
    "nested": document(b'{"a": ' * 5000 + b"1" + b"}" * 5000),
    "a large number": document(b'{"schema_version": 1e400}'),
    "a larger integer": document(b'{"schema_version": ' + b"9" * 40 + b"}"),
    "another version": flushes(schema_version=2),
    "an unknown field": flushes(more=1),
    "a field of another type": flushes(pti="false"),
    "a state that names": flushes(state="db17"),
    "means that name": flushes(means=["db17"]),
    "means that are a text": flushes(means="cc"),
    "markup": flushes(state="<script>"),
    "control characters": flushes(state="\x1b[2J"),
    "a long text": flushes(state="a" * 1000),
    # the description
    **{
        f"{name} in {field}": described(**{field: name})
        for field in FREE_TEXTS
        for name in ("db-17.example.com", "alice")
    },
    "a host's name among mitigations": described(mitigations={"db17": "Not affected"}),
    "a host's name in a mitigation": described(mitigations={"meltdown": "Mitigation: db17"}),
    "a host's name in a task": described(background={"swap": "on db17"}),
    "a host's name as a task": described(background={"db17": "off"}),
    "a host's name on the command line": described(boot=["root=db17"]),
    "a host's name as a page size": described(mthp={"db17": "never"}),
    "no memory": described(memory__total_bytes=0),
    "memory beyond 64 bits": described(memory__total_bytes=10**30),
    "no CPU": described(logical_cpus=0),
    "a page of 5 bytes": described(base_page_bytes=5),
    "a text for a number": described(logical_cpus="2"),
    "an unknown microarchitecture": described(microarchitecture="db17"),
    # the rows
    "no Parquet": lambda: packed(files() | {bundle.ROWS_FILE_NAME: b"PAR1" * 100}),
    **{f"a byte at {at}": overwritten(at) for at in (4, 200, -1, -5, -50)},
    "no row": repeated(lambda table: table.slice(0, 0)),
    "a row twice": repeated(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    "a column less": repeated(lambda table: table.drop_columns(["ns_per_access"])),
    "a column more": repeated(lambda table: table.append_column("db17", pa.array(["x"] * len(table)))),
    "a result that names": repeated(
        lambda table: table.append_column("db17", pa.array([1.0] * len(table)))
    ),
    "metadata": repeated(lambda table: table.replace_schema_metadata({"host": "db17"})),
    "columns in another order": repeated(lambda table: table.select(table.column_names[::-1])),
    "times as integers": cast("elapsed_ns", pa.int64()),
    "texts as bytes": cast("compiler", pa.binary()),
    "a long list": long_list,
    "NaN ns": values(ns_per_access=float("nan")),
    "infinite ns": values(elapsed_ns=float("inf")),
    "negative ns": values(elapsed_ns=-1.0),
    "no ns": values(ns_per_access=None),
    "microseconds": values(ns_per_access=0.0065),
    "all in microseconds": values(
        ns_per_access=0.0065, batch_ns_per_access=[0.0064, 0.0065, 0.0066], elapsed_ns=6.5e4
    ),
    "another time than its batches'": values(ns_per_access=6.0),
    "another time than its accesses'": values(elapsed_ns=3e7),
    "a process shorter than its region": values(wall_ns=1e7),
    "negative batches": values(batch_ns_per_access=[-6.4, 6.5, 6.6]),
    "no batches": values(batch_ns_per_access=[]),
    "a negative count": values(minor_faults=-1),
    "no access": values(accesses=0),
    "another seed": values(seed=1),
    "another stride": values(stride_bytes=8192),
    "a version of its kernel to come": values(measures=99),
    "another kernel": values(kernel="db17"),
    "another page size": values(pages="3k"),
    "another backing": values(backing="2m"),
    "a compiler that names": values(compiler="gcc (db17) 12"),
    "a state that is none": values(state="db17"),
    "a day that is none": values(started_at="2025-02-31T12:00:00Z"),
    "the past": values(started_at="1999-01-01T12:00:00Z"),
    "the future": values(started_at="2999-01-01T12:00:00Z"),
    "a checksum that is none": values(checksum="db17"),
    "a chapter that is none": values(experiments=["db17"]),
    "no chapter": values(experiments=[]),
    "an event that names": values(
        counters=[{"quantity": "walk", "value": 1.0, "reason": None, "event": "db17", "running_percent": None}]
    ),
    "a reason that names": values(
        counters=[{"quantity": "walk", "value": None, "reason": "db17", "event": None, "running_percent": None}]
    ),
    "an option that is none": values(options=["db17"]),
    "a CPU that is none": values(cpu=99),
    "an arena larger than memory": values(arena_bytes=1 << 50),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_in_one_sentence(name, tmp_path):
    path = tmp_path / "x.tlb.zip"
    path.write_bytes(HOSTILE[name]())
    with pytest.raises(Unavailable) as why:
        bundle.read_file(path)
    assert why.value.code == "bundle-refused"
    assert str(why.value).isprintable() and len(str(why.value)) < 600
    assert str(why.value).endswith(why.value.remedy)


def test_a_link_and_a_folder_are_no_bundle(tmp_path):
    path = tmp_path / "x.tlb.zip"
    path.symlink_to(ROOT / "README.md")
    for place in (path, tmp_path, tmp_path / "absent"):
        assert refusal(bundle.read_file, place) == "bundle-refused"


def test_another_computer_of_the_same_name_is_refused(tmp_path):
    store = Store(tmp_path)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    assert refusal(add, store, bundle.read(bundles.good())) == "bundle-refused"


def test_a_clock_that_is_behind_by_a_day_is_forgiven():
    now = datetime.datetime(2025, 1, 30, 13, tzinfo=datetime.UTC)
    assert bundle.read(bundles.good(), now).machine == MACHINE


# --- commands


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_folder_of_bundles_is_added_whole_or_not_at_all(data, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.tlb.zip").write_bytes(bundles.good())
    (folder / "b.tlb.zip").write_bytes(HOSTILE["negative ns"]())
    words = ["bundle", "add", "--no-quantities", str(folder)]
    assert ended(monkeypatch, *words) == 1 and not data.exists()
    (folder / "b.tlb.zip").unlink()
    assert ended(monkeypatch, *words) == 0 and Store(data).machines() == [MACHINE]
    capsys.readouterr()
    assert ended(monkeypatch, *words) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_made_can_be_checked(data, tmp_path, monkeypatch, capsys):
    machine = bundles.filled(Store(data).own)
    path = tmp_path / "made.tlb.zip"
    assert ended(monkeypatch, "bundle", "make", machine, "--output", str(path)) == 0
    assert ended(monkeypatch, "bundle", "check", str(path)) == 0
    assert f"{len(ROWS)} rows" in capsys.readouterr().out
