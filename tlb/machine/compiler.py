"""The C compiler of this computer, if it has one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tlb.system import procfs
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    version: str  # its first line of --version

    @property
    def label(self) -> str:
        """As "gcc: gcc (Debian 12.2.0-14) 12.2.0": its name without the path, and its version
        line."""
        return procfs.label(f"{Path(self.command[0]).name}: {self.version}")


@cache
def compiler_on_path() -> Compiler | None:
    """$CC, else the first of cc, gcc, clang that answers --version; None where there is none."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        try:
            command = tuple(shlex.split(candidate))
            if not command or shutil.which(command[0]) is None:
                continue
            done = run_in_own_session([*command, "--version"], timeout=PROBE_TIMEOUT_S)
        # ValueError: a quote in $CC without its pair
        except (ValueError, OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0 and done.stdout.strip():
            return Compiler(command, done.stdout.strip().splitlines()[0].strip())
    return None
