"""What a machine states and others published, multiplied out; and a survey's curves."""

from dataclasses import replace

import pandas as pd
import pytest
from support.common import About
from support.geometry import Made, lru
from support.host import HERE, ICE_LAKE, inspect, reader
from support.synthetic import scope
from support.your_machine import ARM, LINES, PENALTY, host, kind, measured, stating

from experiments.your_machine import Analysis, grid
from tlb.measure import survey
from tlb.system.reasons import Unavailable


def test_a_survey_begins_with_the_points_that_a_page_gives_it_and_reads_them():
    measure = Made(lru(64), lru(1536)).run()
    points = grid.points(scope())
    more = [
        *points,
        *(
            points[-1].model_copy(update={"layout": layout, "lines": 5000})
            for layout in ("alias", "spread", "packed")
        ),
    ]
    asked: list[list] = []

    def run(points: list) -> pd.DataFrame:
        asked.append(points)
        return measure(points)

    a = Analysis(survey.survey(run, first=more), About(host()))
    assert asked[0] == more and 5000 in a.price.xs and 5000 in a.alias.xs


def test_a_reach_is_entries_times_page_size_and_parts_of_a_level_add_up(tmp_path):
    reaches = stating(inspect(tmp_path, here=replace(HERE, cpuid=reader(ICE_LAKE)))).reaches
    small, large, largest = 2**12, 2**21, 2**30
    # The second level holds 4 KiB pages in two parts of 1,024; stores and instructions do not
    # count.
    assert dict(
        zip(
            zip(reaches["level"], reaches["page_bytes"], strict=True),
            reaches["entries"],
            strict=True,
        )
    ) == {
        (1, small): 64,
        (1, large): 32,
        (1, largest): 8,
        (2, small): 2048,
        (2, large): 1024,
        (2, largest): 1024,
    }
    assert (reaches["reach_bytes"] == reaches["entries"] * reaches["page_bytes"]).all()


def test_a_machine_that_states_nothing_reaches_nothing():
    assert stating(host(**ARM)).reaches.empty and kind("no caches").data_caches().empty


@pytest.mark.parametrize("ghz", [2.0, 0])
def test_the_curves_are_in_cycles_where_there_is_a_clock_and_the_price_is_without_the_load(ghz):
    a = Analysis(measured(ghz=ghz), About(host()))
    added = {n: (7 if n > 64 else 0) + (30 if n > 2048 else 0) for n in LINES}
    assert dict(a.price.medians) == pytest.approx(added)
    assert dict(a.alias.medians) == pytest.approx(
        {n: 4 + PENALTY + cost for n, cost in added.items()}
    )
    assert set(a.packed.medians) == {4.0}


def test_what_a_survey_lacks_is_asked_for_once_and_told_whenever_the_geometry_is_wanted():
    asked = []

    def lacks() -> pd.DataFrame:
        asked.append(1)
        raise Unavailable("engine-lacks", "a detail")

    a = Analysis(lacks, About(host()))
    assert len(a.spread) == len(a.price) == len(a.alias) == 0
    for _ in range(2):
        with pytest.raises(Unavailable, match="a detail"):
            a.geometry  # noqa: B018
    assert asked == [1]


@pytest.mark.parametrize(("leaves", "share"), [(1 << 17, (3, 1 << 22, 1 << 23)), (1 << 20, None)])
def test_a_share_of_the_last_cache_shows_where_lines_side_by_side_leave_it(leaves, share):
    """Of 16 MiB of L3 that CPUID states."""
    caches = [
        {"level": n, "kind": "unified", "size_bytes": size}
        for n, size in ((2, 1 << 20), (3, 1 << 24))
    ]
    lines = [1 << n for n in range(12, 21)]
    packed = pd.DataFrame(
        [
            {
                "kernel": "page_chase",
                "engine": "c",
                "layout": "packed",
                "order": "cycle",
                "mode": "",
                "pages": "4k",
                "lines": n,
                "ns_per_access": 150.0 if n >= leaves else 20.0,
            }
            for n in lines
            for _ in range(3)
        ]
    )
    a = stating(host(caches=caches))
    assert a.last_cache_share is None
    a.about.rows["stlb_cliff"] = packed
    assert a.last_cache_share == share
