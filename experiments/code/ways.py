"""Code in each of the ways that Linux has of making it executable, and whether it lies on large
pages: written by one process, read by another."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tlb.measure import granted_pages
from tlb.measure.granted_pages import EXIT_REFUSED, ArrayPages, RequestWay, WaysDocument

TEXT_BYTES = 8 << 20  # four large pages: what one way gets does not vary with the size
_NO_CODE, _NO_JOINING = 4, 5  # exit statuses of kernels/runtimes/text.py

# In the order of a reader's questions; kernels/runtimes/text.py has the calls, and a test holds the
# two together.
WAYS_TO_LOAD_CODE = {
    "file": RequestWay("a file on this disk, mapped as a loader maps it", "a mapped file"),
    "file-collapsed": RequestWay(
        "the same, madvise(MADV_COLLAPSE)", "a mapped file that was collapsed on request"
    ),
    "anonymous": RequestWay("copied to memory that asks for nothing, mprotect", "a plain copy"),
    "advised": RequestWay(
        "copied to memory advised with MADV_HUGEPAGE, mprotect",
        "a copy in advised memory",
        "thp-never",
    ),
    "memfd": RequestWay("copied to a memfd, mapped", "a copy in a memfd"),
    "memfd-collapsed": RequestWay(
        "the same, madvise(MADV_COLLAPSE)", "one in a memfd that was collapsed on request"
    ),
    "memfd-pool": RequestWay(
        "copied to a memfd from the pool, mapped", "one in the pool", "pool-empty"
    ),
}
_Name = Annotated[str, Field(pattern="^(" + "|".join(WAYS_TO_LOAD_CODE) + ")$")]


class Got(ArrayPages, frozen=True):
    """What one way gave."""

    way: _Name


class CodeLoadingDocument(WaysDocument, frozen=True):
    """The document `texts`."""

    all = WAYS_TO_LOAD_CODE
    what = "code as"
    got: list[Got]
    lacking: dict[_Name, str]


def make(profile: str) -> dict[str, Any]:
    """The document `texts` of data/, whatever the profile. Raises Unavailable: not-linux,
    page-size-unsupported."""
    return CodeLoadingDocument(
        **granted_pages.ways_fields(granted_pages.inspect_for_ways()),
        **granted_pages.try_each_way(WAYS_TO_LOAD_CODE, measure),
    ).model_dump(mode="json")


def measure(way: str) -> Got:
    """Make code executable in one way and read what it lies on. Raises Unavailable, as
    `measure.granted_pages.run_way` does."""
    refused = {
        EXIT_REFUSED: WAYS_TO_LOAD_CODE[way].refused,
        _NO_CODE: "not-permitted",
        _NO_JOINING: "no-collapse",
    }
    told, had = granted_pages.run_way("text.py", way, TEXT_BYTES, refused)
    return Got(
        way=way,
        array_bytes=told.array_bytes,
        resident_bytes=had.resident_bytes,
        huge_bytes=had.huge_bytes,
        rest_huge_bytes=had.rest_huge_bytes,
    )
