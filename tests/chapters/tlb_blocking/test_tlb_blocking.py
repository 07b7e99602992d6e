"""Blocking: the model of walks in blocks, curves, gains, remedies, verdicts, sentences and figures of machines that never were."""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import make_record
from support.synthetic import GIB, HOLE, MIB, PAGE_BYTES, Stated, fit_to_be_shown
from test_render import Elements

from experiments.article import chapter as chapters
from experiments.article.machine_words import Prose
from experiments.article.render import Figure
from experiments.chapters.tlb_blocking import analysis as blocking
from experiments.chapters.tlb_blocking import claims as blocking_claims
from experiments.chapters.tlb_blocking import figures as blocking_figures
from experiments.chapters.tlb_blocking import prose as blocking_words
from experiments.inference import curves as claims
from experiments.lab import campaign as experiment
from experiments.lab import grid as grids
from experiments.lab.record import Point
from experiments.words.reasons import REASONS, Unavailable

pytestmark = pytest.mark.filterwarnings("error")

ENTRIES = [64, 1536]
CLOCK_NS = 9.0
PUBLISHED = chapters.literature("mitigations")
H, F, C = "holds", "fails", "cannot tell"


@dataclass(frozen=True)
class Machine:
    """A machine with one level of the TLB that matters to walks and one that matters to partitioning."""

    pages: tuple[str, ...] = ("4k", "thp", "2m", "1g")
    splintered: bool = False  # an entry spans 4 KiB of any page
    load_ns: float = 40.0
    walk_ns: float = 60.0
    thp_ns: float = 0.0  # what a transparent page costs beside what one of the pool does
    near_ns: float = 0.0  # by which a load in a block is nearer
    tail: float = 1.5  # the 95th percentile over the median
    walking_prefetch: bool = True
    prefetch_gain: float = 0.5  # the share of a hop's time that a prefetch can hide
    jump_ns: float = 3.0  # of a row, past the first level's entries on pages of 4 KiB
    join_gain: float = 3.0
    noise: float = 0.01

    def walks(self, pages: str, vertices: int, options: dict[str, int]) -> float:
        span = 4096 if self.splintered else PAGE_BYTES[pages]
        inside = max(options.get("block_vertices", vertices) * 64 / span, 1)
        capacity = max(0.0, 1 - ENTRIES[-1] / inside)
        steps = options.get("block_steps", 10**12)
        return max(capacity, min(1.0, inside * (1 - (1 - 1 / inside) ** steps) / steps)) if inside > 1 else 0.0

    def hop_ns(self, point: Point) -> float:
        own = dict(point.options)
        walks = self.walks(point.pages, point.lines, own)
        ns = self.load_ns + self.walk_ns * walks + self.thp_ns * (point.pages == "thp") - self.near_ns * (point.mode == "blocked")
        if own.get("distance", 0) == 0:
            return ns
        hidden = self.prefetch_gain * min(1.0, own["distance"] / 8)
        return ns * (1 - hidden * (1.0 if self.walking_prefetch else 1 - walks))

    def row_ns(self, point: Point) -> float:
        bits = dict(point.options).get("bits", 0)
        span_4k = point.pages == "4k" or self.splintered
        scatter = 4.0 + (self.jump_ns if span_4k and 2**bits > ENTRIES[0] else 0.0)
        naive = 30.0 if point.pages == "4k" else 20.0
        return {"partition": scatter, "naive": naive, "partitioned": naive / self.join_gain + scatter / 4}[point.mode]

    def frame(self, points: list[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process, with the columns that `Store.load` gives."""
        noise, rows = np.random.default_rng(seed), []
        for point in (one for one in points if one.pages in self.pages):
            for repeat in range(repeats):
                walk = point.kernel == "graph_walk"
                ns = (self.hop_ns(point) if walk else self.row_ns(point)) * math.exp(self.noise * noise.normal())
                also = {"histogram_ns_per_access": 1.0} if point.mode == "partition" else {}
                histogram: list[tuple[float, int]] = []
                if dict(point.options).get("per_hop"):
                    also = {"p50_ns": ns * 0.95, "p95_ns": ns * self.tail, "mean_ns": ns, "clock_ns": CLOCK_NS, "tsc_ghz": 0.5,
                            "clock_step_ns": 2.0}
                    # The median is the middle of the second bin's hops, the 95th percentile that of the last one's.
                    middle = (0.95 + self.tail) / 2
                    histogram = [(CLOCK_NS + ns * at, hops) for at, hops in ((0.5, 450), (0.95, 100), (middle, 350), (self.tail, 100))]
                record = make_record(**point.model_dump(), repeat=repeat, ns_per_access=ns + 20 * walk * bool(also),
                                     batch_ns_per_access=[ns], also=also, histogram=histogram)
                rows.append(record.model_dump(exclude={"counters", "options", "also"}) | dict(record.options) | record.also
                            | {"kernel_digest": "a" * 16})
        return pd.DataFrame(rows, columns=None if rows else [*make_record().model_dump(), "kernel_digest"])


def points(most: int = 4 * GIB) -> list[Point]:
    profile = experiment.Profile(max_working_set=most, repeats=1, region_ms=1, points_per_octave=4)
    return grids.tlb_blocking(profile, "c", ENTRIES, 2)


def control(most: int = 4 * GIB) -> list[Point]:
    """The same blocks on pages that need no walks."""
    return [one.model_copy(update={"pages": "2m"}) for one in points(most) if one.mode == "blocked" and "per_hop" not in dict(one.options)]


@cache
def rows(machine: Machine = Machine(), most: int = 4 * GIB, repeats: int = 5) -> pd.DataFrame:
    return machine.frame(points(most), repeats)


def only(*pages: str) -> pd.DataFrame:
    return rows()[rows()["pages"].isin(pages)].reset_index(drop=True)


def median(frame: pd.DataFrame, query: str, column: str = "ns_per_access") -> float:
    """By pandas' own query, where `x == x` is no NaN."""
    return float(frame.query(query)[column].median())


PLAIN = "kernel == 'graph_walk' and mode == 'plain' and per_hop != per_hop and pages == '4k'"

# --- the model


def simulated(block_pages: int, steps: int, entries: int, blocks: int = 40, stays: int = 30) -> float:
    """Walks per hop of an LRU cache of translations, counted: stays of so many random hops in one block after another."""
    draws, held, walks = np.random.default_rng(1), OrderedDict(), 0
    for stay in range(stays):
        for page in draws.integers(0, block_pages, steps).tolist():
            key = (stay % blocks, page)
            walks += key not in held
            held[key] = None
            held.move_to_end(key)
            if len(held) > entries:
                held.popitem(last=False)
    return walks / (steps * stays)


@pytest.mark.parametrize("pages", [4, 32, 64, 100, 300])
@pytest.mark.parametrize("steps", [1, 20, 64, 400, 3000])
def test_walks_per_hop_are_those_of_a_simulated_tlb(pages: int, steps: int):
    assert float(blocking.walks_per_hop(pages, steps, 64)) == pytest.approx(simulated(pages, steps, 64), rel=0.05, abs=0.01) or steps < 20
    assert float(blocking.walks_per_hop(pages, steps, 64)) == pytest.approx(simulated(pages, steps, 64), rel=0.13)


def test_the_ends_of_the_model_are_known():
    assert blocking.walks_per_hop(10**6, 1, 1536) == pytest.approx(1, abs=1e-5)
    assert blocking.walks_per_hop(4096, 10**9, 1024) == pytest.approx(1 - 1024 / 4096, rel=1e-5)
    assert blocking.walks_per_hop(1024, 10**9, 1024) == pytest.approx(1024e-9)
    assert blocking.walks_per_hop([8, 16], 1000, 64) == pytest.approx([0.008, 0.016])


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**4))
def test_walks_are_a_share_that_falls_with_steps_and_with_entries_and_rises_with_pages(pages: int, steps: int, entries: int):
    here = float(blocking.walks_per_hop(pages, steps, entries))
    assert 0 < here <= 1
    for more in ((pages, steps + 1, entries), (pages, steps, entries + 1)):
        assert float(blocking.walks_per_hop(*more)) <= here * (1 + 1e-9)
    assert float(blocking.walks_per_hop(pages + 1, steps, entries)) >= here * (1 - 1e-9)


def test_dropped_prefetches_can_only_gain_what_hits():
    assert blocking.prefetched_hits(MIB * 64 // 64 * 16, [64, 1536]) == pytest.approx(1 / (1 - 1536 / 262144))
    for size, entries, code in ((1536 * 64, [64, 1536], "too-few-points"), (MIB, [], "no-geometry")):
        with pytest.raises(Unavailable) as why:
            blocking.prefetched_hits(size, entries)
        assert why.value.code == code


# --- frames


def test_blocks_are_medians_of_their_processes_over_the_walk_without_blocks():
    found = blocking.by_block(rows())
    assert len(found) == 18 and set(found["block_steps"]) == {1 << 10, 1 << 14, 1 << 18}
    plain = median(rows(), PLAIN)
    for row in found.itertuples():
        here = median(rows(), f"mode == 'blocked' and per_hop != per_hop and block_vertices == {row.block_vertices} "
                              f"and block_steps == {row.block_steps}")
        assert (row.median, row.plain) == pytest.approx((here, plain)) and row.gain == pytest.approx(plain / here)
        assert row.gain_low <= row.gain <= row.gain_high
        assert row.block_bytes == 64 * row.block_vertices == 4096 * row.block_pages
        assert row.visits == row.block_steps / row.block_pages


def test_blocks_without_the_plain_walk_have_no_gain():
    found = blocking.by_block(rows().query("mode != 'plain'"))
    assert found["gain"].isna().all() and found["plain"].isna().all() and found["median"].notna().all()


def test_blocks_on_larger_pages_are_compared_with_base_pages_too():
    found = blocking.by_block(Machine().frame([*points(), *control()]))
    assert list(dict.fromkeys(found["pages"])) == ["4k", "2m"] and found["plain"].nunique() == 1


def test_the_predicted_optimum_is_the_smallest_block_and_the_measured_the_fastest():
    for machine in (Machine(), Machine(noise=0.0)):
        found = blocking.by_block(rows(machine))
        for one in blocking.optima(found, ENTRIES[-1]):
            part = found[found["block_steps"] == one.block_steps].set_index("block_bytes")
            assert one.predicted_bytes == 128 << 10 and one.measured_bytes == part["median"].idxmin()
            assert one.predicted_walks <= one.measured_walks and one.measured_bytes not in one.unresolved
            assert all(part.loc[size, "low"] <= part.loc[one.measured_bytes, "high"] for size in one.unresolved)


def test_distances_are_compared_with_no_prefetch_on_the_same_pages():
    found = blocking.by_distance(rows())
    assert list(dict.fromkeys(found["pages"])) == ["4k", "thp", "2m"] and set(found["distance"]) == {0, 1, 2, 4, 8, 16, 32, 64}
    for row in found.itertuples():
        where = "mode == 'prefetch' and pages == '{}' and distance == {}"
        none, here = (median(rows(), where.format(row.pages, d)) for d in (0, row.distance))
        assert row.median == pytest.approx(here) and row.gain == pytest.approx(none / here)


def test_the_best_distance_is_never_none():
    slower = rows(Machine(prefetch_gain=-0.5))
    assert blocking.best_gain(blocking.by_distance(slower), "4k")["distance"] == 1


def test_remedies_are_the_quantiles_of_the_largest_graph():
    found = blocking.mitigations(rows(), ENTRIES)
    assert list(zip(found["remedy"], found["pages"], strict=True)) == [
        ("none", "4k"), ("huge pages", "thp"), ("huge pages", "2m"), ("huge pages", "1g"), ("TLB blocking", "4k")]
    assert set(found["vertices"]) == {4 * GIB // 64} and set(found["n"]) == {5}
    assert set(PUBLISHED["mitigation"]) == set(found["remedy"])
    for row in found.itertuples():
        block = f"block_vertices == {row.block_vertices}" if row.block_vertices else "block_vertices != block_vertices"
        for name in ("p50", "p95", "mean"):
            here = median(rows(), f"per_hop == 1 and pages == '{row.pages}' and {block}", f"{name}_ns")
            assert getattr(row, name) == pytest.approx(here)
            assert getattr(row, f"{name}_low") <= getattr(row, name) <= getattr(row, f"{name}_high")


def test_the_block_among_the_remedies_is_the_fastest_inside_the_reach():
    frame = rows(Machine(noise=0.0))
    small = blocking.remedy(blocking.mitigations(frame, ENTRIES), "TLB blocking", "4k")
    assert small["block_vertices"] == 1 << 14  # of 2^14 steps, fewest are first visits there
    quick = frame.assign(mean_ns=frame["mean_ns"].where(~(frame["block_vertices"] == 1 << 16), 1.0))
    assert blocking.remedy(blocking.mitigations(quick, ENTRIES), "TLB blocking", "4k")["block_vertices"] == 1 << 16
    past = [64, 512]  # whose reach is 2 MiB, and the faster block has 4
    assert blocking.remedy(blocking.mitigations(quick, past), "TLB blocking", "4k")["block_vertices"] == 1 << 14


@pytest.mark.parametrize("entries", [[], [1]])
def test_without_a_block_inside_a_known_reach_there_is_no_blocking_among_the_remedies(entries: list[int]):
    found = blocking.mitigations(rows(), entries)
    assert "TLB blocking" not in set(found["remedy"]) and len(found) == 4
    with pytest.raises(Unavailable):
        blocking.remedy(found, "TLB blocking", "4k")


def test_a_remedy_takes_the_first_page_size_that_was_measured():
    found = blocking.mitigations(only("4k", "thp"), ENTRIES)
    assert blocking.remedy(found, "huge pages", "2m", "thp")["pages"] == "thp"
    with pytest.raises(Unavailable) as why:
        blocking.remedy(found, "huge pages", "1g")
    assert why.value.code == "pool-empty"


def test_fan_out_is_per_row_and_partition_with_what_counting_takes():
    found = blocking.by_fan_out(rows())
    assert len(found) == 30 and (found["partitions"] == 2.0 ** found["bits"]).all() and set(found["histogram_ns"]) == {1.0}
    for row in found.itertuples():
        once = "passes == 2" if row.passes == 2 else "passes != passes"
        here = median(rows(), f"mode == 'partition' and pages == '{row.pages}' and bits == {row.bits} and {once}")
        assert row.median == pytest.approx(here)


def test_the_rise_of_the_fan_out_is_from_half_the_entries_to_past_twice_them():
    ratio, few, many = blocking.fan_out_rise(blocking.by_fan_out(rows(Machine(noise=0.0))), "4k", 64)
    assert (few, many) == (32, 256) and ratio.value == pytest.approx(7 / 4)
    assert blocking.fan_out_rise(blocking.by_fan_out(rows()), "4k", 72)[1:] == (32, 256)
    for entries in (4, 10**5):
        with pytest.raises(Unavailable):
            blocking.fan_out_rise(blocking.by_fan_out(rows()), "4k", entries)


def test_passes_are_kept_apart():
    once = rows().query("passes != passes")
    twice = once.query("mode == 'partition' or mode == 'partitioned'").assign(passes=2.0)
    frame = pd.concat([once, twice.assign(ns_per_access=1.0)], ignore_index=True)
    assert blocking.by_fan_out(frame).query("passes == 1")["median"].tolist() == blocking.by_fan_out(once)["median"].tolist()
    joined = blocking.by_join(frame)
    assert joined.query("passes != 2")["median"].tolist() == blocking.by_join(rows())["median"].tolist()
    drawn = blocking_figures.fan_out(blocking.by_fan_out(frame), ENTRIES).data
    assert (drawn.loc[drawn["passes"] == 2, "median"] == 1.0).all() and 1.0 not in set(drawn.loc[drawn["passes"] == 1, "median"])


def test_two_passes_are_set_beside_one_of_as_many_partitions():
    both = "mode == 'partition' and bits == 12 and pages == '4k' and passes == 2"
    for factor, words in ((0.5, "two passes below the limit are faster"), (3.0, "one pass past the limit is still faster")):
        assert words in said(times(rows(), factor, both))["fan_out_said"]
    assert "two passes" not in said(rows().query("passes != 2"))["fan_out_said"]


def test_a_join_is_compared_with_the_naive_one_on_the_same_pages():
    found = blocking.by_join(rows())
    assert len(found) == 12 and set(found.query("mode == 'naive'")["partitions"]) == {1}
    assert found.query("mode == 'naive'")["gain"].isna().all()
    for row in found.query("mode == 'partitioned'").itertuples():
        naive, here = (median(rows(), f"pages == '{row.pages}' and mode == {mode}") for mode in (
            "'naive'", f"'partitioned' and bits == {row.bits}"))
        assert row.gain == pytest.approx(naive / here)


NOTHING = rows().query("kernel == 'none'")


@pytest.mark.parametrize("make", [blocking.by_block, blocking.by_distance, blocking.by_fan_out, blocking.by_join,
                                  lambda frame: blocking.mitigations(frame, ENTRIES)])
def test_what_was_not_measured_is_a_reason(make: Callable):
    for frame in (NOTHING, Machine().frame([])):  # the second has not even the columns
        with pytest.raises(Unavailable) as why:
            make(frame)
        assert why.value.code == "too-few-points"


# --- verdicts

VANISHES, USELESS, PREFETCH, ORDER, LIMIT, PAYS = range(6)


def verdicts(frame: pd.DataFrame, entries: list[int] = ENTRIES) -> list[claims.Verdict]:
    """Of each claim, each a sentence with evidence fit to be shown."""
    return fit_to_be_shown(blocking_claims.tlb_blocking(frame, entries), 6)


LOUD = Machine(noise=0.4)
USELESS_THP = Machine(thp_ns=46.0)
JUDGED: dict[str, tuple[int, Callable[[], pd.DataFrame], str, str]] = {
    "the tail is gone": (VANISHES, lambda: rows(), H, "nothing is left"),
    "a tenth of the tail is there": (VANISHES, lambda: times(rows(), 1.5, "per_hop == 1 and mode == 'blocked'"), H, r"1\d% is left"),
    "the tail is half there": (VANISHES, lambda: times(rows(), 2.0, "per_hop == 1 and mode == 'blocked'"), F, "is left"),
    "too loud a tail": (VANISHES, lambda: rows(LOUD), C, ""),
    "no large pages to compare with": (VANISHES, lambda: only("4k"), C, "Not enough|pool|page"),
    "large pages that walk as often": (VANISHES, lambda: rows(Machine(splintered=True)), C, "no step"),
    "nearer in the caches too": (VANISHES, lambda: rows(Machine(near_ns=20.0)), H, "nearer in the caches"),
    "thp helps": (USELESS, lambda: rows(), F, "times as fast in the median"),
    "thp does nothing": (USELESS, lambda: rows(USELESS_THP), H, "With THP a hop over 4 GiB is (0.9|1.0)"),
    "thp harms": (USELESS, lambda: rows(Machine(thp_ns=90.0)), H, "is 0.6|is 0.7"),
    "thp is too loud": (USELESS, lambda: rows(LOUD), C, "times as fast"),
    "no thp": (USELESS, lambda: only("4k", "2m"), C, "thp"),
    "prefetches walk": (PREFETCH, lambda: rows(), H, "2.0"),
    "prefetches are dropped": (PREFETCH, lambda: rows(Machine(walking_prefetch=False)), F, "On 2m the gain is 2.0"),
    "prefetches do nothing anywhere": (PREFETCH, lambda: rows(Machine(prefetch_gain=0.0)), C, "On 2m the gain is 1.0"),
    "nothing gained and no large pages": (PREFETCH, lambda: rows(Machine(pages=("4k",), walking_prefetch=False)), C, "could gain"),
    "no prefetches": (PREFETCH, lambda: rows().query("mode != 'prefetch'"), C, "prefetches"),
    "all in reach": (PREFETCH, lambda: rows(most=4 * MIB), C, "within the TLB's reach"),
    "the published order": (ORDER, lambda: times(times(rows(), 0.8, "pages == '1g'"), 1.4, "mode == 'blocked'"), H, "1 GiB pages"),
    "another order": (ORDER, lambda: times(rows(), 1.5, "pages == '1g'"), F, "1 GiB pages"),
    "no order": (ORDER, lambda: rows(LOUD), C, "base pages"),
    "the published order less one": (ORDER, lambda: times(only("4k", "2m"), 1.4, "mode == 'blocked'"), C, "Not measured: 1 GiB pages."),
    "nothing to order": (ORDER, lambda: only("4k").query("mode != 'blocked'"), C, "no remedy"),
    "the limit is there": (LIMIT, lambda: rows(), H, "times on 2m"),
    "no limit there": (LIMIT, lambda: rows(Machine(jump_ns=0.0)), F, "64 entries"),
    "large pages rise too": (LIMIT, lambda: rows(Machine(splintered=True)), C, "pieces"),
    "no large pages to tell by": (LIMIT, lambda: only("4k"), C, "were not measured"),
    "too loud a limit": (LIMIT, lambda: rows(LOUD), C, "times as long"),
    "no partitioning": (LIMIT, lambda: rows().query("mode != 'partition'"), C, "partitioning"),
    "partitioning pays": (PAYS, lambda: rows(), H, "times as fast"),
    "partitioning does not pay": (PAYS, lambda: rows(Machine(join_gain=0.8)), F, "0.7"),
    "nobody knows whether it pays": (PAYS, lambda: rows(Machine(join_gain=1.05, noise=0.2)), C, "times as fast"),
    "no join": (PAYS, lambda: rows().query("kernel == 'graph_walk'"), C, "join"),
}


def times(frame: pd.DataFrame, factor: float, where: str) -> pd.DataFrame:
    """The frame with the chosen rows slower by a factor, and so their quantiles."""
    chosen = frame.eval(where)
    histogram = [[(CLOCK_NS + factor * (least - CLOCK_NS), hops) for least, hops in bins] if slow else bins
                 for bins, slow in zip(frame["histogram"], chosen, strict=True)]
    return frame.assign(histogram=histogram, **{name: frame[name].where(~chosen, frame[name] * factor)
                           for name in ("ns_per_access", "p50_ns", "p95_ns", "mean_ns") if name in frame})


@pytest.mark.parametrize("case", JUDGED)
def test_each_claim_is_judged_by_the_rows(case: str):
    which, make, verdict, evidence = JUDGED[case]
    found = verdicts(make())[which]
    assert found.verdict == verdict, found
    assert re.search(evidence, found.evidence), found


@pytest.mark.parametrize("which", [VANISHES, PREFETCH, LIMIT])
def test_without_the_entries_what_hangs_on_them_cannot_be_told(which: int):
    assert verdicts(rows(), [])[which].verdict == C


# --- sentences and figures

MACHINES: dict[str, Callable[[], pd.DataFrame]] = {
    "everything": rows,
    "splintered": lambda: rows(Machine(splintered=True)),
    "with a control": lambda: Machine().frame([*points(), *control()]),
    "no pool": lambda: only("4k", "thp"),
    "base pages alone": lambda: only("4k"),
    "no base pages": lambda: only("thp", "2m"),
    "no join": lambda: rows().query("kernel == 'graph_walk'"),
    "no walks": lambda: rows().query("kernel != 'graph_walk'"),
    "no prefetch": lambda: rows().query("mode != 'prefetch'"),
    "no prefetch of distance 0": lambda: rows().query("distance != 0"),
    "no blocks": lambda: rows().query("mode != 'blocked'"),
    "no plain walk": lambda: rows().query("mode != 'plain'"),
    "no naive join": lambda: rows().query("mode != 'naive'"),
    "no hop by hop": lambda: rows().query("per_hop != 1"),
    "small sizes": lambda: rows(most=16 * MIB),
    "within the reach": lambda: rows(most=4 * MIB),
    "one repeat": lambda: rows(repeats=1),
    "loud": lambda: rows(LOUD),
    "dropped": lambda: rows(Machine(walking_prefetch=False, jump_ns=0.0)),
    "nothing": lambda: NOTHING,
    "no columns": lambda: Machine().frame([]),
}
KEYS = {"lead", "blocks_said", "prefetch_said", "mitigations_said", "fan_out_said", "join_said"}


@pytest.mark.parametrize("entries", [ENTRIES, [72, 3072], [64], []])
@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_exists_on_every_machine_and_has_no_hole(machine: str, entries: list[int]):
    said = blocking_words.say(MACHINES[machine](), Stated().host(), entries)
    assert set(said) == KEYS
    for name, text in said.items():
        assert isinstance(text, Prose) and text.endswith(".") and not HOLE.search(text), (name, text)
        assert text.count(". ") < 14
    verdicts(MACHINES[machine](), entries)


def said(frame: pd.DataFrame, entries: list[int] = ENTRIES) -> dict[str, str]:
    return {name: str(text) for name, text in blocking_words.say(frame, Stated().host(), entries).items()}


def test_the_lead_tells_the_quantiles_of_the_remedies():
    found = blocking.mitigations(rows(), ENTRIES).set_index(["remedy", "pages"])
    text = said(rows())["lead"]
    assert text.startswith("Over 4 GiB on base pages") and "In blocks of 1 MiB" in text
    for key in (("none", "4k"), ("TLB blocking", "4k"), ("huge pages", "2m")):
        assert f"{found.loc[key, 'p50']:.0f}" in text and f"{found.loc[key, 'p95']:.0f}" in text
    assert "on transparent 2 MiB pages" in said(only("4k", "thp"))["lead"] and "without blocks" not in said(only("4k"))["lead"]


def test_the_sentence_about_blocks_tells_both_conditions():
    text = said(rows())["blocks_said"]
    assert "The largest block inside the STLB's reach, 2 MiB of 512 pages" in text and "2 a page" in text
    assert "times the STLB's reach" in text and "128 KiB against" in text
    early = said(rows(), [64, 3072])["blocks_said"]
    assert "8 MiB of 2,048 pages" in early and "Left before its pages are used again, such a block gains nothing." not in early
    rarely = times(rows(), 1.6, "block_steps == 1024 and block_vertices == 131072")
    assert "such a block gains nothing." in said(rarely, [64, 3072])["blocks_said"]


def test_what_a_prefetch_does_about_translation_is_said_by_its_gain():
    assert "So they walk" in said(rows())["prefetch_said"]
    assert "That is no more on base pages" in said(rows(Machine(walking_prefetch=False)))["prefetch_said"]
    assert "noise leaves open" in said(rows(Machine(noise=0.1, prefetch_gain=0.03)))["prefetch_said"]


def test_the_fan_outs_limit_is_said_where_it_shows_and_its_absence_where_not():
    text = said(rows())["fan_out_said"]
    assert "with 256 partitions as with 32 on base pages" in text and "On base pages the limit shows." in text
    assert "between 64 and 128 partitions" in text
    flat = said(rows(Machine(jump_ns=0.0)))["fan_out_said"]
    assert "nothing gives way" in flat and "steepest" not in flat


def test_one_hop_ahead_is_told_where_it_is_nearly_as_good_as_the_best():
    assert "One hop ahead" not in said(rows())["prefetch_said"]
    assert "One hop ahead is nearly as good already" in said(times(rows(), 0.58, "distance == 1"))["prefetch_said"]
    assert "One hop ahead" not in said(rows(Machine(prefetch_gain=0.0)))["prefetch_said"]


def test_a_join_on_base_pages_is_set_beside_a_naive_one_on_large_pages():
    assert "Partitioning on base pages is faster than a naive join on large ones." in said(rows())["join_said"]
    assert "Large pages alone do more than" in said(rows(Machine(join_gain=1.3)))["join_said"]
    alone = said(rows(Machine(join_gain=0.8)))["join_said"]
    assert re.search(r"naive and [\d.]+ with [\d,]+ partitions on base pages, 0\.\d+ times as fast", alone) and alone.endswith(").")
    small = said(rows(most=64 * MIB))["join_said"]
    assert "32,768 rows" in small and "The hash table is 1 MiB, within the STLB's reach" in small


def test_a_control_says_what_was_to_be_had_and_without_one_the_cache_is_named():
    assert "The same blocks on 2 MiB pages of the pool take" in said(MACHINES["with a control"]())["blocks_said"]
    assert "The last-level cache has 1 MiB." in said(rows())["blocks_said"]


def test_why_a_page_size_is_missing_stands_once_behind_the_lead():
    why = str(Unavailable("pool-empty"))
    told = blocking_words.say(NOTHING, Stated().host(), ENTRIES, [why, why, "Another note."])
    assert told["lead"].count(why) == 1 and sum(text.count(why) for text in told.values()) == 1
    assert not any("Another note." in text for text in told.values())


def test_a_reason_is_told_once():
    told = list(said(NOTHING).values())
    assert REASONS["too-few-points"].sentence.removesuffix(".") in told[0]
    assert len(set(told)) >= len(told) - 1


FIGURES: dict[str, Callable[[pd.DataFrame, list[int]], Figure]] = {
    "blocks": lambda frame, entries: blocking_figures.blocks(blocking.by_block(frame), entries),
    "prefetch": lambda frame, entries: blocking_figures.prefetch(blocking.by_distance(frame)),
    "mitigations": lambda frame, entries: blocking_figures.mitigations(blocking.mitigations(frame, entries), PUBLISHED),
    "fan_out": lambda frame, entries: blocking_figures.fan_out(blocking.by_fan_out(frame), entries),
    "join": lambda frame, entries: blocking_figures.join(blocking.by_join(frame)),
}
LACKING = {
    "blocks": {"no walks", "no blocks", "no base pages"}, "prefetch": {"no walks", "no prefetch"},
    "mitigations": {"no walks", "no plain walk", "no base pages", "no hop by hop"}, "fan_out": {"no join"}, "join": {"no join"},
}


@pytest.mark.parametrize(("machine", "entries"), [*((machine, ENTRIES) for machine in MACHINES), ("everything", [64]), ("everything", [])])
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_where_it_has_rows_and_is_a_reason_where_not(name: str, machine: str, entries: list[int]):
    if machine in LACKING[name] | {"nothing", "no columns"}:
        with pytest.raises(Unavailable):
            FIGURES[name](MACHINES[machine](), entries)
        return
    figure = FIGURES[name](MACHINES[machine](), entries)
    json.dumps(figure.spec(), allow_nan=False)
    assert Elements(figure.svg()).tags.count("svg") == 1 and len(figure.csv().splitlines()) == len(figure.data) + 1
    assert figure.name == name and not HOLE.search(figure.alt) and figure.alt.endswith(".")


def test_the_published_remedies_are_drawn_beside_ours_and_never_as_ours():
    data = FIGURES["mitigations"](rows(), ENTRIES).data
    assert len(data.query("where == 'published'")) == 8 and len(data.query("where == 'here'")) == 10
    assert data.query("where == 'published'")["n"].isna().all()
    assert sorted(data.query("where == 'published' and quantile == '95th percentile'")["ns"]) == [60, 71, 117, 242]
