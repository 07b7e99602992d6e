"""The walk of a graph: quantiles, regimes, verdicts, sentences, figures and the model of machines that never were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from support.common import make_record
from support.synthetic import GIB, HOLE, MIB, Stated, Truth, fit_to_be_shown, tlbs
from support.synthetic import frame as chases

from experiments.article import chapter as chapters
from experiments.article.machine_words import Prose
from experiments.article.render import Figure
from experiments.chapters.graph_walk import claims as walk_claims
from experiments.chapters.graph_walk import figures as walk_figures
from experiments.chapters.graph_walk import prose as walk_words
from experiments.chapters.graph_walk import sections as walk_sections
from experiments.inference import cost
from experiments.inference import hops as walks
from experiments.inference.intervals import Interval
from experiments.inference.splinter import Compared, Splinter
from experiments.lab import campaign as experiment
from experiments.lab import grid as grids
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

ENTRIES = [64, 1536]
REACH = 1536 * 4096
GHZ = 2.5
PUBLISHED = chapters.literature("graph_walk_quantiles")
CORES = chapters.literature("microarchitectures")


@dataclass(frozen=True)
class Walk:
    """A machine with one cache, one TLB level that counts and pages whose entries span them: what a hop takes, drawn by chance."""

    cache_bytes: int = 4 * MIB
    cache_ns: float = 5.0
    memory_ns: float = 70.0
    walk_ns: float = 5.0  # of a walk in the caches
    far_ns: float = 75.0  # what a walk costs more whose table has left them
    far_from: int = 1 * GIB  # bytes of data on base pages from which on half of the tables have
    splintered: bool = False
    large_walk: float = 0.8  # of a base page's walk
    thp: float = 1.0  # its times beside those of 2m
    noise: float = 0.01  # of a process
    step_ns: float = 10.0
    clock_ns: float = 22.0
    walkers: int = 6
    in_flight: int = 16
    counted: bool = False

    def misses(self, pages: str, size: int) -> float:
        span = 1 if pages == "4k" or self.splintered else {"thp": 512, "2m": 512, "1g": 2**18}[pages]
        return max(0.0, 1 - REACH * span / size)

    def walk(self, pages: str, size: int) -> tuple[float, float]:
        """A walk's ns in the caches, and the share of walks that leave them."""
        return self.walk_ns * (1 if pages == "4k" else self.large_walk), 1 - min(1.0, self.far_from / 2 / size) if pages == "4k" else 0.0

    def hops(self, pages: str, size: int, draw: np.random.Generator, n: int = 4000) -> np.ndarray:
        hit = draw.random(n) < self.cache_bytes / size
        near, far = self.walk(pages, size)
        walked = draw.random(n) < self.misses(pages, size)
        ns = np.where(hit, self.cache_ns, self.memory_ns) + walked * (near + (draw.random(n) < far) * self.far_ns)
        return ns * np.exp(0.04 * draw.normal(size=n)) * (self.thp if pages == "thp" else 1)

    def mean(self, pages: str, size: int, walkers: int = 1) -> float:
        near, far = self.walk(pages, size)
        hit = min(1.0, self.cache_bytes / size)
        load = hit * self.cache_ns + (1 - hit) * self.memory_ns
        walk = self.misses(pages, size) * (near + far * self.far_ns)
        alone = (load + walk) / min(walkers, self.in_flight)
        return max(alone, walk / self.walkers) * (self.thp if pages == "thp" else 1)

    def readings(self, ns: np.ndarray, draw: np.random.Generator) -> list[tuple[float, int]]:
        """What a counter that advances by steps reads, its own cost included, in bins as kernels/hops.h has them."""
        phase = draw.random(len(ns)) * self.step_ns
        ticks = np.round((np.floor((phase + ns + self.clock_ns) / self.step_ns) - np.floor(phase / self.step_ns)) * self.step_ns * GHZ)
        shift = np.maximum(0, np.floor(np.log2(np.maximum(ticks, 1))) - 7).astype(int)
        bins, hops = np.unique((ticks.astype(int) >> shift) << shift, return_counts=True)
        return [(float(f"{b / GHZ:.7g}"), int(n)) for b, n in zip(bins, hops, strict=True)]

    def frame(self, most: int = 16 * GIB, repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        profile = experiment.Profile(max_working_set=most, repeats=1, region_ms=1, points_per_octave=4)
        draw, rows = np.random.default_rng(seed), []
        for point in grids.graph_walk(profile, "c", ENTRIES):
            own, size = dict(point.options), 64 * point.lines
            for repeat in range(repeats):
                off = float(np.exp(self.noise * draw.normal()))
                mean = self.mean(point.pages, size, own.get("walkers", 1)) * off
                more: dict = {"also": {"four_vertices_ns_per_access": 2.0 / own.get("walkers", 1)}}
                if own.get("per_hop"):
                    more = {"histogram": self.readings(self.hops(point.pages, size, draw) * off, draw), "also": {
                        "tsc_ghz": GHZ, "clock_ns": self.clock_ns, "clock_step_ns": self.step_ns, "mean_ns": mean}}
                record = make_record(**point.model_dump(), repeat=repeat, batch_ns_per_access=[1.0],
                                     ns_per_access=mean + (60 if own.get("per_hop") else 0), **more)
                row = record.model_dump(exclude={"counters", "options", "also"}) | dict(record.options) | record.also
                if self.counted:
                    walked = self.misses(point.pages, size)
                    cycles = {"walk_cycles_per_access": 3 * walked * self.walk(point.pages, size)[0]}
                    row |= {"walk_per_access": walked, "walk_reason": ""} | cycles
                rows.append(row | {"kernel_digest": "a" * 16})
        return pd.DataFrame(rows)


@cache
def rows(machine: Walk = Walk(), most: int = 16 * GIB, repeats: int = 5) -> pd.DataFrame:  # noqa: B008 (frozen)
    return machine.frame(most, repeats)


def only(*pages: str, of: pd.DataFrame | None = None) -> pd.DataFrame:
    frame = rows() if of is None else of
    return frame[frame["pages"].isin(pages)].reset_index(drop=True)


def host(**changes: object) -> object:
    return Stated(tlb=tlbs(), changes=changes).host()


# --- readings of a clock that steps


def read(ns: np.ndarray, step_ns: float, clock_ns: float, seed: int = 3) -> pd.Series:
    machine = Walk(step_ns=step_ns, clock_ns=clock_ns)
    return pd.Series({"histogram": machine.readings(ns, np.random.default_rng(seed)), "tsc_ghz": GHZ, "clock_ns": clock_ns,
                      "clock_step_ns": step_ns})


@pytest.mark.parametrize("step", [0.4, 2.0, 10.0, 20.0])
@pytest.mark.parametrize("law", [scipy_stats.norm(150, 40), scipy_stats.gamma(4, 20, 25), scipy_stats.uniform(30, 400)],
                         ids=["normal", "gamma", "uniform"])
def test_quantiles_of_a_smooth_distribution_come_back_within_a_fraction_of_the_clocks_step(law, step: float):
    ns = law.ppf((np.arange(200_000) + 0.5) / 200_000)
    asked = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    found = walks.quantile(walks.smoothed(read(np.random.default_rng(1).permutation(ns), step, 22.2)), asked)
    bins = 0.008 * (law.ppf(asked) + 22.2)  # what a bin of the histogram is wide
    assert (np.abs(found - law.ppf(asked)) < 0.15 * step + bins + 0.3).all(), found - law.ppf(asked)


def test_without_spreading_the_steps_would_stay_in_the_quantiles():
    """So that the test before tells something: the readings' own median is off by more than it allows."""
    law = scipy_stats.norm(150.0, 20)
    row = read(law.ppf((np.arange(100_000) + 0.5) / 100_000), 20.0, 22.2)
    readings = np.repeat([b for b, _ in row["histogram"]], [n for _, n in row["histogram"]])
    assert abs(np.median(readings) - 22.2 - 150.0) > 5
    assert walks.quantile(walks.smoothed(row), 0.5) == pytest.approx(150.0, abs=1.5)


def test_every_reading_lies_in_the_distribution_once_and_shares_add_up():
    spread = walks.smoothed(read(np.linspace(5, 3000, 5000), 10.0, 22.0))
    assert spread["share"].sum() == pytest.approx(1) and (spread["high_ns"] > spread["low_ns"]).all()
    at, heights = walks.cumulative(spread)
    assert (np.diff(heights) >= 0).all() and heights[0] == 0 and heights[-1] == pytest.approx(1)
    middle = float(((spread["low_ns"] + spread["high_ns"]) / 2 * spread["share"]).sum())
    assert middle == pytest.approx(1502.5, rel=0.005)


def test_a_hop_of_nothing_is_no_negative_time():
    assert walks.quantile(walks.smoothed(read(np.full(1000, 0.2), 10.0, 22.0)), 0.01) == 0


def test_processes_count_alike_however_many_hops_each_made():
    few, many = read(np.full(1000, 50.0), 2.0, 20.0), read(np.full(100_000, 150.0), 2.0, 20.0)
    assert walks.below(walks.merged(pd.DataFrame([few, many])), 100) == pytest.approx(0.5)


def test_a_walk_without_a_histogram_is_a_reason():
    with pytest.raises(Unavailable) as why:
        walks.smoothed(pd.Series({"histogram": [], "tsc_ghz": 2.5, "clock_ns": 20.0, "clock_step_ns": 10.0}))
    assert why.value.code == "too-few-points"


# --- frames


def test_quantiles_over_processes_are_those_of_the_hops_that_were_drawn():
    found = walks.quantiles(rows()).set_index(["pages", "working_set_bytes", "q"])["median"]
    draw = np.random.default_rng(9)
    for pages, size in (("4k", 16 * GIB), ("2m", GIB), ("1g", 256 << 10)):
        hops = Walk().hops(pages, size, draw, 100_000)
        for q in (0.25, 0.5):
            assert found[pages, size, q] == pytest.approx(np.quantile(hops, q), abs=4)


def test_a_machine_without_hop_by_hop_rows_has_no_quantiles():
    with pytest.raises(Unavailable):
        walks.quantiles(rows()[rows()["per_hop"].isna()])


def test_the_gain_of_several_walkers_is_one_walkers_time_over_theirs():
    found = walks.by_walkers(rows())
    assert set(found["pages"]) == {"4k", "thp", "2m"} and set(found["vertices"]) == {1 << 24}
    for row in found.itertuples():
        assert row.gain == pytest.approx(Walk().mean(row.pages, GIB) / Walk().mean(row.pages, GIB, row.walkers), rel=0.05)
        assert row.floor_ns == pytest.approx(2 / row.walkers)


@pytest.mark.parametrize("walkers", [2, 4, 6])
def test_walks_under_way_at_once_are_as_many_as_the_machine_has_page_walkers(walkers: int):
    _, _, found = walks.walks_under_way(walks.by_walkers(rows(Walk(walkers=walkers, in_flight=64, noise=0.002, far_ns=300.0))))
    assert found.value == pytest.approx(walkers, rel=0.1) and found.low <= found.value <= found.high


def test_the_predicted_misses_are_one_less_the_share_that_the_entries_hold():
    reach = walks.capacities(host(), ENTRIES)
    assert reach == {"4k": REACH}
    assert walks.capacities(host(), ENTRIES, splintered=True) == dict.fromkeys(("4k", "64k", "thp", "2m", "1g"), REACH)
    found = walks.predicted([MIB, 2 * REACH, 4 * REACH], reach)
    assert found["median"].tolist() == [0.0, 0.5, 0.75]
    assert walks.predicted([MIB], {}).empty


def test_counted_walks_are_shown_where_there_are_any():
    assert walks.counted(rows()).empty
    found = walks.counted(rows(Walk(counted=True))).set_index(["pages", "working_set_bytes"])["median"]
    assert found["4k", 16 * GIB] == pytest.approx(1 - REACH / (16 * GIB)) and found["1g", GIB] == 0


def test_regimes_are_those_that_the_machine_was_made_with():
    found = walks.regimes(rows())
    assert found.cache_ns == pytest.approx(5, abs=3) and found.memory_ns == pytest.approx(70, abs=6)
    by_size = found.table.set_index("working_set_bytes")["regime"]
    assert by_size[MIB] == by_size[4 * MIB] == "cache"
    assert by_size[64 * MIB] == by_size[512 * MIB] == "memory"
    assert by_size[8 * GIB] == by_size[16 * GIB] == "memory and walk"
    assert walks.shares(rows(), "4k", 16 * GIB, found.cut_ns).sum() == pytest.approx(1)
    assert walks.shares(rows(), "4k", 16 * GIB, found.cut_ns)[2] == pytest.approx(1 - 1 / 32, abs=0.02)


@pytest.mark.parametrize(("frame", "code"), [
    (lambda: only("4k"), "pool-empty"), (lambda: only("2m", "1g"), "too-few-points"), (lambda: rows(most=4 * MIB), "no-step")])
def test_regimes_that_cannot_be_told_have_a_reason(frame: Callable[[], pd.DataFrame], code: str):
    with pytest.raises(Unavailable) as why:
        walks.regimes(frame())
    assert why.value.code == code


# --- verdicts

THREE, TWICE, SHORT, CAPACITY, BOTH, WALKERS, USELESS = range(7)
H, F, C = "holds", "fails", "cannot tell"


def split(verdict: str, share: float = 0.7) -> Splinter:
    part = Compared(30.0, 30 * share, Interval(share, share - 0.05, share + 0.05, 1.0), (4096, 8192))
    return Splinter(verdict, "Evidence.", "2m", "cycles", part, part)


JUDGED: dict[str, tuple[int, Callable[[], pd.DataFrame], dict, str]] = {
    "three regimes": (THREE, rows, {}, H),
    "never a walk in memory": (THREE, lambda: rows(Walk(far_ns=0.0)), {}, F),
    "the sweep ends before it": (THREE, lambda: rows(most=256 * MIB), {}, C),
    "twice": (TWICE, lambda: rows(Walk(far_from=24 * GIB)), {}, H),
    "no tail": (TWICE, lambda: rows(Walk(far_ns=0.0)), {}, F),
    "no tail yet": (TWICE, lambda: rows(most=GIB), {}, C),
    "a short tail on large pages": (SHORT, rows, {}, H),
    "capacity": (CAPACITY, lambda: rows(Walk(noise=0.001, walk_ns=30.0)), {}, H),
    "loud": (CAPACITY, lambda: rows(Walk(noise=0.5)), {}, C),
    "nothing rises": (CAPACITY, lambda: rows(Walk(noise=0.001, walk_ns=0.0, far_ns=0.0)).assign(
        ns_per_access=lambda x: x["ns_per_access"] + 5.0 * (x["pages"] == "4k")), {}, F),
    "both by counters": (BOTH, lambda: rows(Walk(counted=True, splintered=True)), {}, F),
    "pieces": (BOTH, rows, {"splintered": split("splintered by the host")}, F),
    "whole pages without counters": (BOTH, rows, {"splintered": split("not splintered")}, C),
    "no other chapter": (BOTH, rows, {}, C),
    "six walkers": (WALKERS, lambda: rows(Walk(walkers=6, in_flight=64, noise=0.002, far_ns=300.0)), {"microarchitecture": "Zen 4"}, H),
    "six, not two": (WALKERS, lambda: rows(Walk(walkers=6, in_flight=64, noise=0.002, far_ns=300.0)),
                     {"microarchitecture": "Skylake client"}, F),
    "fewer busy than said": (WALKERS, lambda: rows(Walk(walkers=9, in_flight=4, noise=0.002)), {"microarchitecture": "Zen 4"}, C),
    "nobody says": (WALKERS, rows, {"microarchitecture": "Imaginary"}, C),
    "thp gains": (USELESS, rows, {}, F),
    "thp loses": (USELESS, lambda: rows(Walk(thp=3.0)), {}, H),
}


def verdicts(frame: pd.DataFrame, entries: list[int] = ENTRIES, **how: object) -> list[tuple[str, str, str]]:
    return fit_to_be_shown(walk_claims.graph_walk(frame, entries, CORES, **how), 7)


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    number, make, how, verdict = JUDGED[name]
    found = verdicts(make(), **how)[number]
    assert found.verdict == verdict, found


def test_huge_pages_that_miss_less_and_walk_shorter_are_told_by_counters():
    frame = rows(Walk(counted=True, splintered=True))
    fewer = frame.assign(walk_per_access=frame["walk_per_access"] * np.where(frame["pages"] == "4k", 1, 0.1),
                         walk_cycles_per_access=frame["walk_cycles_per_access"] * np.where(frame["pages"] == "4k", 1, 0.05))
    assert verdicts(fewer)[BOTH].verdict == H


# --- sentences and figures of whole and partial frames

FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "everything": rows, "splintered": lambda: rows(Walk(splintered=True)), "counted": lambda: rows(Walk(counted=True)),
    "noise": lambda: rows(Walk(noise=0.5)), "a fine clock": lambda: rows(Walk(step_ns=0.4, clock_ns=4.0)),
    "base pages alone": lambda: only("4k"), "no base pages": lambda: only("thp", "2m"), "one repeat": lambda: rows(repeats=1),
    "small": lambda: rows(most=MIB), "one size": lambda: rows(most=256 << 10),
    "no single hops": lambda: rows()[rows()["per_hop"].isna()], "single hops alone": lambda: rows()[rows()["per_hop"] == 1],
    "no walkers": lambda: rows()[rows()["walkers"].isna()].drop(columns="walkers"),
    "nothing": lambda: rows()[rows()["kernel"] == ""],
}
KEYS = {"lead", "clock", "regimes", "modes", "misses_are", "walkers_said"}


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_every_sentence_and_every_verdict(name: str):
    for entries in (ENTRIES, []):
        said = walk_words.say(FRAMES[name](), host(), entries, CORES, ["A note."])
        assert said.keys() == KEYS
        for key, words in said.items():
            assert not HOLE.search(words.replace("\n\n", " ")), (key, words)
            assert key == "misses_are" or (isinstance(words, Prose) and words.rstrip().endswith(".")), (key, words)
        assert "A note." not in said["lead"]
        verdicts(FRAMES[name](), entries)


def drawn(make: Callable[[], Figure]) -> Figure | None:
    try:
        figure = make()
    except Unavailable:
        return None
    assert figure.svg() and not HOLE.search(figure.alt), figure.alt
    return figure


@pytest.mark.parametrize("name", FRAMES)
def test_every_figure_of_every_frame_renders_or_says_why_not(name: str):
    frame = FRAMES[name]()
    found = [drawn(lambda: walk_figures.quantiles(walks.quantiles(frame), PUBLISHED)), drawn(lambda: walk_figures.ridges(frame)),
             drawn(lambda: walk_figures.walkers(walks.by_walkers(frame)))]
    if name in ("everything", "splintered", "noise", "counted"):
        assert [figure.name for figure in found] == ["quantiles", "ridges", "walkers"]


def test_the_lead_has_the_quantiles_of_the_largest_size():
    found = walks.quantiles(rows()).set_index(["pages", "working_set_bytes", "q"])["median"]
    assert f"on base pages, {found['4k', 16 * GIB, 0.5]:.0f} and {found['4k', 16 * GIB, 0.95]:.0f}." in walk_words.lead(rows())


def test_the_modes_are_named_where_the_distribution_has_them():
    spread = walks.merged(walks.clocked(rows(Walk(far_from=8 * GIB))).query("pages == '4k' and working_set_bytes == 17179869184"))
    assert walk_words.peaks_of(spread, 10.0) == pytest.approx([75, 150], abs=8)


def test_why_a_page_size_is_missing_stands_behind_the_lead():
    said = walk_words.say(only("4k"), host(), ENTRIES, CORES, [str(Unavailable("pool-empty")), "Another note."])["lead"]
    assert "No walk lies on" in said and said.count("- ") == 1 and "The pool of huge pages is empty" in said


def test_the_number_of_page_walkers_is_the_literatures():
    assert [walk_words.page_walkers(one, CORES) for one in ("Zen 4", "Skylake server", "Sapphire Rapids")] == [6, 2, 4]
    assert walk_words.page_walkers("Imaginary", CORES) is None


# --- misses and the model, beside other chapters' rows


class Kept:
    """A store with these experiments alone."""

    def __init__(self, **frames: pd.DataFrame) -> None:
        self.frames = frames

    def load(self, machine: str, name: str) -> pd.DataFrame:
        return self.frames.get(name, pd.DataFrame())


def chapter(**frames: pd.DataFrame) -> SimpleNamespace:
    return SimpleNamespace(store=Kept(**frames), machine="made-up", host=host(), tlb_entries=lambda: ENTRIES)


@pytest.fixture
def glued(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure | None]:
    kept: dict[str, Figure | None] = {}
    monkeypatch.setattr(walk_sections, "show", lambda name, make: kept.update({name: drawn(make)}))
    return kept


@pytest.mark.parametrize("name", ["everything", "counted", "base pages alone", "one size"])
def test_misses_are_drawn_with_what_they_are(name: str, glued: dict[str, Figure | None]):
    walk_sections.show_misses(chapter(), FRAMES[name](), chapters.literature("dtlb_misses_per_hop"))
    series = set(glued["walk_misses"].data["series"])
    assert ("counted" in series) == (name == "counted") and "predicted, 1 − C/M" in series
    assert ("published" in series) == (name != "nothing")


def test_without_the_first_chapters_chases_there_is_a_reason_and_no_model(glued: dict[str, Figure | None]):
    section = walk_sections.model(chapter(), rows())
    assert glued == {"model": None} and "no results of this experiment" in section.said["model_said"]
    assert "Not on this machine" in section.table.text


@pytest.mark.parametrize("frame", ["everything", "no base pages"])
def test_the_model_is_told_beside_what_it_saw_and_what_it_did_not(frame: str, glued: dict[str, Figure | None],
                                                                  monkeypatch: pytest.MonkeyPatch):
    machine = cost.Machine((64, 1536), (32768, MIB))
    whole = chases(Truth(cache_step=(512, 3.0), noise=0.01), repeats=3).assign(state="s")
    monkeypatch.setattr(cost, "machine_of", lambda host: machine)
    section = walk_sections.model(chapter(stlb_cliff=whole), FRAMES[frame]())
    data = glued["model"].data
    chase = data[data["series"] != walk_sections.WALK]
    assert set(chase["seen"]) == {"fitted", "held out"} and (walk_sections.WALK in set(data["series"])) == (frame == "everything")
    assert set(data.loc[data["series"] == walk_sections.WALK, "seen"]) <= {"held out"}
    words = section.said["model_said"]
    assert "did not see" in words and not HOLE.search(words) and "walk ns" in section.table.text
    off = (chase["predicted_ns"] / chase["measured_ns"] - 1)[chase["seen"] == "held out"]
    assert f"its median error is {off.abs().median():.0%}" in words
