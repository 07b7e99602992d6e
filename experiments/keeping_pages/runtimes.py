"""One large array on huge pages in five languages: each program built, run, and its pages read from
smaps by one verifier.

A program (kernels/runtimes/) allocates the array as everybody does (`plain`), advises the kernel
(`huge`) or takes it from the pool (`pool`), writes it, times random reads, prints one line and
waits while its smaps are read: no language is trusted about its pages.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from tlb.machine import host
from tlb.measure.granted_pages import (
    EXIT_REFUSED,
    ArrayPages,
    SurveyDocument,
    array_pages,
    parse_answer,
    run_and_read_smaps,
    survey_header,
)
from tlb.measure.record import Count, PositiveCount, PositiveNs
from tlb.measure.toolchains import TOOLCHAINS, AllocationVariant, BuiltProgram, build_program
from tlb.system import procfs
from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable
from tlb.system.smaps import Pages

HUGE_PAGE = 2 << 20
LEAST_SHARE = 0.99  # of the array's whole huge pages, which a program that asks first gets
MOST_BYTES = (1 << 31) - HUGE_PAGE  # a Java array's index is an int
SPARE_BYTES = 256 << 20  # for a virtual machine and compiler, beside the array and a heap twice it
LEAST_NS = 0.3  # an index takes three dependent shifts and XORs, and no core comes near 10 GHz
VARIANTS = get_args(AllocationVariant)
_REFUSED = {"huge": "thp-never", "pool": "pool-empty"}  # why a recipe got no huge pages


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a program prints. Every byte of its array is 1, so the sum of what it read is the number
    of reads."""

    language: str
    variant: AllocationVariant
    array_bytes: PositiveCount
    address: PositiveCount | None  # None: the language does not tell
    accesses: PositiveCount  # a batch
    sum: Count
    batch_ns: Annotated[list[PositiveCount], Field(min_length=3, max_length=1000)]


class RuntimeReport(ArrayPages, frozen=True):
    """One process. Where the language tells no address (Java), the largest private anonymous
    mapping is taken to hold the array: the heap."""

    language: Annotated[str, Field(pattern="^(" + "|".join(TOOLCHAINS) + ")$")]
    toolchain: Annotated[str, Field(min_length=1, max_length=120)]
    variant: AllocationVariant
    repeat: Count
    ns_per_access: PositiveNs  # median over the batches


class Runtimes(SurveyDocument, frozen=True):
    """`lacking` holds a reason code for "go" (no program) or "go huge" (this variant was
    not measured to the end)."""

    array_bytes: PositiveCount
    reports: list[RuntimeReport]
    lacking: dict[
        Annotated[str, Field(pattern="^(" + "|".join(TOOLCHAINS) + ")( plain| huge| pool)?$")], str
    ]


def huge_pages_on(root: Path = Path("/"), status: str = "") -> bool:
    """Return whether a mapping that asks gets THP of 2 MiB: by that size's setting (Linux 6.8) or
    that of all, and by /proc/PID/status."""
    folder = root / "sys/kernel/mm/transparent_hugepage"
    chosen = procfs.chosen(folder / "hugepages-2048kB/enabled")
    if chosen not in ("always", "madvise", "never"):
        chosen = procfs.chosen(folder / "enabled")
    return chosen in ("always", "madvise") and procfs.fields(status).get("THP_enabled") != "0"


def verify(got: Pages, address: int | None, array_bytes: int, refused: str) -> None:
    """Raise Unavailable with the code `refused` unless LEAST_SHARE of the array's whole huge pages
    are huge."""
    inner = array_bytes
    if address is not None:
        first, end = -(-address // HUGE_PAGE), (address + array_bytes) // HUGE_PAGE
        inner = (end - first) * HUGE_PAGE
    if inner <= 0 or got.sure_bytes < LEAST_SHARE * inner:
        words = f"{got.sure_bytes >> 20} of {max(inner, 0) >> 20} MiB are on huge pages"
        raise Unavailable(refused, words)


def measure(
    program: BuiltProgram,
    variant: AllocationVariant,
    array_bytes: int,
    repeat: int = 0,
    pass_fds: tuple = (),
) -> RuntimeReport:
    """Run a program once and verify what its array got. Raises Unavailable for one that hangs,
    crashes or prints garbage, for smaps that cannot be read, and for a recipe with less than
    LEAST_SHARE of the array on huge pages."""
    refused = {EXIT_REFUSED: _REFUSED[variant]} if variant in _REFUSED else {}
    line, smaps, status = run_and_read_smaps(
        program.command(variant, array_bytes), refused, pass_fds
    )
    printed = parse_answer(line, Answer)
    asked = program.language, variant, array_bytes
    if (printed.language, printed.variant, printed.array_bytes) != asked:
        raise Unavailable("kernel-failed", f"asked for {asked}, got another")
    if printed.sum != printed.accesses * len(printed.batch_ns):
        raise Unavailable("kernel-failed", f"{printed.sum} is not the sum of what was written")
    ns = statistics.median(printed.batch_ns) / printed.accesses
    if ns < LEAST_NS:
        raise Unavailable("kernel-failed", f"{ns:.2g} ns: the accesses were optimised away")
    got = array_pages(smaps, printed.address, array_bytes)
    if variant != "plain":
        is_partial = variant == "huge" and huge_pages_on(status=status)
        code = "backing-partial" if is_partial else _REFUSED[variant]
        verify(got, printed.address, array_bytes, code)
    return RuntimeReport(
        language=program.language,
        toolchain=program.toolchain,
        variant=variant,
        repeat=repeat,
        array_bytes=array_bytes,
        resident_bytes=got.resident_bytes,
        huge_bytes=got.huge_bytes,
        rest_huge_bytes=got.rest_huge_bytes,
        ns_per_access=ns,
    )


def make(profile: str) -> dict[str, Any]:
    """Return the document `runtimes` of data/ for a profile. Raises Unavailable, as `survey`
    does."""
    size, repeats = (16 << 20, 1) if profile == "smoke" else (256 << 20, 3)
    return survey(size, repeats).model_dump(mode="json")


def _unfit(inspected: host.Host, array_bytes: int) -> str:
    """Return the reason code of a computer that can run no program; "" for one that can."""
    if inspected.os != "Linux":
        return "not-linux"
    if inspected.base_page_bytes != 4096:
        return "page-size-unsupported"
    is_short = 2 * array_bytes + SPARE_BYTES > inspected.memory.usable_bytes // 2
    return "memory-short" if is_short else ""


def survey(array_bytes: int, repeats: int, seed: int = 0) -> Runtimes:
    """Run all variants in every language, `repeats` processes each, in rounds of random order. What
    a language lacks is in `lacking`; a variant that failed once is not tried again. array_bytes:
    whole huge pages, from 4 MiB to MOST_BYTES.

    Raises Unavailable: measuring-already, disk-refused.
    """
    inspected = host.inspect()
    unfit = _unfit(inspected, array_bytes)
    lacking: dict[str, str] = dict.fromkeys(TOOLCHAINS, unfit) if unfit else {}
    runs: list[tuple[BuiltProgram, AllocationVariant]] = []
    for language in () if unfit else TOOLCHAINS:
        try:
            program = build_program(language)
        except Unavailable as why:
            if why.code.startswith("disk-"):
                raise
            lacking[language] = why.code
        else:
            runs += [(program, variant) for variant in VARIANTS]
    reports: list[RuntimeReport] = []
    shuffle = random.Random(seed)
    with measuring_lock() as lock:
        for repeat in range(repeats):
            for program, variant in shuffle.sample(runs, len(runs)):
                name, run = f"{program.language} {variant}", (program, variant, array_bytes, repeat)
                try:
                    reports += [measure(*run, pass_fds=(lock,))] if name not in lacking else []
                except Unavailable as why:
                    lacking[name] = why.code
    places = {language: place for place, language in enumerate(TOOLCHAINS)}
    reports.sort(key=lambda one: (places[one.language], VARIANTS.index(one.variant), one.repeat))
    return Runtimes(
        **survey_header(inspected), array_bytes=array_bytes, lacking=lacking, reports=reports
    )
