"""data/literature/: each published figure is there, has its source and agrees with what that implies."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from pybtex.database import parse_file
from scipy.stats import t as student

from experiments.system.files import ROOT

FOLDER = ROOT / "data" / "literature"
FILES = sorted(FOLDER.glob("*.csv"))
FIGURES = [path for path in FILES if path.stem != "claims"]  # that are sentences: test_claims.py
EVERY_ROW_HAS = ["source", "where", "note"]
# What ends the name of a column of numbers. `pages` and `page_table_levels` are counts of what they name,
# and a test's own numbers have no unit;
# `score` and `value_*` stand beside a `unit` column.
UNITS = re.compile(r"(_bytes|_n?s|_ratio|_count|_gb_per_s|ns_per_(access|hop|fault)(_4k|_2m)?|misses_per_hop)$")
COUNTS = {"pages", "page_table_levels", "degrees_of_freedom", "t", "p_value"}
UNIT_BESIDE = {"score", "score_error", "value_low", "value_high"}


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name)


def pairs(frame: pd.DataFrame, *columns: str) -> list[tuple]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def bibliography():
    return parse_file(str(ROOT / "book" / "references.bib")).entries


def test_the_folder_holds_the_files_that_the_chapters_read():
    assert {path.name for path in FILES} == {
        "claims.csv",
        "tlb_pressure.csv", "hugepages_speedup.csv", "jmh_byte_array_touch.csv", "pretouch_4tb.csv",
        "graph_walk_quantiles.csv", "mitigations.csv", "dtlb_misses_per_hop.csv", "microarchitectures.csv",
        "stride_walk.csv", "page_fault_levels.csv", "page_fault_difference.csv", "page_fault_histogram.csv", "virtualization.csv",
        "walk_costs.csv", "topdown.csv", "page_fault_profile.csv",
    }


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_every_row_names_its_source_and_the_place_in_it(path, bibliography):
    frame = pd.read_csv(path)
    assert len(frame) > 0
    assert list(frame.columns[-3:]) == EVERY_ROW_HAS
    assert frame["source"].notna().all() and frame["where"].notna().all()
    assert set(frame["source"]) <= set(bibliography)
    assert not frame.duplicated().any()


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_every_column_of_numbers_says_its_unit(path):
    frame = pd.read_csv(path)
    numbers = set(frame.select_dtypes("number").columns) - COUNTS
    beside = numbers & UNIT_BESIDE
    assert not beside or frame["unit"].notna().all()
    assert [column for column in numbers - beside if not UNITS.search(column)] == []
    assert (frame[list(numbers)].fillna(0) >= 0).all(axis=None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_readme_describes_every_file_and_every_column(path):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    row = next((line for line in readme.splitlines() if line.startswith(f"| `{path.name}`")), "")
    shared = {"machine", *EVERY_ROW_HAS}
    assert [c for c in pd.read_csv(path).columns if c not in shared and f"`{c}`" not in row] == []


def test_the_bibliography_is_complete_enough_to_be_printed(bibliography):
    for key, entry in bibliography.items():
        assert entry.persons.get("author"), f"{key}: no author"
        assert entry.fields.get("title"), f"{key}: no title"
        assert re.fullmatch(r"(\d{4})?", entry.fields.get("year", "")), f"{key}: year"
        assert entry.fields.get("url", "https://").startswith("https://"), f"{key}: url"
        assert re.fullmatch(r"10\.\d{4,}/\S+", entry.fields.get("doi", "10.0000/none")), f"{key}: doi"


def test_the_published_cliff_has_its_seven_rows():
    frame = read("tlb_pressure.csv")
    mib = 1 << 20
    assert pairs(frame, "working_set_bytes", "ns_per_access", "reach") == [
        (1 * mib, 4.2, "L2 STLB"),
        (4 * mib, 4.8, "L2 STLB"),
        (16 * mib, 18.7, "page walk"),
        (64 * mib, 42.3, "page walk"),
        (256 * mib, 58.6, "page walk"),
        (1024 * mib, 89.4, "page walk"),
        (4096 * mib, 127.1, "page walk"),
    ]
    assert (frame["pages"] * 4096 == frame["working_set_bytes"]).all()
    assert frame["machine"].str.contains("c6i.4xlarge").all()


def test_the_published_speedups_are_the_ratio_of_their_columns():
    frame = read("hugepages_speedup.csv")
    assert pairs(frame, "ns_per_access_4k", "ns_per_access_2m", "speedup_ratio") == [
        (58.6, 11.2, 5.23), (89.4, 12.8, 6.98), (127.1, 14.1, 9.01),
    ]
    ratio = frame["ns_per_access_4k"] / frame["ns_per_access_2m"]
    assert (ratio.round(2) == frame["speedup_ratio"]).all()


def test_the_two_published_runs_agree_where_they_measure_the_same():
    cliff = read("tlb_pressure.csv").set_index("working_set_bytes")["ns_per_access"]
    small = read("hugepages_speedup.csv").set_index("working_set_bytes")["ns_per_access_4k"]
    assert (cliff.loc[small.index] == small).all()


@pytest.mark.parametrize(
    ("pages", "scores", "errors"),
    [
        ("4k", [8.109, 8.086, 9.831, 19.734, 32.538], [0.018, 0.045, 0.139, 0.379, 0.662]),
        ("thp", [8.104, 8.060, 9.193, 17.282, 28.698], [0.012, 0.005, 0.086, 0.405, 0.120]),
        ("2m", [8.104, 8.062, 9.303, 17.357, 28.697], [0.015, 0.011, 0.133, 0.217, 0.291]),
    ],
)
def test_the_java_table_is_whole(pages, scores, errors):
    frame = read("jmh_byte_array_touch.csv")
    table = frame[(frame["pages"] == pages) & frame["where"].str.startswith("first table")]
    assert list(table["array_bytes"]) == [1_000, 10_000, 1_000_000, 10_000_000, 100_000_000]
    assert list(table["score"]) == scores
    assert list(table["score_error"]) == errors


def test_the_java_counters_drop_a_thousandfold_on_huge_pages():
    frame = read("jmh_byte_array_touch.csv")
    misses = frame[frame["quantity"] == "dTLB-load-misses"].set_index("pages")
    assert misses.loc["4k", "score"] == 1.017 and misses.loc["4k", "score_error"] == 0.244
    assert misses.loc["thp", "score"] == 0.001 and misses.loc["thp", "relation"] == "about"


def test_the_pretouch_rates_follow_from_heap_and_time():
    frame = read("pretouch_4tb.csv").set_index("pages")
    assert frame.loc["4k", "real_s"] == pytest.approx(13 * 60 + 58.167)
    assert frame.loc["thp", "real_s"] == pytest.approx(2 * 60 + 14.758)
    # As printed, without saying which giga: the arithmetic gives 4.9 and 30.4 with one and 5.2 and 32.6 with the other.
    rate, printed = frame["heap_bytes"] / frame["real_s"], frame["rate_gb_per_s"]
    assert ((rate / (1 << 30) < printed) & (printed < rate / 1e9)).all()


def test_the_published_graph_walk_quantiles_are_there_and_ordered():
    frame = read("graph_walk_quantiles.csv")
    small = frame[frame["pages"] == "4k"]
    quantiles = pairs(small, "working_set_bytes", "p50_ns_per_hop", "p95_ns_per_hop")
    shown = {8, 16, 128, 256, *(1 << k for k in range(11, 16))}
    assert [(size >> 20, round(p50), round(p95)) for size, p50, p95 in quantiles if size >> 20 in shown] == [
        (8, 8, 61), (16, 53, 64), (128, 66, 72), (256, 68, 113), (2048, 70, 127), (4096, 117, 164),
        (8192, 122, 229), (16384, 122, 242), (32768, 124, 256),
    ]
    last = frame[frame["pages"] != "4k"].groupby("pages", sort=False).last().round().reset_index()
    assert pairs(last, "pages", "p50_ns_per_hop", "p95_ns_per_hop") == [("2m", 64, 72), ("1g", 58, 60)]
    assert frame.groupby("pages", sort=False)["working_set_bytes"].agg(list).to_dict() == {
        pages: [1 << k for k in range(18, 18 + count)] for pages, count in (("4k", 18), ("2m", 18), ("1g", 17))}
    assert (frame["p50_ns_per_hop"] < frame["p95_ns_per_hop"]).all()
    assert small["p50_ns_per_hop"].is_monotonic_increasing and small["p95_ns_per_hop"].is_monotonic_increasing


def test_the_four_mitigations_stand_at_the_same_size():
    frame = read("mitigations.csv")
    assert set(frame["working_set_bytes"]) == {16 << 30}
    assert pairs(frame, "mitigation", "pages", "p50_ns_per_hop", "p95_ns_per_hop") == [
        ("none", "4k", 122, 242), ("huge pages", "2m", 62, 71),
        ("huge pages", "1g", 58, 60), ("TLB blocking", "4k", 68, 117),
    ]


def test_the_published_blocks_walk_is_a_walk_of_one_block():
    remedies, walks = read("mitigations.csv").set_index("mitigation"), read("graph_walk_quantiles.csv")
    blocked = remedies.loc["TLB blocking"]
    whole = walks[(walks["pages"] == "4k") & (walks["working_set_bytes"] == blocked["block_bytes"])].iloc[0]
    assert blocked["p50_ns_per_hop"] == pytest.approx(whole["p50_ns_per_hop"], abs=1)
    assert blocked["p95_ns_per_hop"] == pytest.approx(whole["p95_ns_per_hop"], abs=5)
    assert remedies.drop("TLB blocking")["block_bytes"].isna().all()


def test_two_figures_of_one_run_agree():
    walks = read("graph_walk_quantiles.csv").set_index(["pages", "working_set_bytes"])
    for row in read("mitigations.csv").query("mitigation != 'TLB blocking'").itertuples():
        same = walks.loc[(row.pages, row.working_set_bytes)]
        assert (row.p50_ns_per_hop, row.p95_ns_per_hop) == pytest.approx((same["p50_ns_per_hop"], same["p95_ns_per_hop"]), abs=0.6)


def test_the_published_misses_per_hop_are_there_and_level_off_below_one():
    frame = read("dtlb_misses_per_hop.csv")
    misses = frame.set_index(["pages", "working_set_from_bytes"])["misses_per_hop"].unstack(0).set_axis(range(18, 36))  # log2 of bytes
    assert misses.notna().sum().to_dict() == {"1g": 17, "2m": 18, "4k": 18}
    assert misses.loc[22:27, "4k"].tolist() == [0.0058, 0.165, 0.414, 0.464, 0.524, 0.571]
    assert misses.loc[31:, "2m"].tolist() == [0.0061, 0.165, 0.381, 0.495, 0.566]
    # A run's hops and its warm-up's could miss twice a hop: what is published is less than one, so it bounds nothing from above.
    assert misses.loc[27:, "4k"].between(0.55, 0.67).all()
    assert (misses["1g"].dropna() < 0.015).all() and (misses.loc[:31, "2m"] < 0.01).all()
    assert (frame["working_set_from_bytes"] == frame["working_set_to_bytes"]).all()


def test_the_stride_table_is_consistent_with_itself():
    frame = read("stride_walk.csv")
    assert pairs(frame, "stride_bytes", "ns_per_access") == [
        (8, 1.36), (64, 2.49), (512, 5.38), (4096, 12.51), (8192, 13.31),
    ]
    assert (frame["accesses_per_page_ratio"] * frame["stride_bytes"] == 4096).all()
    against_first = frame["ns_per_access"] / frame["ns_per_access"].iloc[0]
    assert (against_first.round(1) == frame["vs_sequential_ratio"]).all()


def test_a_fifth_level_costs_a_quarter_of_a_nanosecond_per_fault():
    frame = read("page_fault_levels.csv")
    single = frame[frame["benchmark"] == "lat_pagefault"].set_index("page_table_levels")
    assert (single["ci95_low_ns_per_fault"] < single["ns_per_fault"]).all()
    assert (single["ns_per_fault"] < single["ci95_high_ns_per_fault"]).all()
    assert single.loc[5, "ns_per_fault"] - single.loc[4, "ns_per_fault"] == pytest.approx(0.2433)


def test_the_published_t_test_follows_from_the_published_intervals():
    single = read("page_fault_levels.csv").query("benchmark == 'lat_pagefault'")
    test, runs = read("page_fault_difference.csv").iloc[0], single["run_count"]
    half = (single["ci95_high_ns_per_fault"] - single["ci95_low_ns_per_fault"]) / 2
    of_means = half / student.ppf(0.975, runs - 1)  # standard errors; of as many runs each, pooling is adding
    error, freedom = float((of_means**2).sum() ** 0.5), int(runs.sum()) - 2
    assert (runs == test["run_count"]).all() and freedom == test["degrees_of_freedom"]
    assert test["difference_ns_per_fault"] == pytest.approx(single["ns_per_fault"].diff().iloc[-1])
    assert test["t"] == pytest.approx(test["difference_ns_per_fault"] / error, rel=1e-3)  # of the digits that are printed
    assert test["p_value"] == pytest.approx(2 * student.sf(test["t"], freedom), rel=1e-3)
    reach = error * student.ppf(0.975, freedom)
    ends = test["difference_ns_per_fault"] - reach, test["difference_ns_per_fault"] + reach
    assert (test["ci95_low_ns_per_fault"], test["ci95_high_ns_per_fault"]) == pytest.approx(ends, rel=1e-3)


def test_the_published_histograms_miss_faults_and_have_a_mode_that_is_no_majority():
    means = read("page_fault_levels.csv").query("benchmark != 'lat_pagefault'").set_index("page_table_levels")
    mean = means["total_ns"] / means["fault_count"]
    assert mean.round(2).to_dict() == {4: 630.64, 5: 640.97}
    assert (mean // 1 == means["ns_per_fault"]).all()  # as printed, without the fraction
    histogram = read("page_fault_histogram.csv")
    assert (histogram["to_ns"] == 2 * histogram["from_ns"] - 1).all()
    by_levels = histogram.groupby("page_table_levels")["fault_count"]
    assert (means["fault_count"] - by_levels.sum()).to_dict() == {4: 53_427, 5: 15_275}
    assert histogram.loc[by_levels.idxmax(), "from_ns"].tolist() == [256, 512]
    assert (by_levels.max() / means["fault_count"]).round(3).to_dict() == {4: 0.480, 5: 0.491}


def test_the_published_profiles_differ_by_what_is_printed():
    frame = read("page_fault_profile.csv").set_index("symbol")
    points = 100 * (frame["five_levels_share_ratio"] - frame["four_levels_share_ratio"])
    assert points.round(2).iloc[:6].tolist() == [-0.32, 0.27, 0.1, -0.09, 0.06, 0.05] and len(points) == 17
    assert (points.abs().round(2).diff().iloc[1:] <= 0).all()  # the listing is sorted by it
    alone = frame.index[frame["four_levels_share_ratio"] == 0].tolist()
    assert alone == ["p4d_offset.part.18"] and frame.index[frame["in_kernel"] == "no"].tolist() == ["thread_run"]


def test_the_topdown_listing_adds_up():
    frame = read("topdown.csv")
    shares = frame[frame["unit"] == "%"]
    parts, whole = shares.fillna({"parent": "all"}).groupby("parent")["score"].sum().round(1), shares.set_index("quantity")["score"]
    assert parts.to_dict() == {"all": 100.0, "Backend Bound": whole["Backend Bound"], "Memory Bound": whole["Memory Bound"]}


def test_the_published_walks_cost_more_the_farther_their_table_is():
    frame = read("walk_costs.csv")
    assert (frame["value_low"] <= frame["value_high"].fillna(frame["value_low"])).all()
    assert set(frame["unit"]) == {"cycles", "ns", "ratio"}
    assert frame.set_index("what")["value_low"].loc[
        ["walk, table in L1 or L2", "walk, table in L3", "walk, table in memory"]].tolist() == [30, 100, 250]


def test_the_geometry_keeps_both_sides_of_a_published_disagreement():
    frame = read("microarchitectures.csv")

    def values(name: str, structure: str, quantity: str) -> dict[str, float]:
        rows = frame[(frame["microarchitecture"] == name) & (frame["structure"] == structure)]
        return dict(pairs(rows[rows["quantity"] == quantity], "kind", "value_high"))

    assert values("Golden Cove", "l2_tlb", "entries") == {"stated": 2048, "measured": 1600}
    assert values("Gracemont", "l1_dtlb", "entries") == {"stated": 32, "measured": 48}
    assert values("Neoverse V2", "l2_tlb", "penalty_over_l1_dtlb") == {"stated": 6, "measured": 5}
    assert values("Intel, CPUID descriptor 0xC3", "l2_tlb", "ways") == {"stated": 6, "measured": 12}
    assert (frame["value_low"] <= frame["value_high"]).all()
    assert set(frame["kind"]) == {"stated", "measured"}


def test_no_geometry_is_shipped_without_a_source_that_was_read():
    frame = read("microarchitectures.csv")
    assert not frame["microarchitecture"].str.contains("Neoverse N1|Neoverse V1").any()
    # What an article says of a CPU that is not its own is neither the vendor's word nor a measurement.
    articles = frame["source"].isin(["padho_tlb", "matthews_tlbperf", "elimelt_tlb"])
    assert (frame["note"].str.startswith("secondary") == articles).all()
    assert set(frame.loc[articles, "kind"]) == {"stated"}
    assert {"Ice Lake", "Sapphire Rapids", "Zen 4"} < set(frame.loc[articles, "microarchitecture"])
    skylake = frame[frame["microarchitecture"].str.contains("Skylake")]
    assert pairs(skylake, "structure", "quantity") == [("page_walker", "count")]
