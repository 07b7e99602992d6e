"""Rows of machines that fault memory in on several page sizes, and two documents of data/ that
never were."""

from functools import cache
from typing import Any

import pandas as pd

from experiments.keeping_pages import Analysis, documents
from support.common import About
from support.page_sizes import Paged, keeping_pages
from support.synthetic import GIB, MIB, Stated, tlbs

WHOLE, SPLIT = Paged(), Paged(splintered=True, depth=1.0)
WHEN = {"measured_at": "2025-01-31T12:00:00Z", "state": "00112233aabb"}


@cache
def rows(
    machine: Paged = WHOLE, most: int = 4 * GIB, repeats: int = 5, cpus: int = 4
) -> pd.DataFrame:
    return machine.frame(keeping_pages(most, cpus), repeats)


def only(*pages: str, of: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows on these page sizes, as a machine that has no others would have them."""
    frame = rows() if of is None else of
    return frame[frame["pages"].isin(pages)].reset_index(drop=True)


def analysis(frame: pd.DataFrame | None = None, **documents: dict[str, Any]) -> Analysis:
    host = Stated(tlb=tlbs(), hypervisor="kvm").host()
    return Analysis(rows() if frame is None else frame, About(host, documents=documents))


def programs() -> dict[str, Any]:
    """Three runs of a program in C, plain and by the recipe; and no toolchain for Go."""
    reports = [
        documents.RuntimeReport(
            language="c",
            toolchain="gcc 12",
            variant=variant,
            repeat=k,
            array_bytes=2**24,
            resident_bytes=2**24,
            huge_bytes=2**24 if variant == "huge" else 0,
            rest_huge_bytes=0,
            ns_per_access=ns + k / 10,
        )
        for variant, ns in (("plain", 20.0), ("huge", 10.0))
        for k in range(3)
    ]
    found = documents.RuntimesDocument(
        **WHEN, thp="madvise", array_bytes=2**24, reports=reports, lacking={"go": "no-toolchain"}
    )
    return found.model_dump(mode="json")


def pool(huge_bytes: int = 2**24, language: str = "c") -> dict[str, Any]:
    """The same, and one run from the pool."""
    found = programs()
    report = found["reports"][0] | {
        "language": language,
        "variant": "pool",
        "huge_bytes": huge_bytes,
    }
    return found | {"reports": [*found["reports"], report]}


def asked(setting: str = "madvise", **huge_bytes: int) -> dict[str, Any]:
    """Each way of asking for 16 MiB: advised memory and the pool's on large pages, all else on base
    pages, or as `huge_bytes` says."""
    size, page = 16 * MIB, 2 * MIB
    whole = ("advised", "pool", "memfd-pool", "tmpfs-huge", "hugetlbfs")
    large = dict.fromkeys(whole, size) | {"half": size // 2, "arena": page, "dropped": size - page}
    large |= {name.replace("_", "-"): n for name, n in huge_bytes.items()}
    part = {"half": size // 2, "arena": 100 << 10, "dropped": size // 2}
    had = {"half": size // 2, "arena": page, "dropped": size - 4096}
    got = [
        documents.MappedWay(
            way=way,
            array_bytes=part.get(way, size),
            mapped_bytes=page if way == "arena" else size,
            resident_bytes=had.get(way, size),
            huge_bytes=large.get(way, 0),
            rest_huge_bytes=0,
        )
        for way in documents.MEMORY_MAPPING_METHODS
    ]
    return documents.MemoryMappingMethodsDocument(
        **WHEN, thp=setting, shmem="never", file_system="ext4", got=got, lacking={}
    ).model_dump(mode="json")
