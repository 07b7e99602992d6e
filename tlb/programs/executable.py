"""What the file of a command says: whether a library can be loaded before its own, and which line
of code an address is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import struct
import subprocess
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session
from tlb.system.reasons import Unavailable

# elf.h. PT_INTERP names the loader of a dynamically linked program.
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_STRTAB, _DT_STRSZ = 5, 10
_HEAD_BYTES = 1 << 16
_SANITIZERS = {
    b"__asan_init": "AddressSanitizer",
    b"__msan_init": "MemorySanitizer",
    b"__tsan_init": "ThreadSanitizer",
}
_GO = b"\xff Go buildinf:"  # begins what `go version FILE` reads (src/debug/buildinfo of Go)


def check(command: list[str], option: str = "") -> None:
    """Raise Unavailable("program-missing") if Linux could not start a command. option: that names
    the command."""
    if why := reason_against_start(command[0]):
        raise Unavailable("program-missing", f"{option} {shlex.quote(command[0])}: {why}".lstrip())


def reason_against_start(name: str) -> str:
    """Why Linux cannot start a program, for a reason's detail; "" where nothing speaks against
    it."""
    path = name if "/" in name else shutil.which(name)
    if path is None:
        return "no folder of PATH has such a program"
    try:
        if os.path.isdir(path):
            return "it is a directory"
        os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return str(getattr(error, "strerror", None) or error)
    if not os.access(path, os.X_OK):
        return "it is not executable, or its file system is mounted noexec"
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:  # it may be executed and not read
        return ""
    return _why_no_interpreter(head)


def _why_no_interpreter(head: bytes) -> str:
    """Why a file that begins so is not started, though it is executable: what is to run it, a
    script's interpreter or a program's loader, is not there."""
    if head.startswith(b"#!"):
        # As Linux reads it: the file of a Windows editor names an interpreter that ends in \r.
        words = re.split(rb"[ \t]+", head[2:].partition(b"\n")[0].strip(b" \t"))
        name, *rest = map(os.fsdecode, words)
        if Path(name).name == "env" and rest and not re.search("^-|=", rest[0]):
            return (
                ""
                if shutil.which(rest[0])
                else f"no folder of PATH has its interpreter, {rest[0]!r}"
            )
        return "" if os.path.exists(name) else f"its interpreter {name!r} does not exist"
    for kind, _, start, _, _, size, *_ in _segments(head):
        loader = os.fsdecode(head[start : start + size].rstrip(b"\0"))
        if kind == _PT_INTERP and loader and not os.path.exists(loader):
            return f"its loader {loader!r} does not exist"
    return ""


def reason_against_preload(command: str) -> str:
    """Why no library is loaded before a command's own, for a reason's detail; "" where that is not
    seen in its file."""
    path = _program(shutil.which(command) or command)
    try:
        status, head = path.stat(), path.open("rb").read(_HEAD_BYTES)
    except OSError:
        return ""
    if (status.st_mode & 0o4000 and status.st_uid != os.getuid()) or _has_capabilities(path):
        return f"{path.name} runs with other rights than its user's, so Linux preloads nothing"
    if is_static(head):
        return f"{path.name} is statically linked, and loads no library"
    sanitizer = sanitizer_of(command)
    return f"{path.name} is built with {sanitizer}, which has to be loaded first" * bool(sanitizer)


def sanitizer_of(command: str) -> str:
    """Return the sanitizer that a command is built with, by the symbols that it shares with its
    libraries; "" without one."""
    names = _dynamic_strings(_program(shutil.which(command) or command))
    return next((name for symbol, name in _SANITIZERS.items() if symbol in names), "")


def is_go_program(command: str) -> bool:
    """Whether a command is built by Go, whose runtime maps its memory itself."""
    path = _program(shutil.which(command) or command)
    with suppress(OSError):
        content = path.read_bytes()
        return content[:4] == b"\x7fELF" and _GO in content
    return False


def is_static(head: bytes) -> bool:
    """Whether a file that begins so is an ELF program of 64 bits that names no loader."""
    kinds = [kind for kind, *_ in _segments(head)]
    return bool(kinds) and _PT_INTERP not in kinds


def source_line_before(path: str, offset: int) -> tuple[str, str, int]:
    """Return the line of the instruction before a place in a file, as `source_line_of` does."""
    return source_line_of(path, hex(address_of(path, offset) - 1))


def address_of(path: str, offset: int) -> int:
    """Return the address that a file's tables have for a place in it; the offset where no segment
    says."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return offset
    for kind, _, start, address, _, size, *_ in _segments(head):
        if kind == _PT_LOAD and start <= offset < start + size:
            return offset - start + address
    return offset


@lru_cache(maxsize=1024)
def source_line_of(path: str, address: str) -> tuple[str, str, int]:
    """Return function, file and line at an address of a file as addr2line knows them; "" and 0 for
    what it does not know."""
    try:
        done = run_in_own_session(
            ["addr2line", "-Cf", "-e", path, address], timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", "", 0
    function, _, place = done.stdout.strip().partition("\n")
    known = re.match(r"([^?]+):(\d+)", place)
    file, line = known.groups() if known else ("", "0")
    return function.strip("?"), file, int(line)


def _dynamic_strings(path: Path) -> set[bytes]:
    """Return the names in the dynamic symbol table of an ELF file of 64 bits, and others there."""
    with suppress(OSError, struct.error), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        segments = _segments(head)
        for kind, _, offset, _, _, size, *_ in segments:
            if kind != _PT_DYNAMIC:
                continue
            file.seek(offset)
            entries = dict(struct.iter_unpack("<QQ" if head[5] == 1 else ">QQ", file.read(size)))
            address, length = entries.get(_DT_STRTAB, 0), entries.get(_DT_STRSZ, 0)
            for loaded, _, start, at, _, in_file, *_ in segments:
                if loaded == _PT_LOAD and at <= address < at + in_file:
                    file.seek(address - at + start)
                    return set(file.read(length).split(b"\0"))
    return set()


def _segments(head: bytes) -> list[tuple[int, ...]]:
    """Return the program headers of an ELF file of 64 bits that begins so; none of any other."""
    if head[:5] != b"\x7fELF\x02" or len(head) < 64:
        return []
    order = "<" if head[5] == 1 else ">"
    (offset,) = struct.unpack_from(f"{order}Q", head, 32)  # e_phoff
    size, number = struct.unpack_from(f"{order}HH", head, 54)  # e_phentsize, e_phnum
    starts = [offset + n * size for n in range(number)]
    return [
        struct.unpack_from(f"{order}IIQQQQQQ", head, start)
        for start in starts
        if start + 56 <= len(head)
    ]


def _program(path: str) -> Path:
    """The file that the kernel loads: of a script, its interpreter."""
    program = Path(path).resolve()
    try:
        with program.open("rb") as file:
            line = file.readline(256)
    except OSError:
        return program
    words = line[2:].split() if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])).resolve() if words else program


def _has_capabilities(path: Path) -> bool:
    try:
        return "security.capability" in os.listxattr(path)
    except OSError:
        return False
