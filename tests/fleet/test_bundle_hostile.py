"""Bundles that an enemy packed: each is refused by a reason, in one line with what to do, and takes
no more memory than a bundle may."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import bundles, zips
from support.bundles import changed, files, good, resigned
from support.lab import says, sign
from support.zips import CENTRAL, END, LOCAL, archive, attribute, by_hand, patched

from tlb.fleet import archive as layout
from tlb.fleet import check
from tlb.lab import lines
from tlb.lab.record import Record
from tlb.reasons import Unavailable

UNSAFE, BROKEN, FOREIGN, IMPOSSIBLE = (
    "bundle-unsafe",
    "bundle-broken",
    "bundle-foreign",
    "bundle-impossible",
)
MIB = 1 << 20
BIDI = "\u202e"


def beside(name: str, content: bytes = b"{}\n") -> bytes:
    return archive(files() | {name: content, "bundle.json": b"{}\n"})


def sealed_with(**more: bytes) -> bytes:
    return check.sealed(bundles.MACHINE, files(**more))


def manifest(**fields: Any) -> bytes:
    """A manifest with other fields than it should have; None for one that it lacks."""
    told = {"schema_version": 1, "machine": bundles.MACHINE, "members": digests()} | fields
    content = bundles.written({name: value for name, value in told.items() if value is not None})
    return layout.packed(files() | {"bundle.json": content})


def digests() -> dict[str, Any]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files().items()}


def put(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(fields)


def machine(text: bytes, name: str = "machine.json") -> bytes:
    """A bundle in which a document is these bytes."""
    return check.sealed(bundles.MACHINE, files() | {name: text})


def load1(number: bytes) -> bytes:
    return machine(files()["machine.json"].replace(b'"load1": 0.1', b'"load1": ' + number))


def rows(content: bytes) -> bytes:
    return sealed_with(page_chase__jsonl=content)


def added(record: Record) -> bytes:
    return rows(files()["page_chase.jsonl"] + lines.write(record, bundles.KERNEL)[1])


OF_ZIP: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty file": (UNSAFE, lambda: b""),
    "no archive": (UNSAFE, lambda: b"#!/bin/sh\nexit 1\n" * 10),
    "tar archive": (UNSAFE, lambda: b"machine.json".ljust(257, b"\0") + b"ustar\0" + bytes(10240)),
    "empty archive": (UNSAFE, lambda: END + bytes(18)),
    "path traversal": (UNSAFE, lambda: beside("../evil.json")),
    "deep path traversal": (UNSAFE, lambda: beside("a/../../../evil.json")),
    "absolute name": (UNSAFE, lambda: beside("/etc/evil.json")),
    "backslash": (UNSAFE, lambda: beside("..\\evil.json")),
    "drive letter": (UNSAFE, lambda: beside("C:evil.json")),
    "NUL in a name": (
        UNSAFE,
        lambda: zips.renamed(beside("evilx.json.json"), b"evilx.json.json", b"evil\0json.jsonx"),
    ),
    "newline in a name": (UNSAFE, lambda: beside("evil\n.json")),
    "escape in a name": (UNSAFE, lambda: beside("evil\x1b[2J.json")),
    "bidi in a name": (UNSAFE, lambda: beside(f"evil{BIDI}nosj.json")),
    "letter that looks like another": (UNSAFE, lambda: beside("m\u0430chine.json")),
    "hidden file": (UNSAFE, lambda: beside(".bashrc.json")),
    "option as a name": (UNSAFE, lambda: beside("-rf.json")),
    "program": (UNSAFE, lambda: beside("evil.py", b"import os\n")),
    "folder": (UNSAFE, lambda: beside("folder/", b"")),
    "file in a folder": (UNSAFE, lambda: beside("folder/machine.json")),
    "nested archive": (UNSAFE, lambda: beside("inner.zip", good())),
    "symbolic link": (UNSAFE, lambda: archive(files(), attribute(0o120777 << 16))),
    "device": (UNSAFE, lambda: archive(files(), attribute(0o020666 << 16))),
    "FIFO": (UNSAFE, lambda: archive(files(), attribute(0o010666 << 16))),
    "socket": (UNSAFE, lambda: archive(files(), attribute(0o140666 << 16))),
    "set-user-id": (UNSAFE, lambda: archive(files(), attribute(0o104755 << 16))),
    "folder by its attributes": (
        UNSAFE,
        lambda: archive(files(), attribute(0o040755 << 16 | 0x10)),
    ),
    "member twice": (
        UNSAFE,
        lambda: archive([*sorted(files().items()), ("ways.json", b"{}"), ("ways.json", b"[]")]),
    ),
    "names that differ by case": (UNSAFE, lambda: beside("MACHINE.json")),
    "members out of order": (UNSAFE, lambda: archive(sorted(files().items(), reverse=True))),
    "encrypted member": (
        UNSAFE,
        lambda: patched(patched(good(), LOCAL, 6, "H", 1), CENTRAL, 8, "H", 1),
    ),
    "data descriptor": (
        UNSAFE,
        lambda: patched(patched(good(), LOCAL, 6, "H", 8), CENTRAL, 8, "H", 8),
    ),
    "stored": (UNSAFE, lambda: archive(files(), method=zipfile.ZIP_STORED)),
    "bzip2": (UNSAFE, lambda: archive(files(), method=zipfile.ZIP_BZIP2)),
    "LZMA": (UNSAFE, lambda: archive(files(), method=zipfile.ZIP_LZMA)),
    "method that nobody knows": (
        UNSAFE,
        lambda: patched(patched(good(), LOCAL, 8, "H", 77), CENTRAL, 10, "H", 77),
    ),
    "comment of the archive": (UNSAFE, lambda: archive(files(), comment=b"hello")),
    "comment of a member": (
        UNSAFE,
        lambda: archive(files(), lambda entry: setattr(entry, "comment", b"hello")),
    ),
    "extra field": (
        UNSAFE,
        lambda: archive(files(), lambda entry: setattr(entry, "extra", b"\x99\x99\4\0abcd")),
    ),
    "dated member": (
        UNSAFE,
        lambda: archive(files(), lambda entry: setattr(entry, "date_time", (2025, 1, 1, 0, 0, 0))),
    ),
    "bytes behind the end": (UNSAFE, lambda: good() + b"\0"),
    "archive behind the end": (UNSAFE, lambda: good() + good()),
    "bytes before the beginning": (UNSAFE, lambda: b"MZ" + good()),
    "bytes before, offsets right": (
        UNSAFE,
        lambda: b"PK\3\4" + zips.directory(good())[0] + zips.shifted(good(), 4),
    ),
    "bytes between members and directory": (
        UNSAFE,
        lambda: (
            zips.directory(good())[0]
            + b"PK"
            + zips.directory(good())[1]
            + zips.shifted(good(), 2)[-22:]
        ),
    ),
    "members that overlap": (
        UNSAFE,
        lambda: by_hand(b"page_chase00.jsonl", zips.zeros(MIB), MIB, entries=50),
    ),
    "two members at one place": (UNSAFE, lambda: patched(good(), CENTRAL, 42, "L", 0, number=1)),
    "name that is another in its place": (
        UNSAFE,
        lambda: zips.renamed(good(), b"machine.json", b"machinf.json", 1),
    ),
    "size that is another in its place": (UNSAFE, lambda: patched(good(), LOCAL, 22, "L", 7)),
    "sum that is another": (UNSAFE, lambda: patched(good(), CENTRAL, 16, "L", 7)),
    "sum that is another in both places": (
        BROKEN,
        lambda: patched(patched(good(), CENTRAL, 16, "L", 7), LOCAL, 14, "L", 7),
    ),
    "bomb of 42 kB that is said to be 4 GiB": (
        UNSAFE,
        lambda: by_hand(b"page_chase.jsonl", zips.zeros(42 * MIB), 2**32 - 1),
    ),
    "bomb that is said to be small": (
        UNSAFE,
        lambda: by_hand(b"page_chase.jsonl", zips.zeros(64 * MIB), 1000),
    ),
    "bomb of a document": (
        UNSAFE,
        lambda: by_hand(b"machine.json", zips.zeros(64 * MIB), 64 * MIB),
    ),
    "stream with something behind its end": (
        UNSAFE,
        lambda: by_hand(b"page_chase.jsonl", zips.zeros(MIB) + b"hidden", MIB),
    ),
    "stream that ends too soon": (
        UNSAFE,
        lambda: by_hand(b"page_chase.jsonl", zips.zeros(MIB)[:-3], MIB),
    ),
    "stream that is none": (BROKEN, lambda: by_hand(b"page_chase.jsonl", b"\xff" * 40, 40)),
    "many members": (UNSAFE, lambda: archive({f"a{n}.json": b"" for n in range(3000)})),
    "directory of two disks": (UNSAFE, lambda: patched(good(), END, 4, "H", 1)),
    "fewer members than there are": (
        UNSAFE,
        lambda: patched(patched(good(), END, 8, "H", 2), END, 10, "H", 2),
    ),
    "more members than there are": (
        UNSAFE,
        lambda: patched(patched(good(), END, 8, "H", 90), END, 10, "H", 90),
    ),
    "directory elsewhere": (UNSAFE, lambda: patched(good(), END, 16, "L", 0)),
    "zip64": (
        UNSAFE,
        lambda: patched(patched(good(), END, 16, "L", 2**32 - 1), END, 12, "L", 2**32 - 1),
    ),
    "first half": (UNSAFE, lambda: good()[: len(good()) // 2]),
    "second half": (UNSAFE, lambda: good()[len(good()) // 2 :]),
}

OF_DOCUMENTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "no manifest": (BROKEN, lambda: layout.packed(files())),
    "digest of other content": (
        BROKEN,
        lambda: manifest(members=digests() | {"machine.json": "0" * 64}),
    ),
    "digest replayed for another member": (
        BROKEN,
        lambda: manifest(members=digests() | {"machine.json": digests()["grids.json"]}),
    ),
    "member without a digest": (
        BROKEN,
        lambda: manifest(members={k: v for k, v in digests().items() if k != "grids.json"}),
    ),
    "digest without a member": (
        BROKEN,
        lambda: manifest(members=digests() | {"ways.json": "0" * 64}),
    ),
    "digest in capitals": (
        BROKEN,
        lambda: manifest(members={k: v.upper() for k, v in digests().items()}),
    ),
    "digest that is a number": (BROKEN, lambda: manifest(members=digests() | {"machine.json": 7})),
    "digests in a list": (FOREIGN, lambda: manifest(members=list(digests()))),
    "later version": (FOREIGN, lambda: manifest(schema_version=2)),
    "no version": (FOREIGN, lambda: manifest(schema_version=None)),
    "unknown field of the manifest": (FOREIGN, lambda: manifest(signature="x")),
    "machine in another folder": (UNSAFE, lambda: manifest(machine="..\\own")),
    "machine called own": (FOREIGN, lambda: manifest(machine="own")),
    "machine called reference": (FOREIGN, lambda: manifest(machine="reference")),
    "machine that is another": (IMPOSSIBLE, lambda: manifest(machine="zen-5-b15e0e32")),
    "NaN": (UNSAFE, lambda: load1(b"NaN")),
    "Infinity": (UNSAFE, lambda: load1(b"-Infinity")),
    "1e999": (UNSAFE, lambda: load1(b"1e999")),
    "1e308": (IMPOSSIBLE, lambda: load1(b"1e+308")),
    "integer of 31 digits": (IMPOSSIBLE, lambda: load1(b"1" + b"0" * 30)),
    "integer of 5000 digits": (UNSAFE, lambda: load1(b"1" * 5000)),
    "number in other digits": (UNSAFE, lambda: load1("٣".encode())),
    "deep JSON": (UNSAFE, lambda: machine(b"[" * 200_000 + b"]" * 200_000)),
    "deep JSON of objects": (UNSAFE, lambda: machine(b'{"a":' * 50_000 + b"1" + b"}" * 50_000)),
    "nested as deep as JSON is read": (UNSAFE, lambda: machine(b'{"a":' * 900 + b"1" + b"}" * 900)),
    "key twice": (
        UNSAFE,
        lambda: machine(
            files()["machine.json"].replace(b'  "arch"', b'  "arch": "arm64",\n  "arch"')
        ),
    ),
    "invalid UTF-8": (
        UNSAFE,
        lambda: machine(files()["machine.json"].replace(b"Intel", b"\xff\xfe\xed\xa0\x80")),
    ),
    "byte order mark": (UNSAFE, lambda: machine(b"\xef\xbb\xbf" + files()["machine.json"])),
    "UTF-16": (UNSAFE, lambda: machine(files()["machine.json"].decode().encode("utf-16"))),
    "list for an object": (UNSAFE, lambda: machine(b"[]\n")),
    "two objects": (UNSAFE, lambda: machine(files()["machine.json"] * 2)),
    "document of 2 MiB": (UNSAFE, lambda: machine(b'{\n  "a": "' + b"a" * 2 * MIB + b'"\n}\n')),
    "HTML": (UNSAFE, lambda: changed("machine.json", put(cpu_model="<script>alert(1)</script>"))),
    "HTML as an entity": (UNSAFE, lambda: changed("machine.json", put(os="Linux&lt;b"))),
    "bidi": (UNSAFE, lambda: changed("machine.json", put(kernel_release=f"6.1{BIDI}0"))),
    "escape sequence": (UNSAFE, lambda: changed("machine.json", put(microcode="\x1b]0;owned\x07"))),
    "surrogate": (UNSAFE, lambda: changed("machine.json", put(microcode="\ud800"))),
    "letter beyond ASCII": (
        UNSAFE,
        lambda: changed("machine.json", put(vendor="GenuineInt\u0435l")),
    ),
    "text of 10,000 letters": (
        UNSAFE,
        lambda: changed("machine.json", put(kernel_release="6" * 10_000)),
    ),
    "HTML as a key": (
        UNSAFE,
        lambda: changed("machine.json", put(mitigations={"<b>": "Not affected"})),
    ),
    "unknown field": (FOREIGN, lambda: changed("machine.json", put(hostname="secret-host"))),
    "missing field": (
        FOREIGN,
        lambda: changed("machine.json", lambda host: host.pop("arch") and None),
    ),
    "text for a number": (FOREIGN, lambda: changed("machine.json", put(logical_cpus="2"))),
    "another description": (IMPOSSIBLE, lambda: changed("machine.json", put(logical_cpus=4))),
    "another microarchitecture": (
        IMPOSSIBLE,
        lambda: changed("machine.json", put(microarchitecture="Zen 5")),
    ),
    "pages of no size": (IMPOSSIBLE, lambda: changed("machine.json", put(base_page_bytes=0))),
    "installation that is no hash": (
        FOREIGN,
        lambda: changed("machine.json", put(installation="secret-host")),
    ),
    "no description": (
        FOREIGN,
        lambda: check.sealed(
            bundles.MACHINE, {k: v for k, v in files().items() if k != "machine.json"}
        ),
    ),
    "description of another state": (
        IMPOSSIBLE,
        lambda: machine(files()["machine.json"], "machine-00112233aabb.json"),
    ),
    "unknown document": (FOREIGN, lambda: machine(b"{}\n", "evil.json")),
    "verdicts": (FOREIGN, lambda: machine(b"{}\n", "verdicts.json")),
    "unknown field of a document": (FOREIGN, lambda: changed("flushes.json", put(note="x"))),
    "document of another type": (FOREIGN, lambda: changed("flushes.json", put(pti="yes"))),
    "document of a state that is none": (
        FOREIGN,
        lambda: changed("flushes.json", put(state="secret-host")),
    ),
    "means that are none": (FOREIGN, lambda: changed("flushes.json", put(means=["rm -rf"]))),
    "HTML in a profile": (
        UNSAFE,
        lambda: changed(
            "translation.json", lambda told: told["quantities"][0].update(words="<img src=x>")
        ),
    ),
    "HTML in a card": (
        UNSAFE,
        lambda: sealed_with(README__md=b"# x\n<script src=//evil></script>\n"),
    ),
    "link in a card": (UNSAFE, lambda: sealed_with(README__md=b"[x](javascript:alert)\n")),
    "bidi in a card": (UNSAFE, lambda: sealed_with(README__md=f"# x{BIDI}\n".encode())),
    "HTML in metadata": (
        UNSAFE,
        lambda: machine(b'{\n  "a": "<b>"\n}\n', "ro-crate-metadata.json"),
    ),
    "no grids": (
        FOREIGN,
        lambda: check.sealed(
            bundles.MACHINE, {k: v for k, v in files().items() if k != "grids.json"}
        ),
    ),
    "unknown experiment": (FOREIGN, lambda: changed("grids.json", put(evil={"page_chase": []}))),
    "experiment in another folder": (
        FOREIGN,
        lambda: changed("grids.json", put(**{"../evil": {"page_chase": []}})),
    ),
    "points that are none": (
        FOREIGN,
        lambda: changed("grids.json", put(stlb_cliff={"page_chase": ["x"]})),
    ),
    "points of an unknown kernel": (
        FOREIGN,
        lambda: changed("grids.json", put(stlb_cliff={"evil": []})),
    ),
    "grids that are a number": (FOREIGN, lambda: changed("grids.json", put(stlb_cliff=7))),
}


def fields(**changes: Any) -> bytes:
    return resigned(put(**changes))


OF_ROWS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "no rows": (
        FOREIGN,
        lambda: check.sealed(
            bundles.MACHINE, {k: v for k, v in files().items() if k != "page_chase.jsonl"}
        ),
    ),
    "million rows": (UNSAFE, lambda: rows(b"{}\n" * 1_000_000)),
    "million empty rows": (UNSAFE, lambda: rows(b"\n" * 1_000_000)),
    "row of 8 MiB": (UNSAFE, lambda: rows(b'{"a":"' + b"a" * 8 * MIB + b'"}\n')),
    "row of deep JSON": (IMPOSSIBLE, lambda: rows(b"[" * 10_000 + b"]" * 10_000 + b"\n")),
    "rows that end like Windows'": (
        UNSAFE,
        lambda: rows(files()["page_chase.jsonl"].replace(b"\n", b"\r\n")),
    ),
    "torn row": (UNSAFE, lambda: rows(files()["page_chase.jsonl"][:-9])),
    "row that is no JSON": (IMPOSSIBLE, lambda: rows(b"hello\n")),
    "row with a key twice": (
        IMPOSSIBLE,
        lambda: rows(
            files()["page_chase.jsonl"].replace(b'"accesses"', b'"accesses":1,"accesses"', 1)
        ),
    ),
    "row of another digest": (
        BROKEN,
        lambda: rows(files()["page_chase.jsonl"].replace(b'"cpu":0', b'"cpu":1', 1)),
    ),
    "row of another key": (
        IMPOSSIBLE,
        lambda: resigned(put(lines=256, working_set_bytes=MIB, arena_bytes=MIB), rekey=False),
    ),
    "row of a later version": (FOREIGN, lambda: fields(schema_version=3)),
    "row of what no kernel measures": (IMPOSSIBLE, lambda: fields(measures=7)),
    "row with an unknown field": (IMPOSSIBLE, lambda: fields(hostname="secret-host")),
    "row with an object for a list": (FOREIGN, lambda: fields(options={})),
    "row without a field": (
        IMPOSSIBLE,
        lambda: resigned(lambda record: record.pop("checksum") and None),
    ),
    "row of an unknown kernel": (
        FOREIGN,
        lambda: check.sealed(bundles.MACHINE, files() | {"evil.jsonl": b"{}\n"}),
    ),
    "row of another kernel's file": (
        IMPOSSIBLE,
        lambda: check.sealed(
            bundles.MACHINE,
            files()
            | {"page_gather.jsonl": files()["page_chase.jsonl"].splitlines(keepends=True)[0]},
        ),
    ),
    "row of an engine that its kernel has not": (IMPOSSIBLE, lambda: fields(engine="numpy")),
    "NaN in a row": (
        IMPOSSIBLE,
        lambda: rows(
            files()["page_chase.jsonl"].replace(b'"ns_per_access":6.5', b'"ns_per_access":NaN', 1)
        ),
    ),
    "1e308 ns": (
        IMPOSSIBLE,
        lambda: fields(
            ns_per_access=1e308, batch_ns_per_access=[1e308], elapsed_ns=1e308, wall_ns=1.5e308
        ),
    ),
    "batches that no sum holds": (
        IMPOSSIBLE,
        lambda: fields(batch_ns_per_access=[6.4, 1.7e308, 1.7e308]),
    ),
    "HTML in a row": (IMPOSSIBLE, lambda: fields(mode="<b>")),
    "faster than a core": (
        IMPOSSIBLE,
        lambda: fields(ns_per_access=0.01, batch_ns_per_access=[0.01], elapsed_ns=1e5),
    ),
    "clock that no core has": (IMPOSSIBLE, lambda: fields(core_ghz=99.0)),
    "seed of another point": (IMPOSSIBLE, lambda: fields(seed=1)),
    "seed of another repeat": (IMPOSSIBLE, lambda: fields(repeat=3)),
    "working set of other lines": (IMPOSSIBLE, lambda: fields(working_set_bytes=4096)),
    "stride of other pages": (IMPOSSIBLE, lambda: fields(stride_bytes=64)),
    "arena smaller than its lines": (IMPOSSIBLE, lambda: fields(arena_bytes=4096)),
    "arena larger than memory": (IMPOSSIBLE, lambda: fields(arena_bytes=1 << 40)),
    "page tables without room": (IMPOSSIBLE, lambda: fields(page_table_bytes=8)),
    "other page size than asked for": (IMPOSSIBLE, lambda: fields(backing="thp")),
    "time that is not its batches'": (IMPOSSIBLE, lambda: fields(ns_per_access=5.0)),
    "accesses that are not its time's": (IMPOSSIBLE, lambda: fields(accesses=1)),
    "process shorter than its region": (IMPOSSIBLE, lambda: fields(wall_ns=1.0)),
    "stolen for longer than it ran": (IMPOSSIBLE, lambda: fields(steal_ms=1e9)),
    "begun in the future": (IMPOSSIBLE, lambda: fields(started_at="2199-01-01T00:00:00Z")),
    "begun before there was a kernel": (
        IMPOSSIBLE,
        lambda: fields(started_at="1999-12-31T23:59:59Z"),
    ),
    "begun on no day": (IMPOSSIBLE, lambda: fields(started_at="2025-02-30T00:00:00Z")),
    "CPU that is not there": (IMPOSSIBLE, lambda: fields(cpu=4000)),
    "unknown mode": (IMPOSSIBLE, lambda: fields(mode="evil")),
    "unknown option": (IMPOSSIBLE, lambda: fields(options=[["evil", 1]])),
    "unknown result": (IMPOSSIBLE, lambda: fields(also={"evilresult_ns": 1.0})),
    "result beyond 64 bits": (IMPOSSIBLE, lambda: fields(also={"tsc_ghz": 1e300})),
    "counter below zero": (
        IMPOSSIBLE,
        lambda: fields(counters={"walk": {"value": -1.0, "event": "cycles:u"}}),
    ),
    "counter of an unknown reason": (
        IMPOSSIBLE,
        lambda: fields(counters={"walk": {"reason": "because"}}),
    ),
    "counter with an escape sequence": (
        IMPOSSIBLE,
        lambda: fields(counters={"walk": {"value": 1.0, "event": "\x1b[2J"}}),
    ),
    "counter that ran for longer than its region": (
        IMPOSSIBLE,
        lambda: fields(
            counters={"walk": {"value": 1.0, "event": "cycles:u", "running_percent": 900.0}}
        ),
    ),
    "row twice": (
        IMPOSSIBLE,
        lambda: rows(
            files()["page_chase.jsonl"] + files()["page_chase.jsonl"].splitlines(keepends=True)[0]
        ),
    ),
    "process twice, under another repeat": (
        IMPOSSIBLE,
        lambda: added(
            bundles.row(
                repeat=1,
                **{
                    name: getattr(bundles.ROWS[0], name)
                    for name in ("started_at", "wall_ns", "checksum")
                },
            )
        ),
    ),
    "same lines with another checksum": (
        IMPOSSIBLE,
        lambda: added(
            bundles.row(
                pages="thp",
                started_at="2025-02-01T00:00:00Z",
                checksum="f" * 16,
                page_table_bytes=4096,
            )
        ),
    ),
    "line that is signed and no row": (
        IMPOSSIBLE,
        lambda: rows(
            sign({"key": "0" * 16, "kernel_digest": "x", "record": {"schema_version": 1}})
        ),
    ),
}
PAYLOADS = OF_ZIP | OF_DOCUMENTS | OF_ROWS


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_hostile_bundle_is_refused_with_a_reason(name: str):
    code, make = PAYLOADS[name]
    with pytest.raises(Unavailable) as refused:
        check.opened(make())
    says(refused.value, code)
    assert str(refused.value).isascii() and str(refused.value).isprintable()


def test_the_bundle_that_all_of_these_are_made_of_is_accepted():
    accepted = check.opened(good())
    assert (
        accepted.machine == bundles.MACHINE
        and list(accepted.records()) == bundles.ROWS
        and len(PAYLOADS) >= 60
    )
    assert check.opened(resigned(put(noisy="uneven"))) and check.opened(
        changed("flushes.json", put(pti=True))
    )


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PAYLOADS
        if "bomb" in name or "MiB" in name or "million" in name or "overlap" in name
    ],
)
def test_a_bomb_holds_little_memory(name: str):
    payload = PAYLOADS[name][1]()
    tracemalloc.start()
    try:
        with pytest.raises(Unavailable):
            check.opened(payload)
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()


def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(tmp_path: Path):
    (tmp_path / "bundle.tlb.zip").write_bytes(good())
    (tmp_path / "link").symlink_to(tmp_path / "bundle.tlb.zip")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 40)
    assert check.opened(layout.read(tmp_path / "bundle.tlb.zip")).machine == bundles.MACHINE
    unsafe = {"fifo", "large", ".", "/dev/zero"}
    for name in (*unsafe, "link", "nothing"):
        with pytest.raises(Unavailable) as refused:
            check.opened(layout.read(tmp_path / name))
        assert refused.value.code == (UNSAFE if name in unsafe else "no-bundle"), name
