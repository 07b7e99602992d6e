"""JMH's benchmark as a jar: built by Maven where project, source or JDK changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tlb.lab.build import KERNELS
from tlb.lab.toolchains import Tool, built, first_line
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.processes import run_whole

PROJECT = KERNELS / "jmh"
BUILD_S = 300.0  # of which a download of some 30 MB is most
_JVM = Tool(
    "Java", "ByteArrayTouch.java", ("java", "-version"), (), (), "maven default-jdk-headless"
)
_COLOUR = re.compile(
    r"\x1b\[[0-9;]*m"
)  # Debian's Maven begins with a reset of colours that nobody asked for


def build() -> Path:
    """The benchmark's jar. Raises Unavailable: no-toolchain, maven-failed, disk-full and
    disk-read-only."""
    version = java_version()
    if missing := [name for name in ("mvn", "javac") if shutil.which(name) is None]:
        raise Unavailable("no-toolchain", _JVM.lacking(" and ".join(missing)))
    parts = [(PROJECT / name).read_bytes() for name in ("pom.xml", _JVM.source)]
    return built("jmh", [*parts, version.encode()], _package) / "jmh-kernels.jar"


def _package(target: Path) -> None:
    deadline = time.monotonic() + BUILD_S
    command = [
        "mvn",
        "-B",
        "-q",
        "-Dstyle.color=never",
        "-f",
        str(PROJECT / "pom.xml"),
        f"-DbuildDirectory={target}",
        "package",
    ]
    for offline in (
        ["-o"],
        [],
    ):  # first without the network, which may be slow to say that it is not there
        try:
            done = run_whole([*command, *offline], timeout=deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            raise Unavailable("maven-failed", f"not finished in {BUILD_S:.0f} s") from None
        if done.returncode == 0 and (target / "jmh-kernels.jar").exists():
            return
        plain = _COLOUR.sub("", done.stdout).splitlines()
        errors = [
            line.removeprefix("[ERROR]").strip() for line in plain if line.startswith("[ERROR]")
        ]
        if not any("offline mode" in line for line in errors):
            break
    first = next(
        (line for line in errors if not line.endswith(":")), f"exit status {done.returncode}"
    )
    # Not Maven's own sentence, which goes on with the addresses of repositories and mirrors: nobody
    # else's business.
    unreached = re.search(r" artifact (\S+) from/to ", first)
    raise Unavailable(
        "maven-failed",
        f"no repository was reached for {unreached[1]}"
        if unreached
        else first.replace(f"{PROJECT}{os.sep}", ""),
    )


def java_version() -> str:
    """The first line of `java -version`. Raises Unavailable("no-toolchain") where there is no JVM
    that answers."""
    return procfs.label(first_line(_JVM, _JVM.version, 60))


def jmh_version() -> str:
    match = re.search(r"<jmh\.version>([^<]+)<", (PROJECT / "pom.xml").read_text())
    return match[1] if match else ""
