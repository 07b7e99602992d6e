"""One large array on huge pages in five languages: each program built, run, and its pages read from
smaps by one verifier.

A program (kernels/runtimes/) allocates the array as everybody does (`plain`), advises the kernel
(`huge`) or takes it from the pool (`pool`), writes it, times random reads, prints one line and
waits, while its smaps are read: no language is trusted to say what pages it got.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from tlb.lab.held import Held, Survey, answer, held
from tlb.lab.record import Count, Positive, PositiveNs
from tlb.lab.toolchains import TOOLS, Program, Variant, build
from tlb.lab.watched import REFUSED, watch
from tlb.machine import host
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.files import measuring_lock
from tlb.system.smaps import Pages

HUGE_PAGE = 2 << 20
# of the array's whole huge pages: what a program that advises before its first write gets, or is
# refused
LEAST_SHARE = 0.99
MOST_BYTES = (1 << 31) - HUGE_PAGE  # a Java array's index is an int
SPARE_BYTES = (
    256 << 20
)  # for a virtual machine, an interpreter and its compiler, beside the array and a heap twice its size
LEAST_NS = (
    0.3  # three dependent shifts and exclusive-ors make an index, and no core comes near 10 GHz
)


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a program prints. Every byte of its array is 1, so the sum of what it read is the number
    of reads."""

    language: str
    variant: Variant
    array_bytes: Positive
    address: Positive | None  # None: the language does not tell
    accesses: Positive  # a batch
    sum: Count
    batch_ns: Annotated[list[Positive], Field(min_length=3, max_length=1000)]


class RuntimeReport(Held):
    """One process. Where the language tells no address (Java), the largest private anonymous
    mapping is taken to hold the array: the heap."""

    language: Annotated[str, Field(pattern="^(" + "|".join(TOOLS) + ")$")]
    toolchain: Annotated[str, Field(min_length=1, max_length=120)]
    variant: Variant
    repeat: Count
    ns_per_access: PositiveNs  # median over the batches


class Runtimes(Survey):
    """A survey. `lacking` holds a reason code for "go" (no program) or "go huge" (this variant was
    not measured to the end)."""

    array_bytes: Positive
    reports: list[RuntimeReport]
    lacking: dict[
        Annotated[str, Field(pattern="^(" + "|".join(TOOLS) + ")( plain| huge| pool)?$")], str
    ]


# ---- what proves a recipe


def huge_pages_on(root: Path = Path("/"), status: str = "") -> bool:
    """Whether a mapping that asks gets THP of 2 MiB: by that size's setting (Linux 6.8) or that of
    all, and by /proc/PID/status."""
    folder = root / "sys/kernel/mm/transparent_hugepage"
    own = procfs.chosen(folder / "hugepages-2048kB/enabled")
    chosen = own if own in ("always", "madvise", "never") else procfs.chosen(folder / "enabled")
    return chosen in ("always", "madvise") and procfs.fields(status).get("THP_enabled") != "0"


def verify(got: Pages, address: int | None, array_bytes: int, refused: str) -> None:
    """At least LEAST_SHARE of the array's whole huge pages are huge, or Unavailable: `refused`."""
    interior = array_bytes
    if address is not None:
        interior = (
            max((address + array_bytes) // HUGE_PAGE - -(-address // HUGE_PAGE), 0) * HUGE_PAGE
        )
    if interior == 0 or got.sure_bytes < LEAST_SHARE * interior:
        what = f"{got.sure_bytes >> 20} of {interior >> 20} MiB are on huge pages"
        raise Unavailable(refused, what)


# ---- running

_REFUSED: dict[str, str] = {
    "huge": "thp-never",
    "pool": "pool-empty",
}  # why a recipe's program got no huge pages


def measure(
    program: Program,
    variant: Variant,
    array_bytes: int,
    repeat: int = 0,
    *,
    pass_fds: Sequence[int] = (),
) -> RuntimeReport:
    """Run a program once and verify what its array got. Raises Unavailable for one that hangs,
    crashes or prints garbage, for smaps that cannot be read, and for a recipe with less than
    LEAST_SHARE of the array on huge pages."""
    line, smaps, status = watch(
        program.command(variant, array_bytes),
        {REFUSED: code} if (code := _REFUSED.get(variant)) else {},
        pass_fds,
    )
    told = answer(line, Answer)
    if (told.language, told.variant, told.array_bytes) != (program.language, variant, array_bytes):
        raise Unavailable(
            "kernel-garbage", f"asked for {program.language} {variant} {array_bytes}, got another"
        )
    if told.sum != told.accesses * len(told.batch_ns):
        raise Unavailable("kernel-garbage", f"{told.sum} is not the sum of what was written")
    ns_per_access = statistics.median(told.batch_ns) / told.accesses
    if ns_per_access < LEAST_NS:
        raise Unavailable(
            "kernel-garbage",
            f"{ns_per_access:.2g} ns an access: the compiler left the accesses out",
        )
    got = held(smaps, told.address, array_bytes)
    if variant != "plain":
        partial = (
            _REFUSED[variant]
            if variant == "pool" or not huge_pages_on(status=status)
            else "backing-partial"
        )
        verify(got, told.address, array_bytes, partial)
    return RuntimeReport(
        language=program.language,
        toolchain=program.toolchain,
        variant=variant,
        repeat=repeat,
        array_bytes=array_bytes,
        resident_bytes=got.resident_bytes,
        huge_bytes=got.huge_bytes,
        rest_huge_bytes=got.rest_huge_bytes,
        ns_per_access=ns_per_access,
    )


def make(profile: str) -> dict[str, Any]:
    """The document `runtimes` of data/: as much of the survey as a profile has time for. Raises
    Unavailable, as `survey` does."""
    small = profile == "smoke"
    return survey((16 if small else 256) << 20, repeats=1 if small else 3).model_dump(mode="json")


def survey(array_bytes: int = 256 << 20, repeats: int = 3, seed: int = 0) -> Runtimes:
    """Both variants in every language, `repeats` processes each, in a random order once and then
    again. What a language lacks is in `lacking`; a variant that failed once is not tried again.
    array_bytes: whole huge pages, from 4 MiB to MOST_BYTES.

    Raises Unavailable: bad-parameter, measuring-already, disk-full, disk-read-only.
    """
    if array_bytes % HUGE_PAGE or not 2 * HUGE_PAGE <= array_bytes <= MOST_BYTES or repeats < 1:
        raise Unavailable(
            "bad-parameter", f"{repeats} repeats with an array of {array_bytes} bytes"
        )
    inspected = host.inspect()
    reports: list[RuntimeReport] = []
    programs: list[Program] = []
    unfit = (
        "not-linux"
        if inspected.os != "Linux"
        else "page-size-unsupported"
        if inspected.base_page_bytes != 4096
        else "memory-short"
        if 2 * array_bytes + SPARE_BYTES > inspected.memory.usable_bytes // 2
        else ""
    )
    lacking: dict[str, str] = dict.fromkeys(TOOLS, unfit) if unfit else {}
    for language in TOOLS.keys() if not unfit else ():
        try:
            programs.append(build(language))
        except Unavailable as why:
            if why.code.startswith("disk-"):
                raise
            lacking[language] = why.code
    todo = [(program, variant) for program in programs for variant in get_args(Variant)]
    shuffle = random.Random(seed)
    with measuring_lock() as held:
        for repeat in range(repeats):
            shuffle.shuffle(todo)
            for program, variant in todo:
                if (name := f"{program.language} {variant}") in lacking:
                    continue
                try:
                    reports.append(measure(program, variant, array_bytes, repeat, pass_fds=[held]))
                except Unavailable as why:
                    lacking[name] = why.code
    reports.sort(
        key=lambda report: (
            list(TOOLS).index(report.language),
            get_args(Variant).index(report.variant),
            report.repeat,
        )
    )
    return Runtimes(
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        state=host.state(inspected),
        thp=inspected.thp.enabled,
        array_bytes=array_bytes,
        lacking=lacking,
        reports=reports,
    )
