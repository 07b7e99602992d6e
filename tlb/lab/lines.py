"""Lines of a file of rows: their keys, how one is written, which of those read are valid.

A whole line is one canonical JSON object: key, digest, kernel_digest, record. A published line may
be `{"patch": ...}` instead: a JSON merge patch (RFC 7396) of the last whole line before it, because
the rows of a kernel differ in few fields. Lines of another schema version are skipped and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tlb.lab import columns
from tlb.lab.record import SINCE_2, Identity, Point, Record
from tlb.system.files import OPEN_FLAGS, append_whole, replace

VERSIONS = (1, 2)  # of the schema that are read; the last is written
# Fields of a point that older rows lack, with what they have in their place.
_LATER = {"stride_pages": 1, "mode": "", "options": ()}
_MEMBERS = {"digest", "key", "kernel_digest", "record"}
_PATCH = b'{"patch":'  # how a line begins that is none by itself


class Stored(NamedTuple):
    key: str
    point: str  # its id
    kernel_digest: str
    record: Record
    line: bytes  # whole, without its end


@lru_cache(1 << 12)
def point_id(point: Point) -> str:
    """Return the identity of a point: 16 hex digits of its canonical JSON's SHA-256."""
    return _sha16(_asked(point))


def record_key(point: Point, repeat: int, identity: Identity, state: str) -> str:
    """Return the identity of a measurement: 16 hex digits of its canonical JSON's SHA-256."""
    return _sha16(
        {
            "point": _asked(point),
            "repeat": repeat,
            "measures": identity.measures,
            "code_digest": identity.code_digest,
            "state": state,
        }
    )


def key_of(point: Point, record: Record, kernel_digest: str) -> str:
    """Return the key of a point's row. In version 1 the digest was of source, flags and
    compiler."""
    if record.schema_version == 1:
        return _sha16(
            {
                "point": _asked(point),
                "repeat": record.repeat,
                "kernel_digest": kernel_digest,
                "state": record.state,
            }
        )
    return record_key(point, record.repeat, Identity(record.measures, kernel_digest), record.state)


@lru_cache(1 << 12)
def _asked(point: Point) -> dict[str, Any]:
    asked = point.model_dump()
    # rows measured before there were such fields keep their keys
    for name, default in _LATER.items():
        if asked[name] == default:
            del asked[name]
    return asked


def write(record: Record, kernel_digest: str) -> tuple[str, bytes]:
    """Return a record's key and line. Raises ValueError for a record that fits no column."""
    columns.check(record, kernel_digest)
    key = key_of(record.point, record, kernel_digest)
    # a row from before they were kept is written as it was
    unknown = set(SINCE_2) if record.schema_version == 1 else set()
    unknown |= set() if record.boot_id else {"boot_id"}
    content = {
        "key": key,
        "kernel_digest": kernel_digest,
        "record": record.model_dump(exclude_none=True, exclude=unknown),
    }
    return key, signed(content)


def signed(content: dict[str, Any]) -> bytes:
    """Return a line of key, kernel_digest and record, with their digest."""
    return canonical({**content, "digest": _sha16(content)}) + b"\n"


def compact(whole: Iterable[bytes]) -> bytes:
    """Return whole lines as they are published: the first as it is, the others as patches of it."""
    written, base = list[bytes](), dict[str, Any]()
    for line in whole:
        content = json.loads(line)
        patch = _patch(base, content)
        # Not every object has a patch: null means that a member is removed.
        if base and canonical(_patched(base, patch)) == line:
            written.append(canonical({"patch": patch}))
        else:
            written.append(line)
            base = content
    return b"".join(line + b"\n" for line in written)


def _patch(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that makes `content` of `base`."""
    patch: dict[str, Any] = dict.fromkeys(base.keys() - content.keys())
    for name, value in content.items():
        known = base.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            if changed := _patch(known, value):
                patch[name] = changed
        elif canonical(known) != canonical(value):  # 1 and 1.0 are equal, and differ in a line
            patch[name] = value
    return patch


def _patched(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    content = dict(base)
    for name, value in patch.items():
        if value is None:
            content.pop(name, None)
        elif isinstance(value, dict):
            known = content.get(name)
            content[name] = _patched(known if isinstance(known, dict) else {}, value)
        else:
            content[name] = value
    return content


def read(path: Path) -> tuple[list[tuple[Stored | ValueError | None, bytes]], bytes]:
    """Return each line with its content (None: another schema version; ValueError: corrupt), and
    the torn rest."""
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], b""
    entries, whole = [], b""
    for line in lines:
        is_patch = line.startswith(_PATCH)
        row = known(line, whole) if is_patch else known(line)
        entries.append((row, line))
        if not is_patch and not isinstance(row, ValueError):
            whole = line
    return entries, torn


def mend(fd: int, path: Path) -> bool:
    """Cut off a torn last line and quarantine corrupt ones. False: `path` is another file now."""
    entries, torn = read(path)
    if torn:
        os.ftruncate(fd, os.fstat(fd).st_size - len(torn))
    corrupt = [line for entry, line in entries if isinstance(entry, ValueError)]
    if not corrupt:
        return True
    quarantine = path.with_name(f"{path.stem}.quarantine.jsonl")
    out = os.open(quarantine, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o644)
    try:
        # A kill -9 before the replacement below brings the same lines here again: once is enough.
        *there, torn = os.pread(out, os.fstat(out).st_size, 0).split(b"\n")
        new = [b""] * bool(torn) + [line for line in corrupt if line not in there]
        append_whole(out, b"".join(line + b"\n" for line in new))
    finally:
        os.close(out)
    whole = [line for entry, line in entries if not isinstance(entry, ValueError)]
    replace(path, b"".join(line + b"\n" for line in whole), like=os.fstat(fd))
    return False


def parse(line: bytes, whole: bytes = b"") -> Stored | ValueError | None:
    """Return a line's content: None for another schema version, ValueError for a corrupt one.

    whole: the line that a patch changes."""
    try:
        line, content = line.removesuffix(b"\r"), json.loads(line)
        # To the byte: of a member that is there twice, JSON's readers take now the first and now
        # the last.
        if line != canonical(content):
            return ValueError("the line is not written as append writes it")
        if content.keys() == {"patch"}:
            content = _patched(_loaded(whole), content["patch"])
            line = canonical(content)
        digest, rest = content["digest"], line.partition(b",")[2]  # the digest comes first
        if content.keys() != _MEMBERS or digest != _digest(b"{" + rest):
            return ValueError("the digest is of another line")
        if content["record"].get("schema_version") not in VERSIONS:
            return None
        record, kernel_digest = Record.model_validate(content["record"]), content["kernel_digest"]
        columns.check(record, kernel_digest)
        point = record.point
        if content["key"] != key_of(point, record, kernel_digest):
            return ValueError("the key is of another record")
        return Stored(content["key"], point_id(point), kernel_digest, record, line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        return ValueError(f"{type(e).__name__}: {e}")


_loaded = lru_cache(1)(json.loads)  # one whole line has many patches
# A line takes 0.3 ms; a page or a survey reads a file for each of its experiments, and a bundle is
# checked before it is read.
known = lru_cache(1 << 14)(parse)


def canonical(content: Any) -> bytes:
    """Return the JSON that lines and keys are made of. Raises ValueError."""
    return _encoded(content).encode("ascii")


_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _sha16(content: Any) -> str:
    return _digest(canonical(content))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
