"""Make the distribution into dist/: a wheel for each architecture with its kernels compiled by zig,
and the source archive. `make dist` runs it; the same commit gives the same bytes.

What git tracks is taken as it is on disk."""

from __future__ import annotations

import gzip
import io
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tlb.measure.build import ZIG, zig

ROOT = Path(__file__).resolve().parents[1]
OUTPUT, BUILD = ROOT / "dist", ROOT / "_build" / "dist"
SOURCE, TOOLS = BUILD / "source", BUILD / "bin"
MACHINES = ("x86_64", "aarch64")
PLATFORM = "manylinux_2_17_{0}.musllinux_1_1_{0}"
PACKAGES = {"x86_64": "binutils-x86-64-linux-gnu", "aarch64": "binutils-aarch64-linux-gnu"}
# The commands of `tlb.measure.build`, with $CC as a reader may set it.
PROGRAMS = """
from tlb.measure import build
for path in sorted(build.KERNELS_FOLDER.glob("*.c")):
    build.program(path)
"""
LIBRARIES = """
from tlb.measure import build
from tlb.programs.levers import SHIM, ALLOCATION_SITES_SOURCE_FILE
for path in (SHIM, ALLOCATION_SITES_SOURCE_FILE):
    build.build_preload_library(path)
"""


def check_tools() -> None:
    """Exit with a sentence if a program that is needed only after minutes is missing."""
    for machine in MACHINES:
        if shutil.which(stripper(machine)) is None:
            sys.exit(
                f"`make dist` needs {stripper(machine)}, which is not installed. "
                f"Debian, Ubuntu: apt install {PACKAGES[machine]}."
            )


def stripper(machine: str) -> str:
    return f"{machine}-linux-gnu-strip"


def output(*command: str) -> str:
    return subprocess.check_output(command, cwd=ROOT, text=True)


def export() -> list[str]:
    """Copy what git tracks to a clean folder; return its names."""
    names = [name for name in output("git", "ls-files", "-z").split("\0") if name]
    names = sorted(name for name in names if (ROOT / name).is_file())
    for name in names:
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, SOURCE / name)
    return names


def make_zig(python: str) -> None:
    """Put a `zig` on the path that calls itself as a wheel's programs name it."""
    found = output(python, "-m", "ziglang", "version").strip()
    if found != ZIG:
        sys.exit(f"ziglang is {found}, and tlb.measure.build names {ZIG}.")
    TOOLS.mkdir(parents=True)
    version = f'*--version) echo "zig cc {ZIG}";;'
    # It is called from other folders. Not resolved: the link's place makes it an environment's.
    program = shlex.quote(str(Path(python).absolute()))
    script = f'case "$*" in {version} *) exec {program} -m ziglang "$@";; esac'
    (TOOLS / "zig").write_text(f"#!/bin/sh\n{script}\n")
    (TOOLS / "zig").chmod(0o755)


def compiled(machine: str) -> Path:
    """Compile the kernels and the library for an architecture; return the folder."""
    for library, code in ((False, PROGRAMS), (True, LIBRARIES)):
        environment = os.environ | {
            "CC": " ".join(zig(machine, library=library).command),
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "TLB_BUILD": str(BUILD / machine),
        }
        subprocess.run([sys.executable, "-c", code], cwd=SOURCE, env=environment, check=True)
    made = BUILD / machine / "kernels"
    # Of musl itself; zig drops all symbols or none, and timed functions are found by theirs.
    subprocess.run([stripper(machine), "--strip-debug", *made.glob("*")], check=True)
    return made


def write_man_pages() -> None:
    """Write man pages of the wheel's commands to where setup.py takes them from."""
    (SOURCE / "man").mkdir()
    command = [sys.executable, "-m", "tlb.cli.commands", "man"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    subprocess.run(command, cwd=SOURCE, env=environment, check=True)


def pack(files: Iterable[tuple[str, bytes, int]], archive: tarfile.TarFile, date: int) -> None:
    """Add files by name, content and mode, so that nothing depends on who packs them or when."""
    for name, content, mode in files:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), mode, date
        archive.addfile(entry, io.BytesIO(content))


def wheel(machine: str, date: int) -> Path:
    """Build the wheel for an architecture."""
    prebuilt = BUILD / f"{machine}.tar.xz"
    files = sorted(compiled(machine).iterdir())
    with tarfile.open(prebuilt, "w:xz", preset=9) as archive:
        pack(((path.name, path.read_bytes(), 0o755) for path in files), archive, date)
    shutil.rmtree(SOURCE / "build", ignore_errors=True)
    environment = os.environ | {"TLB_PREBUILT": str(prebuilt), "SOURCE_DATE_EPOCH": str(date)}
    made = BUILD / f"wheel-{machine}"
    build = "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", made
    tag = "wheel", "tags", "--remove", "--platform-tag", PLATFORM.format(machine)
    for command in ((*build, "."), tag):
        words = [*command, *made.glob("*.whl")]
        subprocess.run([sys.executable, "-m", *words], cwd=SOURCE, env=environment, check=True)
    (path,) = made.glob("*.whl")
    return Path(shutil.copy(path, OUTPUT))


def source_archive(names: list[str], made: Path, date: int) -> None:
    """Write the source archive: what git tracks, and the metadata of a wheel."""
    top = "-".join(made.name.split("-")[:2])
    with zipfile.ZipFile(made) as archive:
        about = archive.read(f"{top}.dist-info/METADATA")
    files = [(name, (SOURCE / name).read_bytes(), (SOURCE / name).stat().st_mode) for name in names]
    with (
        (OUTPUT / f"{top}.tar.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=date) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        whole = [("PKG-INFO", about, 0o644), *files]
        pack(((f"{top}/{name}", text, mode & 0o755) for name, text, mode in whole), archive, date)


def main() -> None:
    check_tools()
    os.umask(0o022)
    for folder in (OUTPUT, BUILD):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    names, date = export(), int(output("git", "log", "-1", "--format=%ct"))
    make_zig(sys.argv[1])
    write_man_pages()
    wheels = [wheel(machine, date) for machine in MACHINES]
    source_archive(names, wheels[0], date)
    for path in sorted(OUTPUT.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
