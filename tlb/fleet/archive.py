"""The file that a bundle is: a zip of one flat layout, read as if an enemy had written it.

Zip states names twice and sizes three times, and bytes may lie between members. So a file is laid
out again from its members' names, sizes and deflated bytes, and is refused unless that gives the
same bytes. Only then is anything unpacked.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tlb.system.files import OPEN_FLAGS
from tlb.system.reasons import Unavailable

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}\.jsonl?")
# Ten times what the published machines have together (14 MB, 35 members); mail servers pass 25 MB.
MOST_FILE_BYTES, MOST_BYTES, MOST_MEMBERS = 24 << 20, 128 << 20, 96
MOST_DOCUMENT_BYTES = 1 << 20  # the longest has 35 kB
# APPNOTE.TXT, fields that 4.3.7 (local header) and 4.3.12 (directory) share: version, flags,
# method, time, date; sum, packed size, size; lengths of name and extra field.
_FIELDS = struct.Struct("<5H3L2H")
_CENTRAL, _LOCAL_BYTES = struct.Struct("<4sH26s3H2L"), 30
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_FIXED = (20, 0, 8, 0, 33)  # zip 2.0, no flags, deflated, 1980-01-01, which stands for no time
_UNIX = 3 << 8 | 20
_MODE = (stat.S_IFREG | 0o644) << 16


class _Member(NamedTuple):
    name: bytes
    sum: int
    size: int
    deflated: bytes


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return an archive of these members, in the order of their names."""
    laid = []
    for name, data in sorted(members.items()):
        deflated = zlib.compress(data, wbits=-zlib.MAX_WBITS)
        laid.append(_Member(name.encode(), zlib.crc32(data), len(data), deflated))
    return _laid_out(laid)


def _laid_out(members: Sequence[_Member]) -> bytes:
    files, directory, count = bytearray(), bytearray(), len(members)
    for name, crc, size, deflated in members:
        fields = _FIELDS.pack(*_FIXED, crc, len(deflated), size, len(name), 0)
        directory += _CENTRAL.pack(b"PK\1\2", _UNIX, fields, 0, 0, 0, _MODE, len(files)) + name
        files += b"PK\3\4" + fields + name + deflated
    end = _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), len(files), 0)
    return bytes(files + directory + end)


def read(path: Path) -> bytes:
    """Return a file's bytes. Raises Unavailable: no-bundle, bundle-unsafe for anything but a
    regular file of a bundle's size."""
    flags = getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS  # neither wait for a FIFO nor follow a link
    try:
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_FILE_BYTES + 1) if is_regular else b""
    except OSError as error:
        raise Unavailable("no-bundle", f"{path}: {error.strerror}") from None
    if not is_regular or len(content) > MOST_FILE_BYTES:
        why = f"it is no regular file, or has more than {MOST_FILE_BYTES >> 20} MiB"
        raise Unavailable("bundle-unsafe", why)
    return content


def unpacked(content: bytes) -> dict[str, bytes]:
    """Return the members by name. Raises Unavailable: bundle-unsafe for what `packed` does not
    write, bundle-broken."""
    members = _members(content)
    names = [member.name.decode("latin-1") for member in members]
    for name, member in zip(names, members, strict=True):
        is_large = member.size > MOST_DOCUMENT_BYTES and not name.endswith(".jsonl")
        if not NAME.fullmatch(name) or is_large:
            why = f"a member cannot be called {ascii(name[:80])}, or not be as large"
            raise Unavailable("bundle-unsafe", why)
    if not members or names != sorted({name.lower(): name for name in names}.values()):
        raise Unavailable("bundle-unsafe", "it has two members of one name, no order, or none")
    if sum(member.size for member in members) > MOST_BYTES:
        raise Unavailable("bundle-unsafe", f"it has more than {MOST_BYTES >> 20} MiB unpacked")
    if _laid_out(members) != content:
        why = "it has other headers, or bytes before, between or behind its members"
        raise Unavailable("bundle-unsafe", why)
    return {name: _inflated(name, member) for name, member in zip(names, members, strict=True)}


def _members(content: bytes) -> list[_Member]:
    """Return the members by their local headers, one behind the other from the beginning."""
    members, at = list[_Member](), 0
    while content.startswith(b"PK\3\4", at) and len(members) < MOST_MEMBERS:
        if len(content) < at + _LOCAL_BYTES:
            break
        *_, crc, packed_size, size, name_size, _ = _FIELDS.unpack_from(content, at + 4)
        data = at + _LOCAL_BYTES + name_size
        name, at = content[data - name_size : data], data + packed_size
        members.append(_Member(name, crc, size, content[data:at]))
    return members


def _inflated(name: str, member: _Member) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(member.deflated, member.size + 1)
    except zlib.error:
        raise Unavailable("bundle-broken", f"{name} cannot be unpacked") from None
    is_whole = inflate.eof and not inflate.unused_data and not inflate.unconsumed_tail
    if len(data) != member.size or not is_whole:
        raise Unavailable("bundle-unsafe", f"{name} unpacks to more or less than it says")
    if zlib.crc32(data) != member.sum:
        raise Unavailable("bundle-broken", f"{name} has another checksum")
    return data
