"""What a page's cells define moves the page: delete a definition or edit it, and figures, text and
verdicts follow.

`make inert` deletes each definition of the book; the tests try a drawn sample.
"""

from __future__ import annotations

import os
import random

import pytest
from support.rendered import CHAPTER_NAMES, committed, definitions, edited, render

from tlb.report import page
from tlb.report.page import PageError
from tlb.report.parameters import table_of_contents

SAMPLE = 10
EVERY = [
    (notebook, number, what)
    for notebook in table_of_contents()
    for number, (what, _) in enumerate(definitions(notebook))
]
RUN = os.environ.get(
    "PYTEST_XDIST_TESTRUNUID", ""
)  # the same in all processes of a run, which have to draw alike
DRAWN = EVERY if os.environ.get("TLB_INERT") == "all" else random.Random(RUN).sample(EVERY, SAMPLE)


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("notebook", "number"),
    [drawn[:2] for drawn in sorted(DRAWN)],
    ids=[f"{notebook}: {what}" for notebook, _, what in sorted(DRAWN)],
)
def test_no_page_is_the_same_without_one_of_its_definitions(notebook: str, number: int):
    _, cells = [*definitions(notebook)][number]
    try:
        without = render(notebook, cells=cells)
    except (NameError, KeyError, PageError):
        return
    assert without != committed(notebook)


# Of each chapter definitions and a band, as a reader might change them.
EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "your_machine": (
        ("price = spread - packed", "price = spread / packed"),
        ('caches["size_bytes"] * (', 'caches["size_bytes"] * 3 * ('),
        ('"pool_pages": claims.POOL_PAGES', '"pool_pages": 1'),
    ),
    "stlb_cliff": (
        ("price = a.price_of(spread, packed)", "price = spread / packed"),
        ('{"most": claims.FLAT}', '{"most": 1.0}'),
    ),
    "strides": (
        ("times = at_strides(sums, STRIDES)", "times = at_strides(sums, STRIDES[::2])"),
        ('{"band": (0.75, 1.25)}', '{"band": (0.1, 9.0)}'),
    ),
    "walk_anatomy": (
        ("return (visit - a.held_ns) / missed", "return visit / missed"),
        (
            '"full_walks_hurt": {"band": (1.0, float("inf"))}',
            '"full_walks_hurt": {"band": (0.0, 1.0)}',
        ),
    ),
    "graph_walk": (
        ('a.curves("p95")', 'a.curves("p50")'),
        ('{"band": claims.TWICE}', '{"band": (1.0, 2.0), "from_bytes": 1}'),
    ),
    "hugepages": (
        ("a.price_on(pages, spread[pages], packed[pages])", "spread[pages] / packed[pages]"),
        ("bands = {", 'bands = {"thp_is_like_the_pool": {"same": 0.5}, '),
    ),
    "keeping_pages": (
        ("spread[pages] - packed[pages]", "spread[pages] / packed[pages]"),
        ('{"band": claims.SIX}', '{"band": (0.1, 1.0)}'),
    ),
    "tlb_blocking": (
        ('2 ** fan_out["bits"]', '4 ** fan_out["bits"]'),
        ("bands = {", 'bands = {"join_partitions_first": {"same": 9.9}, '),
    ),
    "page_faults": (
        ("shown = [FILE, FRESH, FRESH_LARGE]", "shown = [FILE, FRESH]"),
        ('1 / row["faults_per_access"]', '2 / row["faults_per_access"]'),
        (
            '"faults_cost_latency": {"band": (1.0, float("inf"))}',
            '"faults_cost_latency": {"band": (0.0, 1.0)}',
        ),
    ),
    "churn": (
        ("beside - calls_alone[call]", "beside"),
        (
            "judge(churn.claims, a)",
            'judge(churn.claims, a, a_cold_start_pays={"band": (0.0, 1.0)})',
        ),
    ),
    "virtualization": (
        ("guests.price_of(spread[pair], packed[pair])", "spread[pair] / packed[pair]"),
        ('{"same": claims.SAME}', '{"same": 0.5}'),
    ),
    "code": (
        ("spread[kind] - packed[kind]", "spread[kind] / packed[kind]"),
        ('alias = a.jumps("alias", "random")', 'alias = a.jumps("alias", "direct")'),
        (
            '{"many_pages_cost": {"band": (1.0, float("inf"))}',
            '{"many_pages_cost": {"band": (0.0, 1.0)}',
        ),
    ),
    "your_program": (
        ("paged = on_huge_pages(a.trials)\n", "paged = on_huge_pages(a.trials).iloc[:5]\n"),
        ("gain.low > 1", "gain.low > 2"),
        ('{"band": (1.0, float("inf"))}', '{"band": (0.0, 1.0)}'),
    ),
}


@pytest.mark.endurance
@pytest.mark.parametrize("notebook", CHAPTER_NAMES)
def test_an_edited_definition_and_band_move_figures_text_and_verdicts(notebook: str):
    moved, before = (
        render(notebook, cells=edited(page.cells(notebook), *EDITS[notebook])),
        committed(notebook),
    )
    assert moved.figures != before.figures and moved.verdicts != before.verdicts
    assert (
        moved.texts != before.texts or notebook == "your_machine"
    )  # whose texts are of the survey, which no cell defines anew
