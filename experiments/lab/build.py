"""Compile a kernel, or name its numba module: the command line that runs it, and the digest of what that runs.

A binary is named after the digest of its source, the headers that it includes, the flags and the compiler, so a change of any of
them is another binary and, through the store's key, another measurement. A digest of a twin, or of a published
program in numpy, is of its module and those that it imports.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.lab.record import Engine
from experiments.machine.compiler import Compiler, compiler
from experiments.system import files
from experiments.system.files import disk_errors
from experiments.words.reasons import Unavailable

ROOT = files.ROOT
KERNELS = ROOT / "kernels"
# -O2 and no -march: what a distribution ships, and the same instructions on every machine of an architecture.
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
_PACKAGES = {"numba": ("numba", "llvmlite"), "numpy": ("numpy",)}  # whose versions decide what a Python kernel does


@dataclass(frozen=True)
class Kernel:
    """How to run a kernel: `command` takes its arguments; `digest` is 16 hex digits of all that decides what it does."""

    name: str
    engine: Engine
    command: tuple[str, ...]
    digest: str


# Kernels that a reader has changed in this process, by name: the folder that holds their sources instead of kernels/.
_PATCHED: dict[str, Path] = {}


def patch(name: str, old: str, new: str) -> None:
    """Put `new` in the place of `old` in a C kernel or its headers, for this process alone: its rows have a digest of their own.

    The changed copy lies in the build folder; kernels/ stays as it is. Raises Unavailable("bad-parameter") where `old` does not stand
    there exactly once.
    """
    sources = {path: path.read_text() for path in _closure(_PATCHED.get(name, KERNELS) / f"{name}.c", _included)}
    if sum(text.count(old) for text in sources.values()) != 1:
        raise Unavailable("bad-parameter", f"the text to change does not stand exactly once in {name}.c and its headers: {old[:80]!r}")
    with disk_errors(build_folder()):
        folder = Path(tempfile.mkdtemp(dir=build_folder(), prefix=f"{name}-patched-"))
        for path, text in sources.items():
            (folder / path.name).write_text(text.replace(old, new))
    _PATCHED[name] = folder


def source(name: str, engine: Engine) -> Path:
    """Where a kernel's source in an engine is, if it has one."""
    return KERNELS / {"c": f"{name}.c", "numba": f"twins/{name}.py", "numpy": f"published/{name}.py"}[engine]


def kernel_names() -> list[str]:
    """The kernels there are, by their files; most are in C and in numba, some in one alone. A twin can be run: it has a main()."""
    twins = {path.stem for path in (KERNELS / "twins").glob("*.py") if "\ndef main(" in path.read_text()}
    return sorted({path.stem for path in KERNELS.glob("*.c")} | twins)


def engine_for(asked: str, name: str = "") -> Engine:
    """`auto` is C where a compiler is found and the kernel, if named, has a C file, and numba elsewhere.

    `c` without a compiler is Unavailable("no-compiler").
    """
    in_numba_alone = bool(name) and name in kernel_names() and not (KERNELS / f"{name}.c").exists()
    if asked == "numpy":
        return "numpy"
    if asked == "numba" or (asked == "auto" and (in_numba_alone or compiler() is None)):
        return "numba"
    if compiler() is None:
        raise Unavailable("no-compiler")
    return "c"


def kernel(name: str, engine: Engine = "c") -> Kernel:
    """The kernel ready to run, compiled if it has to be.

    Raises Unavailable: bad-parameter for an unknown name, engine-lacks for a kernel that the engine does not have,
    no-compiler, compile-failed with the compiler's first line, disk-full and disk-read-only.
    """
    if name not in kernel_names():
        raise Unavailable("bad-parameter", f"there is no kernel '{name}'; there are {', '.join(kernel_names())}")
    if not (module := source(name, engine)).exists():
        raise Unavailable("engine-lacks", f"there is no {module.relative_to(ROOT)}")
    if engine != "c":
        versions = [f"{package} {importlib.metadata.version(package)}" for package in _PACKAGES[engine]]
        digest = _digest(*_closure(module, _imported), words=[platform.python_version(), *versions])
        return Kernel(name, engine, (sys.executable, "-m", f"kernels.{module.parent.name}.{name}"), digest)
    cc = compiler()
    if cc is None:
        raise Unavailable("no-compiler")
    binary, digest = _built(cc, _PATCHED.get(name, KERNELS) / f"{name}.c", FLAGS)
    return Kernel(name, engine, (str(binary),), digest)


def program(main: Path, *more: str) -> Path:
    """A C file that is no kernel, as a program, compiled if it has to be, with more flags. Raises Unavailable as `kernel` does."""
    if (cc := compiler()) is None:
        raise Unavailable("no-compiler")
    return _built(cc, main, (*FLAGS, *more))[0]


def library(main: Path) -> Path:
    """A C file as a library that a program can be made to load before its own (LD_PRELOAD). Raises Unavailable as `kernel` does."""
    return program(main, "-shared", "-fPIC")


def digest(name: str, cc: Compiler) -> str:
    """What a C kernel's digest is where this compiler builds it, whether it is here or not."""
    return _digest(*_closure(source(name, "c"), _included), words=[*FLAGS, *cc.command, cc.version])


def _built(cc: Compiler, main: Path, flags: Sequence[str]) -> tuple[Path, str]:
    """What is made of a C file, and the digest that it is named after."""
    digest = _digest(*_closure(main, _included), words=[*flags, *cc.command, cc.version])
    binary = build_folder() / f"{main.stem}-{digest}"
    if not binary.exists():
        _compile(cc, main, binary, flags)
    return binary, digest


def build_folder() -> Path:
    """Where binaries go: $TLB_BUILD, else _build/kernels in the checkout."""
    folder = Path(os.environ.get("TLB_BUILD", ROOT / "_build")) / "kernels"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _included(main: Path) -> Iterable[Path]:
    return (main.parent / name for name in re.findall(r'^#include "(\w+\.h)"', main.read_text(), re.MULTILINE))


def _imported(module: Path) -> Iterable[Path]:
    """The modules of kernels/twins/ that one imports, as files."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "kernels.twins":
            yield from (source(alias.name, "numba") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernels.twins."):
            yield source(node.module.rpartition(".")[2], "numba")


def _closure(main: Path, named: Callable[[Path], Iterable[Path]]) -> tuple[Path, ...]:
    """A source, the files that it names, and those that they name: each once, as first met."""
    paths = [main]
    for path in paths:  # which grows meanwhile
        paths += [other for other in named(path) if other not in paths]
    return tuple(dict.fromkeys(paths))


def _digest(*files: Path, words: list[str]) -> str:
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files] + words
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# What a compiler says in the C locale when it cannot write, here or in its own temporary folder.
_DISK_WORDS = {os.strerror(number): number
               for number in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EROFS)}


def _compile(cc: Compiler, source: Path, binary: Path, flags: Sequence[str]) -> None:
    """Into a temporary name first: a compile that is killed leaves no half binary, two at once do no harm."""
    with disk_errors(binary.parent):
        fd, temporary = tempfile.mkstemp(dir=binary.parent, prefix=binary.name)
        os.close(fd)
        try:
            done = subprocess.run([*cc.command, *flags, "-o", temporary, str(source)],
                                  capture_output=True, text=True, timeout=120, errors="replace", stdin=subprocess.DEVNULL,
                                  env=os.environ | {"LC_ALL": "C"})
            if done.returncode:
                raise _compile_error(cc, done.stderr)
            os.chmod(temporary, 0o755)
            os.replace(temporary, binary)
        except subprocess.TimeoutExpired:
            raise Unavailable("compile-failed", f"{cc.command[0]} did not finish in 120 s") from None
        finally:
            Path(temporary).unlink(missing_ok=True)


def _compile_error(cc: Compiler, stderr: str) -> Exception:
    for words, number in _DISK_WORDS.items():
        if words in stderr:
            return OSError(number, f"{cc.command[0]}: {words}")
    lines = stderr.splitlines() or ["no message"]
    first = next((line for line in lines if "error: " in line), lines[0])
    return Unavailable("compile-failed", f"{cc.command[0]}: {first.strip()}")
