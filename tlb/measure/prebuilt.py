"""The programs that a wheel brings, compiled by `make dist` for one architecture.

An archive holds what the build folder would hold if the wheel's compiler were here: programs and
object files, named by the digest of their sources, flags and compiler. Each is unpacked there when
it is needed, so a program of other sources or a changed one is never run."""

from __future__ import annotations

import lzma
import os
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from tlb.machine import compiler as installed
from tlb.machine.compiler import Compiler
from tlb.system.files import PREBUILT, disk_errors
from tlb.system.reasons import Unavailable

ZIG = "0.17.1"  # the release of ziglang that `make dist` takes


def zig(machine: str, *, library: bool = False) -> Compiler:
    """Return the compiler of programs, static against musl, so that they run on any Linux; or of a
    library that programs of others load, against the oldest glibc that wheels are for."""
    target = f"{machine}-linux-{'gnu.2.17' if library else 'musl'}"
    return Compiler(("zig", "cc", "-target", target, "-g0"), f"zig cc {ZIG}")


def compiler(*, library: bool = False) -> Compiler | None:
    """Return the compiler of this computer, else the one whose work the wheel brings; None where
    there is neither."""
    found = installed.compiler()
    return zig(PREBUILT.name.partition(".")[0], library=library) if not found and _has() else found


def _has() -> bool:
    return PREBUILT.is_file()


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
        with tarfile.open(PREBUILT) as archive:
            members = {entry.name: archive.extractfile(entry) for entry in archive}
            return {name: file.read() for name, file in members.items() if file}
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise Unavailable(
            "file-damaged", f"{PREBUILT}: {error}", "Install `tlb` again, or install a C compiler."
        ) from None
