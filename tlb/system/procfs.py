"""Reading /proc and /sys with patience: a file may be absent, unreadable, enormous, or not text at
all."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Of every file but /proc/cpuinfo, which has about 3 KiB a CPU: 24 MiB for the 8192 that Linux
# numbers at most.
_LIMIT_BYTES = 2**20
CPUINFO_BYTES = 2**25
_NUMBER = re.compile(r"\s*([0-9]{1,19})\b")  # ASCII digits; 19 of them hold every 64-bit number
_SIGNED = re.compile(r"\s*(-?[0-9]{1,19})\b")
_CHOSEN = re.compile(r"\[([a-z+_]{1,32})\]")
_KIB = re.compile(r"\s*([0-9]{1,15})\s*(?:K|kB)\b")
_LABEL_CHARS = 120


def text(path: Path, most_bytes: int = _LIMIT_BYTES) -> str:
    """Return the first `most_bytes` of a file as text, what is not UTF-8 replaced; "" where it
    cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a path with a NUL in it
        return ""


def lines(path: Path) -> Iterator[str]:
    """The lines of a file however long it is, one at a time and without their ends; none where it
    cannot be read. For files that grow with the machine or with a process: maps, net/tcp."""
    with suppress(OSError), path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def number(path: Path, signed: bool = False) -> int | None:
    """The whole number that a file begins with, or None. Below zero only where the kernel has such
    settings: `signed`."""
    match = (_SIGNED if signed else _NUMBER).match(text(path))
    return int(match[1]) if match else None


def leading_number(value: str) -> int | None:
    """The whole number that a text begins with ("24684084 kB" gives 24684084), or None."""
    match = _NUMBER.match(value)
    return int(match[1]) if match else None


def label(value: str) -> str:
    """A text for people, made safe to show and to store: one line of printable characters, at most
    120."""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:_LABEL_CHARS]


def word(path: Path) -> str:
    """The first line of a file, as a label; "" where there is none."""
    return label(text(path).partition("\n")[0])


def chosen(path: Path) -> str:
    """The word in brackets of a setting such as "always [madvise] never"; "absent" without the
    file.

    "unknown" where the file is there and brackets no word.
    """
    content = text(path)
    match = _CHOSEN.search(content)
    return match[1] if match else "unknown" if content else "absent"


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of file system that a path lies on, "ext4": that of the longest mount point above
    it; "unknown" without mounts."""
    mounted = [line.split(" ") for line in lines(mounts)]
    points = [(Path(unescape(words[1])), words[2]) for words in mounted if len(words) > 2]
    above = [(len(point.parts), kind) for point, kind in points if path.is_relative_to(point)]
    return max(above, key=lambda one: one[0])[1] if above else "unknown"


def unescape(value: str) -> str:
    """The mount table writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), value)


_START_STACK = 25  # in /proc/PID/stat (proc(5)), counted from the state, which follows the name


def stack_start(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the address at which the stack of a process begins; None where Linux does not say."""
    values = text(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(values[_START_STACK]) or None if len(values) > _START_STACK else None


def fields(content: str) -> dict[str, str]:
    """The "key : value" lines of a text up to its first empty line: all of meminfo, or the first
    CPU of cpuinfo."""
    return next(blocks(content), {})


def blocks(content: str) -> Iterator[dict[str, str]]:
    """The "key : value" lines between empty lines, a block at a time: each CPU of cpuinfo.

    The first of two lines with one key counts. A block without such a line is none.
    """
    values: dict[str, str] = {}
    for line in content.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
        elif values and not line.strip():
            yield values
            values = {}
    if values:
        yield values


def kib(value: str) -> int | None:
    """Bytes in a size as meminfo and the caches in sysfs print it: "24684084 kB", "32K"; None for
    others."""
    match = _KIB.match(value)
    return int(match[1]) * 1024 if match else None


def cpu_list(value: str) -> tuple[int, ...]:
    """The numbers of a CPU list such as "0-3,8"; () for what is none. No kernel numbers beyond 8192
    CPUs."""
    cpus: set[int] = set()
    for part in value.strip()[:65536].split(","):
        match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part)
        if match is None:
            return ()
        cpus.update(range(int(match[1]), min(int(match[2] or match[1]), 8191) + 1))
    return tuple(sorted(cpus))


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted; [] where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def numbered(folder: Path, pattern: str) -> Iterator[tuple[int, Path]]:
    """The entries of a folder whose whole name matches, ascending by the number in the pattern's
    group."""
    matches = filter(None, (re.fullmatch(pattern, name) for name in names(folder)))
    yield from sorted((int(match[1]), folder / match[0]) for match in matches)


def kernel_config(root: Path, release: str) -> str:
    """The kernel's build configuration, from /proc/config.gz or /boot; "" where neither shows
    it."""
    try:
        with gzip.open(root / "proc/config.gz", "rb") as file:
            return file.read(_LIMIT_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error):
        return text(root / "boot" / f"config-{release.replace('/', '')}")
