"""One machine as one file: a zip of `rows.parquet`, `machine.json`, a `machine-STATE.json` for each
other state, and `documents/NAME.json`.

A reader takes nothing by its path and unpacks nothing to a disk: each member is read within a limit
and has to fit its schema. Texts are those of `public_text`, so a bundle names no host, user or path.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from tlb.fleet import public_text
from tlb.fleet.bundle_rows import (
    IMPOSSIBLE_ROW_REMEDY,
    MAX_UNPACKED_BYTES,
    REPACKED_BUNDLE_REMEDY,
    ROWS_FILE_NAME,
    UPDATE_BOTH_REMEDY,
    escape_untrusted_text,
    read_bundle_rows,
)
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.machine.stated_facts import JavaFlagsDocument, TlbFlushBehaviourDocument
from tlb.measure import row_tables, states
from tlb.measure.outcome import SESSIONS_DOCUMENT
from tlb.measure.states import RecordWithExperiments, merge_rows
from tlb.measure.store import (
    PUBLISHED_ROWS,
    UNMEASURED_POINTS_DOCUMENT,
    Store,
    write_published_rows,
)
from tlb.system.files import IS_REPOSITORY_CLONE, replaced_folder, sync_folder
from tlb.system.reasons import Unavailable, none_if_unavailable

Model = TypeVar("Model", bound=BaseModel)

NAME_BUNDLE_FILE_REMEDY = "Name a file that `tlb bundle make` wrote, and no link to it."
BUNDLE_SUFFIX = ".tlb.zip"
MACHINE = "machine.json"
MOST_MEMBERS = 64
MOST_FILE_BYTES = 64 << 20  # the largest published machine has 2 MB
MOST_DOCUMENT_BYTES = 1 << 20  # the largest published document has 36 kB
MOST_TEXT_CHARS = 300
MOST_CPUS = 8192
BASE_PAGES = (4 << 10, 16 << 10, 64 << 10)  # of Linux on x86-64 and arm64
_MEMBER = re.compile(r"rows\.parquet|machine(-[0-9a-f]{12})?\.json|documents/[a-z0-9_]{1,64}\.json")
_MADE_HERE = re.compile(
    rf"machine.*|translation|quantities.*|claims|{UNMEASURED_POINTS_DOCUMENT}|{SESSIONS_DOCUMENT}"
)
_MEANS = "means"  # a chapter adds it to its document (report.chapter.Chapter.document)
# Printable ASCII without markup, which a page, a terminal or a spreadsheet might obey.
_PLAIN = re.compile(rf"[ -%'-;=?-\[\]-_a-~]{{0,{MOST_TEXT_CHARS}}}")
_DATE = (1980, 1, 1, 0, 0, 0)  # of each member, so that a machine's bundle has the same bytes again


@dataclass(frozen=True)
class Bundle:
    """host: in the state of most rows. hosts: in every state that is described. rows: each with the
    experiments that asked for its point. content: of the file. documents: by name."""

    machine: str
    host: Host
    hosts: dict[str, Host]
    rows: list[RecordWithExperiments]
    content: bytes = field(repr=False)
    documents: dict[str, dict[str, Any]]


# --- made


class Contents(BaseModel):
    """What a bundle is packed from. rows: each with the experiments that asked for its point. files: the
    other members. left_out: phrases about documents that are not among them."""

    rows: list[RecordWithExperiments]
    files: dict[str, bytes]
    left_out: list[str]

    def compressed(self) -> bytes:
        """Return these contents as a worker sends them."""
        return zlib.compress(self.model_dump_json().encode())

    @classmethod
    def decompressed(cls, sent: bytes) -> Contents:
        """Raises Unavailable("bundle-refused") for anything but `compressed` contents of a bundle's
        size."""
        try:
            text = zlib.decompressobj().decompress(sent, MAX_UNPACKED_BYTES)
            return cls.model_validate_json(text)
        except (zlib.error, ValueError, TypeError) as error:
            why = escape_untrusted_text(str(error).splitlines()[0])
            raise Unavailable(
                "bundle-refused", f"what was sent is no bundle: {why}", REPACKED_BUNDLE_REMEDY
            ) from None


def collect(store: Store, machine: str) -> Contents:
    """Return what a machine's bundle is packed from, without Parquet, which a worker lacks.

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
    rows = _public_rows(store, machine, renamed)
    return Contents(rows=rows, files=files, left_out=left_out)


def _public_rows(
    store: Store, machine: str, renamed: dict[str, str]
) -> list[RecordWithExperiments]:
    rows: dict[str, RecordWithExperiments] = {}
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


def _written(document: Any) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


# --- read


def read_file(path: Path) -> Bundle:
    """Return the bundle in a file. Raises Unavailable("bundle-refused")."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise Unavailable(
                "bundle-refused", f"{path} is no regular file", NAME_BUNDLE_FILE_REMEDY
            )
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise Unavailable(
            "bundle-refused", f"{path}: {error.strerror}", NAME_BUNDLE_FILE_REMEDY
        ) from None
    return read(content)


def read(content: bytes, now: datetime | None = None) -> Bundle:
    """Return the bundle in a file's content. now: UTC, by default this computer's clock.

    Raises Unavailable("bundle-refused") for a file that is built differently or too large, for
    another schema, for a text that may name somebody, and for what no kernel or no computer could
    have given.
    """
    files = _members(content)
    if lacking := {ROWS_FILE_NAME, MACHINE} - files.keys():
        raise Unavailable("bundle-refused", f"it has no {min(lacking)}", UPDATE_BOTH_REMEDY)
    host = _description(MACHINE, files[MACHINE])
    machine = none_if_unavailable(hosts.machine_id, host)
    if machine is None:
        raise Unavailable(
            "bundle-refused", f"{MACHINE} describes no computer", IMPOSSIBLE_ROW_REMEDY
        )
    by_state, documents = {hosts.state_digest(host): host}, {}
    for name, member in files.items():
        stem = Path(name).stem
        if name.startswith("machine-"):
            other = _description(name, member)
            state = hosts.state_digest(other)
            if (
                none_if_unavailable(hosts.machine_id, other) != machine
                or stem != f"machine-{state}"
            ):
                raise Unavailable(
                    "bundle-refused", f"{name} describes something else", IMPOSSIBLE_ROW_REMEDY
                )
            by_state[state] = other
        elif name.startswith("documents/"):
            documents[stem] = _document(name, member)
            _check_document(name, stem, documents[stem])
    rows = list(read_bundle_rows(files[ROWS_FILE_NAME], host, by_state, now or datetime.now(UTC)))
    return Bundle(machine, host, by_state, rows, content, documents)


def _members(content: bytes) -> dict[str, bytes]:
    """Return the members by name, each of them within its limit."""
    if len(content) > MOST_FILE_BYTES:
        raise Unavailable(
            "bundle-refused",
            f"it has more than {MOST_FILE_BYTES >> 20} MiB",
            REPACKED_BUNDLE_REMEDY,
        )
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise Unavailable(
                    "bundle-refused",
                    f"it has more than {MOST_MEMBERS} members",
                    REPACKED_BUNDLE_REMEDY,
                )
            for entry in entries:
                _check_entry(entry, files)
                with archive.open(entry) as member:
                    files[entry.filename] = member.read(entry.file_size + 1)
    # What zipfile raises for damaged headers and content
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        why = f"it cannot be unpacked: {escape_untrusted_text(str(error))}"
        raise Unavailable("bundle-refused", why, REPACKED_BUNDLE_REMEDY) from None
    return files


def _check_entry(entry: zipfile.ZipInfo, files: dict[str, bytes]) -> None:
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    most = MOST_FILE_BYTES if name == ROWS_FILE_NAME else MOST_DOCUMENT_BYTES
    if not _MEMBER.fullmatch(name) or kind not in (0, stat.S_IFREG):
        why = f"it has a member {escape_untrusted_text(name)}, which no bundle has"
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
    raise Unavailable("bundle-refused", why, REPACKED_BUNDLE_REMEDY)


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
            "bundle-refused", f"{name}: {escape_untrusted_text(str(error))}", UPDATE_BOTH_REMEDY
        ) from None
    if not is_object:
        raise Unavailable("bundle-refused", f"{name} is no object of JSON", UPDATE_BOTH_REMEDY)
    for leaf in _leaves(document):
        if isinstance(leaf, str) and not _PLAIN.fullmatch(leaf):
            why = f"{name}: a text is too long, or has markup: {escape_untrusted_text(leaf)}"
            raise Unavailable("bundle-refused", why, UPDATE_BOTH_REMEDY)
        if isinstance(leaf, (int, float)) and not abs(leaf) <= row_tables.INT64_MAX:
            raise Unavailable(
                "bundle-refused", f"{name}: a number is beyond 64 bits", IMPOSSIBLE_ROW_REMEDY
            )
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
    if not is_possible or host.base_page_bytes not in BASE_PAGES:
        raise Unavailable(
            "bundle-refused", f"{name} describes no possible computer", IMPOSSIBLE_ROW_REMEDY
        )
    _check_texts(name, host.model_dump(mode="json"), public_text.schema_texts(Host))
    return host


def _check_texts(name: str, document: Any, allowed: Collection[str]) -> None:
    """Raise Unavailable("bundle-refused") for a document that has a text which may not leave."""
    public = public_text.public(document, allowed)
    if public != document:
        pairs = zip_longest(_leaves(document), _leaves(public))
        text = next(str(ours) for ours, theirs in pairs if ours != theirs)
        why = f"it has a text that may name somebody: {name}: {escape_untrusted_text(text)}"
        raise Unavailable("bundle-refused", why)


def _modelled(name: str, document: dict[str, Any], kind: type[Model]) -> Model:
    """Return the model of a document, from which the same document comes back."""
    try:
        made = kind.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{name}: {escape_untrusted_text(place)}: {escape_untrusted_text(first['msg'])}"
        raise Unavailable("bundle-refused", why, UPDATE_BOTH_REMEDY) from None
    if made.model_dump(mode="json", exclude_unset=True) != document:
        raise Unavailable(
            "bundle-refused", f"{name}: a field is of another type", UPDATE_BOTH_REMEDY
        )
    return made


@cache
def document_schemas() -> dict[str, tuple[type[BaseModel], frozenset[str]]]:
    """Return the model of each document by name, and the texts that it may hold beside the known
    ones: those of the machine, and in a clone those of chapters."""
    models: dict[str, tuple[type[BaseModel], Collection[str]]] = {
        "flags": (JavaFlagsDocument, ()),
        "flushes": (TlbFlushBehaviourDocument, ()),
    }
    if IS_REPOSITORY_CLONE:
        from tlb.report import discovery

        models |= discovery.documents()
    return {
        name: (model, public_text.schema_texts(model) | {*texts, _MEANS})
        for name, (model, texts) in models.items()
    }


def _check_document(name: str, stem: str, document: dict[str, Any]) -> None:
    """Raise Unavailable("bundle-refused") for a document that no chapter keeps."""
    if stem not in document_schemas():
        raise Unavailable(
            "bundle-refused", f"{name} is no document of a machine", UPDATE_BOTH_REMEDY
        )
    kind, texts = document_schemas()[stem]
    _modelled(name, {key: value for key, value in document.items() if key != _MEANS}, kind)
    means = document.get(_MEANS, [])
    if not isinstance(means, list) or not all(isinstance(one, str) for one in means):
        raise Unavailable(
            "bundle-refused", f"{name}: {_MEANS} is no list of texts", UPDATE_BOTH_REMEDY
        )
    _check_texts(name, document, texts)


# --- added


class Added(NamedTuple):
    """The machine's folder in data/, how many rows are new, and how many were there already."""

    folder: Path
    rows: int
    known: int


def add(data: Store, bundle: Bundle) -> Added:
    """Add a bundle to data/<machine>/, whole or not at all; without new rows nothing changes.

    Raises Unavailable: bundle-refused for another computer of the same name, disk-refused.
    """
    machine = bundle.machine
    published = none_if_unavailable(states.latest_description, data, machine)
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        why = f"{machine} in data/ is another computer: {published.cpu_model}"
        raise Unavailable("bundle-refused", why, IMPOSSIBLE_ROW_REMEDY)
    there = data.records(machine)
    new = [
        (record, asked)
        for record, asked in bundle.rows
        if record.key not in there or record.counts_more_than(there[record.key])
    ]
    target = data.root / machine
    with replaced_folder(target) as made:
        if new:
            _write(made, data, bundle, published is None)
    return Added(target, len(new), len(bundle.rows) - len(new))


def _write(made: Path, data: Store, bundle: Bundle, is_first: bool) -> None:
    """Write the machine's folder as it will be in data/. Documents and the description are the
    bundle's if its last row is newer than those there."""
    machine = bundle.machine
    made.mkdir()
    (made.parent / "reference").write_text(
        f"{machine}\n", encoding="ascii"
    )  # of a store of its own
    store = Store(made.parent)
    published = data.published(machine)
    theirs = max(record.started_at for record, _ in bundle.rows)
    is_newer = is_first or theirs >= max(record.started_at for record, _ in published)
    for name, path in data.documents(machine).items():
        copy = store.document_path(machine, name)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for name, document in bundle.documents.items():
        if is_newer or not store.document_path(machine, name).is_file():
            store.write_document(machine, name, document)
    described = [host for host in bundle.hosts.values() if host != bundle.host]
    for host in [*described, bundle.host] if is_newer else [bundle.host, *described]:
        before = none_if_unavailable(states.latest_description, store, machine)
        states.write_description(store, machine, host)
        if before and not is_newer:
            states.write_description(store, machine, before)
    write_published_rows(made / PUBLISHED_ROWS, merge_rows(published, bundle.rows))
    from tlb.report import card  # with pandas, which a worker lacks

    card.write(store, machine, states.latest_description(store, machine))
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for folder in {path.parent for path in made.rglob("*")}:
        sync_folder(folder)
