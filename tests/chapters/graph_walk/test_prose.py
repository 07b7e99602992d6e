"""What the page says of the walk: a sentence or a reason for every frame, with the numbers of the rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest
from support.synthetic import GIB, HOLE, MIB, Truth
from support.synthetic import frame as chases
from support.walk import ENTRIES, FRAMES, Walk, analysis, only, rows

from experiments.chapters.graph_walk import prose
from experiments.chapters.graph_walk.analysis import REGIMES, WALK
from experiments.inference.intervals import median_interval
from experiments.inference.trips import Trips
from experiments.words.prose import Prose
from experiments.words.reasons import Note, Unavailable

pytestmark = pytest.mark.filterwarnings("error")
CHASES = chases(Truth(cache_step=(512, 3.0), noise=0.01), repeats=3).assign(state="s")


@pytest.mark.parametrize("entries", [ENTRIES, []])
@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_every_sentence_or_its_reason(name: str, entries: list[int]):
    a = analysis(FRAMES[name](), entries)
    for function in prose.__all__:
        try:
            words = getattr(prose, function)(a)
        except Unavailable as why:
            words = Prose(why)
            assert function not in ("machine", "misses_are")
        assert not HOLE.search(words.replace("\n\n", " ")), (function, words)
        assert isinstance(words, Prose) == (function not in ("machine", "misses_are")) and words.strip(), (function, words)
        assert not isinstance(words, Prose) or words.rstrip().endswith("."), (function, words)


def test_the_lead_has_the_quantiles_of_the_largest_size_on_each_page_size():
    a, lead = analysis(), prose.lead(analysis())
    for curves in (a.p50, a.p95):
        for pages in ("4k", "1g"):
            assert f"{curves[pages].get(16 * GIB).value:.0f}" in lead.split("16 GiB")[1], pages
    assert prose.brief(a) == lead


def test_why_a_page_size_is_missing_stands_behind_the_lead():
    notes = [Note(str(Unavailable("pool-empty")), "pool-empty"), Note("Another note.")]
    lead = prose.lead(analysis(only("4k"), notes=notes))
    assert lead.startswith(prose.brief(analysis(only("4k")))) and lead.count("- ") == 1
    assert str(Unavailable("pool-empty")) in lead and "Another note." not in lead


def test_the_clock_is_told_beside_a_hop_of_the_smallest_and_of_the_largest_graph():
    coarse, fine = prose.clock(analysis()), prose.clock(analysis(rows(Walk(step_ns=0.4, clock_ns=4.0))))
    for sentence, cost, step in ((coarse, 22.0, 10), (fine, 4.0, 0.4)):
        assert f"{cost:.1f} ns" in sentence and f"advances {step:.2g} ns" in sentence and "256 KiB" in sentence and "16 GiB" in sentence
    assert "4.4 times" in coarse and "times" not in fine.split("per batch")[0]  # 22 ns of a clock beside a hop of 5


def test_regimes_name_the_sizes_where_one_gives_way_to_the_next():
    a, sentence = analysis(), prose.regimes(analysis())
    cache, memory, walk = (a.regimes.sizes(name) for name in REGIMES)
    assert [int(n) * {"MiB": MIB, "GiB": GIB}[unit] for n, unit in re.findall(r"(\d+) ([MG]iB)", sentence)][:4] == [
        cache[-1], memory[0], memory[-1], walk[0]]
    before = prose.regimes(analysis(rows(most=256 * MIB)))
    assert "ends before" in before and "ends before" not in sentence


def test_hops_that_stand_in_one_heap_are_one_trip_and_whose_the_others_are_is_a_reason():
    a = analysis()
    heaps = a.heaps["4k"]
    assert len(heaps.peaks_ns) == 1 and f" {heaps.peaks_ns[0].value:.0f} ns" in prose.heaps(a)
    with pytest.raises(Unavailable, match="one heap"):
        prose.whose(a)


def test_three_heaps_and_two_on_large_pages_are_told_with_their_places_and_whose_trips_they_are():
    a = analysis()
    three, two = (Trips([median_interval([ns] * 5) for ns in peaks], [40.0, *peaks[:-1]], [1 / len(peaks)] * len(peaks))
                  for peaks in ((150.0, 270.0, 390.0), (140.0, 260.0)))
    a.heaps = {"4k": three, "2m": two}
    a.trip_shares = pd.DataFrame({"pages": "4k", "working_set_bytes": [1 << 20, 1 << 30] * 2, "trips": [2, 2, 3, 3],
                                  "share": [0.0, 0.6, 0.0, 0.2]})
    told = prose.heaps(a)
    assert all(f"{ns:.0f}" in told for ns in (150, 270, 390, 120, 140, 260)) and "trip" in told.split("ns: ")[-1]
    assert prose.whose(a).count("1 GiB") == 2
    read = a.trip_shares.assign(pages="4k", working_set_bytes=1 << 32).iloc[:2].assign(trips=[2, 3], share=[0.75, 0.0])
    a.trip_shares = read  # two trips of two, where a machine of its own reads no third
    assert "the sizes agree" in prose.explained(a)


@pytest.mark.parametrize(("core", "walkers", "says"), [("Zen 4", 6, "agrees"), ("Skylake client", 6, "higher"), ("Imaginary", 6, "source"),
                                                       ("Zen 4", 2, "neither")])
def test_walks_under_way_stand_beside_the_walkers_that_the_core_is_said_to_have(core: str, walkers: int, says: str):
    a = analysis(rows(Walk(walkers=walkers, in_flight=64, noise=0.002, far_ns=300.0)), core=core)
    last = prose.walkers_said(a).split(".")[-2]
    assert says in last and f"{a.under_way[2]:.1f}" in prose.walkers_said(a)


@pytest.mark.parametrize("frame", [rows(), only("thp", "2m")])
def test_the_model_is_told_by_its_errors_on_what_it_did_not_see(frame):
    a = analysis(frame, stlb_cliff=CHASES)
    sentence, held = prose.model_said(a), a.modelled[a.modelled["seen"] == "held out"]
    off = (held["predicted_ns"] / held["measured_ns"] - 1).abs()
    for is_walk in set(held["series"] == WALK):
        part = off[(held["series"] == WALK) == is_walk]
        assert f"{len(part)} points" in sentence and f"{part.median():.0%}" in sentence and f"{part.max():.0%}" in sentence
    assert ("chase alone" in sentence) == (len(frame) < len(rows()))


@pytest.mark.parametrize(("factor", "says"), [(1.6, "too little"), (0.6, "too much"), (1.05, "none")])
def test_what_the_model_lacks_is_named_with_its_range_and_its_sign(factor: float, says: str):
    a = analysis(stlb_cliff=CHASES)
    points = a.fitted.points.assign(measured_ns=a.fitted.predict(a.fitted.points))
    strange = (points["layout"] == "spread") & points["lines"].between(6000, 17000) & (points["order"] == "random")
    a.fitted = replace(a.fitted, points=points.assign(measured_ns=points["measured_ns"] * strange.map({True: factor, False: 1.0})))
    last, lines = prose.model_said(a).split("\n\n")[-1], points[strange]["lines"]
    expected = ["none"] if says == "none" else [says, "spread", "random", f" {len(lines)} by more"]
    worst = [int(number.replace(",", "")) for number in re.findall(r"at ([\d,]+) lines", last)]
    assert says == "none" or worst and worst[0] in set(lines)
    assert [part for part in expected if part not in last] == [], last
