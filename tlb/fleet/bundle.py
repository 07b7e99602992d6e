"""One machine as one file: a zip of `rows.parquet`, `machine.json`, a `machine-STATE.json` for each
other state, and `documents/NAME.json`.

A reader takes nothing by its path and unpacks nothing to a disk: each member is read within a limit, and
is accepted only if its model gives the same bytes again. Texts are those of `public_text`, so a bundle
names no host, user or path.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError, create_model

from tlb.fleet import public_text
from tlb.fleet.bundle_rows import (
    ROWS_FILE_NAME,
    bundle_refused_error,
    read_bundle_rows,
    shortened_error_text,
)
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.machine.stated_facts import JavaFlagsDocument, TlbFlushBehaviourDocument
from tlb.measure import machine_states
from tlb.measure.machine_states import RecordWithExperiments
from tlb.measure.outcome import SESSIONS_DOCUMENT
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT, Store, write_published_rows
from tlb.system.files import IS_REPOSITORY_CLONE
from tlb.system.reasons import Unavailable, none_if_unavailable

Model = TypeVar("Model", bound=BaseModel)

BUNDLE_SUFFIX = ".tlb.zip"
MACHINE = "machine.json"
MOST_MEMBERS = 64
MOST_FILE_BYTES = 16 << 20  # the largest published machine has 2 MB
MOST_DOCUMENT_BYTES = 1 << 20  # the largest published document has 36 kB
_MEMBER = re.compile(r"rows\.parquet|machine(-[0-9a-f]{12})?\.json|documents/[a-z0-9_]{1,64}\.json")
_MADE_HERE = re.compile(
    rf"machine.*|translation|quantities.*|claims|{UNMEASURED_POINTS_DOCUMENT}|{SESSIONS_DOCUMENT}"
)
_DATE = (1980, 1, 1, 0, 0, 0)  # of each member, so that a machine's bundle has the same bytes again


@dataclass(frozen=True)
class Contents:
    """What a bundle is packed from. rows: each with the experiments that asked for its point. files: the
    other members by name. left_out: why documents are not among them."""

    rows: list[RecordWithExperiments]
    files: dict[str, bytes]
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bundle:
    """A bundle that was accepted. host: what machine.json describes. rows, files: as of its Contents.
    content: of the file."""

    machine: str
    host: Host
    rows: list[RecordWithExperiments]
    files: dict[str, bytes]
    content: bytes = field(repr=False)


# --- made


def collect(store: Store, machine: str) -> Contents:
    """Return what a machine's bundle is packed from, without Parquet, which a worker lacks.

    What `public_text` shortens is also in the digests of the machine's states, so these are computed
    anew. Raises Unavailable("no-data") without rows or a description.
    """
    described = [machine_states.latest_description(store, machine)]
    for name in store.documents(machine):
        if other := re.fullmatch(r"machine-([0-9a-f]{12})", name):
            described.append(machine_states.description_of_state(store, machine, other[1]))
    public = [public_host(host) for host in described]
    renamed = dict(
        zip(map(hosts.state_digest, described), map(hosts.state_digest, public), strict=True)
    )
    files = {f"machine-{hosts.state_digest(host)}.json": _written(host) for host in public[1:]}
    files.pop(f"machine-{hosts.state_digest(public[0])}.json", None)
    files[MACHINE] = _written(public[0])
    rows = _public_rows(store, machine, renamed)
    contents = Contents(rows, files)
    for name in store.documents(machine):
        if not _MADE_HERE.fullmatch(name):
            try:
                document = _public_document(name, store.read_document(machine, name), renamed)
                files[f"documents/{name}.json"] = document
            except Unavailable as why:
                contents.left_out.append(why.detail)
    return contents


def public_host(host: Host) -> Host:
    """Return a description as it may leave its machine."""
    texts = public_text.schema_texts(Host)
    return Host.model_validate(public_text.public(host.model_dump(mode="json"), texts))


def _public_document(name: str, document: dict[str, Any], renamed: dict[str, str]) -> bytes:
    """Return a document as a member. Raises Unavailable("bundle-refused") for one that no chapter keeps,
    and for one that would lose more than the end of a text."""
    kind, texts = _schema(name)
    public = public_text.public(document, texts)
    if "state" in public:
        public["state"] = renamed.get(public["state"], public["state"])
    content = _json(public)
    if content.count(b"\n") < _json(document).count(b"\n"):
        raise bundle_refused_error(f"{name} has names that may not leave")
    return _written(_parsed(name, content, kind))


def _public_rows(
    store: Store, machine: str, renamed: dict[str, str]
) -> list[RecordWithExperiments]:
    rows: dict[str, RecordWithExperiments] = {}
    for record, asked in store.asked_rows(machine):
        if asked:
            changes = {
                "state": renamed.get(record.state, record.state),
                "compiler": public_text.keep_public_words(record.compiler),
            }
            public = record.model_copy(update=changes)
            rows.setdefault(public.key, (public, asked))
    if not rows:
        raise Unavailable("no-data", f"{machine} has no rows that a chapter asked for")
    return list(rows.values())


def pack(contents: Contents) -> bytes:
    """Return the file: the same bytes of the same contents."""
    rows, file = io.BytesIO(), io.BytesIO()
    write_published_rows(rows, contents.rows)
    files = contents.files | {ROWS_FILE_NAME: rows.getvalue()}
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(files):
            kind = zipfile.ZIP_STORED if name == ROWS_FILE_NAME else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], kind, 9)
    return file.getvalue()


def _written(made: BaseModel) -> bytes:
    """Return a model as a member. Raises ValueError for NaN."""
    return _json(made.model_dump(mode="json", exclude_unset=True))


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


# --- read


def read_file(path: Path) -> Bundle:
    """Return the bundle in a file. Raises Unavailable("bundle-refused")."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise bundle_refused_error(f"{path} is no regular file")
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise bundle_refused_error(f"{path}: {error.strerror}") from None
    return read(content)


def read(content: bytes, now: datetime | None = None) -> Bundle:
    """Return the bundle in a file's content. now: UTC, by default this computer's clock.

    Raises Unavailable("bundle-refused") for a file that is built differently or too large, for
    another schema, for a text that may name somebody, and for rows that break a rule.
    """
    files = _members(content)
    rows, texts = files.pop(ROWS_FILE_NAME, b""), public_text.schema_texts(Host)
    by_state: dict[str, Host] = {}
    host = _read(MACHINE, files.get(MACHINE, b""), Host, texts)
    machine = none_if_unavailable(hosts.machine_id, host)
    for name, member in files.items():
        stem = Path(name).stem
        if name.startswith("documents/"):
            _read(name, member, *_schema(stem))
            continue
        described = _read(name, member, Host, texts)
        state = hosts.state_digest(described)
        is_same = machine and none_if_unavailable(hosts.machine_id, described) == machine
        if not is_same or name not in (MACHINE, f"machine-{state}.json"):
            raise bundle_refused_error(f"{name} describes no computer, or another one")
        by_state[state] = described
    checked = read_bundle_rows(rows, host, by_state, now or datetime.now(UTC))
    return Bundle(machine, host, list(checked), files, content)


def _members(content: bytes) -> dict[str, bytes]:
    """Return the members by name, each of them within its limit."""
    if len(content) > MOST_FILE_BYTES:
        raise bundle_refused_error(f"it has more than {MOST_FILE_BYTES >> 20} MiB")
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise bundle_refused_error(f"it has more than {MOST_MEMBERS} members")
            for entry in entries:
                name = entry.filename
                most = MOST_FILE_BYTES if name == ROWS_FILE_NAME else MOST_DOCUMENT_BYTES
                is_plain = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                is_known = _MEMBER.fullmatch(name) and is_plain and name not in files
                if not is_known or entry.file_size > most:
                    raise bundle_refused_error(
                        f"its member {name[:80]} is too large, double, or of no bundle"
                    )
                with archive.open(entry) as member:
                    files[name] = member.read(entry.file_size + 1)
    # What zipfile raises for damaged headers and content
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise bundle_refused_error(
            f"it cannot be unpacked: {shortened_error_text(error)}"
        ) from None
    return files


def _read(name: str, content: bytes, kind: type[Model], texts: frozenset[str]) -> Model:
    """Return the model of a member, of which the same bytes come back and no text may name somebody.

    texts: that it may hold beside the public ones.
    """
    made = _parsed(name, content, kind)
    try:
        is_whole = _written(made) == content
    except ValueError:
        is_whole = False
    if not is_whole:
        raise bundle_refused_error(f"{name} is not as `tlb bundle make` writes it")
    document = made.model_dump(mode="json", exclude_unset=True)
    public = public_text.public(document, texts)
    if public != document:
        pairs = zip_longest(content.decode().splitlines(), _json(public).decode().splitlines())
        text = next(ours for ours, public_line in pairs if ours != public_line) or ""
        raise bundle_refused_error(
            f"it has a text that may name somebody: {name}: {text.strip()[:80]}"
        )
    return made


def _parsed(name: str, content: bytes, kind: type[Model]) -> Model:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise bundle_refused_error(f"{name}: {shortened_error_text(error)}") from None


def _schema(name: str) -> tuple[type[BaseModel], frozenset[str]]:
    """Return a document's model and the texts that it may hold beside the public ones. Raises
    Unavailable("bundle-refused")."""
    if name not in _schemas():
        raise bundle_refused_error(f"{name} is no document of a machine")
    return _schemas()[name]


@cache
def _schemas() -> dict[str, tuple[type[BaseModel], frozenset[str]]]:
    """Return `_schema` of each document: those of the machine, and in a clone those of chapters."""
    models: dict[str, tuple[type[BaseModel], tuple[str, ...]]] = {
        "flags": (JavaFlagsDocument, ()),
        "flushes": (TlbFlushBehaviourDocument, ()),
    }
    if IS_REPOSITORY_CLONE:
        from tlb.report import notebooks

        models |= notebooks.document_models()
    schemas: dict[str, tuple[type[BaseModel], frozenset[str]]] = {}
    for name, (model, texts) in models.items():
        # Which a chapter adds (report.chapter.Chapter.document)
        kind = create_model(model.__name__, __base__=model, means=(list[str], []))
        schemas[name] = kind, public_text.schema_texts(kind).union(texts)
    return schemas


# --- added


class Added(NamedTuple):
    """The machine's folder in data/, how many rows are new, and how many were there already."""

    folder: Path
    rows: int
    known: int


def add(data: Store, bundle: Bundle) -> Added:
    """Add a bundle to data/<machine>/, whole or not at all; without new rows nothing changes. Its files
    replace those there unless all of its rows are older.

    Raises Unavailable: bundle-refused for another computer of the same name, disk-refused.
    """
    machine = bundle.machine
    published = none_if_unavailable(machine_states.latest_description, data, machine)
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        raise bundle_refused_error(f"{machine} in data/ is another computer: {published.cpu_model}")
    there = data.records(machine)
    new = [
        record
        for record, _ in bundle.rows
        if record.key not in there or record.counts_more_than(there[record.key])
    ]
    folder, files = data.folder(machine), bundle.files
    if new:
        from tlb.report import card  # with pandas, which a worker lacks

        ended = max((record.started_at for record in there.values()), default="")
        if max(record.started_at for record, _ in bundle.rows) < ended:
            files = {name: text for name, text in files.items() if not (folder / name).exists()}
        machine_states.publish_rows(data, machine, bundle.rows, files)
        card.write(data, machine, machine_states.latest_description(data, machine))
    return Added(folder, len(new), len(bundle.rows) - len(new))
