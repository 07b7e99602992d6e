"""What is measured by starting other programs: memory in each of the ways that Linux has of asking
for it, and one large array on huge pages in five languages. What each got is read from the smaps of
its process, so that no program and no language is trusted about its pages.

A program of a language (kernels/runtimes/) allocates the array as everybody does (`plain`), advises
Linux (`huge`) or takes it from the pool (`pool`), writes it, times random reads, prints one line
and waits while its smaps are read.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from tlb.machine import host
from tlb.measure import granted_pages
from tlb.measure.granted_pages import (
    EXIT_STATUS_REQUEST_REFUSED,
    ArrayPageBacking,
    MemoryRequest,
    MemoryRequestsDocument,
    SurveyDocument,
    pages_of_array,
    run_and_read_smaps,
    survey_time_and_host_fields,
)
from tlb.measure.record import NonNegativeInt, PositiveInt, PositiveNs, parse_program_answer
from tlb.measure.toolchains import TOOLCHAINS, AllocationVariant, BuiltProgram, build_program
from tlb.system import procfs
from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable
from tlb.system.smaps import PagesOfArray

# --- memory in each way of asking for it

_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_NO_MOUNT = 4  # an exit status of kernels/runtimes/mapping.py

# In the order of a reader's questions; kernels/runtimes/mapping.py has the calls, and a test holds
# the two together.
MEMORY_MAPPING_METHODS = {
    "anonymous": MemoryRequest("mmap, and nothing else", "a mapping that asks for nothing"),
    "advised": MemoryRequest("mmap, madvise(MADV_HUGEPAGE)", "advised memory", "thp-never"),
    "half": MemoryRequest(
        "mmap, madvise on half of it (that half)", "memory of which half was advised", "thp-never"
    ),
    "pool": MemoryRequest("mmap(MAP_HUGETLB)", "memory from the pool", "pool-empty"),
    "shared": MemoryRequest("mmap(MAP_SHARED), madvise", "advised shared memory", "thp-never"),
    "memfd": MemoryRequest("memfd_create, madvise", "an advised memfd", "thp-never"),
    "memfd-pool": MemoryRequest("memfd_create(MFD_HUGETLB)", "a memfd from the pool", "pool-empty"),
    "file": MemoryRequest("a file written by one write(), mmap", "a file on this disk"),
    "file-advised": MemoryRequest(
        "a file written by one write(), mmap, madvise", "an advised file on this disk", "thp-never"
    ),
    "tmpfs": MemoryRequest("a file on tmpfs, mmap", "a file on tmpfs"),
    "tmpfs-huge": MemoryRequest(
        "a file on tmpfs mounted with huge=always, mmap", "one on a tmpfs that was mounted for it"
    ),
    "hugetlbfs": MemoryRequest("a file on hugetlbfs, mmap", "a file on hugetlbfs", "pool-empty"),
    "arena": MemoryRequest(
        "mmap of 2 MiB, madvise; 100 KiB written",
        "an advised page of which 100 KiB were written",
        "thp-never",
    ),
    "dropped": MemoryRequest(
        "mmap, madvise; one base page given back",
        "advised memory of which a page was given back",
        "thp-never",
    ),
}
_MappingWayName = Annotated[str, Field(pattern="^(" + "|".join(MEMORY_MAPPING_METHODS) + ")$")]


class MappedWay(ArrayPageBacking, frozen=True):
    """What one way gave; of a mapping of mapped_bytes, which may be more than was asked for."""

    way: _MappingWayName
    mapped_bytes: PositiveInt


class MemoryMappingMethodsDocument(MemoryRequestsDocument, frozen=True):
    """The document `ways`. `thp` is the setting of anonymous memory, shmem of shared."""

    all = MEMORY_MAPPING_METHODS
    what = "memory by"
    shmem: Annotated[str, Field(pattern=r"^[a-z+_]{1,32}$")]
    got: list[MappedWay]
    lacking: dict[_MappingWayName, str]


def make_mapping_methods_document(profile: str) -> dict[str, Any]:
    """The document `ways` of data/. Raises Unavailable: not-linux, page-size-unsupported,
    memory-short."""
    return try_all_ways((8 if profile == "smoke" else 64) << 20).model_dump(mode="json")


def try_all_ways(size_bytes: int) -> MemoryMappingMethodsDocument:
    """Every way once. size_bytes: whole pages of 8 MiB."""
    inspected = granted_pages.inspect_for_ways()
    if 2 * size_bytes > inspected.memory.usable_bytes // 2:
        raise Unavailable("memory-short")
    return MemoryMappingMethodsDocument(
        shmem=procfs.chosen(_SHMEM),
        **granted_pages.ways_fields(inspected),
        **granted_pages.try_each_way(MEMORY_MAPPING_METHODS, lambda way: try_way(way, size_bytes)),
    )


def try_way(way: str, size_bytes: int) -> MappedWay:
    """Ask for memory in one way and read what it got. Raises Unavailable, as `measure.granted_pages.run_way`
    does."""
    told, had = granted_pages.run_way(
        "mapping.py",
        way,
        size_bytes,
        {
            EXIT_STATUS_REQUEST_REFUSED: MEMORY_MAPPING_METHODS[way].refused,
            _NO_MOUNT: "not-permitted",
        },
    )
    return MappedWay(
        way=way,
        array_bytes=told.array_bytes,
        mapped_bytes=told.mapped_bytes,
        resident_bytes=had.resident_bytes,
        huge_bytes=had.huge_bytes,
        rest_huge_bytes=had.rest_huge_bytes,
    )


# --- one large array in five languages

HUGE_PAGE = 2 << 20
LEAST_SHARE = 0.99  # of the array's whole huge pages, which a program that asks first gets
MOST_BYTES = (1 << 31) - HUGE_PAGE  # a Java array's index is an int
SPARE_BYTES = 256 << 20  # for a virtual machine and compiler, beside the array and a heap twice it
LEAST_NS = 0.3  # an index takes three dependent shifts and XORs, and no core comes near 10 GHz
ALLOCATION_VARIANTS = get_args(AllocationVariant)
_REFUSED = {"huge": "thp-never", "pool": "pool-empty"}  # why a recipe got no huge pages


class RuntimeOutput(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a program prints. Every byte of its array is 1, so the sum of what it read is the number
    of reads."""

    language: str
    variant: AllocationVariant
    array_bytes: PositiveInt
    address: PositiveInt | None  # None: the language does not tell
    accesses: PositiveInt  # a batch
    sum: NonNegativeInt
    batch_ns: Annotated[list[PositiveInt], Field(min_length=3, max_length=1000)]


class RuntimeReport(ArrayPageBacking, frozen=True):
    """One process. Where the language tells no address (Java), the largest private anonymous
    mapping is taken to hold the array: the heap."""

    language: Annotated[str, Field(pattern="^(" + "|".join(TOOLCHAINS) + ")$")]
    toolchain: Annotated[str, Field(min_length=1, max_length=120)]
    variant: AllocationVariant
    repeat: NonNegativeInt
    ns_per_access: PositiveNs  # median over the batches


class RuntimesDocument(SurveyDocument, frozen=True):
    """`lacking` holds a reason code for "go" (no program) or "go huge" (this variant was
    not measured to the end)."""

    array_bytes: PositiveInt
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


def verify_array_pages(
    got: PagesOfArray, address: int | None, array_bytes: int, refused: str
) -> None:
    """Raise Unavailable with the code `refused` unless LEAST_SHARE of the array's whole huge pages
    are huge."""
    inner = array_bytes
    if address is not None:
        first, end = -(-address // HUGE_PAGE), (address + array_bytes) // HUGE_PAGE
        inner = (end - first) * HUGE_PAGE
    if inner <= 0 or got.sure_bytes < LEAST_SHARE * inner:
        words = f"{got.sure_bytes >> 20} of {max(inner, 0) >> 20} MiB are on huge pages"
        raise Unavailable(refused, words)


def measure_runtime(
    program: BuiltProgram,
    variant: AllocationVariant,
    array_bytes: int,
    repeat: int = 0,
    pass_fds: tuple = (),
) -> RuntimeReport:
    """Run a program once and verify what its array got. Raises Unavailable for one that hangs,
    crashes or prints garbage, for smaps that cannot be read, and for a recipe with less than
    LEAST_SHARE of the array on huge pages."""
    refused = {EXIT_STATUS_REQUEST_REFUSED: _REFUSED[variant]} if variant in _REFUSED else {}
    line, smaps, status = run_and_read_smaps(
        program.command(variant, array_bytes), refused, pass_fds
    )
    printed = parse_program_answer(line, RuntimeOutput)
    asked = program.language, variant, array_bytes
    if (printed.language, printed.variant, printed.array_bytes) != asked:
        raise Unavailable("kernel-failed", f"asked for {asked}, got another")
    if printed.sum != printed.accesses * len(printed.batch_ns):
        raise Unavailable("kernel-failed", f"{printed.sum} is not the sum of what was written")
    ns = statistics.median(printed.batch_ns) / printed.accesses
    if ns < LEAST_NS:
        raise Unavailable("kernel-failed", f"{ns:.2g} ns: the accesses were optimised away")
    got = pages_of_array(smaps, printed.address, array_bytes)
    if variant != "plain":
        is_partial = variant == "huge" and huge_pages_on(status=status)
        code = "backing-partial" if is_partial else _REFUSED[variant]
        verify_array_pages(got, printed.address, array_bytes, code)
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


def make_runtimes_document(profile: str) -> dict[str, Any]:
    """Return the document `runtimes` of data/ for a profile. Raises Unavailable, as `survey`
    does."""
    size, repeats = (16 << 20, 1) if profile == "smoke" else (256 << 20, 3)
    return measure_all_runtimes(size, repeats).model_dump(mode="json")


def _unfit(inspected: host.Host, array_bytes: int) -> str:
    """Return the reason code of a computer that can run no program; "" for one that can."""
    if inspected.os != "Linux":
        return "not-linux"
    if inspected.base_page_bytes != 4096:
        return "page-size-unsupported"
    is_short = 2 * array_bytes + SPARE_BYTES > inspected.memory.usable_bytes // 2
    return "memory-short" if is_short else ""


def _place_in_table(report: RuntimeReport) -> tuple[int, int, int]:
    languages = list(TOOLCHAINS)
    variant = ALLOCATION_VARIANTS.index(report.variant)
    return languages.index(report.language), variant, report.repeat


def measure_all_runtimes(array_bytes: int, repeats: int, seed: int = 0) -> RuntimesDocument:
    """Run all variants in every language, `repeats` processes each, in rounds of random order. What
    a language lacks is in `lacking`; a variant that failed once is not tried again. array_bytes:
    whole huge pages, from 4 MiB to MOST_BYTES.

    Raises Unavailable: measuring-already, disk-refused.
    """
    inspected = host.inspect_machine()
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
            runs += [(program, variant) for variant in ALLOCATION_VARIANTS]
    reports: list[RuntimeReport] = []
    shuffle = random.Random(seed)
    with measuring_lock() as lock:
        for repeat in range(repeats):
            for program, variant in shuffle.sample(runs, len(runs)):
                if (name := f"{program.language} {variant}") in lacking:
                    continue
                run = (program, variant, array_bytes, repeat)
                try:
                    reports.append(measure_runtime(*run, pass_fds=(lock,)))
                except Unavailable as why:
                    lacking[name] = why.code
    reports.sort(key=_place_in_table)
    return RuntimesDocument(
        **survey_time_and_host_fields(inspected),
        array_bytes=array_bytes,
        lacking=lacking,
        reports=reports,
    )
