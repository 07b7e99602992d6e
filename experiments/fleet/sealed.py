"""What a bundle has to be to be one: each member what its digest says and its model allows, each row one that a kernel could have printed.

Nothing of it is believed that can be worked out: names of machines and states, keys, seeds, sizes. What looks only at the bundle is here;
what other machines know of it is in fleet.contributed.
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

from experiments.article.crate import NAME as CRATE
from experiments.article.parameters import table_of_contents
from experiments.fleet import archive, documents, plausible
from experiments.fleet.documents import DESCRIPTION, MODELS, plain
from experiments.lab import kernels, lines, survey
from experiments.lab.lines import Stored
from experiments.lab.record import Record
from experiments.lab.store import GRIDS, GRIDS_SCHEMA, MACHINE, RESERVED, Grids
from experiments.machine import host as hosts
from experiments.machine import microarchitecture
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable

SCHEMA = 1
MANIFEST, CARD = "bundle.json", "README.md"
# The machine with the most rows that is published has 9,328, of up to 7.3 kB a line.
MOST_ROWS = 100_000
MOST_LINE_BYTES = 32 << 10
BASES = (4 << 10, 16 << 10, 64 << 10)  # the base pages that Linux has on x86-64 and arm64


@dataclass(frozen=True)
class Bundle:
    """What was accepted. files: as they would lie in data/<machine>/, those that are derived among them; hosts: by state, the computer as
    it was; undescribed: rows by states that nothing describes."""

    machine: str
    host: Host
    files: dict[str, bytes]
    grids: Grids
    hosts: dict[str, Host]
    undescribed: Counter[str] = field(default_factory=Counter)

    @cached_property
    def kernels(self) -> list[str]:
        return [name.removesuffix(".jsonl") for name in sorted(self.files) if name.endswith(".jsonl")]

    def rows(self, kernel: str) -> Iterator[tuple[Stored, bytes]]:
        """Each row with its line."""
        for line in self.files[f"{kernel}.jsonl"].split(b"\n")[:-1]:
            row = lines.known(line)
            assert isinstance(row, Stored)  # `opened` has seen to it
            yield row, line

    def records(self) -> Iterator[Record]:
        """All rows, by kernel, in the order of measuring."""
        for kernel in self.kernels:
            for row, _ in self.rows(kernel):
                yield row.record


def opened(content: bytes, now: datetime | None = None) -> Bundle:
    """A bundle by its file's bytes. now: UTC, by default of this computer's clock. Raises Unavailable: bundle-unsafe for what is built
    otherwise, bundle-broken for digests of other content, bundle-foreign for what no bundle of this version has, bundle-impossible for what
    no kernel and no computer could have printed."""
    members = archive.unpacked(content)
    machine = _manifest(members)
    files = {name: data for name, data in members.items() if name not in (MANIFEST, CRATE)}
    if unknown := [name for name in files if not _is_known(name)]:
        raise Unavailable("bundle-foreign", f"{unknown[0]} is no file of a machine")
    latest, described = _described(machine, files)
    grids = _grids(files)
    for name in sorted(files.keys() & {f"{model}.json" for model in MODELS}):
        documents.check(name, files[name])
    for name in sorted({CARD, CRATE} & members.keys()):
        _derived(name, members[name])
    bundle = Bundle(machine, latest, files, grids, described)
    _Rows(bundle, now or datetime.now(UTC)).check()
    return bundle


def sealed(machine: str, files: dict[str, bytes]) -> bytes:
    """A bundle of these files, with the digest of each."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return archive.packed(files | {MANIFEST: documents.written({"schema_version": SCHEMA, "machine": machine, "members": digests})})


@cache
def experiments() -> frozenset[str]:
    """Those that ask for points."""
    return frozenset({*table_of_contents(), survey.NAME})


def _is_known(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    if suffix == "jsonl":
        return stem in kernels.CATALOGUE
    return name == CARD or suffix == "json" and (stem in MODELS or stem == GRIDS or bool(DESCRIPTION.fullmatch(stem)))


def _manifest(members: dict[str, bytes]) -> str:
    """The machine that it names, once each digest is that of its member and each member has one."""
    if MANIFEST not in members:
        raise Unavailable("bundle-broken", f"it has no {MANIFEST}")
    told = documents.parsed(MANIFEST, members[MANIFEST])
    if told.get("schema_version") != SCHEMA or told.keys() != {"schema_version", "machine", "members"}:
        raise Unavailable("bundle-foreign", f"{MANIFEST} is of another version than {SCHEMA}")
    machine, digests = told["machine"], told["members"]
    if not isinstance(machine, str) or not MACHINE.fullmatch(machine) or machine in RESERVED or not isinstance(digests, dict):
        raise Unavailable("bundle-foreign", f"a machine cannot be called {plain(machine)}")
    if odd := sorted(digests.keys() ^ (members.keys() - {MANIFEST})):
        raise Unavailable("bundle-broken", f"{plain(odd[0])} has no digest, or is not there")
    for name, digest in digests.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise Unavailable("bundle-broken", f"{name} is not what its digest is of")
    return machine


def _described(machine: str, files: dict[str, bytes]) -> tuple[Host, dict[str, Host]]:
    """The machine as it was inspected last, and by states."""
    if "machine.json" not in files:
        raise Unavailable("bundle-foreign", "it has no machine.json")
    described, latest = {}, documents.host("machine.json", files["machine.json"])
    for name in sorted(name for name in files if DESCRIPTION.fullmatch(name.removesuffix(".json"))):
        host = latest if name == "machine.json" else documents.host(name, files[name])
        if hosts.machine_id(host) != machine or host.microarchitecture not in microarchitecture.names():
            raise Unavailable("bundle-impossible", f"{name} is of {plain(hosts.machine_id(host))}, and not of {machine}")
        if host.base_page_bytes not in BASES or host.memory.total_bytes <= 0 or not 1 <= host.logical_cpus <= 8192:
            raise Unavailable("bundle-impossible", f"{name} is of a computer without memory, or with pages or CPUs that none has")
        state = hosts.state(host)
        if name not in ("machine.json", f"machine-{state}.json"):
            raise Unavailable("bundle-impossible", f"{name} is of the state {state}")
        described[state] = host
    return latest, described


def _grids(files: dict[str, bytes]) -> Grids:
    name = f"{GRIDS}.json"
    if name not in files:
        raise Unavailable("bundle-foreign", f"it has no {name}")
    documents.parsed(name, files[name])
    try:
        grids = GRIDS_SCHEMA.validate_json(files[name])
    except ValidationError:
        raise Unavailable("bundle-foreign", f"{name} asks for what is no point") from None
    if odd := (grids.keys() - experiments()) | ({kernel for grid in grids.values() for kernel in grid} - kernels.CATALOGUE.keys()):
        raise Unavailable("bundle-foreign", f"{name}: there is no experiment or kernel {plain(min(odd))}")
    return grids


def _derived(name: str, content: bytes) -> None:
    """Made anew where it is taken in, so all that counts is that nobody is hurt who reads it."""
    if name == CRATE:
        documents.parsed(name, content)
        return
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        raise Unavailable("bundle-unsafe", f"{name} has other characters than ASCII") from None
    if re.search(r"[^\n -~]|[<>&\\]|]\(|://", text):
        raise Unavailable("bundle-unsafe", f"{name} has markup, links or control characters")


@dataclass
class _Rows:
    """All rows of a bundle, one after the other: of each no more is kept than tells it from others."""

    bundle: Bundle
    now: datetime
    count: int = 0
    keys: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    checksums: dict[int, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises Unavailable for the first row that may not stand."""
        for kernel in self.bundle.kernels:
            name, content = f"{kernel}.jsonl", self.bundle.files[f"{kernel}.jsonl"]
            self.count += content.count(b"\n")
            if self.count > MOST_ROWS or not content.endswith(b"\n"):
                raise Unavailable("bundle-unsafe", f"{name} ends within a row, or there are more than {MOST_ROWS:,} rows")
            start = 0
            while start < len(content):
                end = content.index(b"\n", start)
                self._row(kernel, f"{name}, byte {start}", content[start:end])
                start = end + 1
        if not self.count:
            raise Unavailable("bundle-foreign", "it has no rows")

    def _row(self, kernel: str, where: str, line: bytes) -> None:
        if len(line) > MOST_LINE_BYTES or line.endswith(b"\r"):
            raise Unavailable("bundle-unsafe", f"{where}: a row has more than {MOST_LINE_BYTES >> 10} KiB, or ends as no row does")
        row = lines.known(line)
        if row is None:
            raise Unavailable("bundle-foreign", f"{where}: a row of another version")
        if isinstance(row, ValueError):
            code = "bundle-broken" if "digest" in str(row) else "bundle-impossible"
            raise Unavailable(code, f"{where}: {plain(str(row).splitlines()[0])}")
        record, undescribed = row.record, self.bundle.undescribed
        if not line.endswith(b'"record":' + lines.canonical(record.model_dump(mode="json", exclude_unset=True)) + b"}"):
            raise Unavailable("bundle-foreign", f"{where}: a field is of another type")
        if record.state not in self.bundle.hosts:
            undescribed[record.state] += 1
        host = self.bundle.hosts.get(record.state, self.bundle.host)
        for breach in self._breaches(kernel, row, plausible.breaches(record, host, self.now)):
            raise Unavailable("bundle-impossible", f"{where}: {breach}")

    def _breaches(self, kernel: str, row: Stored, others: Iterator[str]) -> Iterator[str]:
        record = row.record
        if record.kernel != kernel:
            yield "a row of another kernel"
        yield from others
        if row.key in self.keys or (process := hash(plausible.process(record))) in self.processes:
            yield "a row is there twice"
            return
        if self.checksums.setdefault(hash(plausible.visits(record)), record.checksum) != record.checksum:
            yield "another row visited the same lines and has another checksum"
        self.keys.add(row.key)
        self.processes.add(process)
