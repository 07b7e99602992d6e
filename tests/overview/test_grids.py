"""The grids of all chapters together: how small quick is, and that claims are decided by what is
left of it."""

import pandas as pd
import pytest

from experiments import code, flushes, hugepages, page_walks, stlb_cliff, tlb_blocking
from experiments.overview import campaign, chapter_analysis, chapter_name
from tlb.measure import grid, kernels
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.measure.store import Store
from tlb.report import notebooks
from tlb.report.chapter import Chapter
from tlb.report.verdicts import chapter_verdicts
from tlb.system.files import ROOT
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable

DECIDED = ("holds", "fails")
# Of these chapters published rows lack what quick asks for (512 MiB are no graph of full), or they
# decide nothing.
JUDGED = (stlb_cliff, hugepages, flushes, code, page_walks, tlb_blocking)


def of(profile: str, engine: str = "c") -> Scope:
    return Scope(grid.load_profile(profile), engine, (64, 2048), 2, base_page_bytes=4096)


@pytest.mark.parametrize(("profile", "most"), [("quick", 600), ("smoke", 430)])
def test_a_coarse_profile_has_few_points_where_no_pool_has_pages(profile, most):
    points = {
        point
        for points in campaign.points_by_chapter(of(profile)).values()
        for point in points
        if PAGE_KINDS[point.pages].source != "pool"
    }
    assert len({point for point in points if point.kernel != "numa_chase"}) <= most


def published(machine: str, module: object) -> Chapter:
    name = chapter_name(module)
    return Chapter(
        name,
        notebooks.check_parameters(name, {"machine": machine, "minutes": 0.0}),
        Store(ROOT / "data"),
    )


def within(frame: pd.DataFrame, points: list[Point]) -> pd.DataFrame:
    """The rows whose point is one of these, however long its region was."""
    asked = kernels.with_defaults(
        pd.DataFrame([point.model_dump() | dict(point.options) for point in points])
    )
    fields = [name for name in Point.model_fields if name not in ("options", "region_ms")]
    options = [name for kernel in kernels.KERNEL_DECLARATIONS.values() for name in kernel.options]
    numbers = [name for name in dict.fromkeys(options) if name in frame and name in asked]
    keys, wanted = (
        side[[*fields, *numbers]].astype(dict.fromkeys(numbers, float)) for side in (frame, asked)
    )
    found = keys.merge(wanted.drop_duplicates(), how="left", indicator=True)["_merge"]
    return frame[(found == "both").to_numpy()].reset_index(drop=True)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(module, marks=pytest.mark.endurance)
        if module in (flushes, page_walks, hugepages)
        else module
        for module in JUDGED
    ],
    ids=chapter_name,
)
@pytest.mark.parametrize(
    "machine", ["zen-5-b15e0e32", pytest.param("zen-3-a9ae1af8", marks=pytest.mark.endurance)]
)
def test_what_all_published_rows_decide_the_points_of_the_quick_profile_decide(
    machine, module, monkeypatch
):
    monkeypatch.setattr(
        tlb_blocking.grid, "MOST_COARSE_BYTES", 4 << 30
    )  # of the published remedies, which are of one size
    chapter = published(machine, module)
    try:
        a = chapter_analysis(module, chapter)
    except Unavailable as why:
        pytest.skip(str(why))
    known = chapter_verdicts(module.claims, a)
    entries, cpus = tuple(a.stated_entries), a.host.usable_cpus
    scope = Scope(
        grid.load_profile("quick"), "c", entries, len(cpus), base_page_bytes=a.base_page_bytes
    )
    # which was measured at the same knees
    beside = [chapter.kept("stlb_cliff")] if module is hugepages else []
    rows = pd.concat([a.frame, *beside], ignore_index=True)
    frame = within(rows, module.grid.points(scope))
    assert len(frame) < len(rows)
    judged = chapter_verdicts(module.claims, module.Analysis(frame, chapter))
    found = {verdict.claim.id: verdict.verdict for verdict in judged}
    decided = {one.claim.id: one.verdict for one in known if one.verdict in DECIDED}
    lost = {id for id, word in decided.items() if found[id] not in DECIDED}
    assert len(lost) <= max(1, len(decided) // 10), lost
    assert {id for id in decided.keys() - lost if found[id] != decided[id]} == set()
