"""What the chapters say: a sentence for every kind of machine, chosen by its data, with no hole where a number was not had."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import GIB, MIB, Stated, Truth, frame, grid, tlbs

from experiments.article import chapter as chapters
from experiments.article import machine_words as findings
from experiments.article.machine_words import Prose
from experiments.inference import counts
from experiments.inference import curves as claims
from experiments.inference import misses as model
from experiments.machine.tlb import Tlb
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

HOLE = re.compile(r"\b(nan|inf|None)\b|-0(\.0+)?(?![.\d])|\(\)|  ", re.IGNORECASE)


def readable(said: Mapping[str, float | str]) -> Mapping[str, float | str]:
    """`said`, found fit to be glued: finite numbers as Python's own floats, sentences without holes."""
    for name, value in said.items():
        if isinstance(value, str):
            assert not HOLE.search(value), (name, value)
            assert not isinstance(value, Prose) or not value or value.endswith("."), (name, value)
        else:
            assert type(value) is float and math.isfinite(value), (name, value)
    return said


def hashed(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    return model.hashed_random_replacement(lines, entries // 12, 12)


SILENT = Stated(tlb=())
MACHINES = {
    "the textbook's": (Truth(climb=1.3), Stated(), grid()),
    "hashed sets": (Truth(missed=hashed), Stated(), grid()),
    "no cliff": (Truth(hit_ns=0.0, walk_ns=0.0), Stated(), grid()),
    "noise": (Truth(noise=0.3), Stated(), grid()),
    "CPUID silent": (Truth(), SILENT, grid(entries=())),
    "one level stated": (Truth(), Stated(tlb=tlbs()[:1]), grid()),
    "ways unknown": (Truth(), Stated(tlb=tlbs(ways=(None, None))), grid()),
    "tiny sizes": (Truth(), Stated(), grid(64 << 10)),
    "small sizes": (Truth(), Stated(), grid(4 * MIB, per_octave=1)),
    "no zoom": (Truth(), Stated(), grid(GIB, per_octave=1)),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("repeats", [1, 5])
def test_every_kind_of_machine_has_its_sentences(name: str, repeats: int):
    truth, stated, points = MACHINES[name]
    rows, host = frame(truth, points, repeats), stated.host()
    said = readable(findings.machine(host) | findings.cliff(rows, host))
    every = {"lead", "stable", "steps", "step_shape", "random", "tlb", "counters", "guest_note", "machine", "repeats", "largest"}
    assert every <= said.keys()
    assert said["lead"] and said["steps"]
    readable({"overlap": findings.overlap(rows)})
    for table in (counts.walk_table(rows), findings.side_by_side(rows, chapters.literature("tlb_pressure"))):
        assert len(table)
    assert all(isinstance(series, pd.Series) for series in models(rows, host).values())


def models(rows: pd.DataFrame, host) -> dict[str, pd.Series]:
    return findings.second_step_models(claims.price(rows), findings.data_tlbs(host))


# --- the numbers are those of the machine


def test_on_the_textbooks_machine_the_numbers_are_its_own():
    said = readable(findings.cliff(frame(Truth()), Stated().host()))
    assert (said["hit_ns"], said["walk_ns"]) == pytest.approx((2, 11), rel=0.03)
    assert said["l1_ns"] == pytest.approx(1, rel=0.03)
    assert said["l1_cycles"] == pytest.approx(said["l1_ns"] * said["ghz"])
    assert (said["largest"], said["largest_pages"], said["table_last"]) == ("4 GiB", 2.0**20, "8 MiB")
    assert said["price_last_ns"] == pytest.approx(11, rel=0.03)
    assert said["price_last_share"] == pytest.approx(100 * 11 / 12, rel=0.03)
    assert (said["repeats"], said["coverage"]) == (7, pytest.approx(98.4, abs=0.1))
    assert "1,536" in said["steps"] and "64" in said["steps"]
    assert said["step_shape"].count("fits best") == 1 and "as the textbook has it" in said["step_shape"]


def test_a_smeared_step_is_laid_to_hashed_sets_and_denies_full_associativity():
    said = findings.cliff(frame(Truth(missed=hashed)), Stated().host())
    assert "Sets chosen by a hash, with random" in said["step_shape"]
    assert "its width from sets and replacement" in said["step_shape"]


def test_where_the_ways_are_unknown_no_kind_of_sets_is_claimed():
    rows, host = frame(Truth(missed=hashed)), Stated(tlb=tlbs(ways=(None, None))).host()
    assert set(models(rows, host)) == {"fully associative, LRU", "fully associative, random replacement"}


@pytest.mark.parametrize(("name", "why"), [
    ("no cliff", "show no step"), ("CPUID silent", "CPUID"), ("one level stated", "CPUID"), ("tiny sizes", "too few"),
    ("small sizes", "too few")])
def test_a_step_that_is_not_there_has_no_place_and_a_reason(name: str, why: str):
    truth, stated, points = MACHINES[name]
    said = findings.cliff(frame(truth, points), stated.host())
    assert "cannot be placed" in said["steps"] and why in said["steps"]
    assert not {"hit_ns", "walk_ns", "first_step", "second_step"} & said.keys()
    assert said["step_shape"] == said["random"] == ""


def test_noise_marks_points_unstable_and_quiet_does_not():
    host = Stated().host()
    quiet, noisy = (findings.cliff(frame(Truth(noise=noise)), host) for noise in (0.001, 0.3))
    assert quiet["unstable_points"] == 0 and "is under 5 %" in quiet["stable"]
    assert noisy["unstable_points"] > 0.9 * noisy["curve_points"] and "more than 5 %" in noisy["stable"]


def test_the_largest_size_told_is_one_that_has_its_control():
    rows = frame(Truth())
    lone = (rows["layout"] == "packed") & (rows["lines"] > 2**18)
    said = readable(findings.cliff(rows[~lone], Stated().host()))
    assert said["largest"] == "1 GiB"


def test_spread_points_without_any_control_are_too_few():
    rows = frame(Truth())
    with pytest.raises(Unavailable) as refused:
        findings.cliff(rows[rows["layout"] == "spread"], Stated().host())
    assert refused.value.code == "too-few-points"


# --- the random order


def test_the_random_order_gives_the_costs_of_its_model():
    fit, part = findings.random_fit(frame(Truth()), [64, 1536])
    assert fit.stlb_cost_ns.value == pytest.approx(2, rel=0.05) and fit.walk_ns.value == pytest.approx(9, rel=0.05)
    assert fit.walk_ns.low < 9 < fit.walk_ns.high
    assert part["lines"].max() <= 4 * 1536


def test_a_random_curve_lies_on_the_model_or_is_not_drawn():
    curve = findings.random_curve(frame(Truth(noise=0.001)), [64, 1536])
    expected = [2 * max(0, 1 - 64 / n) + 9 * max(0, 1 - 1536 / n) for n in curve.index]
    assert curve.to_numpy() == pytest.approx(np.array(expected), abs=0.05)
    assert findings.random_curve(frame(Truth()), []) is None
    assert findings.random_curve(frame(Truth(), grid(64 << 10)), [64, 1536]) is None


def test_a_random_order_that_cannot_be_fitted_says_why():
    rows = frame(Truth())
    said = readable(findings.cliff(rows[rows["order"] != "random"], Stated().host()))
    assert said["random"].startswith("The random order cannot be fitted here: There are too few")


# --- what CPUID states


def test_a_silent_cpuid_is_said_with_its_reason():
    said = readable(findings.machine(SILENT.host()))
    assert said["tlb"].startswith("CPUID states no TLB geometry here: CPUID is silent")
    arm = Stated(tlb=(), changes={"tlb_reason": "no-cpuid", "arch": "aarch64"}).host()
    assert "no readable CPUID" in readable(findings.machine(arm))["tlb"]


def test_the_reach_is_the_entries_times_the_page():
    said = findings.machine(Stated().host())
    assert "64 entries" in said["tlb"] and "1,536 entries" in said["tlb"] and "(12-way)" in said["tlb"]
    assert "256 KiB and 6 MiB" in said["tlb"]


def test_only_tlbs_that_translate_loads_of_4_kib_count_and_parts_of_a_level_add_up():
    def tlb(level: int, kind: str, pages: tuple[str, ...], entries: int, ways: int = 4) -> Tlb:
        return Tlb(level=level, kind=kind, pages=pages, entries=entries, ways=ways, source="test")

    stated = (tlb(2, "unified", ("4k", "2m"), 1024), tlb(1, "instruction", ("4k",), 128), tlb(1, "store", ("4k",), 16),
              tlb(1, "load", ("4k",), 64), tlb(1, "load", ("2m",), 32), tlb(2, "unified", ("4k", "1g"), 1024), tlb(3, "data", ("4k",), 0))
    found = findings.data_tlbs(Stated(tlb=stated).host())
    assert [(one.level, one.entries, findings.ways_of(one)) for one in found] == [(1, 64, 4), (2, 2048, None)]


@pytest.mark.parametrize(("entries", "between", "ways"), [(3072, (8, 15), 12), (1536, (5, 7), 6), (512, (4, 5), 4), (3072, (2, 15), None),
                                                          (7, (4, 5), None)])
def test_a_range_of_ways_is_resolved_only_where_one_gives_a_power_of_two_of_sets(entries: int, between: tuple, ways: int | None):
    tlb = Tlb(level=2, kind="data", pages=("4k",), entries=entries, ways_between=between, source="test")
    assert findings.ways_of(tlb) == ways


@pytest.mark.parametrize(("hypervisor", "where", "note"), [("none", "bare metal", "one walk of one page table"),
                                                           ("kvm", "under KVM", "It is a guest."),
                                                           ("unknown", "could not be told", "Whether it is a guest could not be told.")])
def test_a_guest_is_told_that_it_is_one_and_a_doubt_is_said(hypervisor: str, where: str, note: str):
    said = readable(findings.machine(Stated(hypervisor=hypervisor).host()))
    assert where in said["where"] and note in said["guest_note"]


@pytest.mark.parametrize("reason", [None, "no-pmu", "no-perf", "perf-denied", "perf-failed", "not-counted"])
def test_walks_are_counted_or_timed_and_why(reason: str | None):
    pmu = {"tier": "counters" if reason is None else "timing", "reason": reason}
    said = readable(findings.machine(Stated(changes={"pmu": pmu}).host()))
    assert said["counters"].startswith("Hardware counters answer" if reason is None else "Walks are timed, not counted: ")


def test_a_machine_that_says_little_of_itself_still_has_its_line():
    changes = {"cpu_model": "", "microarchitecture": "unknown", "page_table_levels": None, "caches": (), "microcode": None}
    host = Stated(tlb=(), changes=changes).host()
    said = readable(findings.machine(host))
    assert "an unnamed CPU" in said["machine"] and said["machine_short"] == "an unnamed CPU"
    assert findings.cache_bytes(host, 2) is None and findings.cache_bytes(Stated().host(), 2) == MIB


def test_the_table_of_the_machine_names_everything_and_leaves_no_hole():
    table = findings.machine_table(Stated().host())
    assert not table.isna().any().any() and all(table.iloc[:, 1].str.len() > 0)


@given(st.floats(1, 1e9))
def test_pages_are_whole_and_grouped(number: float):
    assert re.fullmatch(r"\d{1,3}(,\d{3})*", findings.pages(number))


# --- tables


def test_the_published_sizes_stand_beside_the_same_sizes_here():
    published = chapters.literature("tlb_pressure")
    table = findings.side_by_side(frame(Truth()), published)
    assert list(table["pages"]) == list(published["pages"])
    small = findings.side_by_side(frame(Truth(), grid(16 * MIB)), published)
    assert small["chase here, ns"].notna().tolist() == [size <= 16 * MIB for size in published["working_set_bytes"]]
    ratio = table["chase / gather"].dropna()
    assert len(ratio) == len(published) and ratio.to_numpy() == pytest.approx(5, rel=0.05)


def test_the_overlap_is_the_ratio_of_latency_to_throughput():
    assert "as if 5 accesses were in flight" in findings.overlap(frame(Truth(noise=0.001)))


def test_cycles_of_a_walk_are_inferred_without_counters_and_counted_with_them():
    rows = frame(Truth(), grid(64 * MIB))
    inferred = counts.walk_table(rows)
    assert set(inferred["cycles per walk from"]) == {"inferred from time"}
    assert inferred["price, cycles"].to_numpy() == pytest.approx(inferred["price, ns"].to_numpy() * 3.2)
    past = (rows["layout"] == "spread") & (rows["lines"] > 1536)
    counted = counts.walk_table(rows.assign(walk_per_access=past * 1.0, walk_cycles_per_access=past * 30.0))
    assert set(counted["cycles per walk from"]) == {"counters"}
    cycles = counted.set_index("pages")["cycles per walk"]
    assert (cycles[cycles.index > 1536] == 30).all() and cycles[cycles.index <= 1536].isna().all()
