"""Programs that share nothing with the kernels but the question: where they are, and how one in C is compiled."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from experiments.lab import build

INDEPENDENT = build.KERNELS / "reference"


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Where they are compiled into, as long as this process lives."""
    return tempfile.TemporaryDirectory()


def c_program(source: Path, folder: str, *flags: str) -> str:
    """The path of a C program, compiled into `folder`. SystemExit without a compiler."""
    if (cc := build.compiler()) is None:
        raise SystemExit(f"{source.name} needs a C compiler: apt install gcc libc6-dev.")
    subprocess.run([*cc.command, "-O2", "-std=gnu11", *flags, "-o", binary := f"{folder}/{source.stem}", str(source)], check=True)
    return binary
