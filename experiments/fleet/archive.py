"""The file that a bundle is: a zip of one flat layout, written the same way each time, and read as if an enemy had written it.

Zip leaves much open that readers take differently: a name in two places, sizes in three, bytes before, between and after its members.
Here a file is what `packed` would have laid out, header for header, or it is refused before a byte is unpacked; and of what is unpacked no
more is ever held than a member said it has, and than a bundle may have.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from experiments.system.files import OPEN_FLAGS
from experiments.words.reasons import Unavailable

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}\.(?:jsonl|json|md)")
# The three machines that were published first have 14 MB in 35 members, 1.3 MB as a bundle: ten times as much is room for a full profile
# in many states, passes most mail servers (25 MB), and is unpacked in a second.
MOST_FILE_BYTES = 24 << 20
MOST_BYTES = 128 << 20
MOST_MEMBERS = 96
MOST_DOCUMENT_BYTES = 1 << 20  # the longest document has 35 KB; one is parsed whole
_EOCD = struct.Struct("<4s4H2LH")  # APPNOTE.TXT 4.3.16, end of central directory record, without a comment
_CENTRAL_BYTES, _LOCAL_BYTES = 46, 30  # 4.3.12 and 4.3.7, before the name
_MODE = stat.S_IFREG | 0o644


def packed(members: Mapping[str, bytes]) -> bytes:
    """An archive of these members: in the order of their names, of no time and no owner, the same bytes by the same zlib."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name)  # of 1980-01-01, which stands for no time
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _MODE << 16
            archive.writestr(entry, members[name])
    return buffer.getvalue()


def read(path: Path) -> bytes:
    """A file's bytes. Raises Unavailable: no-bundle for none, bundle-unsafe for what is no regular file, or too large."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS)  # a FIFO is not waited for, a link not followed
    except OSError as error:
        raise Unavailable("no-bundle", f"{path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unavailable("bundle-unsafe", "it is no regular file")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(MOST_FILE_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > MOST_FILE_BYTES:
        raise Unavailable("bundle-unsafe", f"it has more than {MOST_FILE_BYTES >> 20} MiB")
    return content


def unpacked(content: bytes) -> dict[str, bytes]:
    """The members by name. Raises Unavailable: bundle-unsafe for all that `packed` does not lay out, bundle-broken where a member's sum
    is another."""
    entries = _directory(content)
    stated = sum(entry.file_size for entry in entries)
    if stated > MOST_BYTES:
        raise Unavailable("bundle-unsafe", f"its members have {stated >> 20} MiB, and {MOST_BYTES >> 20} at most are allowed")
    at = 0
    for entry in entries:
        _check(entry, content, at)
        at += _LOCAL_BYTES + len(entry.filename) + entry.compress_size
    names = [entry.filename for entry in entries]
    if names != sorted(set(names)) or len({name.lower() for name in names}) < len(names):
        raise Unavailable("bundle-unsafe", "two members have one name, or they are not in order")
    if at != struct.unpack_from("<L", content, len(content) - 6)[0]:
        raise Unavailable("bundle-unsafe", "something lies before, between or behind its members")
    return {entry.filename: _inflated(entry, content) for entry in entries}


def _directory(content: bytes) -> list[zipfile.ZipInfo]:
    """The members that the directory names, which ends the file, has a bounded size, and is on no other disk."""
    if len(content) < _EOCD.size or not content.startswith(b"PK\3\4"):
        raise Unavailable("bundle-unsafe", "it is no zip archive, or begins with something else")
    mark, disk, first, here, count, size, offset, comment = _EOCD.unpack(content[-_EOCD.size:])
    if mark != b"PK\5\6" or comment or disk or first or here != count:
        raise Unavailable("bundle-unsafe", "it does not end with a directory, or has something behind it")
    if not 0 < count <= MOST_MEMBERS or size > count * (_CENTRAL_BYTES + 72) or offset + size != len(content) - _EOCD.size:
        raise Unavailable("bundle-unsafe", f"it has no member, more than {MOST_MEMBERS}, or a directory of another size")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error, IndexError) as error:
        raise Unavailable("bundle-unsafe", f"its directory cannot be read: {type(error).__name__}") from None
    if len(entries) != count or sum(_CENTRAL_BYTES + len(entry.orig_filename) for entry in entries) != size:
        raise Unavailable("bundle-unsafe", "its directory holds more than its members")
    return entries


def _check(entry: zipfile.ZipInfo, content: bytes, at: int) -> None:
    """A member is a regular file of a plain name, deflated, and lies where the one before it ends."""
    name = ascii(entry.orig_filename[:80])
    if not NAME.fullmatch(entry.orig_filename) or entry.orig_filename != entry.filename:
        raise Unavailable("bundle-unsafe", f"a member cannot be called {name}")
    if entry.flag_bits or entry.compress_type != zipfile.ZIP_DEFLATED or entry.extra or entry.comment:
        raise Unavailable("bundle-unsafe", f"{name} is encrypted, not deflated, or has more said of it than its name")
    if entry.external_attr != _MODE << 16 or entry.internal_attr or entry.volume:
        raise Unavailable("bundle-unsafe", f"{name} is a link, a device, a folder, or anything but a plain file")
    if not entry.filename.endswith(".jsonl") and entry.file_size > MOST_DOCUMENT_BYTES:
        raise Unavailable("bundle-unsafe", f"{name} has more than {MOST_DOCUMENT_BYTES >> 20} MiB")
    header = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, zipfile.ZIP_DEFLATED, *_TIME, entry.CRC, entry.compress_size, entry.file_size,
                         len(entry.filename), 0) + entry.filename.encode("ascii")
    if entry.header_offset != at or content[at:at + len(header)] != header:
        raise Unavailable("bundle-unsafe", f"{name} overlaps another one, or is said to be something else where it lies")


_TIME = (0, 33)  # MS-DOS's 1980-01-01 00:00 (APPNOTE.TXT 4.4.6)


def _inflated(entry: zipfile.ZipInfo, content: bytes) -> bytes:
    start = entry.header_offset + _LOCAL_BYTES + len(entry.filename)
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(content[start:start + entry.compress_size], entry.file_size + 1)
    except zlib.error:
        raise Unavailable("bundle-broken", f"{entry.filename} cannot be unpacked") from None
    if len(data) > entry.file_size or not inflate.eof or inflate.unused_data or inflate.unconsumed_tail:
        raise Unavailable("bundle-unsafe", f"{entry.filename} unpacks to more or less than is said of it")
    if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
        raise Unavailable("bundle-broken", f"{entry.filename} has another sum")
    return data
