"""The file that a bundle is: a zip of one flat layout, always written the same way, and read as if
an enemy had written it.

Zip says names twice and sizes thrice, and bytes may lie between members. So a file is laid out
again from its members' names, sizes and deflated bytes, and is refused unless that gives the same
bytes. Only then is anything unpacked.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from tlb.reasons import Unavailable
from tlb.system.files import OPEN_FLAGS

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}\.(?:jsonl|json|md)")
# Ten times what the published machines have together (14 MB, 35 members); mail servers pass 25 MB.
# The longest document has 35 KB.
MOST_FILE_BYTES, MOST_BYTES, MOST_MEMBERS, MOST_DOCUMENT_BYTES = 24 << 20, 128 << 20, 96, 1 << 20
# APPNOTE.TXT: 4.3.7 local header and 4.3.12 directory have these fields in common, 4.3.16 ends the
# directory.
_FIELDS = struct.Struct(
    "<5H3L2H"
)  # version, flags, method, time, date; sum, packed size, size; lengths of name and extra field
_CENTRAL, _LOCAL_BYTES = struct.Struct("<4sH26s3H2L"), 30
_END = struct.Struct("<4s4H2LH")
_FIXED = (20, 0, 8, 0, 33)  # zip 2.0, no flags, deflated, 1980-01-01, which stands for no time
_UNIX = 3 << 8 | 20
_MODE = (stat.S_IFREG | 0o644) << 16


class _Member(NamedTuple):
    name: bytes
    sum: int
    size: int
    deflated: bytes


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return an archive of these members, in the order of their names; the same bytes by the same
    zlib."""
    deflated = {name: zlib.compress(data, wbits=-zlib.MAX_WBITS) for name, data in members.items()}
    return _laid_out(
        [
            _Member(name.encode(), zlib.crc32(data), len(data), deflated[name])
            for name, data in sorted(members.items())
        ]
    )


def _laid_out(members: Sequence[_Member]) -> bytes:
    files, directory = bytearray(), bytearray()
    for name, crc, size, deflated in members:
        fields = _FIELDS.pack(*_FIXED, crc, len(deflated), size, len(name), 0)
        directory += _CENTRAL.pack(b"PK\1\2", _UNIX, fields, 0, 0, 0, _MODE, len(files)) + name
        files += b"PK\3\4" + fields + name + deflated
    count = len(members)
    return bytes(
        files + directory + _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), len(files), 0)
    )


def read(path: Path) -> bytes:
    """Return a file's bytes. Raises Unavailable: no-bundle, bundle-unsafe for anything but a
    regular file of a bundle's size."""
    try:
        fd = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS
        )  # neither waits for a FIFO nor follows a link
    except OSError as error:
        raise Unavailable("no-bundle", f"{path}: {error.strerror}") from None
    with open(fd, "rb") if stat.S_ISREG(os.fstat(fd).st_mode) else nullcontext() as file:
        content = file.read(MOST_FILE_BYTES + 1) if file else os.close(fd)
    if content is None or len(content) > MOST_FILE_BYTES:
        raise Unavailable(
            "bundle-unsafe", f"it is no regular file, or has more than {MOST_FILE_BYTES >> 20} MiB"
        )
    return content


def unpacked(content: bytes) -> dict[str, bytes]:
    """Return the members by name. Raises Unavailable: bundle-unsafe for what `packed` does not
    write, bundle-broken."""
    try:
        members = _members(content)
    except struct.error:
        raise Unavailable(
            "bundle-unsafe", "it is no zip archive, or does not end with its directory"
        ) from None
    names = [member.name.decode("latin-1") for member in members]
    for name, member in zip(names, members, strict=True):
        if not NAME.fullmatch(name) or (
            member.size > MOST_DOCUMENT_BYTES and not name.endswith(".jsonl")
        ):
            raise Unavailable(
                "bundle-unsafe", f"a member cannot be called {ascii(name[:80])}, or not be as large"
            )
    if names != sorted(names) or not 0 < len({name.lower() for name in names}) == len(names):
        raise Unavailable("bundle-unsafe", "two members have one name, or they are not in order")
    if sum(member.size for member in members) > MOST_BYTES:
        raise Unavailable("bundle-unsafe", f"its members have more than {MOST_BYTES >> 20} MiB")
    if _laid_out(members) != content:
        raise Unavailable(
            "bundle-unsafe",
            "it is laid out otherwise: other headers, or bytes before, between or behind its "
            "members",
        )
    return {name: _inflated(name, member) for name, member in zip(names, members, strict=True)}


def _members(content: bytes) -> list[_Member]:
    """Return the members that the directory names, as if each lay where the one before it ends.
    Raises struct.error."""
    *_, count, size, start, _ = _END.unpack(content[-_END.size :])
    if count > MOST_MEMBERS or size > count * (_CENTRAL.size + 72):
        raise Unavailable(
            "bundle-unsafe",
            f"it has more than {MOST_MEMBERS} members, or a directory of another size",
        )
    members, at = [], 0
    for _ in range(count):
        *_, crc, packed_size, size, name_size, _ = _FIELDS.unpack_from(
            _CENTRAL.unpack_from(content, start)[2]
        )
        name = content[start + _CENTRAL.size :][:name_size] if name_size < 80 else b""
        data = at + _LOCAL_BYTES + name_size
        members.append(_Member(name, crc, size, content[data : data + packed_size]))
        start, at = start + _CENTRAL.size + name_size, data + packed_size
    return members


def _inflated(name: str, member: _Member) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(member.deflated, member.size + 1)
    except zlib.error:
        raise Unavailable("bundle-broken", f"{name} cannot be unpacked") from None
    if (
        len(data) != member.size
        or not inflate.eof
        or inflate.unused_data
        or inflate.unconsumed_tail
    ):
        raise Unavailable("bundle-unsafe", f"{name} unpacks to more or less than it says")
    if zlib.crc32(data) != member.sum:
        raise Unavailable("bundle-broken", f"{name} has another checksum")
    return data
