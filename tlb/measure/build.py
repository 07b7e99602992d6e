"""Compile a kernel or name its numba module.

A binary is named after the digest of its sources, the flags and the compiler. A changed digest is
another measurement only if the version that the kernel's file declares (MEASURES) changed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tlb.machine.compiler import Compiler
from tlb.measure import compiling, kernels
from tlb.measure.compiling import compiler_or_prebuilt
from tlb.measure.record import KernelBuild, KernelEngine, Point, printable_ascii
from tlb.system import files
from tlb.system.files import disk_errors
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
        digest, made_by = compiling.digest(compiling.closure(module), words), ", ".join(words)
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
    return compiling.closure(main) if main else ()


def source_digest(name: str, engine: KernelEngine) -> str:
    """Return 16 hex digits of `source_files`."""
    return compiling.digest(source_files(name, engine))


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


def preload_library(main: Path) -> Path:
    """Compile a C file as a library for LD_PRELOAD; return its path. Raises as `kernel` does."""
    return _compiled(main, compiler_or_prebuilt(library=True), LIBRARY)


def _compiled(main: Path, cc: Compiler | None, flags: Sequence[str]) -> Path:
    if cc:
        return _built(cc, main, flags)[0]
    raise Unavailable("no-compiler")


def _built(cc: Compiler, main: Path, flags: Sequence[str]) -> tuple[Path, str]:
    """Return what is compiled from a C file, and its digest. The object file is kept to digest
    functions."""
    digest = compiling.digest(
        compiling.closure(main), [*flags, *cc.command, cc.version], compiling.bare
    )
    binary = build_folder() / f"{main.stem}-{digest}"
    if cc.command[0] == "zig" and files.PREBUILT_ARCHIVE.is_file():
        compiling.unpack(binary)
        compiling.unpack(_object_of(binary))
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
