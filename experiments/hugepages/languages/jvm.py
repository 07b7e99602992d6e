"""JMH's benchmark in a JVM: run, and its page size proved from the smaps of every fork.

A JVM that cannot have the pages it was asked for goes on with others and ends with status 0, so
neither its flags nor its status prove anything: every fork saves its /proc/self/smaps, and the
heap's own mappings are what counts.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
)

from tlb.lab.record import Positive, PositiveNs
from tlb.lab.rig import MEMORY_SHARE
from tlb.lab.toolchains import environment
from tlb.machine.host import base_page_bytes
from tlb.machine.memory import usable_memory
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.processes import run_whole
from tlb.system.smaps import mappings

HeapPages = Literal["4k", "thp", "2m"]
HEAP_PAGES: tuple[HeapPages, ...] = get_args(HeapPages)
_FLAGS = {
    "4k": ("-XX:-UseTransparentHugePages", "-XX:-UseLargePages"),
    "thp": ("-XX:+UseTransparentHugePages",),
    "2m": ("-XX:+UseLargePages", "-XX:LargePageSizeInBytes=2m"),
}
_HUGE = 2 << 20
_YOUNG_MIB, _SPARE_MIB = (
    32,
    32,
)  # what JMH itself allocates beside the array; both whole large pages
# The JVM takes its code from the pool before the heap, 240 MiB of it unless told; JMH's code fills
# a tenth of this.
_CODE_MIB = 48
_JVM_BYTES = 256 << 20  # of JMH's own process and a fork, beside the heap
_LONGEST = 2**31 - 3  # elements of a Java array, less what HotSpot keeps for itself
_WHOLE = 0.99  # of the heap: what has to lie on the pages asked for
# JMH hangs where it takes a minute and three times as long as a fork's start (0.6 s on a guest of 3
# GHz) and its iterations need.
HANG_S, START_S = 60.0, 1.0
_PR_SET_THP_DISABLE = 41  # linux/prctl.h


class Score(BaseModel, frozen=True, extra="forbid"):
    """What JMH gives for one array: the mean over `iterations_count` iterations in `forks` fresh
    JVMs. error_ns: half of JMH's 99.9 % interval, None where one iteration gives none. A `draw`
    reads no array: it draws below the largest size."""

    pages: HeapPages
    array_bytes: Positive
    quantity: Literal["touch", "draw"]
    ns_per_access: PositiveNs
    error_ns: Annotated[FiniteFloat, Field(ge=0)] | None
    iterations_count: Positive
    forks: Positive


class Heap(NamedTuple):
    """What smaps says of the heap's mappings, in bytes; `page_sizes` are their KernelPageSizes."""

    size: int
    resident: int
    thp: int
    hugetlb: int
    page_sizes: frozenset[int]


def heap_mib(sizes: Sequence[int]) -> int:
    """The heap that the largest array needs: whole large pages."""
    return _YOUNG_MIB + _SPARE_MIB + -(-max(sizes) // _HUGE) * 2


def check(pages: HeapPages, sizes: Sequence[int], root: Path = Path("/")) -> None:
    """Raises Unavailable where the system that `root` shows cannot back the heap, before a JVM is
    started: thp-never, page-size-unsupported, pool-empty, memory-short, and bad-parameter for what
    is no array's size."""
    if not sizes or not all(1 <= size <= _LONGEST for size in sizes):
        raise Unavailable(
            "bad-parameter", f"a Java array has 1 to {_LONGEST} bytes, not {list(sizes)}"
        )
    heap = heap_mib(sizes) << 20
    if pages == "thp":
        setting = procfs.chosen(root / "sys/kernel/mm/transparent_hugepage/enabled")
        if setting not in ("always", "madvise"):
            raise Unavailable("thp-never", f"transparent_hugepage/enabled: {setting}")
        if procfs.fields(procfs.text(root / "proc/self/status")).get("THP_enabled") == "0":
            raise Unavailable("thp-never", "switched off for this process by prctl")
    if pages == "2m":
        free = procfs.number(root / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        if free is None:
            raise Unavailable("page-size-unsupported", "no pool of 2 MiB pages")
        # The card table and the table of block offsets take a 512th of the heap each, in large
        # pages where they fill one.
        needed = -(-(heap + heap // 256 + (_CODE_MIB << 20)) // _HUGE)
        if free < needed:
            raise Unavailable("pool-empty", f"{needed} pages of 2 MiB needed, {free} free")
    usable = int(usable_memory(root).usable_bytes * MEMORY_SHARE)
    needed = _JVM_BYTES + (heap if pages != "2m" else 0)
    if needed > usable:
        raise Unavailable(
            "memory-short", f"{needed >> 20} MiB needed, {usable >> 20} MiB may be used"
        )


def run(
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
    """JMH once on one page size: a score for each array, and one for the draw alone. In each of
    `forks` JVMs there is one warm-up of `warmup_s`, then `iterations` of `measure_s`. Raises
    Unavailable: what check() raises, backing-partial or pool-empty where the heap did not lie on
    `pages`, kernel-hung, kernel-crashed, kernel-garbage, oom-killed."""
    check(pages, sizes, root)
    limit_s = HANG_S + 3 * (len(sizes) + 1) * forks * (START_S + warmup_s + iterations * measure_s)
    command = [
        "java",
        "-Djava.io.tmpdir=.",
        "-jar",
        str(jar),
        r"\.ByteArrayTouch\.",
        "-p",
        f"size={','.join(map(str, sizes))}",
        "-p",
        f"bound={max(sizes)}",
        "-f",
        str(forks),
        "-wi",
        "1",
        "-w",
        f"{warmup_s * 1e3:.0f}ms",
        "-i",
        str(iterations),
        "-r",
        f"{measure_s * 1e3:.0f}ms",
        "-foe",
        "true",
        "-rf",
        "json",
        "-rff",
        "scores.json",
        "-jvmArgsAppend",
        " ".join(_fork_flags(pages, sizes)),
    ]
    how: dict[str, Any] = {"env": environment()}
    if pages == "4k" and sys.platform == "linux":
        # Where THP is `always`, or 64 KiB pages are, a JVM without the flag has them too. Children
        # inherit this.
        libc = ctypes.CDLL(None)
        how["preexec_fn"] = lambda: libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="jmh-") as name:
        folder = Path(name)
        try:
            done = run_whole(command, timeout=limit_s, cwd=folder, **how)
        except subprocess.TimeoutExpired:
            raise Unavailable("kernel-hung", f"JMH gave no answer in {limit_s:.0f} s") from None
        except FileNotFoundError:
            raise Unavailable("no-toolchain", "java") from None
        if done.returncode:
            raise _failure(done)
        verify(folder, pages, sizes, forks)
        return parse(procfs.text(folder / "scores.json"), pages, sizes)


def _fork_flags(pages: HeapPages, sizes: Sequence[int]) -> list[str]:
    """One contiguous heap and no collector's threads: nothing allocates while the time runs."""
    heap = heap_mib(sizes)
    return [
        *_FLAGS[pages],
        "-XX:+UseSerialGC",
        f"-Xms{heap}m",
        f"-Xmx{heap}m",
        f"-Xmn{_YOUNG_MIB}m",
        "-XX:+AlwaysPreTouch",
        f"-XX:ReservedCodeCacheSize={_CODE_MIB}m",
        "-XX:-UsePerfData",  # a file in /tmp that the JVM writes to meanwhile
        "-Xlog:gc+heap+coops=debug:file=heap-%p.log",
    ]  # where the heap lies


def _failure(done: subprocess.CompletedProcess[str]) -> Unavailable:
    """JMH repeats what the fork printed after its last "# Fork:" line; its own stack traces say
    nothing."""
    if done.returncode == -9 or "exit code 137" in done.stdout:
        return Unavailable("oom-killed", "the JVM")
    lines = (
        done.stdout.rpartition("# Fork:")[2].partition("\n")[2] + "\n" + done.stderr
    ).splitlines()
    first = next(
        (
            line.strip()
            for line in lines
            if line.strip()
            and line[0] not in "#[<"
            and " warning: " not in line
            and not line.startswith(("Iteration", "Error occurred during init"))
        ),
        f"exit status {done.returncode}",
    )
    memory = ("OutOfMemoryError", "Could not reserve enough space", "insufficient memory")
    return Unavailable(
        "memory-short" if any(word in done.stdout for word in memory) else "kernel-crashed",
        first[:200],
    )


_HEAP_AT = re.compile(r"Heap address: 0x([0-9a-f]{1,16}), size: ([0-9]{1,9}) MB")


def heap_of(smaps: str, log: str) -> Heap:
    """The heap in a JVM's smaps, where its log (gc+heap+coops) says it lies. Raises Unavailable:
    kernel-garbage, backing-partial."""
    at = _HEAP_AT.search(log)
    if at is None:
        raise Unavailable("kernel-garbage", "the JVM does not say where its heap lies")
    low, size = int(at[1], 16), int(at[2]) << 20
    try:
        parts = [part for part in mappings(smaps) if part.start < low + size and part.end > low]
    except ValueError as error:
        raise Unavailable("backing-partial", f"nothing is proved: smaps: {error}") from None
    resident, thp, pool = (
        sum(getattr(part, name) for part in parts)
        for name in ("resident_bytes", "thp_bytes", "pool_bytes")
    )
    return Heap(size, resident, thp, pool, frozenset(part.page_bytes for part in parts))


def refuse(heap: Heap, pages: HeapPages, array_bytes: int = 1) -> None:
    """Raises Unavailable unless the whole heap lies on `pages`: pool-empty where a JVM fell back,
    else backing-partial. Of a heap in the pool the array must be resident and no more: the JVM
    touches none beforehand, and later it can come from nowhere else."""
    whole, base = _WHOLE * heap.size, {base_page_bytes()}
    fits = {
        "4k": heap.page_sizes == base and heap.thp == heap.hugetlb == 0 and heap.resident >= whole,
        "thp": heap.page_sizes == base and heap.hugetlb == 0 and heap.thp >= whole,
        "2m": heap.page_sizes == {_HUGE} and heap.resident == heap.hugetlb >= array_bytes,
    }
    if not fits[pages]:
        seen = ", ".join(f"{size >> 10} kB" for size in sorted(heap.page_sizes)) or "none"
        fell_back = pages == "2m" and heap.hugetlb == 0
        raise Unavailable(
            "pool-empty" if fell_back else "backing-partial",
            f"asked for {heap.size >> 20} MiB of Java heap on {pages}; smaps shows {heap.resident >> 20} MiB resident, "
            f"{heap.thp >> 20} MiB on THP, {heap.hugetlb >> 20} MiB on hugetlbfs, page sizes {seen}",
        )


def verify(folder: Path, pages: HeapPages, sizes: Sequence[int], forks: int) -> None:
    """refuse() for what every fork saved in `folder` before and after it measured; kernel-garbage
    where one saved nothing."""
    for size in sizes:
        for when in ("before", "after"):
            saved = sorted(folder.glob(f"{size}-*-{when}.smaps"))
            if len(saved) != forks:
                raise Unavailable(
                    "kernel-garbage",
                    f"{len(saved)} of {forks} JVMs show their pages {when} {size} bytes are read",
                )
            for path in saved:
                refuse(
                    heap_of(
                        procfs.text(path),
                        procfs.text(folder / f"heap-{path.name.split('-')[1]}.log"),
                    ),
                    pages,
                    size,
                )


class _Result(BaseModel):
    """What this module reads of one result in JMH's JSON."""

    quantity: Annotated[str, BeforeValidator(lambda name: str(name).rpartition(".")[2])] = Field(
        validation_alias="benchmark"
    )
    mode: Literal["avgt"]
    threads: Literal[1]
    params: dict[str, int]
    unit: Literal["ns/op"] = Field(validation_alias=AliasPath("primaryMetric", "scoreUnit"))
    score: float = Field(validation_alias=AliasPath("primaryMetric", "score"))
    error: float = Field(
        validation_alias=AliasPath("primaryMetric", "scoreError")
    )  # "NaN" where JMH has too few iterations for one
    batches: list[list[float]] = Field(validation_alias=AliasPath("primaryMetric", "rawData"))


_RESULTS = TypeAdapter(list[_Result])


def parse(text: str, pages: HeapPages, sizes: Sequence[int]) -> list[Score]:
    """The scores in JMH's JSON: those of `sizes` and of the draw, no other. Raises
    Unavailable("kernel-garbage")."""
    try:
        scores = [
            Score(
                pages=pages,
                array_bytes=result.params.get("size" if result.quantity == "touch" else "bound"),
                quantity=result.quantity,
                ns_per_access=result.score,
                error_ns=result.error if isfinite(result.error) else None,
                iterations_count=sum(map(len, result.batches)),
                forks=len(result.batches),
            )
            for result in _RESULTS.validate_json(text)
        ]
    except ValidationError as why:
        first = why.errors()[0]
        raise Unavailable(
            "kernel-garbage", f"JMH's {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
    got = sorted((score.quantity, score.array_bytes) for score in scores)
    if got != sorted([("draw", max(sizes)), *(("touch", size) for size in set(sizes))]):
        raise Unavailable(
            "kernel-garbage", f"JMH's scores are of other arrays than asked for: {got}"
        )
    return sorted(scores, key=lambda score: (score.quantity, score.array_bytes))
