"""What points of kernels need: lines, memory and seconds, by their declarations
(tlb/measure/catalogue.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tlb.machine.host import base_page_bytes
from tlb.measure.catalogue import BOOKKEEPING_BYTES_PER_LINE, KERNEL_DECLARATIONS, KernelDeclaration
from tlb.measure.record import Point
from tlb.system.page_sizes import CACHE_LINE_BYTES, PAGE_KINDS, page_bytes
from tlb.system.reasons import LazyModule, Unavailable

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")


def declaration(name: str) -> KernelDeclaration:
    """A kernel's declaration. Raises Unavailable("bad-parameter")."""
    if name not in KERNEL_DECLARATIONS:
        raise Unavailable(
            "bad-parameter",
            f"there is no kernel '{name}'; there are {', '.join(sorted(KERNEL_DECLARATIONS))}",
        )
    return KERNEL_DECLARATIONS[name]


def shape(name: str, options: Mapping[str, int]) -> dict[str, Any]:
    """What a point of the kernel has where nothing else is said: layout, order, lines."""
    kernel = declaration(name)
    return {
        "layout": kernel.layout,
        "order": kernel.order,
        "lines": kernel.lines(options[kernel.size]) if kernel.size in options else 4096,
    }


def first_mode(name: str) -> str:
    """The mode of a kernel where none is named, "" for a kernel without."""
    return next(iter(declaration(name).modes), "")


def session_of(point: Point) -> str:
    """The program that measures this point with others in one mapping; "" where each point takes a
    process of its own."""
    kernel = declaration(point.kernel)
    return "" if point.mode in kernel.played else kernel.session


def idle_s(point: Point) -> float:
    """The seconds for which a point's process sleeps."""
    return declaration(point.kernel).idle_s(point)


def made_of(point: Point) -> object:
    """What a session makes before it measures a point, equal for points that can use it one after
    the other: a graph."""
    return (
        (point.lines, point.layout, dict(point.options).get("block_vertices"))
        if point.kernel == "graph_walk"
        else point
    )


def has_own_arena(point: Point, base: int | None = None) -> bool:
    """Whether a session maps memory for this point alone, because a prefix of the shared arena does
    not do."""
    base = base or base_page_bytes()
    return point.layout == "alias" or (
        point.layout == "spread" and base * point.stride_pages > page_bytes(point.pages, base)
    )


def mapped_bytes(point: Point, base: int | None = None) -> int:
    """The bytes of the arena that holds a point's lines, rounded up to its page size.

    base: the bytes of a base page, by default of this machine.
    """
    base = base or base_page_bytes()
    page, stride = page_bytes(point.pages, base), base * point.stride_pages
    if point.layout == "alias":
        # eight pages or what 8192 mappings need, the page table, 8 bytes a page, the visits
        span = point.lines * stride
        return 8 * page + 2 * span // 8192 + 8 * span // page
    if has_own_arena(point, base):
        return point.lines * page
    lines_bytes = point.lines * (CACHE_LINE_BYTES if point.layout == "packed" else stride)
    working_set = declaration(point.kernel).inside_bytes(lines_bytes, point)
    return -(-working_set // page) * page


def arena_bytes(point: Point, base: int | None = None) -> int:
    """What a process for one point maps at most, in bytes: its arena and the side arrays."""
    base = base or base_page_bytes()
    sparse = has_own_arena(point, base) and point.layout == "spread"
    return mapped_bytes(point, base) + (
        point.lines * BOOKKEEPING_BYTES_PER_LINE
        if sparse
        else declaration(point.kernel).side_bytes(point)
    )


def memory_bytes(point: Point) -> int:
    """What a process for one point takes of the memory that is free. A pool's pages are no part of
    that: Linux holds them against the pool as it maps them."""
    return arena_bytes(point) - (
        mapped_bytes(point) if PAGE_KINDS[point.pages].source == "pool" else 0
    )


# Seconds on a Zen 4 guest, as those of the declarations.
_POPULATE_S_PER_GIB = 0.45
_ENGINE_START_S = {"numba": 1.2, "numpy": 0.3}


def mapping_s(engine: str, mapped: int) -> float:
    """A guess at the seconds until a session has mapped so many bytes."""
    return _ENGINE_START_S.get(engine, 0.05) + _POPULATE_S_PER_GIB * mapped / 2**30


def point_s(point: Point) -> float:
    """A guess at the seconds of one point in a session, which has the memory already."""
    prepare_s = declaration(point.kernel).prepare_s
    return prepare_s + 1.2 * point.region_ms / 1e3 + 0.1 * arena_bytes(point) / 2**30


def expected_s(point: Point) -> float:
    """A guess at the seconds of one point in a process of its own: start, region, faulting in."""
    start_s = _ENGINE_START_S.get(point.engine, declaration(point.kernel).start_s)
    populate_s = _POPULATE_S_PER_GIB * arena_bytes(point) / 2**30
    return start_s + idle_s(point) + 1.2 * point.region_ms / 1e3 + populate_s


def with_defaults(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of `Store.load` in which each kernel's own numbers say what they were where nothing
    was asked, and not NaN."""
    filled: dict[str, pd.Series] = {}
    for name in frame["kernel"].unique():
        for option, value in (
            KERNEL_DECLARATIONS[name].options.items() if name in KERNEL_DECLARATIONS else ()
        ):
            if value is not None:
                column = filled.get(
                    option,
                    frame[option]
                    if option in frame
                    else pd.Series(float("nan"), index=frame.index),
                )
                filled[option] = column.mask(
                    (frame["kernel"] == name) & column.isna(), float(value)
                )
    return frame.assign(**filled)


def with_option_columns(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the frame with a column for each option of these kernels, empty of those that have no
    rows in it."""
    options = dict.fromkeys(
        option for name in names for option in KERNEL_DECLARATIONS[name].options
    )
    lacking = [option for option in options if option not in frame]
    return frame.reindex(columns=[*frame.columns, *lacking]) if lacking else frame


def is_within(frame: pd.DataFrame, most_bytes: int) -> pd.Series:
    """Which rows belong to a sweep up to a working set: a packed control belongs to its spread
    points, an array has its own size."""
    chases = frame["kernel"].isin(
        [name for name, kernel in KERNEL_DECLARATIONS.items() if kernel.is_chase]
    )
    return (frame["lines"] * frame["stride_bytes"]).where(
        chases, frame["working_set_bytes"]
    ) <= most_bytes
