"""The page sizes that a kernel can be asked for: one table of what each is called, how large it is
and where it comes from.

Whoever adds a page size adds a row here and teaches the kernels to ask for it; nothing else in
Python tells page sizes apart by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator

from tlb.system.units import format_size

BASE_PAGES = "4k"  # stands for the machine's base page, which arm64 may have of 16 or 64 KiB
TABLE_ENTRY_BYTES = 8  # an entry of a page table, on x86-64 and arm64 alike
CACHE_LINE_BYTES = 64  # a cache line, on both


class PageSize(NamedTuple):
    """One row: its size (None where it follows from the machine's base page: see page_bytes), words
    for a sentence ({} is the size), how it is asked for, where the kernel takes it from.

    hardware: the page that an entry of the page table maps, as CPUID and guests call it.
    """

    size_bytes: int | None
    words: str
    asked: str
    source: Literal["base", "mthp", "thp", "pool"]
    hardware: str


# From small to large; of two alike, the one that takes no pool first.
PAGE_KINDS: dict[str, PageSize] = {
    "4k": PageSize(None, "base pages", "mmap, MADV_NOHUGEPAGE", "base", "4k"),
    **{
        f"{kib}k": PageSize(
            kib << 10, f"{kib} KiB pages", f"mmap, MADV_HUGEPAGE, mTHP of {kib} kB", "mthp", "4k"
        )
        for kib in (16, 32, 64, 128, 256, 512)
    },
    "1m": PageSize(1 << 20, "1 MiB pages", "mmap, MADV_HUGEPAGE, mTHP of 1024 kB", "mthp", "4k"),
    "thp": PageSize(None, "transparent {} pages", "mmap, MADV_HUGEPAGE", "thp", "2m"),
    "2m": PageSize(2 << 20, "2 MiB pages of the pool", "mmap, MAP_HUGETLB of 2 MiB", "pool", "2m"),
    "1g": PageSize(1 << 30, "1 GiB pages", "mmap, MAP_HUGETLB of 1 GiB", "pool", "1g"),
}


def _known(pages: str) -> str:
    if pages not in PAGE_KINDS:
        raise ValueError(f"pages are one of {', '.join(PAGE_KINDS)}, not '{pages[:20]}'")
    return pages


PageKind = Annotated[str, AfterValidator(_known)]
# what entries map, by the level of their table
MAPPED_PAGE_SIZES = tuple(dict.fromkeys(size.hardware for size in PAGE_KINDS.values()))
# chased over every working set; the sizes between, a ladder, over one
FULLY_SWEPT_PAGES = ("4k", "64k", "thp", "2m", "1g")
# with base pages of 4 KiB, 2 MiB both, as far as a TLB is concerned; the pool's are the surer
HUGE_PAGE_KINDS: tuple[str, ...] = ("2m", "thp")


# The base page of published machines and of the sources, all of x86-64.
PUBLISHED_BASE_PAGE_BYTES = 4096


def page_words(pages: str, base_page_bytes: int = PUBLISHED_BASE_PAGE_BYTES) -> str:
    """A page size as a sentence calls it: "2 MiB pages of the pool"."""
    return PAGE_KINDS[pages].words.format(format_size(page_bytes(pages, base_page_bytes)))


_LABELLED = {"base": "", "mthp": " (mTHP)", "thp": " (THP)", "pool": " (pool)"}


def page_labels(base_page_bytes: int) -> dict[str, str]:
    """Every page size as figures and tables call it: "4 KiB", "2 MiB (pool)"."""
    return {
        pages: format_size(page_bytes(pages, base_page_bytes)) + _LABELLED[size.source]
        for pages, size in PAGE_KINDS.items()
    }


def page_bytes(pages: str, base_page_bytes: int) -> int:
    """The bytes of one page. base_page_bytes: of the machine that the page is on.

    A transparent huge page is what one table maps, an entry of 8 bytes a base page: 2 MiB with base
    pages of 4 KiB, 32 MiB with those of 16, 512 MiB with those of 64.
    """
    if PAGE_KINDS[pages].source == "thp":
        return base_page_bytes * (base_page_bytes // 8)
    return PAGE_KINDS[pages].size_bytes or base_page_bytes


def mapped_page_size(pages: str) -> str:
    """The page that a table's entry maps on x86-64: a transparent huge page is one of 2 MiB."""
    return PAGE_KINDS[pages].hardware


def ordered_page_sizes(kinds: Iterable[Any]) -> list[str]:
    """Those page sizes that occur in `kinds`, each once, from small to large."""
    occurring = set(kinds)
    return [pages for pages in PAGE_KINDS if pages in occurring]


def page_size_rank(kinds: Any) -> Any:
    """A series of page sizes as numbers that sort from small to large: `frame.sort_values("pages",
    key=rank)`."""
    return kinds.map(list(PAGE_KINDS).index) if kinds.name == "pages" else kinds
