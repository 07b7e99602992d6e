"""What a bundle has to be: each member as its digest and its model say, each row one that its
kernel could have printed.

Nothing is believed that can be worked out: names of machines and states, keys, seeds, sizes. This
looks at the bundle alone; accept.py compares it with other machines.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property

from pydantic import ValidationError

from tlb.fleet import archive, documents, plausible
from tlb.fleet.documents import DESCRIPTION, models, plain
from tlb.lab import kernels, lines, survey
from tlb.lab.lines import Stored
from tlb.lab.record import Record
from tlb.lab.store import GRIDS, GRIDS_SCHEMA, MACHINE, RESERVED, Grids
from tlb.machine import host as hosts
from tlb.machine import microarchitecture
from tlb.machine.host import Host
from tlb.reasons import Unavailable
from tlb.report.parameters import table_of_contents

SCHEMA = 1
SUFFIX, MANIFEST, CARD, GRIDS_FILE = ".tlb.zip", "bundle.json", "README.md", f"{GRIDS}.json"
CRATE = "ro-crate-metadata.json"  # which other programs add to a folder
MOST_ROWS = 100_000  # the published machine with the most has 9,328, of up to 7.3 kB a line
MOST_LINE_BYTES = 32 << 10
BASES = (4 << 10, 16 << 10, 64 << 10)  # the base pages that Linux has on x86-64 and arm64


@dataclass(frozen=True)
class Bundle:
    """An accepted bundle. files: as in data/<machine>/; hosts: descriptions by state; undescribed:
    how many rows by states without one."""

    machine: str
    host: Host
    files: dict[str, bytes]
    grids: Grids
    hosts: dict[str, Host]
    undescribed: Counter[str] = field(default_factory=Counter)

    @cached_property
    def kernels(self) -> list[str]:
        return [
            name.removesuffix(".jsonl") for name in sorted(self.files) if name.endswith(".jsonl")
        ]

    def rows(self, kernel: str) -> Iterator[tuple[Stored, bytes]]:
        """Yield each row with its line."""
        for line in self.files[f"{kernel}.jsonl"].split(b"\n")[:-1]:
            row = lines.known(line)
            assert isinstance(row, Stored)  # `opened` has seen to it
            yield row, line

    def records(self) -> Iterator[Record]:
        """Yield all rows, by kernel, in the order of measuring."""
        for kernel in self.kernels:
            for row, _ in self.rows(kernel):
                yield row.record


def sealed(machine: str, files: dict[str, bytes]) -> bytes:
    """Return a bundle of these files, with the digest of each."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return archive.packed(
        files
        | {
            MANIFEST: documents.written(
                {"schema_version": SCHEMA, "machine": machine, "members": digests}
            )
        }
    )


def opened(content: bytes, now: datetime | None = None) -> Bundle:
    """Return a bundle by its file's bytes. now: UTC, by default of this computer's clock. Raises
    Unavailable: bundle-unsafe for another layout, bundle-broken for digests of other content,
    bundle-foreign for what no bundle of this version has, bundle-impossible for what no kernel and
    no computer could have printed."""
    members = archive.unpacked(content)
    machine = _manifest(members)
    files = {name: data for name, data in members.items() if name not in (MANIFEST, CRATE)}
    for name in files:
        if not _is_known(name):
            raise Unavailable("bundle-foreign", f"{name} is no file of a machine")
    for name in ("machine.json", GRIDS_FILE):
        if name not in files:
            raise Unavailable("bundle-foreign", f"it has no {name}")
    described = {
        name: documents.host(name, files[name])
        for name in sorted(files)
        if DESCRIPTION.fullmatch(name.removesuffix(".json"))
    }
    by_state = {_state(machine, name, host): host for name, host in described.items()}
    grids = _grids(files[GRIDS_FILE])
    for name in sorted(files.keys() & {f"{model}.json" for model in models()}):
        documents.check(name, files[name])
    _check_text(members)
    bundle = Bundle(machine, described["machine.json"], files, grids, by_state)
    _check_rows(bundle, now or datetime.now(UTC))
    return bundle


@cache
def experiments() -> frozenset[str]:
    """Return the names of experiments that ask for points."""
    return frozenset({*table_of_contents(), survey.NAME})


def _is_known(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    if suffix == "jsonl":
        return stem in kernels.CATALOGUE
    return (
        name in (CARD, GRIDS_FILE)
        or suffix == "json"
        and (stem in models() or bool(DESCRIPTION.fullmatch(stem)))
    )


def _manifest(members: dict[str, bytes]) -> str:
    """Return the machine that it names, once each digest is that of its member and each member has
    one."""
    if MANIFEST not in members:
        raise Unavailable("bundle-broken", f"it has no {MANIFEST}")
    manifest = documents.parsed(MANIFEST, members[MANIFEST])
    if manifest.get("schema_version") != SCHEMA or manifest.keys() != {
        "schema_version",
        "machine",
        "members",
    }:
        raise Unavailable("bundle-foreign", f"{MANIFEST} is of another version than {SCHEMA}")
    machine, digests = manifest["machine"], manifest["members"]
    if (
        not isinstance(machine, str)
        or not MACHINE.fullmatch(machine)
        or machine in RESERVED
        or not isinstance(digests, dict)
    ):
        raise Unavailable("bundle-foreign", f"a machine cannot be called {plain(machine)}")
    for name in sorted(digests.keys() | members.keys() - {MANIFEST}):
        if name not in members or hashlib.sha256(members[name]).hexdigest() != digests.get(name):
            raise Unavailable(
                "bundle-broken", f"{plain(name)} is lacking, or not what its digest is of"
            )
    return machine


def _state(machine: str, name: str, host: Host) -> str:
    """Return the state that a description is of. Raises Unavailable("bundle-impossible")."""
    if hosts.machine_id(host) != machine or host.microarchitecture not in microarchitecture.names():
        raise Unavailable(
            "bundle-impossible",
            f"{name} is of {plain(hosts.machine_id(host))}, and not of {machine}",
        )
    if (
        host.base_page_bytes not in BASES
        or host.memory.total_bytes <= 0
        or not 1 <= host.logical_cpus <= 8192
    ):
        raise Unavailable(
            "bundle-impossible",
            f"{name} is of a computer without memory, or with pages or CPUs that none has",
        )
    state = hosts.state(host)
    if name not in ("machine.json", f"machine-{state}.json"):
        raise Unavailable("bundle-impossible", f"{name} is of the state {state}")
    return state


def _grids(content: bytes) -> Grids:
    documents.parsed(GRIDS_FILE, content)
    try:
        grids = GRIDS_SCHEMA.validate_json(content)
    except ValidationError:
        raise Unavailable("bundle-foreign", f"{GRIDS_FILE} asks for what is no point") from None
    if odd := (grids.keys() - experiments()) | (
        {kernel for grid in grids.values() for kernel in grid} - kernels.CATALOGUE.keys()
    ):
        raise Unavailable(
            "bundle-foreign", f"{GRIDS_FILE}: there is no experiment or kernel {plain(min(odd))}"
        )
    return grids


def _check_text(members: dict[str, bytes]) -> None:
    """Refuse a data card or metadata that could hurt a reader: both are made anew where a bundle is
    added, so no more matters."""
    if CRATE in members:
        documents.parsed(CRATE, members[CRATE])
    if re.search(rb"[^\n -~]|[<>&\\]|]\(|://", members.get(CARD, b"")):
        raise Unavailable(
            "bundle-unsafe", f"{CARD} has markup, links, control characters or others than ASCII"
        )


def _check_rows(bundle: Bundle, now: datetime) -> None:
    """Check all rows, one after the other; of each no more is kept than tells it from others."""
    count, seen, checksums = 0, set[object](), dict[int, str]()
    for kernel in bundle.kernels:
        name, content = f"{kernel}.jsonl", bundle.files[f"{kernel}.jsonl"]
        count += content.count(b"\n")
        if count > MOST_ROWS or not content.endswith(b"\n"):
            raise Unavailable(
                "bundle-unsafe",
                f"{name} ends within a row, or there are more than {MOST_ROWS:,} rows",
            )
        start = 0
        while start < len(content):  # not split at once: lines may be many
            end = content.index(b"\n", start)
            where = f"{name}, byte {start}"
            row = _row(where, content[start:end])
            start, record = end + 1, row.record
            host = bundle.hosts.get(record.state, bundle.host)
            if record.state not in bundle.hosts:
                bundle.undescribed[record.state] += 1
            for breach in plausible.breaches(record, host, now):
                raise Unavailable("bundle-impossible", f"{where}: {breach}")
            process, visits = hash(plausible.process(record)), hash(plausible.visits(record))
            if record.kernel != kernel or seen & {row.key, process}:
                raise Unavailable(
                    "bundle-impossible",
                    f"{where}: a row of another kernel, or one that is there twice",
                )
            if checksums.setdefault(visits, record.checksum) != record.checksum:
                raise Unavailable(
                    "bundle-impossible",
                    f"{where}: another row visited the same lines and has another checksum",
                )
            seen |= {row.key, process}
    if not count:
        raise Unavailable("bundle-foreign", "it has no rows")


def _row(where: str, line: bytes) -> Stored:
    """Return the row of a line that is to the byte what the store would write. Raises Unavailable."""
    if len(line) > MOST_LINE_BYTES or line.endswith(b"\r"):
        raise Unavailable(
            "bundle-unsafe",
            f"{where}: a row has more than {MOST_LINE_BYTES >> 10} KiB, or ends as no row does",
        )
    row = lines.known(line)
    if row is None:
        raise Unavailable("bundle-foreign", f"{where}: a row of another version")
    if isinstance(row, ValueError):
        code = "bundle-broken" if "digest" in str(row) else "bundle-impossible"
        raise Unavailable(code, f"{where}: {plain(str(row).splitlines()[0])}")
    if not line.endswith(
        b'"record":'
        + lines.canonical(row.record.model_dump(mode="json", exclude_unset=True))
        + b"}"
    ):
        raise Unavailable("bundle-foreign", f"{where}: a field is of another type")
    return row
