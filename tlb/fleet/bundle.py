"""One machine as one file: a zip of `rows.parquet`, `machine.json`, a `machine-STATE.json` for each
other state, and `documents/NAME.json`.

A reader takes nothing by its path and unpacks nothing to a disk: each member is read within a limit
and has to fit its schema. Texts are those of `public_text`, so a bundle names no host, user or path.
"""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from tlb.fleet import public_text, row_rules
from tlb.machine import host as hosts
from tlb.machine import microarchitecture
from tlb.machine.flushes import FlushesDocument
from tlb.machine.host import Host
from tlb.machine.java_flags import FlagsDocument
from tlb.machine.microarchitecture import UNKNOWN_CORE
from tlb.measure import columns, states
from tlb.measure.outcome import SESSIONS_DOCUMENT
from tlb.measure.publishing import RequestedRecord
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT, Store, write_published
from tlb.system.files import IS_CLONE
from tlb.system.optional import LazyModule
from tlb.system.reasons import Unavailable, if_available

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet
else:
    pa, parquet = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

Model = TypeVar("Model", bound=BaseModel)

SUFFIX = ".tlb.zip"
ROWS, MACHINE = "rows.parquet", "machine.json"
MOST_MEMBERS = 64
MOST_FILE_BYTES = 64 << 20  # the largest published machine has 2 MB
MOST_DOCUMENT_BYTES = 1 << 20  # the largest published document has 36 kB
MAX_ROWS = 100_000  # the largest published machine has 16,817
MAX_ROW_VALUES = 512  # in all lists of a row's column, on average
MOST_UNPACKED_BYTES = 256 << 20  # of all columns
BATCH_ROWS, MOST_BATCH_BYTES = 1024, 64 << 20  # that are read at once
MOST_TEXT_CHARS = 300
MOST_READING_BYTES = 400 << 20  # memory, beyond what the process has
MOST_CPUS = 8192
BASE_PAGES = (4 << 10, 16 << 10, 64 << 10)  # of Linux on x86-64 and arm64
_MEMBER = re.compile(r"rows\.parquet|machine(-[0-9a-f]{12})?\.json|documents/[a-z0-9_]{1,64}\.json")
_MADE_HERE = re.compile(
    rf"machine.*|translation|quantities.*|claims|{UNMEASURED_POINTS_DOCUMENT}|{SESSIONS_DOCUMENT}"
)
_MEANS = "means"  # a chapter adds it to its document (report.chapter.Chapter.document)
# Printable ASCII without markup, which a page, a terminal or a spreadsheet might obey.
_PLAIN = re.compile(rf"[ -%'-;=?-\[\]-_a-~]{{0,{MOST_TEXT_CHARS}}}")
# Remedies for a bundle that is refused
NO_FILE = "Name a file that `tlb bundle make` wrote, and no link to it."
_REPACKED = "Use the file as `tlb bundle make` wrote it, not one that was repacked or extended."
_OTHER_VERSION = (
    "Update both checkouts to the same version, and make it again where it was measured."
)
IMPOSSIBLE = (
    "No kernel and no computer can print that: accept nothing of it, and ask its sender to measure "
    "again with an unchanged checkout."
)
_DATE = (1980, 1, 1, 0, 0, 0)  # of each member, so that a machine's bundle has the same bytes again


@dataclass(frozen=True)
class Bundle:
    """host: in the state of most rows. hosts: in every state that is described. rows: each with the
    experiments that asked for its point. content: of the file. documents: by name."""

    machine: str
    host: Host
    hosts: dict[str, Host]
    rows: list[RequestedRecord]
    content: bytes = field(repr=False)
    documents: dict[str, dict[str, Any]]


# --- made


def make(store: Store, machine: str) -> tuple[bytes, list[str]]:
    """Return a machine as a file, and phrases about documents that are left out.

    What is parsed to fewer words (`public_text`) is also in the digests of the machine and its
    states, so these are computed anew. Raises Unavailable("no-data") without rows or a description.
    """
    described = {"": states.latest_description(store, machine)}
    for name in store.documents(machine):
        if other := re.fullmatch(r"machine-([0-9a-f]{12})", name):
            described[other[1]] = states.description_of_state(store, machine, other[1])
    renamed, files = dict[str, str](), dict[str, bytes]()
    for place, host in described.items():
        public = public_text.public_host(host)
        renamed[hosts.state_digest(host)] = state = hosts.state_digest(public)
        name = f"machine-{state}.json" if place else MACHINE
        if not place or state != renamed[hosts.state_digest(described[""])]:
            files[name] = _written(public.model_dump(mode="json"))
    files[ROWS] = _rows_file(store, machine, renamed)
    left_out = []
    for name in store.documents(machine):
        if not _MADE_HERE.fullmatch(name):
            document = public_text.public_versions(store.read_document(machine, name))
            if document.get("state") in renamed:
                document["state"] = renamed[document["state"]]
            try:
                _check_document(f"documents/{name}.json", name, document)
                files[f"documents/{name}.json"] = _written(document)
            except Unavailable as why:
                left_out.append(why.detail)
    return _packed(files), left_out


def _rows_file(store: Store, machine: str, renamed: dict[str, str]) -> bytes:
    rows: dict[str, RequestedRecord] = {}
    for record, asked in store.asked_rows(machine):
        if asked:
            changes = {
                "state": renamed.get(record.state, record.state),
                "compiler": public_text.compiler(record.compiler),
            }
            public = record.model_copy(update=changes)
            rows.setdefault(public.key, (public, asked))
    if not rows:
        raise Unavailable("no-data", f"{machine} has no rows that a chapter asked for")
    file = io.BytesIO()
    write_published(file, rows.values())
    return file.getvalue()


def _written(document: Any) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def _packed(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(files):
            kind = zipfile.ZIP_STORED if name == ROWS else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], kind, 9)
    return file.getvalue()


# --- read


def read_file(path: Path) -> Bundle:
    """Return the bundle in a file. Raises Unavailable("bundle-refused")."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise Unavailable("bundle-refused", f"{path} is no regular file", NO_FILE)
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise Unavailable("bundle-refused", f"{path}: {error.strerror}", NO_FILE) from None
    return read(content)


def read(content: bytes, now: datetime | None = None) -> Bundle:
    """Return the bundle in a file's content. now: UTC, by default this computer's clock.

    Raises Unavailable("bundle-refused") for a file that is built differently or too large, for
    another schema, for a text that may name somebody, and for what no kernel or no computer could
    have given.
    """
    files = _members(content)
    if lacking := {ROWS, MACHINE} - files.keys():
        raise Unavailable("bundle-refused", f"it has no {min(lacking)}", _OTHER_VERSION)
    host = _description(MACHINE, files[MACHINE])
    machine = if_available(hosts.machine_id, host)
    if machine is None:
        raise Unavailable("bundle-refused", f"{MACHINE} describes no computer", IMPOSSIBLE)
    by_state, documents = {hosts.state_digest(host): host}, {}
    for name, member in files.items():
        stem = Path(name).stem
        if name.startswith("machine-"):
            other = _description(name, member)
            state = hosts.state_digest(other)
            if if_available(hosts.machine_id, other) != machine or stem != f"machine-{state}":
                raise Unavailable("bundle-refused", f"{name} describes something else", IMPOSSIBLE)
            by_state[state] = other
        elif name.startswith("documents/"):
            documents[stem] = _document(name, member)
            _check_document(name, stem, documents[stem])
    rows = list(_rows(files[ROWS], host, by_state, now or datetime.now(UTC)))
    return Bundle(machine, host, by_state, rows, content, documents)


def _members(content: bytes) -> dict[str, bytes]:
    """Return the members by name, each of them within its limit."""
    if len(content) > MOST_FILE_BYTES:
        raise Unavailable(
            "bundle-refused", f"it has more than {MOST_FILE_BYTES >> 20} MiB", _REPACKED
        )
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise Unavailable(
                    "bundle-refused", f"it has more than {MOST_MEMBERS} members", _REPACKED
                )
            for entry in entries:
                _check_entry(entry, files)
                with archive.open(entry) as member:
                    files[entry.filename] = member.read(entry.file_size + 1)
    # What zipfile raises for damaged headers and content
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        why = f"it cannot be unpacked: {_escaped(str(error))}"
        raise Unavailable("bundle-refused", why, _REPACKED) from None
    return files


def _check_entry(entry: zipfile.ZipInfo, files: dict[str, bytes]) -> None:
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    most = MOST_FILE_BYTES if name == ROWS else MOST_DOCUMENT_BYTES
    if not _MEMBER.fullmatch(name) or kind not in (0, stat.S_IFREG):
        why = f"it has a member {_escaped(name)}, which no bundle has"
    elif name in files:
        why = f"it has two members {name}"
    elif entry.file_size > most:
        why = f"{name} has more than {most >> 20} MiB"
    elif entry.flag_bits & 1 or entry.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        why = f"{name} is encrypted, or compressed by another method"
    else:
        return
    raise Unavailable("bundle-refused", why, _REPACKED)


def _document(name: str, content: bytes) -> dict[str, Any]:
    """Return a member as an object of JSON: UTF-8, each key once, finite numbers, short texts."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is there twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number")

    try:
        document = json.loads(content.decode(), object_pairs_hook=once, parse_constant=refuse)
        is_object = isinstance(document, dict)
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            "bundle-refused", f"{name}: {_escaped(str(error))}", _OTHER_VERSION
        ) from None
    if not is_object:
        raise Unavailable("bundle-refused", f"{name} is no object of JSON", _OTHER_VERSION)
    for leaf in _leaves(document):
        if isinstance(leaf, str) and not _PLAIN.fullmatch(leaf):
            why = f"{name}: a text is too long, or has markup: {_escaped(leaf)}"
            raise Unavailable("bundle-refused", why, _OTHER_VERSION)
        if isinstance(leaf, (int, float)) and not abs(leaf) <= columns.INT64_MAX:
            raise Unavailable("bundle-refused", f"{name}: a number is beyond 64 bits", IMPOSSIBLE)
    return document


def _leaves(content: Any) -> Iterator[Any]:
    """Yield each text and number of a document, keys among them."""
    if isinstance(content, dict):
        yield from content
        content = list(content.values())
    if isinstance(content, list):
        for value in content:
            yield from _leaves(value)
    else:
        yield content


def _description(name: str, content: bytes) -> Host:
    host = _modelled(name, _document(name, content), Host)
    is_possible = host.memory.total_bytes > 0 and 1 <= host.logical_cpus <= MOST_CPUS
    known = {*microarchitecture.names(), UNKNOWN_CORE}
    if (
        not is_possible
        or host.base_page_bytes not in BASE_PAGES
        or host.microarchitecture not in known
    ):
        raise Unavailable("bundle-refused", f"{name} describes no possible computer", IMPOSSIBLE)
    public = public_text.public_host(host)
    if public != host:
        pairs = zip(_leaves(host.model_dump()), _leaves(public.model_dump()), strict=False)
        text = next((str(ours) for ours, theirs in pairs if ours != theirs), "a field")
        raise Unavailable(
            "bundle-refused", f"it has a text that may name somebody: {name}: {_escaped(text)}"
        )
    return host


def _modelled(name: str, document: dict[str, Any], kind: type[Model]) -> Model:
    """Return the model of a document, from which the same document comes back."""
    try:
        made = kind.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{name}: {_escaped(place)}: {_escaped(first['msg'])}"
        raise Unavailable("bundle-refused", why, _OTHER_VERSION) from None
    if made.model_dump(mode="json", exclude_unset=True) != document:
        raise Unavailable("bundle-refused", f"{name}: a field is of another type", _OTHER_VERSION)
    return made


@cache
def document_models() -> dict[str, type[BaseModel]]:
    """Return the model of each document by name: those of the machine, and in a clone those of
    chapters."""
    own: dict[str, type[BaseModel]] = {"flags": FlagsDocument, "flushes": FlushesDocument}
    if not IS_CLONE:
        return own
    from tlb.report import discovery

    return own | discovery.documents()


def _check_document(name: str, stem: str, document: dict[str, Any]) -> None:
    """Raise Unavailable("bundle-refused") for a document that no chapter keeps."""
    kind = document_models().get(stem)
    if kind is None:
        raise Unavailable("bundle-refused", f"{name} is no document of a machine", _OTHER_VERSION)
    fields = {key: value for key, value in document.items() if key != _MEANS}
    _modelled(name, fields, kind)
    means = document.get(_MEANS, [])
    is_list = isinstance(means, list) and all(isinstance(one, str) for one in means)
    if not is_list:
        raise Unavailable("bundle-refused", f"{name}: {_MEANS} is no list of texts", _OTHER_VERSION)
    allowed = public_text.schema_texts(kind)
    private = public_text.private_text(document, {*allowed, _MEANS})
    if private is not None:
        raise Unavailable(
            "bundle-refused", f"it has a text that may name somebody: {name}: {_escaped(private)}"
        )


# --- rows


def _rows(
    content: bytes, host: Host, by_state: dict[str, Host], now: datetime
) -> Iterator[RequestedRecord]:
    """Yield the rows of a Parquet file. Raises Unavailable."""
    known, seen = experiments(), set[str]()
    for number, row in enumerate(_columns_of(content), 1):
        place = f"{ROWS}, row {number}"
        try:
            asked = row[columns.EXPERIMENTS_COLUMN]
            record = columns.record_of(row)
            columns.check_record(record)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            why = f"{place}: {_escaped(str(error).splitlines()[0])}: {_escaped(_input(error))}"
            raise Unavailable("bundle-refused", why, IMPOSSIBLE) from None
        if not asked or None in asked or not known.issuperset(asked):
            raise Unavailable("bundle-refused", f"{place}: no chapter asked for it", _OTHER_VERSION)
        if record.key in seen:
            raise Unavailable("bundle-refused", f"{place} is there twice", IMPOSSIBLE)
        seen.add(record.key)
        described = by_state.get(record.state, host)
        if why := row_rules.breach(record, described, now):
            raise Unavailable("bundle-refused", f"{place}: {why}", IMPOSSIBLE)
        yield record, sorted({*asked})


def _input(error: Exception) -> str:
    """Return the field that a model refused."""
    errors = error.errors() if isinstance(error, ValidationError) else []
    return ".".join(map(str, errors[0]["loc"])) if errors else "a field"


@cache
def experiments() -> frozenset[str]:
    """Return the names of experiments that ask for points."""
    # With NumPy and pandas, which a worker has not
    from tlb.measure import survey
    from tlb.report import discovery

    return frozenset({*discovery.table_of_contents(), survey.NAME})


def _columns_of(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, each by its columns. Raises Unavailable for a file that is no Parquet, too
    large, or of another schema."""
    try:
        with _limited_memory():
            file = parquet.ParquetFile(
                pa.BufferReader(content),
                page_checksum_verification=True,
                thrift_string_size_limit=1 << 20,
                thrift_container_size_limit=1 << 16,
            )
            _check_file(file)
            batches = file.iter_batches(BATCH_ROWS, use_threads=False)
        more = True
        while more:
            with _limited_memory():
                batch = next(batches, None)
                if batch is not None and batch.nbytes > MOST_BATCH_BYTES:
                    raise Unavailable(
                        "bundle-refused", f"{ROWS} has rows that are too long", _REPACKED
                    )
                rows = batch.to_pylist() if batch is not None else []
            more = batch is not None
            yield from rows
    # pyarrow's own are of these kinds
    except (OSError, ValueError, NotImplementedError, KeyError, MemoryError) as error:
        why = f"{ROWS} cannot be read: {_escaped(str(error).splitlines()[0] if str(error) else '')}"
        raise Unavailable("bundle-refused", why, _REPACKED) from None


def _check_file(file: parquet.ParquetFile) -> None:
    """Check sizes and schema before any row is read."""
    about = file.metadata
    if not 1 <= about.num_rows <= MAX_ROWS or about.num_columns > MAX_ROW_VALUES:
        raise Unavailable(
            "bundle-refused", f"{ROWS} has no rows, or more than {MAX_ROWS:,}", _REPACKED
        )
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    if (
        len(groups) > MAX_ROWS
        or sum(group.total_byte_size for group in groups) > MOST_UNPACKED_BYTES
    ):
        raise Unavailable(
            "bundle-refused", f"{ROWS} has more than {MOST_UNPACKED_BYTES >> 20} MiB", _REPACKED
        )
    values = [group.column(at).num_values for group in groups for at in range(about.num_columns)]
    if max(values) > MAX_ROWS * MAX_ROW_VALUES:
        raise Unavailable("bundle-refused", f"{ROWS} has lists that are too long", _REPACKED)
    schema = file.schema_arrow
    own = {*schema.names} - columns.shared_names()
    is_known = len(own) <= MAX_ROW_VALUES and schema.equals(columns.arrow_schema(sorted(own)))
    if not is_known or {*(about.metadata or {})} - {b"ARROW:schema"}:
        raise Unavailable(
            "bundle-refused", f"{ROWS} has other columns than rows have", _OTHER_VERSION
        )


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Let this process allocate no more than MOST_READING_BYTES more, on Linux."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        used = pages * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_DATA)
    except (ImportError, OSError, ValueError):
        yield
        return
    pool, most = pa.default_memory_pool(), used + MOST_READING_BYTES
    if limits[1] != resource.RLIM_INFINITY:
        most = min(most, limits[1])
    pa.set_memory_pool(pa.system_memory_pool())  # others reserve a GiB at once
    resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        pa.set_memory_pool(pool)


def _escaped(text: str) -> str:
    """Return the beginning of a stranger's text so that it can be printed."""
    return ascii(text[:80])[1:-1]
