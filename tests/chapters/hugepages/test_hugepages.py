"""Page sizes: curves, speedups, tables, verdicts, sentences, figures and sections of machines that never were."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.synthetic import GIB, HOLE, MIB, PAGE_BYTES, Paged, Stated, fit_to_be_shown, hugepages
from test_render import Elements

from experiments.article import chapter as chapters
from experiments.article import charts as figures
from experiments.article.machine_words import Prose
from experiments.article.render import Figure, Html
from experiments.chapters.hugepages import analysis as huge
from experiments.chapters.hugepages import claims as huge_claims
from experiments.chapters.hugepages import figures as huge_figures
from experiments.chapters.hugepages import prose as huge_words
from experiments.chapters.hugepages import sections as huge_sections
from experiments.chapters.hugepages.languages import jmh, runtimes
from experiments.chapters.hugepages.languages.jvm import Score
from experiments.inference import curves as claims
from experiments.inference.geometry import Estimate, Geometry, Level
from experiments.lab.campaign import SMALLEST_LINES
from experiments.lab.record import Point
from experiments.words.reasons import REASONS, Unavailable, explain

pytestmark = pytest.mark.filterwarnings("error")

PAGES = ("4k", "64k", "thp", "2m", "1g")
ENTRIES = [64, 1536]
WHOLE, SPLIT = Paged(), Paged(splintered=True)


@cache
def rows(machine: Paged = WHOLE, most: int = 4 * GIB, repeats: int = 5, cpus: int = 4) -> pd.DataFrame:
    return machine.frame(hugepages(most, cpus), repeats)


def only(*pages: str, of: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows on these page sizes, as a machine that has no others would have them."""
    frame = rows() if of is None else of
    return frame[frame["pages"].isin(pages)].reset_index(drop=True)


def median(frame: pd.DataFrame, **where: object) -> float:
    """Of ns per access, by pandas' own query; of the plain loop, where a loop with spare draws was measured too."""
    chosen = frame.query(" and ".join(f"{name} == {value!r}" for name, value in where.items()))
    return float(chosen[chosen["spare_draws"].isna() | ("spare_draws" in where)]["ns_per_access"].median())


def chased(frame: pd.DataFrame, pages: str, size_bytes: int, layout: str = "spread") -> float:
    return median(frame, kernel="page_chase", pages=pages, layout=layout, lines=size_bytes // 4096)


# --- curves and speedups


def test_page_sizes_come_from_small_to_large_whatever_the_order_of_the_rows():
    shuffled = rows().sample(frac=1, random_state=1)
    assert huge.kinds(shuffled) == list(PAGES) == sorted(PAGE_BYTES, key=lambda one: (PAGE_BYTES[one], one != "thp"))
    assert huge.kinds(shuffled, "random_touch") == ["4k", "thp", "2m"]
    assert huge.kinds(shuffled.query("pages != '64k'"), "prefault") == ["4k", "thp", "2m", "1g"]
    assert huge.kinds(rows(), "page_gather") == []


def test_a_curve_stands_for_each_page_size_and_is_the_median_of_its_processes():
    found = huge.curves(rows())
    assert list(dict.fromkeys(found["pages"])) == list(PAGES)
    for row in found.sample(20, random_state=1).itertuples():
        assert row.median == pytest.approx(chased(rows(), row.pages, row.lines * 4096, "spread"))
        assert row.low <= row.median <= row.high and row.n == 5


def test_a_price_is_spread_minus_packed_on_the_same_pages():
    found = huge.prices(rows())
    for row in found.sample(20, random_state=2).itertuples():
        spread, packed = (chased(rows(), row.pages, row.lines * 4096, layout) for layout in ("spread", "packed"))
        assert row.median == pytest.approx(spread - packed)


def test_a_point_without_its_control_has_no_price():
    frame = rows().query("pages != '2m' or layout != 'packed' or lines != 4096")
    found = huge.prices(frame)
    assert found["median"].notna().all() and not ((found["pages"] == "2m") & (found["lines"] == 4096)).any()
    assert ((found["pages"] == "4k") & (found["lines"] == 4096)).any()


@pytest.mark.parametrize(("pages", "over"), [("2m", "4k"), ("thp", "4k"), ("1g", "2m"), ("4k", "2m")])
def test_a_speedup_is_the_ratio_of_the_medians_of_the_sizes_that_both_have(pages: str, over: str):
    found = huge.speedup(rows(), pages, over)
    shared = [set(rows().query("kernel == 'page_chase' and layout == 'spread' and pages == @one")["lines"]) for one in (pages, over)]
    assert list(found["lines"]) == sorted(set.intersection(*shared))
    for row in found.itertuples():
        assert row.value == pytest.approx(chased(rows(), over, row.lines * 4096) / chased(rows(), pages, row.lines * 4096))
        assert row.low <= row.value <= row.high


def test_the_speedup_is_one_below_the_first_levels_reach_and_the_ratio_of_the_walks_beyond():
    found = huge.speedup(rows(Paged(splintered=True, noise=0.001)), "2m").set_index("lines")["value"]
    assert found[found.index <= 64].to_numpy() == pytest.approx(1, abs=0.01)
    assert found[found.index.to_series().between(65, 1536)].to_numpy() == pytest.approx(1, abs=0.01)
    assert found[found.index > 2048].to_numpy() == pytest.approx((1 + 2 + 30) / (1 + 2 + 21), rel=0.01)


def test_a_page_size_that_was_not_measured_has_no_speedup():
    assert huge.speedup(only("4k"), "2m").empty


@pytest.mark.parametrize(("there", "best"), [(PAGES, "2m"), (("4k", "thp", "1g"), "thp"), (("4k", "2m"), "2m")])
def test_the_pools_pages_are_the_best_large_ones_and_transparent_ones_the_next(there: tuple[str, ...], best: str):
    assert huge.best_large(only(*there)) == best


def test_without_any_large_pages_the_pool_is_what_is_lacking():
    for frame in (only("4k"), only("4k", "64k", "1g"), only()):
        with pytest.raises(Unavailable) as why:
            huge.best_large(frame)
        assert why.value.code == "pool-empty"


def test_without_a_chase_or_its_control_there_is_a_reason_and_no_curve():
    for call, frame in ((huge.curves, only()), (huge.prices, only()), (huge.prices, MACHINES["no controls"]())):
        with pytest.raises(Unavailable) as why:
            call(frame)
        assert why.value.code == "too-few-points"


# --- tables

SPEEDUPS = chapters.literature("hugepages_speedup")
TOUCHES = chapters.literature("jmh_byte_array_touch")


def test_the_published_speedups_stand_beside_this_machines():
    table = huge.side_by_side(rows(), SPEEDUPS)
    assert table["working set"].tolist() == ["256 MiB", "1 GiB", "4 GiB"]
    assert table["published 4k, ns"].tolist() == [58.6, 89.4, 127.1]
    assert table["published 2m, ns"].tolist() == [11.2, 12.8, 14.1]
    assert table["published speedup"].tolist() == [5.23, 6.98, 9.01]
    for k, size in enumerate((256 * MIB, GIB, 4 * GIB)):
        for pages in PAGES:
            assert table.loc[k, f"{pages} here, ns"] == pytest.approx(chased(rows(), pages, size))
        for pages in PAGES[1:]:
            assert table.loc[k, f"{pages} speedup"] == pytest.approx(chased(rows(), "4k", size) / chased(rows(), pages, size))
    assert "4k speedup" not in table


def test_what_was_not_measured_is_empty_beside_the_published_and_never_zero():
    small = huge.side_by_side(rows(most=256 * MIB), SPEEDUPS)
    for pages in PAGES:
        assert small[f"{pages} here, ns"].notna().tolist() == [True, False, False]
    assert small["2m speedup"].notna().tolist() == [True, False, False]
    base = huge.side_by_side(only("4k"), SPEEDUPS)
    assert [name for name in base if "here" in name] == ["4k here, ns"] and not [name for name in base if name.endswith("m speedup")]
    assert not [name for name in huge.side_by_side(only("thp", "2m"), SPEEDUPS) if name in ("thp speedup", "2m speedup")]
    assert "–" in figures.data_table(small).text


def test_touches_are_medians_with_what_the_draw_costs():
    found = huge.touches(rows())
    assert set(found["array_bytes"]) == {10**3, 10**4, 10**6, 10**7, 10**8, 10**9} and len(found) == 18
    for row in found.itertuples():
        assert row.median == pytest.approx(median(rows(), kernel="random_touch", pages=row.pages, bytes=row.array_bytes))
        assert row.generator_ns == Paged.DRAW_NS and row.n == 5


def test_the_loop_with_a_spare_draw_is_kept_apart_from_the_plain_one_and_set_beside_it():
    apart = huge.reads_apart(rows())
    assert set(apart["array_bytes"]) == {10**3, 10**4, 10**6, 10**7, 10**8} and list(dict.fromkeys(apart["pages"])) == ["4k", "thp", "2m"]
    for row in apart.itertuples():
        where = {"kernel": "random_touch", "pages": row.pages, "bytes": row.array_bytes}
        assert row.median == pytest.approx(median(rows(), **where))
        assert row.median_spare == pytest.approx(median(rows(), **where, spare_draws=1))
    assert huge.reads_apart(rows().drop(columns="spare_draws").query("kernel != 'random_touch'")).empty


def test_the_published_touches_stand_beside_ours_at_the_same_sizes():
    table = huge.touch_table(rows(), TOUCHES)
    assert table["array, bytes"].tolist() == ["1,000", "10,000", "1,000,000", "10,000,000", "100,000,000", "1,000,000,000"]
    published = {"4k": [8.109, 8.086, 9.831, 19.734, 32.538], "thp": [8.104, 8.060, 9.193, 17.282, 28.698],
                 "2m": [8.104, 8.062, 9.303, 17.357, 28.697]}  # as in the issue
    for pages, scores in published.items():
        column = table[f"{pages} published, ns"]
        assert column[:5].tolist() == scores and math.isnan(column[5])
        for text, ns in zip(table["array, bytes"], table[f"{pages} here, ns"], strict=True):
            assert ns == pytest.approx(median(rows(), kernel="random_touch", pages=pages, bytes=int(text.replace(",", ""))))
    assert set(table["draw alone, ns"]) == {Paged.DRAW_NS}


def test_without_touches_of_our_own_the_published_ones_stand_alone():
    table = huge.touch_table(rows().query("kernel != 'random_touch'"), TOUCHES)
    assert [name for name in table if "here" in name or "draw" in name] == [] and len(table) == 5


@pytest.mark.parametrize(("ns", "rate"), [(819.2, 5.0), (4096 / 31, 31.0), (4096.0, 1.0), (1.0, 4096.0)])
def test_a_rate_is_4096_bytes_by_the_nanoseconds_that_they_took(ns: float, rate: float):
    """5 and 31 GB/s are the published rates of 4 TB touched on base pages and on transparent ones."""
    machine = Paged(faults_ns=(ns,) * 5, noise=0.0)
    found = huge.prefaults(machine.frame(hugepages(cpus=1), 1)).query("mode == 'touch'")
    assert found["gb_per_s"].to_numpy() == pytest.approx(rate)


def test_prefaults_are_rows_of_page_size_way_and_threads_in_order():
    found = huge.prefaults(rows())
    assert list(dict.fromkeys(found["pages"])) == list(PAGES)
    ways = [("memset", 1), ("populate", 1), ("populate", 4), ("touch", 1), ("touch", 4)]
    alone = [way for way in ways if way[1] == 1]  # a page of 1 GiB cannot be shared out
    assert list(zip(found["mode"], found["threads"], strict=True)) == ways * 4 + alone
    for row in found.itertuples():
        assert row.median == pytest.approx(median(rows(), kernel="prefault", pages=row.pages, mode=row.mode, threads=row.threads))
        assert row.gb_per_s * row.median == pytest.approx(4096)
        assert (row.free_ns, row.one_byte_bytes) == (Paged.FREE_NS, PAGE_BYTES[row.pages])


def test_the_table_of_faults_says_the_same_with_units():
    table, found = huge.prefault_table(rows()), huge.prefaults(rows())
    for ours, name in (("median", "ns per 4 KiB"), ("gb_per_s", "GB/s"), ("free_ns", "freeing, ns per 4 KiB")):
        assert table[name].tolist() == found[ours].tolist()
    of = dict(zip(table["pages"], table["resident for one byte"], strict=True))
    assert of == {"4k": "4 KiB", "64k": "64 KiB", "thp": "2 MiB", "2m": "2 MiB", "1g": "1 GiB"}
    nothing = rows().query("kernel != 'prefault'")
    assert huge.prefault_table(nothing).empty and list(huge.prefault_table(nothing)) == list(table)


# --- verdicts

FIVE, NOTHING, SPANS, LIKE_POOL, EIGHTH, SIX, GIGABYTES = range(7)
H, F, C = "holds", "fails", "cannot tell"
BASE_TOUCH = {"kernel": "random_touch", "pages": "4k", "bytes": 10**8}


def verdicts(frame: pd.DataFrame, entries: list[int] = ENTRIES, hypervisor: str = "kvm") -> list[claims.Verdict]:
    """Of each claim, each a sentence with evidence fit to be shown."""
    return fit_to_be_shown(huge_claims.verdicts(frame, entries, hypervisor), 7)


def times(frame: pd.DataFrame, factor: float, **where: object) -> pd.DataFrame:
    """The frame with the chosen rows slower by a factor."""
    chosen = frame.eval(" and ".join(f"{name} == {value!r}" for name, value in where.items()))
    return frame.assign(ns_per_access=frame["ns_per_access"].where(~chosen, frame["ns_per_access"] * factor))


def thp_touch(ratio: float, noise: float = 0.005) -> pd.DataFrame:
    """100 MB read on base pages in `ratio` times the time of transparent ones."""
    frame = rows(Paged(noise=noise))
    away = median(frame, **BASE_TOUCH) / median(frame, **{**BASE_TOUCH, "pages": "thp"})
    return times(frame, away / ratio, kernel="random_touch", pages="thp", bytes=10**8)


QUIET, LOUD = Paged(noise=0.004), Paged(noise=0.4)
JUDGED: dict[str, tuple[int, Callable[[], pd.DataFrame], str, str]] = {
    "fivefold": (FIVE, lambda: rows(Paged(walk_ns=100.0, depth=0.3, noise=0.01)), H, "at 256 MiB"),
    "less than fivefold": (FIVE, lambda: rows(SPLIT), F, "On 2m, the dependent chase speeds up by 1."),
    "fivefold here and not there": (FIVE, lambda: rows(Paged(noise=0.01)), F, "at 4 GiB"),
    "fivefold or not": (FIVE, lambda: rows(LOUD), C, "at 4 GiB"),
    "no size of 256 MiB": (FIVE, lambda: rows(most=128 * MIB), C, "256 MiB or above"),
    "nothing to gain": (NOTHING, lambda: rows(Paged(splintered=True, noise=0.004)), H, "between the two, 1.0"),
    "the second level's hit to gain": (NOTHING, lambda: rows(QUIET), F, "between the two, 3.0"),
    "too loud to see nothing": (NOTHING, lambda: rows(Paged(splintered=True, noise=0.4)), C, "The speedup of 2m over 4k is"),
    "whole pages": (SPANS, lambda: rows(), H, "translation costs"),
    "pieces": (SPANS, lambda: rows(SPLIT), F, "the host backs this guest"),
    "no steps": (SPANS, lambda: rows(Paged(hit_ns=0.0, walk_ns=0.0)), C, "no step"),
    "thp is the pool's equal": (LIKE_POOL, lambda: rows(QUIET), H, "From 64 MiB on"),
    "a hair's difference is none": (LIKE_POOL, lambda: times(rows(Paged(noise=0.002)), 1.02, pages="thp"), H, "1.02 times"),
    "thp is slower": (LIKE_POOL, lambda: times(rows(QUIET), 1.3, pages="thp"), F, "1.3"),
    "thp is too loud": (LIKE_POOL, lambda: rows(LOUD), C, "From 64 MiB on"),
    "an eighth": (EIGHTH, lambda: thp_touch(1.13), H, "a factor of 1.1"),
    "a half": (EIGHTH, lambda: thp_touch(1.5), F, "a factor of 1.5"),
    "nothing on thp": (EIGHTH, lambda: thp_touch(1.0), F, "a factor of 1.0"),
    "an eighth or a third": (EIGHTH, lambda: thp_touch(1.2, noise=0.2), C, "a factor of 1.20"),
    "no array of 100 MB": (EIGHTH, lambda: rows(most=64 * MIB), C, "were not measured"),
    "sixfold": (SIX, lambda: rows(), H, "4 threads, memory is ready at 10."),
    "twofold": (SIX, lambda: times(rows(), 3.0, kernel="prefault", pages="thp"), F, "a factor of 2.0"),
    "twentyfold": (SIX, lambda: times(rows(), 0.3, kernel="prefault", pages="thp"), F, "a factor of 2"),
    "sixfold or threefold": (SIX, lambda: rows(Paged(noise=0.5)), C, "a factor of"),
    "1 GiB pages gain": (GIGABYTES, lambda: rows(), H, "At 4 GiB, 1 GiB pages are"),
    "1 GiB pages gain nothing": (GIGABYTES, lambda: rows(Paged(splintered=True, noise=0.004)), F, "1.00 times as fast as 2m"),
    "1 GiB pages are too loud": (GIGABYTES, lambda: rows(Paged(splintered=True, noise=0.4)), C, "At 4 GiB"),
    "1 GiB pages on small sizes": (GIGABYTES, lambda: rows(most=128 * MIB), C, "32 Ki lines"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    number, make, verdict, words = JUDGED[name]
    found = verdicts(make())[number]
    assert (found.verdict, words in found.evidence) == (verdict, True), found


def test_the_evidence_for_fivefold_is_the_ratio_of_the_medians():
    evidence = verdicts(rows())[FIVE].evidence
    for size, name in ((256 * MIB, "256 MiB"), (GIB, "1 GiB"), (4 * GIB, "4 GiB")):
        told = float(re.search(rf"([\d.]+) \([\d.]+ to [\d.]+\) at {name}", evidence)[1])
        assert told == pytest.approx(chased(rows(), "4k", size) / chased(rows(), "2m", size), abs=0.006)


def test_one_thread_is_one():
    assert "Touched by one thread, memory" in verdicts(rows(cpus=1))[SIX].evidence


@pytest.mark.parametrize(("missing", "unknown"), [
    (("2m", "thp"), {FIVE, NOTHING, SPANS, LIKE_POOL, EIGHTH, SIX, GIGABYTES}), (("1g",), {GIGABYTES}),
    (("thp",), {LIKE_POOL, EIGHTH, SIX}),
    (("2m",), {LIKE_POOL}), (("64k",), set())])
def test_a_page_size_that_is_missing_gives_the_reason(missing: tuple[str, ...], unknown: set[int]):
    frame = rows(Paged(walk_ns=100.0, depth=0.3, noise=0.01))
    found = verdicts(frame[~frame["pages"].isin(missing)])
    whole = verdicts(frame)
    sentences = tuple(REASONS[code].sentence.removesuffix(".") for code in ("pool-empty", "no-data", "too-few-points"))
    for number, one in enumerate(found):
        if number in unknown:
            assert one.verdict == C and one.evidence.startswith(sentences)
        else:
            assert one.verdict == whole[number].verdict
    assert "are switched off" not in "".join(one.evidence for one in found)  # why there are no rows is not for a frame to know


def test_where_cpuid_is_silent_the_claim_about_the_reach_cannot_be_told():
    found = verdicts(rows(), [])
    assert found[NOTHING].verdict == C and "CPUID" in found[NOTHING].evidence
    assert [one for n, one in enumerate(found) if n != NOTHING] == [one for n, one in enumerate(verdicts(rows())) if n != NOTHING]
    assert "between" not in verdicts(rows(), [64])[NOTHING].evidence


KERNELS = ("page_chase", "random_touch", "prefault")
parts = st.sets(st.tuples(st.sampled_from(KERNELS), st.sampled_from(PAGES)))


@given(parts, st.sampled_from([4 * GIB, 16 * MIB, 64 << 10]), st.sampled_from([[], [64], ENTRIES]), st.sampled_from(["kvm", "none"]))
@settings(max_examples=60, deadline=None)
def test_whatever_is_missing_there_are_seven_verdicts_and_all_sentences(there: set, most: int, entries: list[int], hypervisor: str):
    frame = rows(most=most, repeats=2)
    kept = frame[pd.MultiIndex.from_frame(frame[["kernel", "pages"]]).isin(list(there))]
    verdicts(kept, entries, hypervisor)
    readable(huge_words.say(kept, Stated(hypervisor=hypervisor).host(), entries))
    huge.side_by_side(kept, SPEEDUPS), huge.touch_table(kept, TOUCHES), huge.prefault_table(kept), huge_words.offered(kept)


@given(st.sets(st.sampled_from(PAGES)))
@settings(deadline=None, max_examples=32)
def test_whatever_page_sizes_are_missing_there_are_seven_verdicts(there: set[str]):
    verdicts(only(*there, of=rows(SPLIT, repeats=2)))


# --- sentences

KEYS = {"lead", "levers", "below", "splinter_verdict", "thp_pool", "touch_said", "prefault_said", "waste_said", "lacking"}
MACHINES: dict[str, Callable[[], pd.DataFrame]] = {
    "everything": lambda: rows(), "splintered": lambda: rows(SPLIT), "noise": lambda: rows(LOUD),
    "free": lambda: rows(Paged(hit_ns=0.0, walk_ns=0.0)),
    "base pages alone": lambda: only("4k"), "no pool": lambda: only("4k", "64k", "thp"), "no base pages": lambda: only("2m", "thp"),
    "tiny sizes": lambda: rows(most=64 << 10), "small sizes": lambda: rows(most=4 * MIB), "one repeat": lambda: rows(repeats=1),
    "one CPU": lambda: rows(cpus=1), "chases alone": lambda: rows().query("kernel == 'page_chase'"),
    "no controls": lambda: rows().query("layout != 'packed' or kernel != 'page_chase'"), "no clock": lambda: rows(Paged(ghz=0.0)),
    "sizes apart": lambda: rows().query("pages != 'thp' or lines % 64 == 0 and lines > 20000").query("pages != '2m' or lines < 20000"),
}


def readable(said: Mapping[str, float | str]) -> Mapping[str, float | str]:
    assert said.keys() == KEYS
    for name, words in said.items():
        assert isinstance(words, Prose) and words.rstrip().endswith("."), (name, words)
        assert not HOLE.search(words), (name, words)
    return said


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_every_sentence(name: str):
    for entries, hypervisor in ((ENTRIES, "kvm"), ([], "none")):
        said = readable(huge_words.say(MACHINES[name](), Stated(hypervisor=hypervisor).host(), entries, ["A note."]))
        for words in said.values():
            assert not re.search(r"[a-z],? \.|\.\.|,\.", words)


def spoken(frame: pd.DataFrame, hypervisor: str = "kvm") -> Mapping[str, float | str]:
    return readable(huge_words.say(frame, Stated(hypervisor=hypervisor).host(), ENTRIES))


def test_the_lead_has_the_medians_at_the_largest_size_and_their_ratio():
    base, large, giga = (chased(rows(SPLIT), pages, 4 * GIB) for pages in ("4k", "2m", "1g"))
    lead = spoken(rows(SPLIT))["lead"]
    assert lead.startswith(f"One line to each 4 KiB of 4 GiB: a dependent load takes {base:.0f} ns on base pages and {large:.0f} ns on "
                           f"2 MiB pages of the pool, {base / large:.2f} times as fast (")
    assert lead.endswith(f"the three take {base:.0f}, {large:.0f} and {giga:.0f} ns.")
    assert "1 GiB" not in spoken(only("4k", "thp"))["lead"]


def test_1_gib_pages_that_share_no_size_with_the_others_leave_the_rest_of_the_lead():
    apart = rows().query("pages != '1g' or lines == 16").query("pages == '1g' or lines != 16")
    assert spoken(apart)["lead"] == spoken(only("4k", "64k", "thp", "2m", of=apart))["lead"]


def test_the_levers_are_the_prices_at_the_largest_size_beside_their_tables():
    said = spoken(rows())["levers"]
    for pages, name, table in (("4k", "base pages", "8 MiB"), ("64k", "64 KiB pages", "512 KiB"),
                               ("2m", "2 MiB pages of the pool", "16 KiB"), ("1g", "1 GiB pages", "32 B")):
        price = chased(rows(), pages, 4 * GIB) - chased(rows(), pages, 4 * GIB, "packed")
        assert re.search(rf"{price:z.0f} ns on {name} \(-?\d+ to \d+; the table's last level takes {table}\)", said), (name, said)


@pytest.mark.parametrize(("machine", "first", "second"), [
    (Paged(noise=0.004), "nothing to gain.", "which large ones spare."),
    (Paged(splintered=True, noise=0.004), "nothing to gain.", "Both pay the second level's hit."),
    (Paged(splintered=True, noise=0.5), "Noise leaves it open.", "Noise leaves it open.")])
def test_below_the_reach_nothing_is_to_gain_where_the_data_say_so(machine: Paged, first: str, second: str):
    said = spoken(rows(machine))["below"]
    before, after = said.split(" Between the two levels' reaches ")
    assert before.endswith(first) and after.endswith(second)
    assert before.startswith("Up to 45 pages, which the first level holds, 2 MiB pages of the pool are ")


def test_a_gain_below_the_reach_is_not_called_nothing():
    before = spoken(times(rows(QUIET), 2.0, pages="4k"))["below"].split(" Between ")[0]
    assert "2.0" in before and before.endswith("No miss of the TLB explains that.")


@pytest.mark.parametrize(("machine", "hypervisor", "verdict", "words"), [
    (SPLIT, "kvm", "splintered by the host", "the first lever is not in your hands"), (WHOLE, "kvm", "not splintered", "both levers work"),
    (SPLIT, "none", "cannot tell", "both possibilities in mind")])
def test_the_verdict_on_splintering_comes_with_what_follows_from_it(machine: Paged, hypervisor: str, verdict: str, words: str):
    said = spoken(rows(machine), hypervisor=hypervisor)["splinter_verdict"]
    assert said.startswith(f"The verdict is **{verdict}**. ") and words in said
    shorter = re.search(r"such a miss costs (\d+) cycles in place of (\d+), (0\.\d\d) of it", said)
    if verdict == "splintered by the host":
        assert int(shorter[1]) == pytest.approx(3.2 * 23, abs=4) and int(shorter[2]) == pytest.approx(3.2 * 32, abs=4)
        assert float(shorter[3]) == pytest.approx(23 / 32, abs=0.05)
    else:
        assert shorter is None


def test_a_splintered_walk_that_is_no_shorter_is_not_called_so():
    assert "such a miss" not in spoken(rows(Paged(splintered=True, depth=1.0)))["splinter_verdict"]


def test_the_two_kinds_of_2_mib_pages_are_compared_over_all_sizes():
    ratio = [chased(rows(), "thp", n * 4096) / chased(rows(), "2m", n * 4096) for n in sorted(set(
        rows().query("kernel == 'page_chase' and pages == 'thp'")["lines"]))]
    said = spoken(rows())["thp_pool"]
    assert f"In the median over {len(ratio)} sizes the pool's pages are {np.median(ratio):.2f} times as fast as transparent ones" in said


@pytest.mark.parametrize(("frame", "code"), [(only("4k", "thp"), "pool-empty"), (only("4k", "2m"), "no-data"),
                                             (MACHINES["sizes apart"](), "too-few-points")])
def test_two_kinds_that_share_no_size_have_a_reason(frame: pd.DataFrame, code: str):
    assert spoken(frame)["thp_pool"].startswith(REASONS[code].sentence.removesuffix("."))


def test_what_a_read_takes_is_told_at_both_ends():
    said = spoken(rows())["touch_said"]
    small, large, thin = (median(rows(), kernel="random_touch", pages=pages, bytes=size)
                          for pages, size in (("4k", 10**3), ("4k", 10**9), ("2m", 10**9)))
    assert f"The draw alone takes {Paged.DRAW_NS:.2f} ns here. In 1,000 bytes a read takes {small:.2f} ns with it; " in said
    assert f"in 1,000,000,000 bytes {large:.1f} ns on base pages and {thin:.1f} on 2 MiB pages of the pool." in said


def test_rates_of_faulting_in_are_told_for_one_thread_and_for_the_best_of_many():
    said = spoken(rows())["prefault_said"]
    alone = 4096 / median(rows(), kernel="prefault", pages="thp", mode="touch", threads=1)
    many = 4096 / median(rows(), kernel="prefault", pages="thp", mode="populate", threads=4)
    assert f"{alone:.2f} GB/s on transparent 2 MiB pages" in said.split("Giving")[0]
    assert f"{many:.2f} GB/s on transparent 2 MiB pages" in said.split("With 4 threads the best is")[1]
    assert "Giving 4 KiB back takes 50.0 ns on base pages, 50.0 ns on 64 KiB pages," in said
    assert "threads" not in spoken(rows(cpus=1))["prefault_said"]


def test_what_one_byte_costs_is_told_of_each_page_size():
    assert spoken(rows())["waste_said"].endswith(
        "4 KiB on base pages, 64 KiB on 64 KiB pages, 2 MiB on transparent 2 MiB pages, 2 MiB on 2 MiB pages of the pool and "
        "1 GiB on 1 GiB pages.")


def test_what_is_lacking_is_named_with_the_reasons_of_this_run_and_each_once():
    assert huge_words.lacking(rows(), ["A note."]) == "This machine gave all five."
    assert huge_words.lacking(only("4k", "thp"), []) == "No rows lie on 64 KiB pages, 2 MiB pages of the pool and 1 GiB pages."
    notes = (explain("pool-empty", "needed 2, free 0"), explain("mthp-off"), explain("pool-empty", "needed 2, free 0"))
    assert huge_words.lacking(only("4k", "thp"), notes).splitlines()[2:] == [f"- {notes[0]}", f"- {notes[1]}"]


def test_what_was_offered_is_a_row_a_page_size_and_no_row_of_a_figure_without_processes():
    table = huge_words.offered(only("4k", "thp")).set_index("pages")
    assert list(table.index) == list(PAGES)
    assert table.loc["2m", ["processes verified on them", "largest chase"]].tolist() == ["none", "–"]
    assert table.loc["4k", "processes verified on them"] == f"{len(only('4k')):,}" and table.loc["4k", "largest chase"] == "4 GiB"


# --- figures


def drawn(figure: Figure) -> tuple[dict, Elements]:
    """The spec, which has to be JSON, and what is drawn of it."""
    spec = json.loads(json.dumps(figure.spec(), allow_nan=False))
    seen = Elements(figure.svg())
    assert seen.tags.count("svg") == 1 and not HOLE.search(figure.alt.replace("(", "")) and figure.alt.endswith(".")
    return spec, seen


FIGURES: dict[str, tuple[Callable[[pd.DataFrame], Figure], set[str]]] = {
    "page_sizes": (lambda frame: huge_figures.page_sizes(huge.curves(frame), ENTRIES),
                   {"pages", "lines", "working_set_bytes", "median", "low", "high", "coverage", "n"}),
    "page_prices": (lambda frame: huge_figures.page_prices(huge.prices(frame), ENTRIES),
                    {"pages", "lines", "working_set_bytes", "median", "low", "high", "n"}),
    "splinter": (lambda frame: huge_figures.splinter(huge.prices(frame), huge.best_large(frame), ENTRIES),
                 {"series", "lines", "median", "low", "high", "n"}),
    "touch": (lambda frame: huge_figures.touch(huge.touches(frame), TOUCHES),
              {"where", "pages", "array_bytes", "median", "low", "high", "n"}),
    "prefault": (lambda frame: huge_figures.prefault(huge.prefaults(frame)),
                 {"pages", "mode", "threads", "gb_per_s", "slow", "fast", "free_ns", "one_byte_bytes", "n"}),
}
PARTIAL = ["everything", "splintered", "free", "no pool", "small sizes", "one repeat", "one CPU", "no clock"]


@pytest.mark.parametrize("machine", [*PARTIAL, "base pages alone"])
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_on_every_machine_that_has_its_rows(name: str, machine: str):
    make, columns = FIGURES[name]
    if name == "splinter" and machine == "base pages alone":
        with pytest.raises(Unavailable):
            make(MACHINES[machine]())
        return
    figure = make(MACHINES[machine]())
    assert figure.name == name and columns <= set(figure.data.columns) and len(figure.csv().splitlines()) == len(figure.data) + 1
    drawn(figure)


def colours(spec: dict, field: str) -> dict[str, str]:
    """Value -> colour, of every colour encoding of a field; asserts that they agree."""
    found: dict[str, str] = {}

    def walk(node: object) -> None:
        if isinstance(node, dict):
            colour = node.get("color")
            if isinstance(colour, dict) and colour.get("field") == field:
                new = dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))
                assert all(found.get(key, value) == value for key, value in new.items())
                found.update(new)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(spec)
    return found


def test_a_page_size_has_one_colour_in_every_figure_and_on_every_machine():
    known: dict[str, str] = {}
    for name in ("page_sizes", "page_prices", "touch"):
        for machine in ("everything", "no pool", "base pages alone"):
            found = colours(FIGURES[name][0](MACHINES[machine]()).spec(), "pages")
            assert {"4k"} <= found.keys() <= set(PAGES)
            assert all(known.get(pages, colour) == colour for pages, colour in found.items())
            known |= found
    assert set(known) == set(PAGES) and len(set(known.values())) == 5
    pieces = colours(FIGURES["splinter"][0](rows()).spec(), "series")
    assert (pieces["base pages"], pieces["2 MiB pages of the pool"]) == (known["4k"], known["2m"])


def test_the_alternatives_tell_the_numbers_at_the_right():
    assert re.search(rf"{chased(rows(), '4k', 4 * GIB):.0f} ns on 4k at 4 GiB", FIGURES["page_sizes"][0](rows()).alt)
    alone = FIGURES["page_sizes"][0](only("4k")).alt
    assert "together" not in alone and "apart" not in alone  # one line does neither
    price = chased(rows(), "4k", 128 * MIB) - chased(rows(), "4k", 128 * MIB, "packed")
    assert f"base pages {price:.1f} ns" in FIGURES["splinter"][0](rows()).alt
    assert "At 1,000,000,000 bytes here:" in FIGURES["touch"][0](rows()).alt
    best = 4096 / median(rows(), kernel="prefault", pages="thp", mode="populate", threads=4)
    assert f"thp {best:.1f} GB/s" in FIGURES["prefault"][0](rows()).alt


def test_the_rates_drawn_are_those_of_the_table_with_their_bounds_in_order():
    data = FIGURES["prefault"][0](rows()).data
    assert data["gb_per_s"].to_numpy() == pytest.approx(huge.prefaults(rows())["gb_per_s"].to_numpy())
    assert (data["slow"] <= data["gb_per_s"]).all() and (data["gb_per_s"] <= data["fast"]).all()


def test_the_published_reads_are_drawn_beside_ours_and_never_as_ours():
    data = FIGURES["touch"][0](rows()).data
    assert len(data[data["where"] == "published"]) == 15 and data[data["where"] == "published"]["n"].isna().all()
    assert len(data[data["where"] == "here"]) == 18


@pytest.mark.parametrize(("name", "code"), [("splinter", "pool-empty"), ("touch", "too-few-points"), ("prefault", "engine-lacks")])
def test_a_figure_without_rows_is_a_reason(name: str, code: str):
    with pytest.raises(Unavailable) as why:
        FIGURES[name][0](rows().query("kernel == 'page_chase' and pages == '4k'"))
    assert why.value.code == code


# --- sections


class Told:
    """A chapter about a made-up machine: its documents, and its geometry where there is one."""

    def __init__(self, host: Stated, **documents: dict) -> None:
        self.host, self.documents, self.found = host.host(), documents, None

    def document(self, name: str) -> dict:
        if name not in self.documents:
            raise Unavailable("no-toolchain", f"{name} & <b>")
        return self.documents[name]

    def geometry(self) -> tuple[pd.DataFrame, Geometry]:
        if self.found is None:
            raise Unavailable("no-data")
        return pd.DataFrame(), self.found

    def tlb_entries(self) -> list[int]:
        return chapters.Chapter.tlb_entries(self)


def measured(*entries: float) -> Geometry:
    levels = [Level(level=k, entries=Estimate(value=n, low=n, high=n, method="alias, step"), opinions={}, stated=None, hit_cost=None,
                    rise=(n, n + 1), verdict="") for k, n in enumerate(entries, 1)]
    return Geometry(pages="4k", unit="cycles", core_ghz=3.2, first_tread=4, levels=levels, walks=[], alias_penalty=None, notes=[])


def scores(times_ours: float = 1.0) -> dict:
    ours = huge.touches(rows())
    touched = [Score(pages=row.pages, array_bytes=row.array_bytes, quantity="touch", ns_per_access=row.median * times_ours, error_ns=0.01,
                     iterations_count=8, forks=1) for row in ours.itertuples() if row.array_bytes <= 10**8]
    draws = [Score(pages=pages, array_bytes=10**8, quantity="draw", ns_per_access=1.5, error_ns=0.01, iterations_count=8, forks=1)
             for pages in ("4k", "thp", "2m")]
    return jmh.Jmh(measured_at="2025-01-31T12:00:00Z", state="00112233aabb", jvm="21.0.1", jmh="1.37", scores=touched + draws,
                   lacking={}).model_dump(mode="json")


def programs() -> dict:
    reports = [runtimes.RuntimeReport(language="c", toolchain="gcc 12", variant=variant, repeat=k, array_bytes=2**24, resident_bytes=2**24,
                                      huge_bytes=2**24 if variant == "huge" else 0, rest_huge_bytes=0, ns_per_access=ns + k / 10)
               for variant, ns in (("plain", 20.0), ("huge", 10.0)) for k in range(3)]
    return runtimes.Runtimes(measured_at="2025-01-31T12:00:00Z", state="00112233aabb", thp="madvise", array_bytes=2**24, reports=reports,
                             lacking={"go": "no-toolchain"}).model_dump(mode="json")


@pytest.fixture
def glued(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    kept: dict[str, object] = {}
    monkeypatch.setattr(figures, "glue", lambda name, what, display=True: kept.update({name: what}))
    return kept


def test_documents_that_are_not_there_are_notes_with_their_reason():
    chapter = Told(Stated())
    for section, name in ((huge_sections.jvm(chapter, rows(), TOUCHES), "jvm_said"),
                          (huge_sections.runtimes_section(chapter), "runtimes_said")):
        assert "Not on this machine: A toolchain that this program needs is not installed" in section.table.text
        assert "&amp; &lt;b&gt;" in section.table.markup and section.said == {name: ""} and isinstance(section.said[name], Prose)


def test_jmhs_document_is_a_table_beside_the_published_one_and_sentences():
    section = huge_sections.jvm(Told(Stated(), jmh=scores()), rows(), TOUCHES)
    head, *lines = (line.split("\t") for line in section.table.text.splitlines())
    assert head == ["array, bytes", "4k here, ns", "thp here, ns", "2m here, ns", "4k published, ns", "thp published, ns",
                    "2m published, ns"]
    assert [line[0] for line in lines] == ["1,000", "10,000", "1,000,000", "10,000,000", "100,000,000"]
    assert lines[-1][4:] == ["32.54", "28.70", "28.70"]
    assert lines[-1][1] == f"{median(rows(), **BASE_TOUCH):.2f}"
    said = section.said["jvm_said"]
    assert not HOLE.search(said) and "They agree to 10 %." in said and "1.00 in the median over 15 pairs of size and pages." in said


def test_where_jmh_and_the_loop_in_c_differ_the_smallest_array_says_of_what():
    said = huge_sections.jvm(Told(Stated(), jmh=scores(1.5)), rows(), TOUCHES).said["jvm_said"]
    assert "They agree" not in said and "They differ by more than 10 % in 15 of them." in said
    theirs, ours = re.search(r"In 1,000 bytes, where every load hits, JMH takes ([\d.]+) ns and the loop in C ([\d.]+):", said).groups()
    assert any(float(ours) == pytest.approx(median(rows(), kernel="random_touch", pages=pages, bytes=1000), abs=0.006)
               for pages in ("4k", "thp", "2m"))
    assert float(theirs) == pytest.approx(1.5 * float(ours), abs=0.02)


def test_jmh_without_touches_of_our_own_is_told_without_a_comparison():
    said = huge_sections.jvm(Told(Stated(), jmh=scores()), rows().query("kernel == 'page_chase'"), TOUCHES).said["jvm_said"]
    assert "nothing compares the JVM with C here." in said and not HOLE.search(said)


def test_the_programs_document_is_a_table_and_a_list_of_sentences():
    section = huge_sections.runtimes_section(Told(Stated(), runtimes=programs()))
    head, plain, recipe = (line.split("\t") for line in section.table.text.splitlines())
    assert head[3:] == ["on huge pages, %", "huge elsewhere, bytes", "ns per read", "huge over plain"]
    assert plain[2:] == ["plain", "0.00", "0", "20.10", "–"] and recipe[2:] == ["huge", "100.00", "0", "10.10", "1.99"]
    said = section.said["runtimes_said"]
    assert all(line.startswith("- ") and line.endswith(".") for line in said.splitlines()) and len(said.splitlines()) == 3
    assert not HOLE.search(said)


def test_the_recipes_are_the_marked_lines_of_five_languages():
    found = re.findall(r"^--- (.+)$", huge_sections.recipes(), re.MULTILINE)
    assert len(found) == 5 and huge_sections.recipes().count("\n\n--- ") == 4


def test_the_splinter_figure_or_its_reason_is_glued(glued: dict[str, object]):
    huge_sections.show_splinter(rows(), ENTRIES)
    assert isinstance(glued["splinter"], Figure)
    huge_sections.show_splinter(only("4k"), ENTRIES)
    assert isinstance(glued["splinter"], Html) and REASONS["pool-empty"].sentence.removesuffix(".") in glued["splinter"].text


def test_a_section_without_its_figure_has_a_note_in_its_place(glued: dict[str, object]):
    huge_sections.show("touch", lambda: huge_figures.touch(huge.touches(only("1g")), TOUCHES))
    assert REASONS["too-few-points"].sentence.removesuffix(".") in glued["touch"].text


@pytest.mark.parametrize(("machine", "spans"), [(WHOLE, "an entry spans the page"), (SPLIT, "the host splinters larger pages")])
def test_the_calculator_says_whose_entries_it_counts_with(glued: dict[str, object], machine: Paged, spans: str):
    chapter = Told(Stated(hypervisor="kvm"))
    said = huge_sections.calculator_section(chapter, rows(machine))["calculator_said"]
    assert isinstance(glued["calculator"], Figure)
    assert "It counts with 64 and 1,536 entries (by CPUID), 2.0" in said and spans in said and not HOLE.search(said) and said.endswith(".")
    chapter.found = measured(63.0, 1500.4)
    assert "63 and 1,500 entries (as measured" in huge_sections.calculator_section(chapter, rows(machine))["calculator_said"]
    chapter.found = measured(63.0)  # one level alone is not enough
    assert "1,536 entries (by CPUID)" in huge_sections.calculator_section(chapter, rows(machine))["calculator_said"]


@pytest.mark.parametrize(("stated", "frame", "code"), [
    (Stated(tlb=()), rows(), "no-geometry"), (Stated(), rows(most=MIB), "too-few-points"), (Stated(), only("2m"), "too-few-points"),
    (Stated(), rows().query("kernel != 'page_chase'"), "too-few-points")])
def test_a_calculator_that_cannot_be_made_is_a_note_and_an_empty_sentence(glued: dict[str, object], stated: Stated, frame: pd.DataFrame,
                                                                           code: str):
    said = huge_sections.calculator_section(Told(stated), frame)
    assert said == {"calculator_said": ""} and isinstance(said["calculator_said"], Prose)
    assert REASONS[code].sentence.removesuffix(".") in glued["calculator"].text


# --- the grid

profiles = st.tuples(st.integers(64 << 10, 2**33), st.integers(1, 4), st.integers(1, 64), st.sampled_from(["c", "numba"]))


@given(profiles)
def test_every_spread_chase_has_its_packed_control_on_the_same_pages(profile: tuple):
    most, per_octave, cpus, engine = profile
    points = hugepages(most, cpus, per_octave, engine)
    assert len(points) == len(set(points)) and {point.engine for point in points} == {engine}
    chase = [point for point in points if point.kernel == "page_chase"]
    spread = {point for point in chase if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == set(chase) - spread
    assert {point.pages for point in spread} == set(PAGES) and min(point.lines for point in spread) == SMALLEST_LINES


@given(profiles)
def test_nothing_is_larger_than_max_working_set(profile: tuple):
    most, *_ = profile
    for point in hugepages(*profile[:1], *[profile[2], profile[1], profile[3]]):
        own = dict(point.options)
        assert (own["bytes"] if point.kernel == "random_touch" else point.lines * 4096) <= most, point


def test_each_page_size_is_chased_at_the_published_sizes_and_two_of_them_finely():
    lines = {pages: {p.lines for p in hugepages() if p.kernel == "page_chase" and p.pages == pages} for pages in PAGES}
    assert {256 * MIB // 4096, GIB // 4096, 4 * GIB // 4096} <= set.intersection(*lines.values())
    assert lines["4k"] == lines["2m"] > lines["64k"] == lines["thp"] == lines["1g"]


def test_touches_are_of_the_published_sizes_and_say_their_bytes():
    touched = [point for point in hugepages() if point.kernel == "random_touch"]
    assert {point.pages for point in touched} == {"4k", "thp", "2m"}
    assert {dict(point.options)["bytes"] for point in touched} == {*TOUCHES["array_bytes"].unique().tolist(), 10**9}
    assert all((point.lines - 1) * 64 < dict(point.options)["bytes"] <= point.lines * 64 for point in touched)
    assert all((point.layout, point.order) == ("packed", "random") for point in touched)
    spare = {point for point in touched if "spare_draws" in dict(point.options)}
    plain = {point for point in touched if dict(point.options)["bytes"] <= 10**8} - spare
    assert {point.model_copy(update={"options": point.options + (("spare_draws", 1),)}) for point in plain} == spare


@pytest.mark.parametrize(("cpus", "threads"), [(1, {1}), (2, {1, 2}), (16, {1, 16})])
def test_memory_is_faulted_in_by_one_thread_and_by_all_of_them(cpus: int, threads: set[int]):
    faulted = [point for point in hugepages(cpus=cpus) if point.kernel == "prefault"]
    assert {dict(point.options)["threads"] for point in faulted} == threads
    assert {dict(point.options)["threads"] for point in faulted if point.pages == "1g"} == {1}  # 256 MiB of it are one page
    ways = ("touch", "populate", "memset")
    assert {(point.pages, point.mode) for point in faulted} == {(pages, way) for pages in PAGES for way in ways}
    assert all(dict(point.options)["threads"] == 1 for point in faulted if point.mode == "memset")


@given(profiles)
def test_no_more_threads_than_pages_fault_memory_in(profile: tuple):
    most, per_octave, cpus, engine = profile
    for point in hugepages(most, cpus, per_octave, engine):
        if point.kernel == "prefault":
            threads = dict(point.options)["threads"]
            assert threads == 1 or threads * PAGE_BYTES[point.pages] <= point.lines * 4096


def test_a_point_of_the_grid_survives_json():
    for point in hugepages(64 * MIB):
        assert Point.model_validate_json(point.model_dump_json()) == point


def test_walks_are_counted_beside_the_published_misses_and_missing_where_nothing_counts():
    table = huge.touch_counts(rows(), TOUCHES).set_index("pages")
    assert table["walks per read here"].isna().all() and table.loc["4k", "published dTLB-load-misses per read"] == 1.017
    counted = rows().assign(walk_per_access=[0.5 if pages == "4k" else 0.1 for pages in rows()["pages"]])
    here = huge.touch_counts(counted, TOUCHES).set_index("pages")["walks per read here"]
    assert (here["4k"], here["thp"]) == (0.5, 0.1)
