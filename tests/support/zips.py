"""Zip archives as nobody should write them: made by hand or by zipfile, and changed where a reader
may look."""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping

LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


def archive(
    members: Mapping[str, bytes] | list[tuple[str, bytes]],
    change: Callable[[zipfile.ZipInfo], object] = bool,
    method: int = zipfile.ZIP_DEFLATED,
    comment: bytes = b"",
) -> bytes:
    """As a bundle is, but for what `change` does to each member's entry before it is written."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.comment = comment
        for name, content in sorted(members.items()) if isinstance(members, Mapping) else members:
            entry = zipfile.ZipInfo("x")
            entry.filename, entry.compress_type, entry.external_attr = name, method, 0o100644 << 16
            change(entry)
            made.writestr(entry, content)
    return buffer.getvalue()


def attribute(value: int) -> Callable[[zipfile.ZipInfo], None]:
    """Of all members, as the file's external attributes."""
    return lambda entry: setattr(entry, "external_attr", value)


def renamed(content: bytes, old: bytes, new: bytes, count: int = -1) -> bytes:
    """Another name of the same length, in both places or in the first."""
    assert len(old) == len(new) and old in content
    return content.replace(old, new, count)


def directory(content: bytes) -> tuple[bytes, bytes, bytes]:
    """(members, directory, its end)."""
    (offset,) = struct.unpack_from("<L", content, len(content) - 6)
    return content[:offset], content[offset:-22], content[-22:]


def patched(
    content: bytes, mark: bytes, at: int, layout: str, value: int, number: int = 0
) -> bytes:
    """A field of the `number`-th header of a kind, set to a value."""
    start = [found.start() for found in re.finditer(re.escape(mark), content)][number]
    changed = bytearray(content)
    struct.pack_into(f"<{layout}", changed, start + at, value)
    return bytes(changed)


def shifted(content: bytes, by: int) -> bytes:
    """A directory, and its end, of members that lie farther back."""
    members, entries, end = directory(content)
    moved = bytearray(entries)
    for found in re.finditer(re.escape(CENTRAL), entries):
        (offset,) = struct.unpack_from("<L", entries, found.start() + 42)
        struct.pack_into("<L", moved, found.start() + 42, offset + by)
    (offset,) = struct.unpack_from("<L", end, 16)
    return bytes(moved) + end[:16] + struct.pack("<L", offset + by) + end[20:]


def zeros(size: int) -> bytes:
    """A deflated stream of so many zeros, a thousandth as long."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    return b"".join(deflate.compress(block) for _ in range(size >> 20)) + deflate.flush()


def by_hand(name: bytes, stream: bytes, size: int, crc: int = 0, entries: int = 1) -> bytes:
    """One deflated stream that is said to have a size; with several entries, all of them at the
    same place."""
    same = (20, 0, 8, 0, 33, crc, len(stream), size)  # of both headers
    local = struct.pack("<4s5H3L2H", LOCAL, *same, len(name), 0) + name + stream
    listed = b""
    for number in range(entries):
        each = name[: -len(b"00.jsonl")] + b"%02d.jsonl" % number if entries > 1 else name
        rest = (len(each), 0, 0, 0, 0, 0o100644 << 16, 0)
        listed += struct.pack("<4s6H3L5H2L", CENTRAL, 0x314, *same, *rest) + each
    end = struct.pack("<4s4H2LH", END, 0, 0, entries, entries, len(listed), len(local), 0)
    return local + listed + end
