"""The published JVM benchmark ByteArrayTouch on this computer: built by Maven, surveyed,
compared."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel

from tlb.machine.host import inspect, state
from tlb.measure.build import KERNELS
from tlb.measure.record import utc_now
from tlb.measure.toolchains import Toolchain, build_once, run_tool
from tlb.programs.jvm import HEAP_PAGES, HeapPages, Score, run
from tlb.system import files, procfs
from tlb.system.processes import run_whole
from tlb.system.reasons import Unavailable

PROJECT = KERNELS / "jmh"
BUILD_S = 1800.0  # most of it for a download of some 30 MB
_JVM = Toolchain(
    "Java", "ByteArrayTouch.java", ("java", "-version"), (), (), "maven default-jdk-headless"
)
SIZES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000)  # the published ones, bytes


def build() -> Path:
    """Return the benchmark's jar, built if sources or JDK changed. Raises Unavailable:
    no-toolchain, maven-failed, disk-full, disk-read-only."""
    version = java_version()
    if missing := [name for name in ("mvn", "javac") if shutil.which(name) is None]:
        raise Unavailable("no-toolchain", _JVM.lacking(" and ".join(missing)))
    parts = [(PROJECT / name).read_bytes() for name in ("pom.xml", _JVM.source)]
    return build_once("jmh", [*parts, version.encode()], _package) / "jmh-kernels.jar"


def _package(target: Path) -> None:
    command = f"mvn -B -q -f {PROJECT}/pom.xml -DbuildDirectory={target} package".split()
    for offline in (["-o"], []):  # offline first: an unreachable network takes long to fail
        try:
            done = run_whole([*command, *offline], timeout=BUILD_S)
        except subprocess.TimeoutExpired:
            raise Unavailable("maven-failed", f"not finished in {BUILD_S:.0f} s") from None
        if done.returncode == 0 and (target / "jmh-kernels.jar").exists():
            return
    # Maven's own messages contain the addresses of private repositories and mirrors.
    raise Unavailable("maven-failed", "`mvn -f kernels/jmh/pom.xml package` says why")


def java_version() -> str:
    """Return the first line of `java -version`. Raises Unavailable("no-toolchain")."""
    return procfs.label(run_tool(_JVM, _JVM.version, 60))


def jmh_version() -> str:
    match = re.search(r"<jmh\.version>([^<]+)<", (PROJECT / "pom.xml").read_text())
    return match[1] if match else ""


class Lack(BaseModel, frozen=True, extra="forbid"):
    """Why a page size has no scores: a code of REASONS and its detail."""

    code: str
    detail: str = ""


class Jmh(BaseModel, frozen=True, extra="forbid"):
    """All that JMH measured on one machine in one `state`."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str
    jvm: str
    jmh: str
    scores: list[Score]
    lacking: dict[HeapPages, Lack]


def make(profile: str) -> dict[str, Any]:
    """Return the document `jmh` of data/ for a profile. Raises Unavailable, as `survey` does."""
    sizes = SIZES[:1] if profile == "smoke" else SIZES
    return survey(sizes, quick=profile != "full").model_dump(mode="json")


def survey(sizes: Sequence[int] = SIZES, quick: bool = False) -> Jmh:
    """Run the benchmark on each page size, in under three minutes, or one with `quick`, plus the
    build. Raises Unavailable: as build() does, not-linux, measuring-already."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    jar, jvm, begun = build(), java_version(), utc_now()
    # Three JVMs of five iterations are the published 15; a new JVM has new physical pages. One JVM
    # takes eight, because of three JMH's interval (Student's t at 99.9 %) is 32 standard errors
    # wide on each side, of eight 5.4.
    effort: dict[str, Any] = {"warmup_s": 0.9, "measure_s": 0.25, "iterations": 5, "forks": 3}
    if quick:
        effort = {"warmup_s": 0.5, "measure_s": 0.12, "iterations": 8, "forks": 1}
    scores: list[Score] = []
    lacking: dict[HeapPages, Lack] = {}
    with files.measuring_lock():
        for pages in HEAP_PAGES:
            try:
                scores += run(jar, pages, sizes, **effort)
            except Unavailable as why:
                lacking[pages] = Lack(code=why.code, detail=why.detail)
    return Jmh(
        measured_at=begun,
        state=state(inspect()),
        jvm=jvm,
        jmh=jmh_version(),
        scores=scores,
        lacking=lacking,
    )


def touches(doc: Jmh) -> pd.DataFrame:
    """Return pages, array_bytes and score (ns per access): a row a page size and array."""
    rows = [score.model_dump() for score in doc.scores if score.quantity == "touch"]
    table = pd.DataFrame(rows, columns=["pages", "array_bytes", "ns_per_access"])
    return table.rename(columns={"ns_per_access": "score"})
