"""Compile a kernel or name its numba module: sources, their digests, and the compiler run on one
of them, so that a binary is whole or absent; and the programs that a wheel brings, compiled already.

A binary is named after the digest of its sources, the flags and the compiler. A changed digest is
another measurement only if the version that the kernel's file declares (MEASURES) changed.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.metadata
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tlb.machine import host
from tlb.machine.host import Compiler
from tlb.measure import kernels
from tlb.measure.record import KernelBuild, KernelEngine, Point, printable_ascii
from tlb.system import files
from tlb.system.files import PREBUILT_ARCHIVE, disk_errors_as_unavailable
from tlb.system.reasons import Unavailable

ROOT = files.ROOT
KERNELS_FOLDER = ROOT / "kernels"
# -O2, no -march: as a distribution ships it, and the same instructions on all of an architecture.
# -ffunction-sections: calls stay relocations, so no function's bytes depend on another one's place.
COMPILER_FLAGS = ("-std=gnu11", "-O2", "-ffunction-sections", "-Wall", "-Wextra", "-Werror")
LIBRARY = (*COMPILER_FLAGS, "-shared", "-fPIC")
# The file of an engine in Python, and the kernels that it measures.
_IN_PYTHON: dict[KernelEngine, tuple[str, frozenset[str]]] = {
    "numba": ("chase_numba.py", frozenset({"page_chase", "page_gather"})),
    "numpy": ("published/page_gather.py", frozenset({"page_gather"})),
}
# whose versions decide what a Python kernel does
_PACKAGES = {"numba": ("numba", "llvmlite", "numpy"), "numpy": ("numpy",)}


@dataclass(frozen=True)
class Kernel:
    """How to run a kernel; `digest` is 16 hex digits of all that decides what it does."""

    name: str
    engine: KernelEngine
    command: tuple[str, ...]
    digest: str
    # the compiler or the interpreter and its packages, with their versions
    build: KernelBuild = KernelBuild(measures=1, compiler="")


def source(name: str, engine: KernelEngine) -> Path | None:
    """Return a kernel's file in an engine, None if there is none."""
    if engine != "c" and name not in _IN_PYTHON[engine][1]:
        return None
    path = KERNELS_FOLDER / (f"{name}.c" if engine == "c" else _IN_PYTHON[engine][0])
    return path if path.exists() else None


def kernel_names() -> list[str]:
    """Return the kernels by their C files, without session programs."""
    sessions = {
        kernel.session for kernel in kernels.KERNEL_DECLARATIONS.values()
    } - kernels.KERNEL_DECLARATIONS.keys()
    return sorted({path.stem for path in KERNELS_FOLDER.glob("*.c")} - sessions)


def engine_for(asked: str) -> KernelEngine:
    """Resolve `auto`: C if there is a compiler, else numba. Raises Unavailable("no-compiler") for
    `c` without a compiler."""
    if asked == "numpy":
        return "numpy"
    if compiler_or_prebuilt():
        return "numba" if asked == "numba" else "c"
    if asked == "c":
        raise Unavailable("no-compiler")
    return "numba"


def kernel(name: str, engine: KernelEngine = "c") -> Kernel:
    """Return a kernel ready to run, compiled if necessary.

    Raises Unavailable: bad-parameter for an unknown name, no-compiler where C alone measures it,
    engine-lacks, no-extra without numba, compile-failed with the compiler's first line,
    disk-refused.
    """
    if name not in kernel_names():
        raise Unavailable(
            "bad-parameter", f"there is no kernel '{name}'; there are {', '.join(kernel_names())}"
        )
    if (module := source(name, engine)) is None:
        code = "no-compiler" if engine == "numba" else "engine-lacks"
        raise Unavailable(code, f"{engine} does not measure {name}")
    if engine == "c":
        if (cc := compiler_or_prebuilt()) is None:
            raise Unavailable("no-compiler")
        binary, digest = _built(cc, module, COMPILER_FLAGS)
        command: tuple[str, ...] = (str(binary),)
        made_by = cc.label
    else:
        try:
            packages = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES[engine]]
        except importlib.metadata.PackageNotFoundError as error:  # on a worker of `tlb fleet`
            raise Unavailable("no-extra", f"{error.name} is of the extra book") from None
        words = [f"python {platform.python_version()}", *packages]
        digest, made_by = sources_digest(source_closure(module), words), ", ".join(words)
        command = session("", engine)
    measures = declared_measures(name, engine)
    build = KernelBuild(measures, printable_ascii(made_by), source_digest(name, engine))
    return Kernel(name, engine, command, digest, build)


def declared_measures(name: str, engine: KernelEngine) -> int:
    """Return MEASURES of a kernel's file, of its C file where the engine has none any more; 1 if
    none declares it."""
    path = source(name, engine) or source(name, "c")
    text = path.read_text() if path else ""
    declared = re.search(r"^(?:#define MEASURES|MEASURES =) (\d+)", text, re.MULTILINE)
    return int(declared[1]) if declared else 1


def source_files(name: str, engine: KernelEngine) -> tuple[Path, ...]:
    """Return a kernel's source and all that it includes or imports; empty if it is gone."""
    main = source(name, engine)
    return source_closure(main) if main else ()


def source_digest(name: str, engine: KernelEngine) -> str:
    """Return 16 hex digits of `source_files`."""
    return sources_digest(source_files(name, engine))


def builds() -> Callable[[Point], KernelBuild]:
    """Return what measures a point, for many points: each kernel is built once. Raises as
    `kernel`."""
    built = cache(kernel)
    return lambda point: built(point.kernel, point.engine).build


def has_session(point: Point) -> bool:
    """Return whether a session program measures a point, with others in one mapping."""
    has_one = bool(kernels.session_of(point))
    return has_one and (point.engine == "c" or source(point.kernel, point.engine) is not None)


def session(name: str, engine: KernelEngine) -> tuple[str, ...]:
    """Return the command of a session program, compiled if necessary; an engine in Python has one."""
    if engine == "c":
        return (str(program(KERNELS_FOLDER / f"{name}.c")),)
    module = _IN_PYTHON[engine][0].removesuffix(".py").replace("/", ".")
    cache = f"NUMBA_CACHE_DIR={build_folder() / 'numba'}"
    return (shutil.which("env") or "env", cache, sys.executable, "-m", f"kernels.{module}")


def compile_all(points: Iterable[Point]) -> None:
    """Compile the C programs that measure these points, a compiler on each CPU.

    What does not compile is raised by whoever needs it.
    """
    used = [point for point in points if point.engine == "c"]
    names = {p.kernel for p in used} | {kernels.session_of(p) for p in used} - {""}
    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        for name in names:
            compilers.submit(program, KERNELS_FOLDER / f"{name}.c")


def program(main: Path) -> Path:
    """Compile a C file that is no kernel; return the program's path. Raises as `kernel` does."""
    return _compiled(main, compiler_or_prebuilt(), COMPILER_FLAGS)


def build_preload_library(main: Path) -> Path:
    """Compile a C file as a library for LD_PRELOAD; return its path. Raises as `kernel` does."""
    return _compiled(main, compiler_or_prebuilt(library=True), LIBRARY)


def _compiled(main: Path, cc: Compiler | None, flags: Sequence[str]) -> Path:
    if cc:
        return _built(cc, main, flags)[0]
    raise Unavailable("no-compiler")


def _built(cc: Compiler, main: Path, flags: Sequence[str]) -> tuple[Path, str]:
    """Return what is compiled from a C file, and its digest. The object file is kept to digest
    functions."""
    digest = sources_digest(
        source_closure(main), [*flags, *cc.command, cc.version], without_comments
    )
    binary = build_folder() / f"{main.stem}-{digest}"
    if cc.command[0] == "zig" and files.PREBUILT_ARCHIVE.is_file():
        unpack(binary)
        unpack(_object_of(binary))
    elif not (binary.exists() and _object_of(binary).exists()):
        compile_source(cc, main, _object_of(binary), [*flags, "-c"])
        compile_source(cc, _object_of(binary), binary, flags)
    return binary, digest


def _object_of(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.o")


def build_folder() -> Path:
    """Return the folder of binaries, below $TLB_BUILD or `files.build_root`."""
    folder = Path(os.environ.get("TLB_BUILD") or files.build_root()) / "kernels"
    with disk_errors_as_unavailable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


_LITERAL = r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
_COMMENT = re.compile(_LITERAL + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_SPACE = re.compile(_LITERAL + r"|\s+")


def source_closure(main: Path) -> tuple[Path, ...]:
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
    named = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return tuple(
        root.parent.joinpath(*name.split(".")).with_suffix(".py")
        for name in named
        if name and name.startswith("kernels.")
    )


@lru_cache(512)
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache  # the same few files, for each point
def without_comments(text: str) -> str:
    """Return C text without comments. Other white space becomes one space; literals stay, and so do
    the lines of preprocessor directives."""
    text = _COMMENT.sub(lambda found: found[1] or " ", text.replace("\\\n", ""))
    lines = (_SPACE.sub(lambda found: found[1] or " ", line).strip() for line in text.splitlines())
    return "".join(f"\n{line}\n" if line.startswith("#") else f"{line} " for line in lines if line)


def sources_digest(
    files: Iterable[Path], words: Sequence[str] = (), read: Callable[[str], str] = str
) -> str:
    """Return 16 hex digits of files, as `read` gives their text, and words."""
    texts = (_sha256(read(_text(path))) for path in files)
    return hashlib.sha256("\0".join([*texts, *words]).encode()).hexdigest()[:16]


# Only a compiler that hangs takes so long: before its first program zig compiles a C library, which
# took a quarter of an hour on a busy machine.
LONGEST_S = 3600

# What a compiler says in the C locale when it cannot write, here or in its own temporary folder.
_DISK_WORDS = {
    os.strerror(number): number
    for number in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EROFS)
}


def compile_source(
    cc: Compiler, source: Path, binary: Path, flags: Sequence[str], libraries: Sequence[str] = ()
) -> None:
    """Compile into a temporary name first: a killed compile leaves no half binary."""
    with disk_errors_as_unavailable(binary.parent):
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
    found = host.compiler_on_path()
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
    with disk_errors_as_unavailable(binary):
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
