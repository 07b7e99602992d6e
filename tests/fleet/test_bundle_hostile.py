"""Bundles that an enemy packed: each is refused by a reason, in one line with what to do, and takes
no more memory than a bundle may."""

import hashlib
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from support import bundles, zips
from support.bundles import changed, files, good, resigned
from support.campaigns import says, sign
from support.zips import CENTRAL, END, LOCAL, archive, by_hand, patched, renamed, zeros

from tlb.fleet import archive as layout
from tlb.fleet import check, lines
from tlb.measure.record import Record
from tlb.system.reasons import Unavailable

UNSAFE, BROKEN, FOREIGN, IMPOSSIBLE = (
    f"bundle-{word}" for word in ("unsafe", "broken", "foreign", "impossible")
)
MIB = 1 << 20
BIDI = "\u202e"
CHASE, JSONL = "page_chase.jsonl", b"page_chase.jsonl"
Make = Callable[[], bytes]
PAYLOADS: dict[str, tuple[str, Make]] = {}


def refuse(code: str, payloads: dict[str, Make]) -> None:
    assert not PAYLOADS.keys() & payloads.keys()
    PAYLOADS.update({name: (code, make) for name, make in payloads.items()})


# --- the archive


def beside(name: str, content: bytes = b"{}\n") -> bytes:
    return archive(files() | {name: content, "bundle.json": b"{}\n"})


def edited(*fields: tuple[bytes, int, str, int]) -> bytes:
    """A good bundle with fields of its headers set: (header's mark, offset, layout, value)."""
    content = good()
    for field in fields:
        content = patched(content, *field)
    return content


def entries(attribute: str, value: object) -> bytes:
    """A bundle in which each member's entry has this attribute."""
    return archive(files(), lambda entry: setattr(entry, attribute, value))


def split() -> tuple[bytes, bytes, bytes]:
    return zips.directory(good())


NAMES = {
    "path traversal": "../evil.json",
    "deep path traversal": "a/../../../evil.json",
    "absolute name": "/etc/evil.json",
    "backslash": "..\\evil.json",
    "drive letter": "C:evil.json",
    "newline in a name": "evil\n.json",
    "escape in a name": "evil\x1b[2J.json",
    "bidi in a name": f"evil{BIDI}nosj.json",
    "letter that looks like another": "m\u0430chine.json",
    "hidden file": ".bashrc.json",
    "option as a name": "-rf.json",
    "program": "evil.py",
    "folder": "folder/",
    "file in a folder": "folder/machine.json",
    "nested archive": "inner.zip",
    "names that differ by case": "MACHINE.json",
}
MODES = {
    "symbolic link": 0o120777,
    "device": 0o020666,
    "FIFO": 0o010666,
    "socket": 0o140666,
    "set-user-id": 0o104755,
    "folder by its attributes": 0o040755,
}
ENTRIES = {
    "comment of a member": ("comment", b"hello"),
    "extra field": ("extra", b"\x99\x99\4\0abcd"),
    "dated member": ("date_time", (2025, 1, 1, 0, 0, 0)),
}
HEADERS = {
    "encrypted member": [(LOCAL, 6, "H", 1), (CENTRAL, 8, "H", 1)],
    "data descriptor": [(LOCAL, 6, "H", 8), (CENTRAL, 8, "H", 8)],
    "method that nobody knows": [(LOCAL, 8, "H", 77), (CENTRAL, 10, "H", 77)],
    "two members at one place": [(CENTRAL, 42, "L", 0, 1)],
    "size that is another in its place": [(LOCAL, 22, "L", 7)],
    "sum that is another": [(CENTRAL, 16, "L", 7)],
    "directory of two disks": [(END, 4, "H", 1)],
    "fewer members than there are": [(END, 8, "H", 2), (END, 10, "H", 2)],
    "more members than there are": [(END, 8, "H", 90), (END, 10, "H", 90)],
    "directory elsewhere": [(END, 16, "L", 0)],
    "zip64": [(END, 16, "L", 2**32 - 1), (END, 12, "L", 2**32 - 1)],
}
STREAMS: dict[str, Make] = {  # of one member: name, deflated bytes, size that the headers give
    "bomb of 42 kB that is said to be 4 GiB": lambda: by_hand(JSONL, zeros(42 * MIB), 2**32 - 1),
    "bomb that is said to be small": lambda: by_hand(JSONL, zeros(64 * MIB), 1000),
    "bomb of a document": lambda: by_hand(b"machine.json", zeros(64 * MIB), 64 * MIB),
    "stream with something behind its end": lambda: by_hand(JSONL, zeros(MIB) + b"hidden", MIB),
    "stream that ends too soon": lambda: by_hand(JSONL, zeros(MIB)[:-3], MIB),
}
TWICE = [("ways.json", b"{}"), ("ways.json", b"[]")]
refuse(UNSAFE, {name: partial(beside, member) for name, member in NAMES.items()})
refuse(
    UNSAFE, {name: partial(entries, "external_attr", mode << 16) for name, mode in MODES.items()}
)
refuse(UNSAFE, {name: partial(entries, *given) for name, given in ENTRIES.items()})
refuse(UNSAFE, {name: partial(edited, *fields) for name, fields in HEADERS.items()})
refuse(UNSAFE, STREAMS)
refuse(
    UNSAFE,
    {
        "empty file": lambda: b"",
        "no archive": lambda: b"#!/bin/sh\nexit 1\n" * 10,
        "tar archive": lambda: b"machine.json".ljust(257, b"\0") + b"ustar\0" + bytes(10240),
        "empty archive": lambda: END + bytes(18),
        "NUL in a name": lambda: renamed(beside("ev00.json"), b"ev00.json", b"ev\0\0.json"),
        "member twice": lambda: archive([*sorted(files().items()), *TWICE]),
        "members out of order": lambda: archive(sorted(files().items(), reverse=True)),
        "stored": lambda: archive(files(), method=zipfile.ZIP_STORED),
        "bzip2": lambda: archive(files(), method=zipfile.ZIP_BZIP2),
        "LZMA": lambda: archive(files(), method=zipfile.ZIP_LZMA),
        "comment of the archive": lambda: archive(files(), comment=b"hello"),
        "bytes behind the end": lambda: good() + b"\0",
        "archive behind the end": lambda: good() + good(),
        "bytes before the beginning": lambda: b"MZ" + good(),
        "bytes before, offsets right": lambda: b"PK\3\4" + split()[0] + zips.shifted(good(), 4),
        "bytes between members and directory": lambda: (
            split()[0] + b"PK" + split()[1] + zips.shifted(good(), 2)[-22:]
        ),
        "members that overlap": lambda: by_hand(b"page_chase00.jsonl", zeros(MIB), MIB, entries=50),
        "name that is another in its place": lambda: renamed(
            good(), b"machine.json", b"machinf.json", 1
        ),
        "many members": lambda: archive({f"a{n}.json": b"" for n in range(3000)}),
        "first half": lambda: good()[: len(good()) // 2],
        "second half": lambda: good()[len(good()) // 2 :],
    },
)
SUMS = (CENTRAL, 16, "L", 7), (LOCAL, 14, "L", 7)
refuse(
    BROKEN,
    {
        "sum that is another in both places": lambda: edited(*SUMS),
        "stream that is none": lambda: by_hand(JSONL, b"\xff" * 40, 40),
    },
)

# --- documents


def digests() -> dict[str, Any]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files().items()}


def manifest(**fields: Any) -> bytes:
    """A bundle whose manifest has other fields than it should; None for one that it lacks."""
    content = {"schema_version": 2, "machine": bundles.MACHINE, "members": digests()} | fields
    known = bundles.written({name: value for name, value in content.items() if value is not None})
    return layout.packed(files() | {"bundle.json": known})


def members(**fields: Any) -> bytes:
    """A bundle in whose manifest digests are others."""
    return manifest(
        members=digests() | {name.replace("__", "."): of for name, of in fields.items()}
    )


def document(text: bytes, name: str = "machine.json") -> bytes:
    """A bundle in which a document is these bytes."""
    return check.sealed(bundles.MACHINE, files() | {name: text})


def replaced(old: bytes, new: bytes) -> bytes:
    assert old in files()["machine.json"]
    return document(files()["machine.json"].replace(old, new))


def load1(number: bytes) -> bytes:
    return replaced(b'"load1": 0.1', b'"load1": ' + number)


def without(name: str) -> bytes:
    return check.sealed(bundles.MACHINE, {k: v for k, v in files().items() if k != name})


def put(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(fields)


def update(name: str, fields: dict[str, Any]) -> bytes:
    return changed(name, put(**fields))


LOADS = {
    UNSAFE: {
        "NaN": b"NaN",
        "Infinity": b"-Infinity",
        "1e999": b"1e999",
        "integer of 5000 digits": b"1" * 5000,
        "number in other digits": "٣".encode(),
    },
    IMPOSSIBLE: {"1e308": b"1e+308", "integer of 31 digits": b"1" + b"0" * 30},
}
HOSTS = {
    UNSAFE: {
        "HTML": {"cpu_model": "<script>alert(1)</script>"},
        "HTML as an entity": {"os": "Linux&lt;b"},
        "bidi": {"kernel_release": f"6.1{BIDI}0"},
        "escape sequence": {"microcode": "\x1b]0;owned\x07"},
        "surrogate": {"microcode": "\ud800"},
        "letter beyond ASCII": {"vendor": "GenuineInt\u0435l"},
        "text of 10,000 letters": {"kernel_release": "6" * 10_000},
        "HTML as a key": {"mitigations": {"<b>": "Not affected"}},
    },
    FOREIGN: {
        "unknown field": {"hostname": "secret-host"},
        "text for a number": {"logical_cpus": "2"},
        "installation that is no hash": {"installation": "secret-host"},
    },
    IMPOSSIBLE: {
        "another description": {"logical_cpus": 4},
        "another microarchitecture": {"microarchitecture": "Zen 5"},
        "pages of no size": {"base_page_bytes": 0},
    },
}
FLUSHES = {
    "unknown field of a document": {"note": "x"},
    "document of another type": {"pti": "yes"},
    "document of a state that is none": {"state": "secret-host"},
    "means that are none": {"means": ["rm -rf"]},
}
GRIDS = {
    "unknown experiment": {"evil": {"page_chase": []}},
    "experiment in another folder": {"../evil": {"page_chase": []}},
    "points that are none": {"stlb_cliff": {"page_chase": ["x"]}},
    "points of an unknown kernel": {"stlb_cliff": {"evil": []}},
    "grids that are a number": {"stlb_cliff": 7},
}
for code, loads in LOADS.items():
    refuse(code, {name: partial(load1, number) for name, number in loads.items()})
for code, fields in HOSTS.items():
    refuse(code, {name: partial(update, "machine.json", each) for name, each in fields.items()})
refuse(FOREIGN, {name: partial(update, "flushes.json", each) for name, each in FLUSHES.items()})
refuse(FOREIGN, {name: partial(update, "grids.json", each) for name, each in GRIDS.items()})
refuse(
    BROKEN,
    {
        "no manifest": lambda: layout.packed(files()),
        "digest of other content": lambda: members(machine__json="0" * 64),
        "digest replayed for another member": lambda: members(
            machine__json=digests()["grids.json"]
        ),
        "member without a digest": lambda: manifest(
            members={"grids.json": digests()["grids.json"]}
        ),
        "digest without a member": lambda: members(ways__json="0" * 64),
        "digest in capitals": lambda: members(machine__json=digests()["machine.json"].upper()),
    },
)
refuse(
    FOREIGN,
    {
        "digest that is a number": lambda: members(machine__json=7),
        "digests in a list": lambda: manifest(members=list(digests())),
        "later version": lambda: manifest(schema_version=3),
        "no version": lambda: manifest(schema_version=None),
        "unknown field of the manifest": lambda: manifest(signature="x"),
        "missing field": lambda: changed("machine.json", lambda host: host.pop("arch") and None),
        "no description": lambda: without("machine.json"),
        "no grids": lambda: without("grids.json"),
        "unknown document": lambda: document(b"{}\n", "evil.json"),
        "profile": lambda: document(b"{}\n", "translation.json"),
        "machine that is a number": lambda: manifest(machine=7),
        "metadata of other programs": lambda: document(b"{}\n", "ro-crate-metadata.json"),
    },
)
DEEP = {"deep JSON": (b"[", b"]", 200_000), "deep JSON of objects": (b'{"a":', b"1}", 50_000)}
refuse(UNSAFE, {name: partial(document, a * n + b * n) for name, (a, b, n) in DEEP.items()})
refuse(
    UNSAFE,
    {
        "data card": lambda: document(b"# x\n", "README.md"),
        "machine in another folder": lambda: manifest(machine="..\\own"),
        "nested as deep as JSON is read": lambda: document(b'{"a":' * 900 + b"1" + b"}" * 900),
        "key twice": lambda: replaced(b'  "arch"', b'  "arch": "arm64",\n  "arch"'),
        "invalid UTF-8": lambda: replaced(b"Intel", b"\xff\xfe\xed\xa0\x80"),
        "byte order mark": lambda: document(b"\xef\xbb\xbf" + files()["machine.json"]),
        "UTF-16": lambda: document(files()["machine.json"].decode().encode("utf-16")),
        "list for an object": lambda: document(b"[]\n"),
        "two objects": lambda: document(files()["machine.json"] * 2),
        "document of 2 MiB": lambda: document(b'{\n  "a": "' + b"a" * 2 * MIB + b'"\n}\n'),
    },
)
refuse(
    IMPOSSIBLE,
    {
        "machine that is another": lambda: manifest(machine="zen-5-b15e0e32"),
        "machine called own": lambda: manifest(machine="own"),
        "machine called reference": lambda: manifest(machine="reference"),
        "description of another state": lambda: document(
            files()["machine.json"], "machine-00112233aabb.json"
        ),
    },
)

# --- rows


def rows(content: bytes) -> bytes:
    return document(content, CHASE)


def row_replaced(old: bytes, new: bytes) -> bytes:
    assert old in files()[CHASE]
    return rows(files()[CHASE].replace(old, new, 1))


def added(*new: Record) -> bytes:
    return rows(files()[CHASE] + b"".join(lines.written(row) for row in new))


def first() -> bytes:
    return files()[CHASE].splitlines(keepends=True)[0]


def same_process() -> Record:
    names = ("started_at", "wall_ns", "checksum")
    return bundles.row(repeat=1, **{name: getattr(bundles.ROWS[0], name) for name in names})


def counter(**fields: Any) -> dict[str, Any]:
    return {"counters": {"walk": fields}}


HUGE = {"ns_per_access": 1e308, "batch_ns_per_access": [1e308], "elapsed_ns": 1e308}
FAST = {"ns_per_access": 0.01, "batch_ns_per_access": [0.01], "elapsed_ns": 1e5}
FIELDS = {
    "row of what no kernel measures": {"measures": 7},
    "row with an unknown field": {"hostname": "secret-host"},
    "row of an engine that its kernel has not": {"engine": "numpy"},
    "1e308 ns": HUGE | {"wall_ns": 1.5e308},
    "batches that no sum holds": {"batch_ns_per_access": [6.4, 1.7e308, 1.7e308]},
    "HTML in a row": {"mode": "<b>"},
    "faster than a core": FAST,
    "clock that no core has": {"core_ghz": 99.0},
    "seed of another point": {"seed": 1},
    "seed of another repeat": {"repeat": 3},
    "working set of other lines": {"working_set_bytes": 4096},
    "stride of other pages": {"stride_bytes": 64},
    "arena smaller than its lines": {"arena_bytes": 4096},
    "arena larger than memory": {"arena_bytes": 1 << 40},
    "page tables without room": {"page_table_bytes": 8},
    "other page size than asked for": {"backing": "thp"},
    "time that is not its batches'": {"ns_per_access": 5.0},
    "accesses that are not its time's": {"accesses": 1},
    "process shorter than its region": {"wall_ns": 1.0},
    "stolen for longer than it ran": {"steal_ms": 1e9},
    "begun in the future": {"started_at": "2199-01-01T00:00:00Z"},
    "begun before there was a kernel": {"started_at": "1999-12-31T23:59:59Z"},
    "begun on no day": {"started_at": "2025-02-30T00:00:00Z"},
    "CPU that is not there": {"cpu": 4000},
    "repeat below zero": {"repeat": -1},
    "lines at another distance": {"layout": "packed"},
    "unknown mode": {"mode": "evil"},
    "unknown option": {"options": [["evil", 1]]},
    "unknown result": {"also": {"evilresult_ns": 1.0}},
    "result beyond 64 bits": {"also": {"tsc_ghz": 1e300}},
    "counter below zero": counter(value=-1.0, event="cycles:u"),
    "counter of an unknown reason": counter(reason="because"),
    "counter with an escape sequence": counter(value=1.0, event="\x1b[2J"),
    "counter that ran for longer than its region": counter(
        value=1.0, event="cycles:u", running_percent=900.0
    ),
}
OTHER_LINES = {"lines": 256, "working_set_bytes": MIB, "arena_bytes": MIB}
OTHER_CHECKSUM = {"pages": "thp", "checksum": "f" * 16, "page_table_bytes": 4096}
NO_ROW = {"key": "0" * 16, "record": {"repeat": 1}}
refuse(IMPOSSIBLE, {name: partial(resigned, put(**fields)) for name, fields in FIELDS.items()})
refuse(
    IMPOSSIBLE,
    {
        "row of deep JSON": lambda: rows(b"[" * 10_000 + b"]" * 10_000 + b"\n"),
        "row that is no JSON": lambda: rows(b"hello\n"),
        "row with a key twice": lambda: row_replaced(b'"accesses"', b'"accesses":1,"accesses"'),
        "row of another key": lambda: resigned(put(**OTHER_LINES), rekey=False),
        "row without a field": lambda: resigned(lambda record: record.pop("checksum") and None),
        "row of another kernel's file": lambda: document(first(), "page_gather.jsonl"),
        "NaN in a row": lambda: row_replaced(b'"ns_per_access":6.5', b'"ns_per_access":NaN'),
        "row twice": lambda: rows(files()[CHASE] + first()),
        "process twice, under another repeat": lambda: added(same_process()),
        "same lines with another checksum": lambda: added(
            bundles.row(started_at="2025-02-01T00:00:00Z", **OTHER_CHECKSUM)
        ),
        "line that is signed and no row": lambda: rows(sign(NO_ROW)),
        "published row, which is a patch": lambda: rows(first() + b'{"patch":{}}\n'),
    },
)
refuse(
    UNSAFE,
    {
        "million rows": lambda: rows(b"{}\n" * 1_000_000),
        "million empty rows": lambda: rows(b"\n" * 1_000_000),
        "row of 8 MiB": lambda: rows(b'{"a":"' + b"a" * 8 * MIB + b'"}\n'),
        "rows that end like Windows'": lambda: rows(files()[CHASE].replace(b"\n", b"\r\n")),
        "torn row": lambda: rows(files()[CHASE][:-9]),
    },
)
refuse(
    FOREIGN,
    {
        "no rows": lambda: without(CHASE),
        "row with an object for a list": lambda: resigned(put(options={})),
        "row of an unknown kernel": lambda: document(b"{}\n", "evil.jsonl"),
    },
)
refuse(BROKEN, {"row of another digest": lambda: row_replaced(b'"cpu":0', b'"cpu":1')})


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_hostile_bundle_is_refused_with_a_reason(name):
    code, make = PAYLOADS[name]
    with pytest.raises(Unavailable) as refused:
        check.opened(make())
    says(refused.value, code)
    assert str(refused.value).isascii() and str(refused.value).isprintable()


def test_the_bundle_that_all_of_these_are_made_of_is_accepted():
    accepted = check.opened(good())
    assert accepted.machine == bundles.MACHINE and list(accepted.records()) == bundles.ROWS
    assert check.opened(resigned(put(noisy="uneven")))
    assert check.opened(changed("flushes.json", put(pti=True)))
    assert len(PAYLOADS) == 183


LARGE = [name for name in PAYLOADS if any(word in name for word in ("bomb", "MiB", "million"))]


@pytest.mark.parametrize("name", [*LARGE, "members that overlap"])
def test_a_bomb_holds_little_memory(name):
    payload = PAYLOADS[name][1]()
    tracemalloc.start()
    try:
        with pytest.raises(Unavailable):
            check.opened(payload)
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()


def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(tmp_path):
    (tmp_path / "bundle.tlb.zip").write_bytes(good())
    (tmp_path / "link").symlink_to(tmp_path / "bundle.tlb.zip")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 40)
    assert check.opened(layout.read(tmp_path / "bundle.tlb.zip")).machine == bundles.MACHINE
    unsafe = {"fifo", "large", "/dev/zero"}
    for name in (*unsafe, ".", "link", "nothing"):
        with pytest.raises(Unavailable) as refused:
            check.opened(layout.read(tmp_path / name))
        assert refused.value.code == (UNSAFE if name in unsafe else "no-bundle"), name


def test_the_rows_of_all_kernels_count_towards_the_most(monkeypatch):
    """Four of one kernel are few enough, and two more of another are too many."""
    monkeypatch.setattr(check, "MOST_ROWS", 5)
    bundle = check.opened(good())
    more = replace(bundle, files=bundle.files | {"page_gather.jsonl": b"x\n" * 2})
    with pytest.raises(Unavailable) as refused:
        check._check_rows(more, datetime.now(UTC))
    assert refused.value.code == UNSAFE
