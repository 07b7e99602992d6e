"""Which points to measure for the geometry, in stages: a coarse sweep, then finer where it bends,
then what hangs on the knees.

Each stage is a pure function of the rows so far, so a survey that is run again on stored rows asks
for the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd

from tlb.machine.host import base_page_bytes, data_caches
from tlb.measure import campaign, kernels, row_tables
from tlb.measure.build import compiler_or_prebuilt
from tlb.measure.grid import octaves
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.record import CacheLineLayout, Point, VisitingOrder
from tlb.stats import geometry, geometry_curves
from tlb.stats.fits import CurveKnee
from tlb.system.page_sizes import BASE_PAGES, PageKind
from tlb.system.reasons import Unavailable, UnmeasuredNote
from tlb.system.units import list_in_words

NAME = "geometry"  # of the experiment
LAYOUTS: tuple[CacheLineLayout, ...] = ("alias", "spread", "packed")
SPREAD_HUGE = (
    512  # pages of 2 MiB, 1 GiB of them: to clear more takes longer than the rest of a survey
)
REPEATS = 3  # processes a point: a median that one disturbed process does not move
# the fit of a smeared level hangs on a dozen points; with three, one run in ten was 4 % off in a
# loud hour
DRAWN_REPEATS = 5
WALK_REPEATS = 5  # claims compare the price of a walk, and five processes cover 93.75 %
# pages whose table of 8 bytes each fills a first-level cache of 32 KiB twice: they may walk with it
# in L2
FEWEST_WALKING = 8192
REGION_MS = 8  # half a million chases of 16 ns; half a minute is what people wait for
# alias pays the way predictor's price from 16 pages on. Three points have to stand before a step,
# so a level of fewer than 25 entries is not seen. Where fewer than two levels show up to TO_LINES,
# the sweep goes on past the largest that is published, of 32,768 entries.
FROM_LINES, TO_LINES, FARTHEST_LINES = geometry_curves.ALIAS_FROM, 16384, 131072


def repeats_of(point: Point) -> int:
    if point.layout == "alias" and (point.stride_pages > 1 or point.lines >= FEWEST_WALKING):
        return WALK_REPEATS
    return DRAWN_REPEATS if point.order == "random" else REPEATS


def measured(
    rig: MeasuringSetup,
    pages: PageKind,
    *,
    repeats: int = REPEATS,
    most_bytes: int | None = None,
    first: Sequence[Point] = (),
    seconds: float = inf,
) -> tuple[pd.DataFrame, list[UnmeasuredNote]]:
    """Survey this computer into the rig's store, what is there already not again: (all rows, a note
    for each reason of a lack).

    repeats: at most so many processes a point. most_bytes: leaves out points that need more memory.
    first: as `survey` takes it. seconds: each of its looks takes no longer. Raises Unavailable:
    engine-lacks without a C compiler, and what campaign.run raises.
    """
    _takes_c()
    lacking: dict[Point, Unavailable] = {}

    def run(points: list[Point]) -> pd.DataFrame:
        fitting = [
            p
            for p in points
            if kernels.arena_bytes(p) <= (most_bytes or inf)
            and kernels.memory_bytes(p) <= rig.usable_bytes
        ]
        frame, missing = _run(rig, fitting, NAME, repeats, seconds)
        lacking.update(missing)
        return frame

    frame = survey(run, pages, data_caches(rig.host), first)
    return frame, _notes(lacking)


def pieces(rig: MeasuringSetup, pages: PageKind) -> pd.DataFrame:
    """The rows that splinter.judge() takes: one line to each 4 KiB, on base pages and on `pages`. A
    few seconds.

    Raises as `measured`.
    """
    _takes_c()
    points = [
        Point(kernel="page_chase", pages=kind, layout=layout, lines=n, region_ms=REGION_MS)
        for kind in (BASE_PAGES, pages)
        for layout in ("spread", "packed")
        for n in octaves(FROM_LINES, TO_LINES, 2)
    ]
    return _run(rig, points, "pieces", REPEATS)[0]


def _takes_c() -> None:
    if compiler_or_prebuilt() is None:
        raise Unavailable("engine-lacks")


def _run(
    rig: MeasuringSetup, points: list[Point], name: str, repeats: int, seconds: float = inf
) -> tuple[pd.DataFrame, dict[Point, Unavailable]]:
    """(all rows that there are now, why each point that is lacking is). No point is
    counted, and nothing tried again: the least of several leaves noise out."""
    outcome = campaign.run(
        replace(rig, plan=rig.plan.of_processes_only()),
        {name: points},
        lambda p: min(repeats, repeats_of(p)),
        retry_share=0,
        seconds=seconds,
    )
    frame = row_tables.current_rows(rig.store.load(rig.machine, name), rig.state)
    return frame, outcome.lacking


def _notes(lacking: Mapping[Point, Unavailable]) -> list[UnmeasuredNote]:
    """Return a note for each reason, with all layouts that it concerns."""
    by_code: dict[str, list[str]] = {}
    for point, why in lacking.items():
        by_code.setdefault(why.code, []).append(point.layout)
    last = {why.code: why for why in lacking.values()}
    return [
        UnmeasuredNote(
            f"{list_in_words(sorted({*layouts})).capitalize()} chases: {last[code]}", code
        )
        for code, layouts in sorted(by_code.items())
    ]


def survey(
    run: Callable[[list[Point]], pd.DataFrame],
    pages: PageKind = "4k",
    cache_bytes: Mapping[int, int] | None = None,
    first: Sequence[Point] = (),
) -> pd.DataFrame:
    """All rows of the geometry. `run` measures what it does not have yet and returns the rows of
    all that it has; first: the first look, by default `coarse`.

    A stage sees the rows of this survey's earlier stages alone, whatever else `run` returns: else
    rows that are there already would make the first look finer than it was, and ask for other
    points.
    """
    asked: set[tuple] = set()

    def rows(points: list[Point]) -> pd.DataFrame:
        frame = run(points)
        asked.update((p.layout, p.order, p.lines, p.stride_pages) for p in points)
        if frame.empty:
            return frame
        mine = pd.MultiIndex.from_frame(frame[["layout", "order", "lines", "stride_pages"]]).isin(
            asked
        )
        return frame[mine & (frame["pages"] == pages)].reset_index(drop=True)

    frame = rows([*first] or coarse(pages))
    if frame.empty:
        return frame
    if (
        len(geometry_curves.curve_knees(geometry_curves.aliased_chase_curve(frame, _stride(pages))))
        < 2
    ):
        frame = rows(farther(pages))
    frame = rows([*refined(frame, pages)])
    # at the knees as the first time has placed them
    frame = rows([p for p in refined(frame, pages) if p.layout == "alias"])
    return rows([*hanging(frame, pages, cache_bytes or {}, _stride(pages))])


def _point(
    pages: PageKind,
    layout: CacheLineLayout,
    lines: int,
    stride_pages: int,
    order: VisitingOrder = "cycle",
) -> Point:
    return Point(
        kernel="page_chase",
        pages=pages,
        layout=layout,
        order=order,
        lines=lines,
        stride_pages=1 if layout == "packed" else stride_pages,
        region_ms=REGION_MS,
    )


def _stride(pages: PageKind) -> int:
    return geometry_curves.base_stride(pages, base_page_bytes())


def coarse(pages: PageKind) -> list[Point]:
    """Three numbers of pages an octave, in all three layouts; 8 for what aliasing costs by itself."""
    lines = [8, *octaves(FROM_LINES, TO_LINES, 3)]
    most = TO_LINES if pages == BASE_PAGES else SPREAD_HUGE
    return [
        _point(pages, layout, n, _stride(pages))
        for n in lines
        for layout in LAYOUTS
        if layout == "alias" or 8 < n <= most
    ]


def farther(pages: PageKind) -> list[Point]:
    """The coarse sweep's numbers of pages beyond it, for a level that it did not reach."""
    layouts = LAYOUTS if pages == BASE_PAGES else LAYOUTS[:1]
    return [
        _point(pages, layout, n, _stride(pages))
        for n in octaves(TO_LINES, FARTHEST_LINES, 3)
        if n > TO_LINES
        for layout in layouts
    ]


def _knees(
    frame: pd.DataFrame, pages: PageKind
) -> Iterator[tuple[tuple[CacheLineLayout, ...], CurveKnee]]:
    """(layouts to measure, knee) of both curves, two levels each."""
    stride = _stride(pages)
    for layouts, points in (
        (LAYOUTS[:1], geometry_curves.aliased_chase_curve(frame, stride)),
        (LAYOUTS[1:], geometry_curves.price_curve(frame, stride)),
    ):
        for knee in geometry_curves.curve_knees(points)[:2]:
            yield layouts, knee


def refined(frame: pd.DataFrame, pages: PageKind) -> Iterator[Point]:
    """Around each knee twelve points an octave, six where it is no step; between the two points of
    a sharp one, up to seven more."""
    for layouts, knee in _knees(frame, pages):
        around = octaves(
            knee.last_low / 2**0.3, knee.first_high * 2**0.3, 12 if knee.is_sharp else 6
        )
        between = np.linspace(knee.last_low, knee.first_high, 9)[1:-1] if knee.is_sharp else ()
        for n in sorted({*around, *(round(x) for x in between)}):
            for layout in layouts:
                yield _point(pages, layout, n, _stride(pages))


def hanging(
    frame: pd.DataFrame, pages: PageKind, cache_bytes: Mapping[int, int], stride: int
) -> Iterator[Point]:
    """What hangs on where the knees are: random draws across the second, and across the first if it
    is no step; colliding pages for the first; dear walks."""
    found = [knee for layouts, knee in _knees(frame, pages) if layouts == ("alias",)]
    if not found:
        return
    for layout, knee in zip(LAYOUTS[1::-1], found, strict=False):
        if layout == "alias" or not knee.is_sharp:
            low, high = geometry.draw_window(knee)
            yield from (_point(pages, layout, n, stride, "random") for n in octaves(low, high, 6))
    most = round(found[0].first_high * 1.3)
    colliding = {n for n in (*range(2, 10), 12, 13, 16, 17, 24, 32, 48, 64) if n < most} | {most}
    yield from (
        _point(pages, "spread", n, stride * geometry.COLLIDING_STRIDE_PAGES)
        for n in sorted(colliding)
    )
    try:
        entries = geometry.infer_tlb_geometry(frame).levels[-1].entries.value
    except Unavailable:
        return
    for _, lines, apart in geometry_curves.walk_points(entries, stride, cache_bytes):
        if lines * apart <= geometry_curves.MOST_PAGES:
            yield _point(pages, "alias", lines, apart)
