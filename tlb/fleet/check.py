"""Check a bundle: each member is what its digest and its model say, each row one that its kernel
could have printed.

Everything that can be computed is: names of machines and states, keys, seeds, sizes. This module
checks a bundle alone; accept.py compares it with other machines.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Literal

from pydantic import BaseModel, ValidationError

from tlb.fleet import archive, documents, lines, plausible
from tlb.fleet.documents import DESCRIPTION, plain
from tlb.fleet.lines import GRIDS_SCHEMA, Grids, Line
from tlb.machine import host as hosts
from tlb.machine import microarchitecture
from tlb.machine.host import Host
from tlb.measure import kernels, survey
from tlb.measure.record import Record, point_id
from tlb.report.parameters import table_of_contents
from tlb.system.reasons import Unavailable, if_available

SUFFIX, MANIFEST, GRIDS_FILE = ".tlb.zip", "bundle.json", "grids.json"
MOST_ROWS = 100_000  # the largest published machine has 9,328, of up to 7.3 kB a line
MOST_LINE_BYTES = 32 << 10
MOST_CPUS = 8192
BASES = (4 << 10, 16 << 10, 64 << 10)  # the base pages of Linux on x86-64 and arm64


class Manifest(BaseModel, extra="forbid"):
    """members: the SHA-256 of each by name."""

    schema_version: Literal[2]
    machine: str
    members: dict[str, str]


@dataclass(frozen=True)
class Bundle:
    """An accepted bundle. files: rows by kernel, documents, grids.json; hosts: descriptions by state; states: number
    of rows by state, which may have no description."""

    machine: str
    host: Host
    files: dict[str, bytes]
    grids: Grids
    hosts: dict[str, Host]
    states: Counter[str] = field(default_factory=Counter)

    @cached_property
    def kernels(self) -> list[str]:
        return [name[:-6] for name in sorted(self.files) if name.endswith(".jsonl")]

    def rows(self, kernel: str) -> Iterator[Line]:
        # Rows end at \n alone, as `opened` reads them: a row may hold a carriage return.
        for line in self.files[f"{kernel}.jsonl"].split(b"\n")[:-1]:
            yield lines.known(line)  # which `opened` has checked

    def lines(self) -> Iterator[Line]:
        """Yield all rows, by kernel, in the order of measuring."""
        return (row for kernel in self.kernels for row in self.rows(kernel))

    def records(self) -> Iterator[Record]:
        """Yield the records of all rows."""
        return (row.record for row in self.lines())

    @property
    def documents(self) -> list[str]:
        """The names of the files that are no rows and no grids."""
        return [n for n in self.files if not n.endswith(".jsonl") and n != GRIDS_FILE]

    def asked(self, records: Iterable[Record]) -> list[tuple[Record, list[str]]]:
        """Return records, each with the experiments whose grid has its point."""
        return [
            (
                record,
                sorted(
                    experiment
                    for experiment, grid in self.grids.items()
                    if point_id(record.point) in grid.get(record.kernel, ())
                ),
            )
            for record in records
        ]


def sealed(machine: str, files: dict[str, bytes]) -> bytes:
    """Return a bundle of these files, with the digest of each."""
    manifest = Manifest(schema_version=2, machine=machine, members=_digests(files))
    return archive.packed(files | {MANIFEST: documents.written(manifest.model_dump())})


def _digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def opened(content: bytes, now: datetime | None = None) -> Bundle:
    """Return a bundle by its file's bytes. now: UTC, by default of this computer's clock.

    Raises Unavailable: bundle-unsafe for another layout, bundle-broken for digests of other
    content, bundle-foreign for what no bundle of this version has, bundle-impossible for what no
    kernel and no computer could have printed.
    """
    files = archive.unpacked(content)
    machine = _manifest(files.pop(MANIFEST, None), files)
    if lacking := {"machine.json", GRIDS_FILE} - files.keys():
        raise Unavailable("bundle-foreign", f"it has no {min(lacking)}")
    described, by_state = {}, {}
    for name, member in files.items():
        stem, _, suffix = name.partition(".")
        if name == GRIDS_FILE or (suffix == "jsonl" and stem in kernels.CATALOGUE):
            continue
        if suffix == "json" and DESCRIPTION.fullmatch(stem):
            document = documents.parsed(name, member)
            host = described[name] = documents.modelled(name, document, Host)
            by_state[_state(machine, name, host)] = host
        else:
            documents.check(name, member)
    grids = _grids(files[GRIDS_FILE])
    bundle = Bundle(machine, described["machine.json"], files, grids, by_state)
    _check_rows(bundle, now or datetime.now(UTC))
    return bundle


@cache
def experiments() -> frozenset[str]:
    """Return the names of experiments that ask for points."""
    return frozenset({*table_of_contents(), survey.NAME})


def _manifest(content: bytes | None, files: dict[str, bytes]) -> str:
    """Return the machine's name, once each digest is that of its file and each file has one."""
    if content is None:
        raise Unavailable("bundle-broken", f"it has no {MANIFEST}")
    manifest = documents.modelled(MANIFEST, documents.parsed(MANIFEST, content), Manifest)
    if wrong := manifest.members.items() ^ _digests(files).items():
        why = f"{plain(min(wrong)[0])} is lacking, or has another digest"
        raise Unavailable("bundle-broken", why)
    return manifest.machine


def _state(machine: str, name: str, host: Host) -> str:
    """Return the state that a description is of. Raises Unavailable("bundle-impossible")."""
    is_possible = host.memory.total_bytes > 0 and 1 <= host.logical_cpus <= MOST_CPUS
    own, state = if_available(hosts.machine_id, host), hosts.state(host)
    if own != machine or host.microarchitecture not in microarchitecture.names():
        why = f"{name} is of {own or 'an unknown computer'}, and not of {machine}"
    elif host.base_page_bytes not in BASES or not is_possible:
        why = f"{name} is of a computer without memory, or with impossible pages or CPUs"
    elif name not in ("machine.json", f"machine-{state}.json"):
        why = f"{name} is of the state {state}"
    else:
        return state
    raise Unavailable("bundle-impossible", why)


def _grids(content: bytes) -> Grids:
    documents.parsed(GRIDS_FILE, content)
    try:
        grids = GRIDS_SCHEMA.validate_json(content)
    except ValidationError:
        raise Unavailable("bundle-foreign", f"{GRIDS_FILE} asks for what is no point") from None
    unknown_kernels = {
        kernel for grid in grids.values() for kernel in grid
    } - kernels.CATALOGUE.keys()
    if unknown := (grids.keys() - experiments()) | unknown_kernels:
        why = f"{GRIDS_FILE}: there is no experiment or kernel {plain(min(unknown))}"
        raise Unavailable("bundle-foreign", why)
    return grids


def _check_rows(bundle: Bundle, now: datetime) -> None:
    """Check all rows, one after the other; of each, only hashes are kept to compare later ones."""
    count, seen, checksums = 0, set[object](), dict[int, str]()
    for kernel in bundle.kernels:
        name, content = f"{kernel}.jsonl", bundle.files[f"{kernel}.jsonl"]
        count += content.count(b"\n")
        if count > MOST_ROWS or not content.endswith(b"\n"):
            why = f"{name} ends within a row, or there are more than {MOST_ROWS:,} rows"
            raise Unavailable("bundle-unsafe", why)
        # A split would hold all lines, which may be many.
        for number, line in enumerate(io.BytesIO(content), 1):
            place = f"{name}, row {number}"
            row = _row(place, line[:-1])
            record = row.record
            bundle.states[record.state] += 1
            process, visits = hash(plausible.process(record)), hash(plausible.visits(record))
            if record.kernel != kernel or seen & {row.key, process}:
                why = "a row of another kernel, or one that is there twice"
            elif checksums.setdefault(visits, record.checksum) != record.checksum:
                why = "another row visited the same lines and has another checksum"
            else:
                host = bundle.hosts.get(record.state, bundle.host)
                why = plausible.breach(record, host, now)
            if why:
                raise Unavailable("bundle-impossible", f"{place}: {why}")
            seen |= {row.key, process}
    if not count:
        raise Unavailable("bundle-foreign", "it has no rows")


def _row(place: str, line: bytes) -> Line:
    """Return the row of a line that is to the byte what `lines.written` would write. Raises
    Unavailable."""
    if len(line) > MOST_LINE_BYTES or line.endswith(b"\r"):
        why = f"{place}: a row has more than {MOST_LINE_BYTES >> 10} KiB, or ends as no row does"
        raise Unavailable("bundle-unsafe", why)
    try:
        row = lines.known(line)
    except ValueError as error:
        is_damaged = isinstance(error, lines.Damaged)
        code = "bundle-broken" if is_damaged else "bundle-impossible"
        raise Unavailable(code, f"{place}: {plain(str(error).splitlines()[0])}") from None
    written = lines.canonical(row.record.model_dump(mode="json", exclude_unset=True))
    if not line.endswith(b'"record":' + written + b"}"):
        raise Unavailable("bundle-foreign", f"{place}: a field is of another type")
    return row
