"""The published JVM benchmark ByteArrayTouch on this computer: built by Maven, run by JMH on each page
size, and the page size proved from every fork's smaps.

A JVM that cannot have the pages it was asked for silently uses others and exits with status 0. So
every fork saves its /proc/self/smaps, and the mappings of the heap decide.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, FiniteFloat

from tlb.machine import pools
from tlb.machine.host import base_page_bytes, inspect_machine, state_digest
from tlb.machine.memory import usable_memory
from tlb.machine.settings import require_thp
from tlb.measure.build import KERNELS_FOLDER
from tlb.measure.measuring_setup import USABLE_MEMORY_SHARE
from tlb.measure.record import PositiveInt, PositiveNs, utc_now
from tlb.measure.toolchains import Toolchain, cached_build, clean_environment, run_tool
from tlb.system import files, procfs
from tlb.system.processes import run_in_own_session, without_thp
from tlb.system.reasons import Unavailable
from tlb.system.smaps import parse_smaps_mappings, unknown_smaps_format_error

HeapPages = Literal["4k", "thp", "2m"]
HEAP_PAGES: tuple[HeapPages, ...] = get_args(HeapPages)
_FLAGS = {
    "4k": "-XX:-UseTransparentHugePages -XX:-UseLargePages",
    "thp": "-XX:+UseTransparentHugePages",
    "2m": "-XX:+UseLargePages -XX:LargePageSizeInBytes=2m",
}
_HUGE = 2 << 20
_YOUNG_MIB = _SPARE_MIB = 32  # what JMH itself allocates beside the array; whole large pages
# The JVM takes its code from the pool before the heap, 240 MiB by default; JMH fills a tenth of 48.
_CODE_MIB = 48
_JVM_BYTES = 256 << 20  # JMH's own process and a fork, beside the heap
_WHOLE = 0.99  # of the heap: what has to lie on the pages asked for
# JMH hangs if it takes a minute and three times as long as a fork's start (0.6 s on a guest of 3
# GHz) and its iterations need.
HANG_S, START_S = 60.0, 1.0
_OUT_OF_MEMORY = ("OutOfMemoryError", "Could not reserve enough space", "insufficient memory")
_HEAP_AT = re.compile(r"Heap address: 0x([0-9a-f]{1,16}), size: ([0-9]{1,9}) MB")


class Score(BaseModel, frozen=True, extra="forbid"):
    """JMH's mean over `iterations_count` iterations in `forks` fresh JVMs. error_ns: half of its
    99.9 % interval, None of one iteration. A `draw` reads no array: it draws an index into one."""

    pages: HeapPages
    array_bytes: PositiveInt
    quantity: Literal["touch", "draw"]
    ns_per_access: PositiveNs
    error_ns: Annotated[FiniteFloat, Field(ge=0)] | None
    iterations_count: PositiveInt
    forks: PositiveInt


def heap_mib(sizes: Sequence[int]) -> int:
    """Return the heap that the largest array needs, in whole large pages."""
    return _YOUNG_MIB + _SPARE_MIB + -(-max(sizes) // _HUGE) * 2


def check_heap(pages: HeapPages, sizes: Sequence[int], root: Path = Path("/")) -> None:
    """Raise Unavailable if the system that `root` shows cannot back the heap: as require_thp() does,
    page-size-unsupported, pool-empty, memory-short."""
    heap, kernel = heap_mib(sizes) << 20, root / "sys/kernel/mm"
    if pages == "thp":
        require_thp(root)
    if pages == "2m":
        free = procfs.number(kernel / "hugepages/hugepages-2048kB/free_hugepages")
        if free is None:
            raise Unavailable("page-size-unsupported", "no pool of 2 MiB pages")
        # The card table and the table of block offsets take a 512th of the heap each.
        needed = -(-(heap + heap // 256 + (_CODE_MIB << 20)) // _HUGE)
        if free < needed:
            raise Unavailable("pool-empty", f"{needed} pages of 2 MiB needed, {free} free")
        if limits := pools.cgroup_limits_below(pages, needed * _HUGE, root):
            raise pools.limited(limits)
    usable = int(usable_memory(root).usable_bytes * USABLE_MEMORY_SHARE)
    needed = _JVM_BYTES + (heap if pages != "2m" else 0)
    if needed > usable:
        words = f"{needed >> 20} MiB needed, {usable >> 20} MiB may be used"
        raise Unavailable("memory-short", words)


def run_jmh(
    jar: Path,
    pages: HeapPages,
    sizes: Sequence[int],
    *,
    warmup_s: float,
    measure_s: float,
    iterations: int,
    forks: int,
    root: Path = Path("/"),
) -> list[Score]:
    """Run JMH on one page size and return a score for each array, and one for the draw alone. Each
    of `forks` JVMs warms up once. Raises Unavailable: as check_heap() and verify_forks() do, kernel-failed,
    kernel-failed, oom-killed."""
    check_heap(pages, sizes, root)
    limit_s = HANG_S + 3 * (len(sizes) + 1) * forks * (START_S + warmup_s + iterations * measure_s)
    command = [
        *("java", "-Djava.io.tmpdir=.", "-jar", str(jar), r"\.ByteArrayTouch\."),
        *("-p", f"size={','.join(map(str, sizes))}", "-p", f"bound={max(sizes)}"),
        *("-f", str(forks), "-wi", "1", "-w", f"{warmup_s * 1e3:.0f}ms"),
        *("-i", str(iterations), "-r", f"{measure_s * 1e3:.0f}ms", "-foe", "true"),
        *("-rf", "json", "-rff", "scores.json", "-jvmArgsAppend", _fork_flags(pages, sizes)),
    ]
    # With THP at `always` a JVM has huge pages whatever its flags. Children inherit this.
    starting = without_thp() if pages == "4k" and sys.platform == "linux" else nullcontext()
    with tempfile.TemporaryDirectory(prefix="jmh-") as folder:
        try:
            with starting:
                done = run_in_own_session(
                    command, timeout=limit_s, cwd=folder, env=clean_environment()
                )
        except subprocess.TimeoutExpired:
            raise Unavailable("kernel-failed", f"JMH gave no answer in {limit_s:.0f} s") from None
        except FileNotFoundError:
            raise Unavailable("no-toolchain", "java") from None
        if done.returncode:
            raise _failure(done)
        verify_forks(Path(folder), pages, sizes, forks)
        return parsed_scores(procfs.text(Path(folder, "scores.json")), pages, sizes)


def _fork_flags(pages: HeapPages, sizes: Sequence[int]) -> str:
    """One contiguous heap, touched at the start; no collector's threads, and no file in /tmp that
    the JVM writes to meanwhile. The log says where the heap lies."""
    heap = heap_mib(sizes)
    return (
        f"{_FLAGS[pages]} -XX:+UseSerialGC -Xms{heap}m -Xmx{heap}m -Xmn{_YOUNG_MIB}m "
        f"-XX:+AlwaysPreTouch -XX:ReservedCodeCacheSize={_CODE_MIB}m -XX:-UsePerfData "
        "-Xlog:gc+heap+coops=debug:file=heap-%p.log"
    )


def _failure(done: subprocess.CompletedProcess[str]) -> Unavailable:
    """Return why JMH failed, in the first words of the last fork."""
    output = done.stdout + "\n" + done.stderr
    if done.returncode == -9 or "exit code 137" in output:
        return Unavailable("oom-killed", "the JVM")
    is_memory = any(words in output for words in _OUT_OF_MEMORY)
    lines = output.rpartition("# Fork:")[2].splitlines()[1:]
    noise = re.compile(r"\s*$|[#\[<]|Iteration|Error occurred during init")
    first = next((line.strip() for line in lines if not noise.match(line)), "")
    return Unavailable(
        "memory-short" if is_memory else "kernel-failed",
        first[:200] or f"exit status {done.returncode}",
    )


# --- what proves the page size


def verify_forks(folder: Path, pages: HeapPages, sizes: Sequence[int], forks: int) -> None:
    """Call prove_heap() on what every fork saved before and after it measured. Raises Unavailable: as
    prove_heap() does, kernel-failed if a fork saved nothing."""
    for size in sizes:
        for when in ("before", "after"):
            saved = sorted(folder.glob(f"{size}-*-{when}.smaps"))
            if len(saved) != forks:
                words = f"{len(saved)} of {forks} JVMs show their pages {when} {size} bytes"
                raise Unavailable("kernel-failed", words)
            for path in saved:
                log = folder / f"heap-{path.name.split('-')[1]}.log"
                with path.open(encoding="utf-8", errors="replace", newline="\n") as smaps:
                    prove_heap(smaps, procfs.text(log), pages, size)


def prove_heap(
    smaps: str | Iterable[str], log: str, pages: HeapPages, array_bytes: int = 1
) -> None:
    """Raise Unavailable unless the whole heap lies on `pages` by a JVM's smaps, a text or its
    lines: pool-empty if it fell back, kernel-failed if its log does not locate the heap,
    linux-lacks, else backing-partial. Of a heap in the pool only the array must be resident: a JVM
    does not touch it beforehand."""
    at = _HEAP_AT.search(log)
    if at is None:
        raise Unavailable("kernel-failed", "the JVM's log does not say where its heap lies")
    low, size = int(at[1], 16), int(at[2]) << 20
    try:
        heap = [
            one for one in parse_smaps_mappings(smaps) if one.start < low + size and one.end > low
        ]
    except ValueError as error:
        raise unknown_smaps_format_error(f"of the JVM: {error}") from None
    resident = sum(one.resident_bytes for one in heap)
    thp, pool = sum(one.thp_bytes for one in heap), sum(one.pool_bytes for one in heap)
    page_sizes = {one.page_bytes for one in heap}
    is_base = page_sizes == {base_page_bytes()} and pool == 0
    fits = {
        "4k": is_base and thp == 0 and resident >= _WHOLE * size,
        "thp": is_base and thp >= _WHOLE * size,
        "2m": page_sizes == {_HUGE} and resident == pool >= array_bytes,
    }
    if not fits[pages]:
        raise Unavailable(
            "pool-empty" if pages == "2m" and pool == 0 else "backing-partial",
            f"asked for {size >> 20} MiB of Java heap on {pages}; smaps shows {resident >> 20} MiB "
            f"resident, {thp >> 20} MiB on THP, {pool >> 20} MiB on hugetlbfs",
        )


def parsed_scores(text: str, pages: HeapPages, sizes: Sequence[int]) -> list[Score]:
    """Return the scores in JMH's JSON: those of `sizes` and of the draw. Raises
    Unavailable("kernel-failed") for any others."""
    try:
        scores = [_score(result, pages) for result in json.loads(text)]
    except (ValueError, KeyError, TypeError) as why:  # pydantic's errors are ValueErrors
        raise Unavailable("kernel-failed", f"JMH's JSON: {why!r}"[:200]) from None
    scores.sort(key=lambda score: (score.quantity, score.array_bytes))
    measured = [(score.quantity, score.array_bytes) for score in scores]
    if measured != [("draw", max(sizes)), *(("touch", size) for size in sorted(set(sizes)))]:
        raise Unavailable("kernel-failed", f"JMH measured other arrays: {measured}")
    return scores


def _score(result: dict[str, Any], pages: HeapPages) -> Score:
    metric, quantity = result["primaryMetric"], result["benchmark"].rpartition(".")[2]
    if (result["mode"], result["threads"], metric["scoreUnit"]) != ("avgt", 1, "ns/op"):
        raise ValueError("not the average time of one thread in ns/op")
    error = float(metric["scoreError"])  # "NaN" of one iteration
    return Score(
        pages=pages,
        array_bytes=result["params"]["size" if quantity == "touch" else "bound"],
        quantity=quantity,
        ns_per_access=metric["score"],
        error_ns=error if isfinite(error) else None,
        iterations_count=sum(map(len, metric["rawData"])),
        forks=len(metric["rawData"]),
    )


# --- the survey of all page sizes

PROJECT = KERNELS_FOLDER / "jmh"
BUILD_S = 1800.0  # most of it for a download of some 30 MB
_JVM = Toolchain(
    "Java", "ByteArrayTouch.java", ("java", "-version"), (), (), "maven default-jdk-headless"
)
SIZES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000)  # the published ones, bytes


def build() -> Path:
    """Return the benchmark's jar, built if sources or JDK changed. Raises Unavailable:
    no-toolchain, disk-refused."""
    version = java_version()
    if missing := [name for name in ("mvn", "javac") if shutil.which(name) is None]:
        raise Unavailable("no-toolchain", _JVM.lacking(" and ".join(missing)))
    parts = [(PROJECT / name).read_bytes() for name in ("pom.xml", _JVM.source)]
    return cached_build("jmh", [*parts, version.encode()], _package) / "jmh-kernels.jar"


def _package(target: Path) -> None:
    command = f"mvn -B -q -f {PROJECT}/pom.xml -DbuildDirectory={target} package".split()
    for offline in (["-o"], []):  # offline first: an unreachable network takes long to fail
        try:
            done = run_in_own_session([*command, *offline], timeout=BUILD_S)
        except subprocess.TimeoutExpired:
            raise Unavailable("no-toolchain", f"Maven took over {BUILD_S:.0f} s") from None
        if done.returncode == 0 and (target / "jmh-kernels.jar").exists():
            return
    # Maven's own messages contain the addresses of private repositories and mirrors.
    why = (
        "run `mvn -f kernels/jmh/pom.xml package` and fix what it reports; it needs JDK 17 or later"
    )
    raise Unavailable("no-toolchain", f"{why} and, the first time, a repository within reach")


def java_version() -> str:
    """Return the first line of `java -version`. Raises Unavailable("no-toolchain")."""
    return procfs.label(run_tool(_JVM, _JVM.version, 60))


def jmh_version() -> str:
    match = re.search(r"<jmh\.version>([^<]+)<", (PROJECT / "pom.xml").read_text())
    return match[1] if match else ""


class MissingScores(BaseModel, frozen=True, extra="forbid"):
    """Why a page size has no scores: a code of REASONS and its detail."""

    code: str
    detail: str = ""


class JmhDocument(BaseModel, frozen=True, extra="forbid"):
    """All that JMH measured on one machine in one `state`."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str
    jvm: str
    jmh: str
    scores: list[Score]
    lacking: dict[HeapPages, MissingScores]


def make_jmh_document(profile: str) -> dict[str, Any]:
    """Return the document `jmh` of data/ for a profile. Raises Unavailable, as `survey` does."""
    sizes = SIZES[:1] if profile == "smoke" else SIZES
    return measure_java_heaps(sizes, quick=profile != "full").model_dump(mode="json")


def measure_java_heaps(sizes: Sequence[int] = SIZES, quick: bool = False) -> JmhDocument:
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
    lacking: dict[HeapPages, MissingScores] = {}
    with files.measuring_lock():
        for pages in HEAP_PAGES:
            try:
                scores += run_jmh(jar, pages, sizes, **effort)
            except Unavailable as why:
                lacking[pages] = MissingScores(code=why.code, detail=why.detail)
    return JmhDocument(
        measured_at=begun,
        state=state_digest(inspect_machine()),
        jvm=jvm,
        jmh=jmh_version(),
        scores=scores,
        lacking=lacking,
    )
