"""Compile a kernel or name its numba module, and compute the identity of what it measures.

A binary is named after the digest of its sources, the flags and the compiler. A changed digest is
another measurement only if the machine code of the timed function or the declared version
(MEASURES) changed: see `identity`.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tlb.lab import compiling, kernels, machine_code, prebuilt, python_code, sources
from tlb.lab.prebuilt import compiler
from tlb.lab.record import Engine, Identity, Point
from tlb.machine.compiler import Compiler
from tlb.reasons import Unavailable
from tlb.system import files
from tlb.system.files import disk_errors

ROOT = files.ROOT
KERNELS = ROOT / "kernels"
# -O2, no -march: as a distribution ships it, and the same instructions on all of an architecture.
# -ffunction-sections: calls stay relocations, so no function's bytes depend on another one's place.
FLAGS = ("-std=gnu11", "-O2", "-ffunction-sections", "-Wall", "-Wextra", "-Werror")
LIBRARY = (*FLAGS, "-shared", "-fPIC")
# whose versions decide what a Python kernel does
_PACKAGES = {"numba": ("numba", "llvmlite", "numpy"), "numpy": ("numpy",)}


@dataclass(frozen=True)
class Kernel:
    """How to run a kernel; `digest` is 16 hex digits of all that decides what it does."""

    name: str
    engine: Engine
    command: tuple[str, ...]
    digest: str
    source_digest: str = ""  # of its source and what that includes or imports
    compiler: str = ""  # or the interpreter and its packages, with their versions
    # the version that its file declares: raised by whoever changes what it measures
    measures: int = 1


# Kernels that a reader has changed in this process, by name: the folder that holds their sources
# instead of kernels/.
_PATCHED: dict[str, Path] = {}


def patch(name: str, old: str, new: str) -> None:
    """Replace `old` by `new` in a C kernel or its headers for this process; its rows get their own
    digest.

    kernels/ stays as it is. Raises Unavailable("bad-parameter") unless `old` occurs exactly once.
    """
    texts = {
        path: path.read_text()
        for path in sources.closure(_PATCHED.get(name, KERNELS) / f"{name}.c")
    }
    if sum(text.count(old) for text in texts.values()) != 1:
        raise Unavailable(
            "bad-parameter",
            f"the text to change must occur exactly once in {name}.c and its headers: {old[:80]!r}",
        )
    with disk_errors(build_folder()):
        folder = Path(tempfile.mkdtemp(dir=build_folder(), prefix=f"{name}-patched-"))
        for path, text in texts.items():
            (folder / path.name).write_text(text.replace(old, new))
    _PATCHED[name] = folder


def unpatch() -> None:
    """Use all kernels of kernels/ again."""
    _PATCHED.clear()


def source(name: str, engine: Engine) -> Path:
    """Return the path that a kernel's source has in an engine, whether or not it exists."""
    return (
        KERNELS
        / {"c": f"{name}.c", "numba": f"twins/{name}.py", "numpy": f"published/{name}.py"}[engine]
    )


def kernel_names() -> list[str]:
    """Return the kernels by their C files, without session programs."""
    sessions = {kernel.session for kernel in kernels.CATALOGUE.values()} - kernels.CATALOGUE.keys()
    return sorted({path.stem for path in KERNELS.glob("*.c")} - sessions)


def engine_for(asked: str) -> Engine:
    """Resolve `auto`: C if there is a compiler, else numba. Raises Unavailable("no-compiler") for
    `c` without a compiler."""
    if asked == "numpy":
        return "numpy"
    if compiler():
        return "numba" if asked == "numba" else "c"
    if asked == "c":
        raise Unavailable("no-compiler")
    return "numba"


def kernel(name: str, engine: Engine = "c") -> Kernel:
    """Return a kernel ready to run, compiled if necessary.

    Raises Unavailable: bad-parameter for an unknown name, engine-lacks, no-compiler, compile-failed
    with the compiler's first line, disk-full, disk-read-only.
    """
    if name not in kernel_names():
        raise Unavailable(
            "bad-parameter", f"there is no kernel '{name}'; there are {', '.join(kernel_names())}"
        )
    if not (module := source(name, engine)).exists():
        raise Unavailable("engine-lacks", f"there is no {module.relative_to(ROOT)}")
    if engine == "c":
        if (cc := compiler()) is None:
            raise Unavailable("no-compiler")
        binary, digest = _built(cc, _source(name, engine), FLAGS)
        command, made_by = (str(binary),), cc.label
    else:
        packages = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES[engine]]
        words = [f"python {platform.python_version()}", *packages]
        digest, made_by = sources.digest(sources.closure(module), words), ", ".join(words)
        command = session(name, engine)
    provenance = source_digest(name, engine), made_by
    return Kernel(name, engine, command, digest, *provenance, declared_measures(name, engine))


def declared_measures(name: str, engine: Engine) -> int:
    """Return MEASURES of a kernel's file, of its C file where a twin is gone; 1 if none declares
    it."""
    try:
        text = _source(name, engine).read_text()
    except FileNotFoundError:
        return declared_measures(name, "c") if engine != "c" else 1
    declared = re.search(r"^(?:#define MEASURES|MEASURES =) (\d+)", text, re.MULTILINE)
    return int(declared[1]) if declared else 1


def source_files(name: str, engine: Engine) -> tuple[Path, ...]:
    """Return a kernel's source and all that it includes or imports; empty if it is gone."""
    main = _source(name, engine)
    return sources.closure(main) if main.exists() else ()


def source_digest(name: str, engine: Engine) -> str:
    """Return 16 hex digits of `source_files`."""
    return sources.digest(source_files(name, engine))


def _source(name: str, engine: Engine) -> Path:
    """Return the path of a kernel's source, as patched."""
    main = source(name, engine)
    return _PATCHED[name] / main.name if engine == "c" and name in _PATCHED else main


def identity(point: Point, built: Kernel | None = None) -> Identity:
    """Return what distinguishes the rows of a point from another measurement's, and its provenance.

    The code is that of the point's timed function, or the kernel's own digest if it has none.
    Raises as `kernel` does.
    """
    built = built or kernel(point.kernel, point.engine)
    return Identity(
        built.measures,
        _code_digest(built, kernels.declaration(point.kernel).timed(point)),
        built.source_digest,
        built.compiler,
    )


def identities() -> Callable[[Point], Identity]:
    """Return `identity` for many points; each kernel is built once."""
    built = cache(kernel)
    return lambda point: identity(point, built(point.kernel, point.engine))


@lru_cache(maxsize=256)
def _code_digest(built: Kernel, functions: tuple[str, ...]) -> str:
    """Return the digest of a kernel's functions, or the kernel's own if the compiler inlined
    them."""
    try:
        if functions and built.engine != "c":
            words = built.compiler.split(", ")
            return python_code.digest(
                source(built.name, built.engine),
                functions,
                lambda name: source(name, "numba"),
                words,
            )
        if functions:
            return _machine_code(Path(built.command[-1]), functions)
    except (LookupError, ValueError, OSError):
        pass
    return built.digest


def _machine_code(binary: Path, functions: tuple[str, ...]) -> str:
    return machine_code.digest(_object_of(binary), binary, functions)


def sessions() -> Callable[[Point], bool]:
    """Return a predicate: whether a session program measures a point by the same machine code at
    the same address modulo 64 as the kernel's own program.

    For kernels that do not change meanwhile. The predicate raises Unavailable as `kernel` does.
    """
    built, made = cache(kernel), cache(session)

    @cache
    def is_same(name: str, engine: Engine, kernel: str, functions: tuple[str, ...]) -> bool:
        if not name or kernel in _PATCHED or not source(name, engine).exists():
            return False
        if engine != "c":
            return True  # it calls the kernel's module
        try:
            alone = _machine_code(Path(built(kernel, engine).command[-1]), functions)
            return alone == _machine_code(Path(made(name, engine)[0]), functions)
        except (LookupError, ValueError, OSError):
            return False

    return lambda point: is_same(
        kernels.session_of(point),
        point.engine,
        point.kernel,
        kernels.declaration(point.kernel).timed(point),
    )


def session(name: str, engine: Engine) -> tuple[str, ...]:
    """Return the command of a session program, compiled if necessary."""
    module = source(name, engine)
    return (
        (str(program(module)),)
        if engine == "c"
        else (sys.executable, "-m", f"kernels.{module.parent.name}.{name}")
    )


def compile_all(points: Iterable[Point]) -> None:
    """Compile the C programs that measure these points, a compiler on each CPU.

    What does not compile is raised by whoever needs it.
    """
    used = [point for point in points if point.engine == "c"]
    names = {p.kernel for p in used} | {kernels.session_of(p) for p in used} - {""}
    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        for name in names:
            compilers.submit(program, source(name, "c"))


def program(main: Path) -> Path:
    """Compile a C file that is no kernel; return the program's path. Raises as `kernel` does."""
    return _compiled(main, compiler(), FLAGS)


def library(main: Path) -> Path:
    """Compile a C file as a library for LD_PRELOAD; return its path. Raises as `kernel` does."""
    return _compiled(main, compiler(library=True), LIBRARY)


def _compiled(main: Path, cc: Compiler | None, flags: Sequence[str]) -> Path:
    if cc:
        return _built(cc, main, flags)[0]
    raise Unavailable("no-compiler")


def _built(cc: Compiler, main: Path, flags: Sequence[str]) -> tuple[Path, str]:
    """Return what is compiled from a C file, and its digest. The object file is kept to digest
    functions."""
    digest = sources.digest(sources.closure(main), [*flags, *cc.command, cc.version], sources.bare)
    binary = build_folder() / f"{main.stem}-{digest}"
    if cc.command[0] == "zig" and files.PREBUILT.is_file():
        prebuilt.unpack(binary)
        prebuilt.unpack(_object_of(binary))
    elif not (binary.exists() and _object_of(binary).exists()):
        compiling.compiled(cc, main, _object_of(binary), [*flags, "-c"])
        compiling.compiled(cc, _object_of(binary), binary, flags)
    return binary, digest


def _object_of(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.o")


def build_folder() -> Path:
    """Return the folder of binaries, below $TLB_BUILD or `files.build_root`."""
    folder = Path(os.environ.get("TLB_BUILD") or files.build_root()) / "kernels"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder
