"""Toolchains of the programs in kernels/runtimes/: how each is built and started."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

from tlb.machine.host import compiler_on_path
from tlb.measure.build import COMPILER_FLAGS, KERNELS_FOLDER, build_folder
from tlb.system import procfs
from tlb.system.files import disk_errors_as_unavailable
from tlb.system.processes import run_in_own_session
from tlb.system.reasons import Unavailable

BUILD_LIMIT_S = 1800.0  # Go compiles its own library the first time; the machine may be busy

# as everybody allocates; advised; from the pool of 2 MiB pages
AllocationVariant = Literal["plain", "huge", "pool"]


class Toolchain(NamedTuple):
    """A language's source and commands. `@` is the folder of what is built."""

    title: str
    source: str
    version: tuple[str, ...]
    compile: tuple[str, ...]
    run: tuple[str, ...]
    packages: str  # of Debian and Ubuntu

    def lacking(self, what: str) -> str:
        """Return the detail of no-toolchain, with what to install."""
        return f"{what}; Debian, Ubuntu: apt install {self.packages}"


# C's compiler is found as for the kernels, and Python is the one that runs this: their first words
# are put in later.
TOOLCHAINS = {
    "c": Toolchain(
        "C",
        "big_array.c",
        (),
        (*COMPILER_FLAGS, "-o", "@/big_array"),
        ("@/big_array",),
        "gcc libc6-dev",
    ),
    "rust": Toolchain(
        "Rust",
        "big_array.rs",
        ("rustc", "--version"),
        ("rustc", "--edition", "2021", "-O", "-o", "@/big_array"),
        ("@/big_array",),
        "rustc",
    ),
    "go": Toolchain(
        "Go",
        "big_array.go",
        ("go", "version"),
        ("go", "build", "-o", "@/big_array"),
        ("@/big_array",),
        "golang-go",
    ),
    "java": Toolchain(
        "Java",
        "BigArray.java",
        ("javac", "-version"),
        ("javac", "-d", "@"),
        ("java", "-cp", "@", "BigArray"),
        "default-jdk-headless",
    ),
    "python": Toolchain("Python", "big_array.py", (), (), (sys.executable,), "python3"),
}
RUNTIME_SOURCES_FOLDER = KERNELS_FOLDER / "runtimes"

# Go neither reads a module nor asks the network for one or for a newer Go; the other settings would
# change which pages a program gets behind its back.
_SET = {
    "GO111MODULE": "off",
    "GOTOOLCHAIN": "local",
    "GOPROXY": "off",
    "GOFLAGS": "",
    "CGO_ENABLED": "0",
    "LC_ALL": "C",
}
_UNSET = {
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "GLIBC_TUNABLES",
    "NUMPY_MADVISE_HUGEPAGE",
    "GODEBUG",
    "GOGC",
    "GOMEMLIMIT",
    "LD_PRELOAD",
}


# Java's warnings, of an empty pool for one, go to stderr by both of its ways of writing them: the
# first line on stdout is the answer.
_JAVA_WARNS = ("-XX:+DisplayVMOutputToStderr", "-Xlog:disable", "-Xlog:all=warning:stderr")


class BuiltProgram(NamedTuple):
    """A built program; `toolchain` is the line by which the toolchain names itself."""

    language: str
    toolchain: str
    run: tuple[str, ...]

    def command(self, variant: AllocationVariant, array_bytes: int) -> list[str]:
        """Return the command line. Java's heap is twice the array and 64 MiB, as a copying
        collector needs."""
        options = []
        if self.language == "java":
            heap = f"{(2 * array_bytes >> 20) + 64}m"
            recipes = re.findall(
                r"(?s)\[(recipe|pool)\]\n(.+?)\[end\]",
                (RUNTIME_SOURCES_FOLDER / TOOLCHAINS["java"].source).read_text(),
            )
            flags = {part: re.findall(r"-XX:\S+", text) for part, text in recipes}
            mine = flags.get({"huge": "recipe"}.get(variant, variant), ())
            options = [*_JAVA_WARNS, f"-Xms{heap}", f"-Xmx{heap}", *mine]
        return [self.run[0], *options, *self.run[1:], variant, str(array_bytes)]


# What a tool that cannot write says, in the C locale; Go writes it in lower case.
_DISK = [os.strerror(number).lower() for number in (errno.ENOSPC, errno.EROFS)]


def clean_environment() -> dict[str, str]:
    """Return our environment without what would change programs' pages or use the network."""
    return {name: value for name, value in os.environ.items() if name not in _UNSET} | _SET


def run_tool(tool: Toolchain, command: Sequence[str], timeout_s: float) -> str:
    """Return the first line that a tool prints. Raises Unavailable: no-toolchain with its
    complaint, disk-refused."""
    name = Path(command[0]).name
    if shutil.which(command[0]) is None:
        raise Unavailable("no-toolchain", tool.lacking(name))
    try:
        # no project's own settings (rust-toolchain.toml) hold there
        with tempfile.TemporaryDirectory() as nowhere:
            done = run_in_own_session(
                command, timeout=timeout_s, cwd=nowhere, env=clean_environment()
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("no-toolchain", tool.lacking(f"{name}: {type(error).__name__}")) from None
    lines = [
        line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()
    ]
    if done.returncode:
        first = next(
            (line for line in lines if "error" in line), lines[0] if lines else "no message"
        )
        detail = f"{name}: {first[:150]}"
        if any(words in done.stderr.lower() for words in _DISK):
            raise Unavailable("disk-refused", detail)
        raise Unavailable("no-toolchain", tool.lacking(detail))
    return lines[0] if lines else ""


def put_build_folder_in_command(words: Sequence[str], folder: Path) -> list[str]:
    """Return words with the folder of what is built."""
    return [word.replace("@", str(folder), 1) if word.startswith("@") else word for word in words]


def compile_program(tool: Toolchain, source: Path, name: str) -> tuple[str, Path]:
    """Return the line by which a toolchain names itself, and the folder of a program, compiled if
    necessary. Raises Unavailable: no-toolchain, disk-refused."""
    if tool.version:
        line, words = procfs.label(run_tool(tool, tool.version, 60)) or tool.title, tool.compile
    elif (cc := compiler_on_path()) is None:
        raise Unavailable("no-toolchain", tool.lacking("a C compiler"))
    else:
        line, words = procfs.label(cc.version), (*cc.command, *tool.compile)

    def make(folder: Path) -> str:
        return run_tool(
            tool, [*put_build_folder_in_command(words, folder), str(source)], BUILD_LIMIT_S
        )

    parts = [source.read_bytes(), *(word.encode() for word in (line, *words))]
    return line, cached_build(name, parts, make)


def build_program(language: str) -> BuiltProgram:
    """Return a program, compiled if necessary. Raises Unavailable as `compile_program` does."""
    tool = TOOLCHAINS[language]
    source = RUNTIME_SOURCES_FOLDER / tool.source
    if language == "python":
        packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
        line = f"Python {platform.python_version()}, {packages}"
        return BuiltProgram(language, line, (*tool.run, str(source)))
    if language == "java" and shutil.which("java") is None:
        raise Unavailable("no-toolchain", tool.lacking("java"))
    line, folder = compile_program(tool, source, f"runtime-{language}")
    return BuiltProgram(language, line, tuple(put_build_folder_in_command(tool.run, folder)))


def cached_build(name: str, parts: Sequence[bytes], make: Callable[[Path], object]) -> Path:
    """Return the folder of a name and the digest of `parts`, filled by `make` if new; it appears
    whole."""
    digest = hashlib.sha256(
        b"\0".join(hashlib.sha256(part).digest() for part in parts)
    ).hexdigest()[:16]
    folder = build_folder() / f"{name}-{digest}"
    if not folder.exists():
        with (
            disk_errors_as_unavailable(folder),
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary,
        ):
            new = Path(temporary, "new")
            new.mkdir()
            make(new)
            try:
                new.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was quicker
                    raise
    return folder
