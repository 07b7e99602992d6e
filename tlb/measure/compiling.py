"""Run the compiler on one file, so that a binary is whole or absent."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tlb.machine.compiler import Compiler
from tlb.system.files import disk_errors
from tlb.system.reasons import Unavailable

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
