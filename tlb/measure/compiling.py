"""Source files, their digests, and the compiler run on one of them, so that a binary is whole or
absent; and the programs that a wheel brings, compiled already."""

from __future__ import annotations

import ast
import errno
import hashlib
import lzma
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path

from tlb.machine import compiler as installed
from tlb.machine.compiler import Compiler
from tlb.system.files import PREBUILT_ARCHIVE, disk_errors
from tlb.system.reasons import Unavailable

_LITERAL = r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
_COMMENT = re.compile(_LITERAL + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_SPACE = re.compile(_LITERAL + r"|\s+")


def closure(main: Path) -> tuple[Path, ...]:
    """Return a source in C or Python, the files that it names and those that they name, each
    once."""
    named = _imported if main.suffix == ".py" else _included
    paths = [main]
    for path in paths:  # which grows meanwhile
        paths += [other for other in named(path, _text(path)) if other not in paths]
    return tuple(dict.fromkeys(paths))


def _text(path: Path) -> str:
    """Return a source's text. It is read again only if the file changed, because a campaign needs
    the same files for each of a thousand processes."""
    status = path.stat()
    return _text_of(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(256)
def _text_of(path: Path, *_version: int) -> str:
    return path.read_text()


@lru_cache(256)
def _included(main: Path, text: str) -> tuple[Path, ...]:
    named = re.findall(r'^#include "(\w+\.[ch])"', text, re.MULTILINE)
    return tuple(main.parent / name for name in named)


@lru_cache(256)
def _imported(module: Path, text: str) -> tuple[Path, ...]:
    """Return the files of the modules of kernels/ that one imports."""
    root = next(folder for folder in module.parents if folder.name == "kernels")
    return tuple(
        root.parent.joinpath(*node.module.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("kernels.")
        and node.module
    )


@cache  # the same few files, for each point
def bare(text: str) -> str:
    """Return C text without comments. Other white space becomes one space; literals stay, and so do
    the lines of preprocessor directives."""
    text = _COMMENT.sub(lambda found: found[1] or " ", text.replace("\\\n", ""))
    lines = (_SPACE.sub(lambda found: found[1] or " ", line).strip() for line in text.splitlines())
    return "".join(f"\n{line}\n" if line.startswith("#") else f"{line} " for line in lines if line)


def digest(
    files: Iterable[Path], words: Sequence[str] = (), read: Callable[[str], str] = str
) -> str:
    """Return 16 hex digits of files, as `read` gives their text, and words."""
    texts = (_sha256(read(_text(path))) for path in files)
    return hashlib.sha256("\0".join([*texts, *words]).encode()).hexdigest()[:16]


@lru_cache(512)
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# Only a compiler that hangs takes so long: before its first program zig compiles a C library, which
# took a quarter of an hour on a busy machine.
LONGEST_S = 3600

# What a compiler says in the C locale when it cannot write, here or in its own temporary folder.
_DISK_WORDS = {
    os.strerror(number): number
    for number in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EROFS)
}


def compiled(
    cc: Compiler, source: Path, binary: Path, flags: Sequence[str], libraries: Sequence[str] = ()
) -> None:
    """Compile into a temporary name first: a killed compile leaves no half binary."""
    with disk_errors(binary.parent):
        fd, temporary = tempfile.mkstemp(dir=binary.parent, prefix=binary.name)
        os.close(fd)
        try:
            done = subprocess.run(
                [*cc.command, *flags, "-o", temporary, str(source), *libraries],
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                errors="replace",
                stdin=subprocess.DEVNULL,
                env=os.environ | {"LC_ALL": "C"},
            )
            if done.returncode:
                raise _compile_error(cc, done.stderr)
            os.chmod(temporary, 0o755)
            os.replace(temporary, binary)
        except subprocess.TimeoutExpired:
            raise Unavailable(
                "compile-failed", f"{cc.command[0]} did not finish in {LONGEST_S} s"
            ) from None
        finally:
            Path(temporary).unlink(missing_ok=True)


def _compile_error(cc: Compiler, stderr: str) -> Exception:
    for words, number in _DISK_WORDS.items():
        if words in stderr:
            return OSError(number, f"{cc.command[0]}: {words}")
    lines = stderr.splitlines() or ["no message"]
    first = next((line for line in lines if "error: " in line), lines[0])
    return Unavailable("compile-failed", f"{cc.command[0]}: {first.strip()}")


# --- the programs that a wheel brings, compiled by `make dist` for one architecture
#
# An archive holds what the build folder would hold if the wheel's compiler were here: programs and
# object files, named by the digest of their sources, flags and compiler. Each is unpacked there when
# it is needed, so a program of other sources or a changed one is never run.

ZIG = "0.17.1"  # the release of ziglang that `make dist` takes


def zig(machine: str, *, library: bool = False) -> Compiler:
    """Return the compiler of programs, static against musl, so that they run on any Linux; or of a
    library that programs of others load, against the oldest glibc that wheels are for."""
    target = f"{machine}-linux-{'gnu.2.17' if library else 'musl'}"
    return Compiler(("zig", "cc", "-target", target, "-g0"), f"zig cc {ZIG}")


def compiler_or_prebuilt(*, library: bool = False) -> Compiler | None:
    """Return the compiler of this computer, else the one whose work the wheel brings; None where
    there is neither."""
    found = installed.compiler_on_path()
    return (
        zig(PREBUILT_ARCHIVE.name.partition(".")[0], library=library)
        if not found and _has()
        else found
    )


def _has() -> bool:
    return PREBUILT_ARCHIVE.is_file()


def unpack(binary: Path) -> None:
    """Put a program or an object file of the archive in its place, whole, unless it lies there.

    Raises Unavailable: no-compiler for a program that the wheel does not bring, file-damaged,
    disk-refused where no program may run from that folder.
    """
    content = _archive().get(binary.name)
    if content is None:
        raise Unavailable("no-compiler", f"and the wheel brings no {binary.name}")
    with disk_errors(binary):
        if not binary.is_file() or binary.read_bytes() != content:
            fd, temporary = tempfile.mkstemp(dir=binary.parent, prefix=binary.name)
            try:
                with open(fd, "wb") as file:
                    file.write(content)
                os.chmod(temporary, 0o755)
                os.replace(temporary, binary)
            finally:
                Path(temporary).unlink(missing_ok=True)
    if not os.access(binary, os.X_OK):
        raise Unavailable(
            "disk-refused",
            f"no program may run from {binary.parent}",
            "Name another folder in TLB_BUILD, on a file system mounted without noexec.",
        )


@cache
def _archive() -> dict[str, bytes]:
    """Return the files of the archive by name. Raises Unavailable("file-damaged")."""
    try:
        with tarfile.open(PREBUILT_ARCHIVE) as archive:
            members = {entry.name: archive.extractfile(entry) for entry in archive}
            return {name: file.read() for name, file in members.items() if file}
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise Unavailable(
            "file-damaged",
            f"{PREBUILT_ARCHIVE}: {error}",
            "Install `tlb` again, or install a C compiler.",
        ) from None
