"""Guests: the matrix, ratios, steps, counts, verdicts, sentences, figures and sections of machines that never were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import make_record
from support.synthetic import GIB, HOLE, MIB, PAGE_BYTES, Stated, fit_to_be_shown, lru, tlbs
from test_render import Elements

from experiments.article import charts as figures
from experiments.article.machine_words import Prose
from experiments.article.render import Figure, Html
from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization import claims as virtual_claims
from experiments.chapters.virtualization import costs as virtual_costs
from experiments.chapters.virtualization import entries as virtual_entries
from experiments.chapters.virtualization import figures as virtual_figures
from experiments.chapters.virtualization import host_prose as virtual_host_words
from experiments.chapters.virtualization import prose as virtual_words
from experiments.chapters.virtualization import references as virtual_counts
from experiments.chapters.virtualization import sections as virtual_sections
from experiments.inference import curves as claims
from experiments.inference.geometry import Backing
from experiments.inference.intervals import Interval
from experiments.inference.simulator import references_per_walk
from experiments.lab import campaign as experiment
from experiments.lab import grid as grids
from experiments.lab.record import Point
from experiments.machine import kvm
from experiments.machine.kvm import Kvm
from experiments.words.reasons import REASONS, Unavailable, explain

pytestmark = pytest.mark.filterwarnings("error")

ENTRIES = [64, 1536]
GUESTS, HOSTS = ("4k", "2m", "1g"), ("4k", "thp", "2m", "1g")
CELLS = [(guest, host) for guest in GUESTS for host in HOSTS]
BYTES = {"2m": 2 * MIB} | PAGE_BYTES


@dataclass(frozen=True)
class Guests:
    """A machine with two LRU levels whose entries span the smallest page on the way: the guest's, the host's and, where the host is a
    guest itself, the outer host's. A walk costs so much a reference, of as many references as no cache shortens."""

    cells: tuple[tuple[str, str], ...] = tuple(CELLS)
    pages: tuple[str, ...] = HOSTS  # of the plain process
    outer: str = ""  # the outer host's pages; "" on bare metal
    shadow: bool = False
    load_ns: float = 1.0
    hit_ns: float = 2.0
    reference_ns: float = 4.0
    touch_ns: float = 3000.0  # of a fault in the guest
    namespaces: float = 1.0  # what they do to a load, as a factor
    far: tuple[float, ...] = (1.0, 1.5, 1.2, 1.7)
    five: float = 0.0  # what five levels do to a guest's load, as a factor; 0: no LA57
    outside: float = 1.002
    noise: float = 0.003
    ghz: float = 3.2

    def span(self, *pages: str) -> int:
        return min(BYTES[one] for one in (*pages, self.outer) if one)

    def references(self, guest: str, host: str) -> int:
        """Two dimensions at the most: shadow tables and an outer host fold one."""
        if not guest:
            return references_per_walk(virtual.hardware(host), self.outer or None)
        if self.shadow:
            return references_per_walk(virtual.smaller(guest, host), self.outer or None)
        return references_per_walk(guest, virtual.hardware(host))

    def price_ns(self, guest: str, host: str, lines: int) -> float:
        span = self.span(*((guest, host) if guest else (host,)))
        order = "random" if span > 4096 else "cycle"
        first, second = (float(lru(order, np.array([max(4096 * lines / span, 1.0)]), n)[0]) for n in ENTRIES)
        return first * self.hit_ns + second * self.references(guest, host) * self.reference_ns

    def time_ns(self, point: Point) -> float:
        guest = point.mode if point.kernel == "guest_chase" else ""
        price = self.price_ns(guest, point.pages, point.lines) if point.layout == "spread" else 0.0
        factor = self.namespaces if point.mode == "namespaces" else 1.0
        if point.kernel == "numa_chase":
            factor = self.far[grids.NODES.index(point.mode)]
        if point.options:
            factor = self.five
        return (self.load_ns + price) * factor

    def has(self, point: Point) -> bool:
        if point.kernel == "guest_chase":
            return (point.mode, point.pages) in self.cells and bool(self.five or not point.options)
        return point.kernel == "numa_chase" and bool(self.far) or point.kernel == "page_chase" and point.pages in self.pages

    def frame(self, points: list[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process, with the columns that `Store.load` gives."""
        noise, rows = np.random.default_rng(seed), []
        for point in filter(self.has, points):
            also = {}
            if point.kernel == "guest_chase":
                faults = max(1.0, 4096 * point.lines / self.span(point.mode, point.pages)) / point.lines
                levels = float(dict(point.options).get("levels", 4))
                also = {"first_touch_ns_per_access": self.touch_ns * faults, "tsc_ghz": 2.5, "guest_levels": levels}
            for repeat in range(repeats):
                ns = self.time_ns(point) * float(np.exp(self.noise * noise.normal()))
                mine = also | ({"outside_ns_per_access": ns * self.outside} if also else {})
                record = make_record(**point.model_dump(), repeat=repeat, ns_per_access=ns, batch_ns_per_access=[ns], core_ghz=self.ghz,
                                     also=mine)
                rows.append(record.model_dump(exclude={"counters", "options", "also"}) | record.also | dict(record.options)
                            | {"kernel_digest": "a" * 16})
        return pd.DataFrame(rows)


def points(most: int = GIB, per_octave: int = 2, engine: str = "c", entries: tuple[int, ...] = tuple(ENTRIES)) -> list[Point]:
    profile = experiment.Profile(max_working_set=most, repeats=1, region_ms=70, points_per_octave=per_octave)
    return grids.virtualization(profile, engine, entries)


BARE = Guests(far=())
NESTED = Guests(far=(), outer="4k", shadow=True)


@cache
def rows(machine: Guests = BARE, most: int = GIB, repeats: int = 5, per_octave: int = 2) -> pd.DataFrame:
    return machine.frame(points(most, per_octave), repeats)


def median(frame: pd.DataFrame, column: str = "ns_per_access", **where: object) -> float:
    return float(frame.query(" and ".join(f"{name} == {value!r}" for name, value in where.items()))[column].median())


def chased(frame: pd.DataFrame, guest: str, host: str, lines: int, layout: str = "spread") -> float:
    kernel = "guest_chase" if guest else "page_chase"
    return median(frame, kernel=kernel, mode=guest, pages=host, layout=layout, lines=lines)


# --- the matrix


def test_the_matrix_has_the_medians_prices_and_ratios_of_its_rows():
    found = virtual.matrix(rows())
    assert list(dict.fromkeys(zip(found["guest"], found["host"], strict=True))) == CELLS
    for row in found.sample(30, random_state=1).itertuples():
        spread, packed = (chased(rows(), row.guest, row.host, row.lines, layout) for layout in ("spread", "packed"))
        assert row.median == pytest.approx(spread) and row.low <= row.median <= row.high and row.n == 5
        assert row.packed == pytest.approx(packed) and row.price == pytest.approx(spread - packed)
        if (row.guest, row.lines) in {(guest, n) for guest in GUESTS for n in virtual.sizes(found)}:
            assert row.over_4k == pytest.approx(spread / chased(rows(), "", "4k", row.lines))
            assert row.over_alike == pytest.approx(spread / chased(rows(), "", row.guest, row.lines))
            assert row.over_alike_low <= row.over_alike <= row.over_alike_high


def test_the_matrix_gives_the_truth_back():
    far = virtual.at(virtual.matrix(rows(Guests(far=(), noise=0.0)))).set_index(["guest", "host"])
    assert set(far["lines"]) == {GIB // 4096}
    for guest, host in CELLS:
        price = BARE.price_ns(guest, host, GIB // 4096)
        assert far.loc[(guest, host), "price"] == pytest.approx(price)
        assert far.loc[(guest, host), "over_alike"] == pytest.approx((1 + price) / (1 + BARE.price_ns("", guest, GIB // 4096)))


def test_namespaces_are_no_plain_process():
    frame = rows(Guests(namespaces=7.0))
    assert virtual.matrix(frame)["over_4k"].max() == pytest.approx(virtual.matrix(rows())["over_4k"].max(), rel=0.05)
    assert chased(frame, "", "4k", 16384) < 1 + 2 + 16 + 1


def test_the_heat_maps_sizes_are_those_that_most_cells_share():
    assert virtual.sizes(virtual.matrix(rows())) == [512, 16384, 262144]
    assert virtual.sizes(virtual.matrix(rows(Guests(cells=(("4k", "4k"),))))) == sorted(
        {p.lines for p in points() if (p.kernel, p.mode, p.pages) == ("guest_chase", "4k", "4k")})


@pytest.mark.parametrize(("there", "guest", "same"), [
    (HOSTS, "2m", "2m"), (("4k", "thp"), "2m", "thp"), (("4k",), "2m", None), (HOSTS, "4k", "4k"), (("4k", "2m"), "1g", None)])
def test_the_same_program_outside_is_on_the_guests_page_size(there: tuple[str, ...], guest: str, same: str | None):
    frame = rows(Guests(pages=there))
    assert virtual.alike(frame, guest) == same
    found = virtual.matrix(frame).query("guest == @guest and lines == 262144")
    assert found["over_alike"].notna().all() == (same is not None) and found["over_4k"].notna().all()


def test_without_a_guest_there_is_no_matrix():
    with pytest.raises(Unavailable) as why:
        virtual.matrix(rows(Guests(cells=())))
    assert why.value.code == "too-few-points" and virtual.cells(rows(Guests(cells=()))) == []


# --- what an entry spans


def test_the_steps_of_small_entries_stand_at_the_machines_capacities():
    found = virtual_entries.steps(rows(), ENTRIES).set_index(["guest", "host"])
    for guest, host in (("", "4k"), ("4k", "4k"), ("4k", "thp"), ("2m", "4k")):
        row = found.loc[(guest, host)]
        assert row["first_low"] <= 64 < row["first_high"] and row["second_low"] <= 1536 < row["second_high"]
    for guest, host in (("", "thp"), ("2m", "thp")):  # 16384 lines are 32 of its entries
        assert found.loc[(guest, host), ["first_low", "second_low"]].isna().all()


def test_large_pages_on_one_side_are_pieces_and_on_both_whole():
    kinds = {(one.guest, one.host): one.kind for one in virtual_entries.shares(rows())}
    assert kinds == {("", "thp"): "whole", ("4k", "thp"): "pieces", ("2m", "4k"): "pieces", ("2m", "thp"): "whole"}
    nested = {(one.guest, one.host): one.kind for one in virtual_entries.shares(rows(NESTED))}
    assert set(nested.values()) == {"pieces"} and ("2m", "thp") in nested


@pytest.mark.parametrize(("guest", "host", "factor"), [("2m", "thp", 9.0), ("4k", "4k", 1 / 9)])
def test_a_lone_loud_point_is_no_step_and_hides_none(guest: str, host: str, factor: float):
    frame = rows().copy()
    one = (frame["mode"] == guest) & (frame["pages"] == host) & (frame["lines"] == 362) & (frame["layout"] == "spread")
    frame.loc[one, "ns_per_access"] *= factor
    quiet, loud = (virtual_entries.steps(side, ENTRIES).set_index(["guest", "host"]).loc[(guest, host)] for side in (rows(), frame))
    pd.testing.assert_series_equal(quiet, loud)


@pytest.mark.parametrize(("make", "entries", "code"), [
    (lambda: rows(most=64 << 10), ENTRIES, "too-few-points"), (lambda: rows(), [64], "no-geometry"), (lambda: rows(), [], "no-geometry"),
    (lambda: rows(Guests(far=(), hit_ns=-0.1)), ENTRIES, "no-step")])
def test_what_has_no_steps_says_why(make: Callable[[], pd.DataFrame], entries: list[int], code: str):
    with pytest.raises(Unavailable) as why:
        virtual_entries.steps(make(), entries)
    assert why.value.code == code
    assert virtual_entries.shares(rows(most=64 << 10)) == []


# --- clocks, touches, containers, nodes


def test_two_clocks_are_compared_process_by_process():
    ratio = virtual_costs.clocks(rows())
    assert len(ratio) == (rows()["kernel"] == "guest_chase").sum() and ratio.to_numpy() == pytest.approx(1.002)
    assert virtual_costs.clocks(rows().drop(columns="outside_ns_per_access")).empty


def test_a_first_touch_is_a_fault_shared_by_the_lines_of_a_page():
    found = virtual_costs.first_touches(rows()).set_index(["guest", "host"])
    assert list(found.index) == CELLS and set(found["lines"]) == {262144}
    assert found.loc[("4k", "1g"), "median"] == pytest.approx(3000) and found.loc[("2m", "thp"), "median"] == pytest.approx(3000 / 512)
    assert virtual_costs.first_touches(rows().drop(columns="first_touch_ns_per_access")).empty
    assert virtual_costs.first_touches(rows(Guests(cells=(), far=()))).empty


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_the_containers_ratio_is_the_median_of_its_pairs(factor: float):
    frame = rows(Guests(namespaces=factor, far=()))
    ratio = virtual_costs.container_ratio(frame)
    assert ratio.value == pytest.approx(factor, rel=0.003) and ratio.low <= factor * 1.001 and ratio.high >= factor * 0.999
    table = virtual_costs.containers(frame)
    assert len(table) == 6 and set(table["layout"]) == {"spread", "packed"}
    for row in table.itertuples():
        plain, inside = (median(frame, kernel="page_chase", mode=mode, pages="4k", layout=row.layout, lines=row.lines)
                         for mode in ("", "namespaces"))
        assert (row.plain, row.inside) == (pytest.approx(plain), pytest.approx(inside)) and row.low <= row.difference <= row.high


def test_a_pair_is_of_one_repeat_so_that_drift_hits_both():
    frame = rows()
    drift = frame.assign(ns_per_access=frame["ns_per_access"] * (1 + frame["repeat"]))
    assert virtual_costs.container_ratio(drift).value == pytest.approx(virtual_costs.container_ratio(frame).value)


def test_too_few_pairs_of_processes_have_no_ratio():
    with pytest.raises(Unavailable):
        virtual_costs.container_ratio(rows()[rows()["lines"] == 99])


def test_far_memory_is_compared_with_both_near():
    found = virtual_costs.nodes(rows(Guests(far=(1.0, 1.5, 1.2, 1.7), noise=0.0))).set_index(["memory", "tables"])["over"]
    assert found.to_dict() == {("local", "local"): pytest.approx(1.0), ("remote", "local"): pytest.approx(1.5),
                               ("local", "remote"): pytest.approx(1.2), ("remote", "remote"): pytest.approx(1.7)}
    assert virtual_costs.nodes(rows()).empty


def test_a_chase_that_misses_nothing_costs_the_same_in_a_guest():
    assert virtual_costs.inside_a_cache(rows()).value == pytest.approx(1, abs=0.01)
    with pytest.raises(Unavailable):
        virtual_costs.inside_a_cache(rows(Guests(cells=())))


# --- references


def test_the_formula_and_the_cold_simulation_agree_in_every_cell_and_depth():
    for guest in GUESTS:
        for host in HOSTS:
            for levels, outer in ((4, 4), (4, 5), (5, 4), (5, 5)):
                assert virtual_counts.at_most(guest, host, levels, outer) == virtual_counts.cold(guest, host, levels, outer)
    assert virtual_counts.at_most("4k", "4k") == 24 and virtual_counts.at_most("4k", "4k", 5, 5) == 35
    assert virtual_counts.at_most("2m", "thp") == 15 and virtual_counts.at_most("1g", "1g") == 8
    table = virtual_counts.by_levels().set_index("")
    assert table.loc["guest, 5 levels", "host, 5 levels"] == 35 and table.loc["guest, 4 levels", "host, 4 levels"] == 24


def test_a_shadow_walk_goes_down_to_the_smaller_page():
    assert [virtual_counts.of_shadow(*one) for one in (("4k", "1g"), ("2m", "4k"), ("2m", "1g"), ("1g", "1g"))] == [4, 4, 3, 2]


@pytest.mark.parametrize(("guest", "host"), [("4k", "4k"), ("4k", "2m"), ("2m", "4k"), ("1g", "4k")])
def test_at_1_gib_the_caches_that_nobody_states_hardly_change_a_warm_count(guest: str, host: str):
    counts = [virtual_counts.warm(guest, host, 262144, Stated().host(), scale) for scale in (0.5, 1.0, 2.0)]
    assert max(counts) / min(counts) < 1.12 and min(counts) >= 1 and max(counts) < virtual_counts.at_most(guest, host)


def test_inside_the_tlb_a_warm_chase_makes_no_reference():
    assert virtual_counts.warm("4k", "4k", 512, Stated().host()) == 0
    assert virtual_counts.warm("1g", "1g", 262144, Stated().host()) == 0  # one page
    assert virtual_counts.warm("4k", "4k", 512, Stated(tlb=()).host()) > 0  # CPUID is silent: every load walks


# --- verdicts

REFERENCES, PRACTICAL, SPANS, CONTAINERS = range(4)
H, F, C = "holds", "fails", "cannot tell"


def verdicts(frame: pd.DataFrame) -> list[claims.Verdict]:
    return fit_to_be_shown(virtual_claims.verdicts(frame), 4)


def inflated(factor: float, noise: float = 0.003) -> pd.DataFrame:
    """Each guest's time is so many times that of the plain process on its page size."""
    frame = rows(Guests(far=(), noise=noise))
    plain = frame[(frame["kernel"] == "page_chase") & (frame["mode"] == "")].groupby(["pages", "layout", "lines"])["ns_per_access"].median()
    guest = frame["kernel"] == "guest_chase"
    keys = list(zip(frame["mode"], frame["layout"], frame["lines"], strict=True))
    ours = pd.Series([plain.get(key, np.nan) if inside else np.nan for key, inside in zip(keys, guest, strict=True)], index=frame.index)
    wobble = frame["ns_per_access"] / frame.groupby(["kernel", "mode", "pages", "layout", "lines"])["ns_per_access"].transform("median")
    return frame.assign(ns_per_access=(ours * factor * wobble).fillna(frame["ns_per_access"]))


JUDGED: dict[str, tuple[int, Callable[[], pd.DataFrame], str, str]] = {
    "24": (REFERENCES, lambda: rows(), H, "takes 24 references on base pages over base pages, 8 on 1 GiB"),
    "24 without any guest": (REFERENCES, lambda: rows(Guests(cells=())), H, "35 with five levels on five"),
    "one and a half": (PRACTICAL, lambda: inflated(1.5), H, "12 of 12 pairs"),
    "two and a half": (PRACTICAL, lambda: inflated(2.5), H, "0 of 12 pairs"),
    "four": (PRACTICAL, lambda: inflated(4.0), F, "4.0"),
    "three or not": (PRACTICAL, lambda: inflated(3.0, noise=0.2), C, "pairs"),
    "no native row": (PRACTICAL, lambda: rows(Guests(pages=())), C, "both in a guest and outside"),
    "no guest": (PRACTICAL, lambda: rows(Guests(cells=())), C, "no guest was measured"),
    "the smaller page": (SPANS, lambda: rows(), H, "large pages on both sides"),
    "the smallest of three": (SPANS, lambda: rows(NESTED), C, "this computer's own are in pieces"),
    "one side is enough": (SPANS, lambda: rows().assign(ns_per_access=lambda f: f["ns_per_access"].where(
        (f["kernel"] != "guest_chase") | (f["mode"] != "2m"), 1.0)), F, "more than the smaller"),
    "both sides are in pieces": (SPANS, lambda: pd.concat([rows().query("kernel == 'page_chase'"), rows(NESTED).query(
        "kernel == 'guest_chase'")]), F, "though outside they are whole"),
    "one cell alone": (SPANS, lambda: rows(Guests(cells=(("4k", "4k"),))), C, "steps of base pages"),
    "containers add nothing": (CONTAINERS, lambda: rows(Guests(noise=0.0005)), H, "intervals of the difference hold zero"),
    "containers add a tenth": (CONTAINERS, lambda: rows(Guests(namespaces=1.1)), F, "1.1"),
    "containers in noise": (CONTAINERS, lambda: rows(Guests(noise=0.5)), C, "intervals of the difference"),
    "no containers": (CONTAINERS, lambda: rows().query("mode != 'namespaces'"), C, "0 pairs"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    number, make, verdict, words = JUDGED[name]
    found = verdicts(make())[number]
    assert (found.verdict, words in found.evidence) == (verdict, True), found


# --- sentences

GUEST_KEYS = {"lead", "matrix_said", "references_said", "steps_said", "clocks_said", "touch_said", "levels_said"}
HOST_KEYS = {"translates", "compared", "lacking", "inside_said", "containers_said", "numa_said"}
MACHINES: dict[str, Callable[[], pd.DataFrame]] = {
    "everything": lambda: rows(Guests()), "bare metal": lambda: rows(), "a guest's guest": lambda: rows(NESTED),
    "noise": lambda: rows(Guests(noise=0.5)), "free": lambda: rows(Guests(hit_ns=0.0, reference_ns=0.0)),
    "one cell": lambda: rows(Guests(cells=(("4k", "4k"),), pages=("4k",))), "no pools": lambda: rows(Guests(
        cells=tuple((guest, host) for guest in GUESTS for host in ("4k", "thp")), pages=("4k", "thp"))),
    "a cell without base pages": lambda: rows(Guests(cells=(("1g", "1g"),), pages=("1g",))),
    "no guest": lambda: rows(Guests(cells=())), "no native": lambda: rows(Guests(pages=())), "one repeat": lambda: rows(repeats=1),
    "two repeats": lambda: rows(repeats=2), "tiny": lambda: rows(most=64 << 10), "small": lambda: rows(most=16 * MIB),
    "no controls": lambda: rows().query("layout != 'packed'"), "no clock": lambda: rows(Guests(ghz=0.0)),
    "no results of its own": lambda: rows().drop(columns=["outside_ns_per_access", "first_touch_ns_per_access"]),
    "far alone": lambda: rows(Guests()).query("kernel != 'numa_chase' or mode != 'local-local'"),
    "packed alone": lambda: rows().query("layout == 'packed'"), "nothing": lambda: rows()[:0],
}
KVM: dict[str, Kvm | None] = {
    "old": None, "none": Kvm(device=False, module="", tables="none"), "ept": Kvm(device=True, module="kvm_intel", tables="EPT"),
    "npt": Kvm(device=True, module="kvm_amd", tables="NPT"), "shadow": Kvm(device=True, module="kvm_pvm", tables="shadow"),
    "silent": Kvm(device=True, module="kvm_other", tables="unknown"), "hidden": Kvm(device=False, module="kvm_amd", tables="NPT"),
}


def stated(name: str = "npt", hypervisor: str = "none", **changes: object):
    return Stated(hypervisor=hypervisor, changes={"kvm": KVM[name]} | changes).host()


def readable(said: Mapping[str, float | str], keys: set[str]) -> Mapping[str, float | str]:
    assert said.keys() == keys
    for name, words in said.items():
        assert isinstance(words, Prose) and words.rstrip().endswith("."), (name, words)
        assert not HOLE.search(words) and not re.search(r"[a-z],? \.|\.\.|,\.", words), (name, words)
    return said


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_every_sentence_and_every_verdict(name: str):
    frame = MACHINES[name]()
    readable(virtual_words.of_guests(frame, stated()), GUEST_KEYS)
    readable(virtual_host_words.say(frame, stated(), ["A note."]), HOST_KEYS)
    verdicts(frame)


@pytest.mark.parametrize("tables", KVM)
@pytest.mark.parametrize("hypervisor", ["none", "kvm", "unknown"])
def test_every_kind_of_kvm_has_every_sentence(tables: str, hypervisor: str):
    for name in ("everything", "no guest"):
        readable(virtual_host_words.say(MACHINES[name](), stated(tables, hypervisor)), HOST_KEYS)


cells_of = st.sets(st.sampled_from(CELLS)).map(lambda some: tuple(one for one in CELLS if one in some))


@given(cells_of, st.sets(st.sampled_from(HOSTS)), st.sampled_from([GIB, 64 << 10]), st.integers(1, 3), st.booleans(),
       st.booleans())
@settings(max_examples=15, deadline=None)
def test_whatever_is_missing_there_are_all_sentences(cells: tuple, pages: set, most: int, repeats: int, shadow: bool, controls: bool):
    frame = rows(NESTED if shadow else Guests(), most, 3, 1)
    guest = (frame["kernel"] == "guest_chase") & ~pd.MultiIndex.from_frame(frame[["mode", "pages"]]).isin(list(cells))
    plain = (frame["kernel"] == "page_chase") & ~frame["pages"].isin(list(pages))
    kept = frame[~guest & ~plain & (frame["repeat"] < repeats) & (controls | (frame["layout"] == "spread"))]
    readable(virtual_words.of_guests(kept, stated("shadow")), GUEST_KEYS)
    readable(virtual_host_words.say(kept, stated("shadow", "kvm")), HOST_KEYS)
    verdicts(kept)


def test_the_lead_has_the_medians_of_base_pages_on_base_pages_and_of_the_cheapest_pair():
    said = virtual_words.of_guests(rows(), stated())["lead"]
    guest, plain, best = chased(rows(), "4k", "4k", 262144), chased(rows(), "", "4k", 262144), chased(rows(), "1g", "1g", 262144)
    assert "of 1 GiB: in a guest with 4k pages on the host's 4k pages a dependent load takes" in said
    assert f"takes {guest:.0f} ns, {guest / plain:.2f} times" in said
    assert f"with {best:.0f} ns." in said
    alone = virtual_words.of_guests(MACHINES["one cell"](), stated())["lead"]
    assert "cheapest" not in alone


def test_a_shadowing_kvm_is_told_from_hardware_that_walks_two_dimensions():
    frame = rows(NESTED)
    assert "The processor here does not make these walks" in virtual_words.of_guests(frame, stated("shadow"))["references_said"]
    assert "Walk caches and nested TLBs are why" in virtual_words.of_guests(rows(), stated("npt"))["references_said"]
    shadow, npt = (virtual_host_words.say(frame, stated(one, "kvm")) for one in ("shadow", "npt"))
    assert "`kvm_pvm`, and it keeps shadow tables" in shadow["translates"] and "compares a guest with a guest" in shadow["compared"]
    assert "NPT is on" in npt["translates"] and "fold two of the three tables into one" in npt["compared"]
    bare = virtual_host_words.say(frame, stated("ept"))
    assert "EPT is on" in bare["translates"] and bare["compared"].endswith("the ratio is the price of the second.")
    assert "No module of KVM" in virtual_host_words.translates(stated("none"))
    assert "no /dev/kvm" in virtual_host_words.translates(stated("hidden"))
    assert "aarch64" in virtual_host_words.translates(stated("none", arch="aarch64"))


def test_what_is_lacking_is_named_with_the_reasons_of_this_run():
    whole = virtual_host_words.lacking(rows(), stated(), [])
    assert whole == "This machine gave all 12 pairs of page sizes."
    note = explain("pool-empty", "needed 2, free 0")
    some = virtual_host_words.lacking(MACHINES["no pools"](), stated(), [note, note, "A note."])
    assert some.startswith("No rows lie on 4k on 2m, 4k on 1g,") and some.splitlines()[2:] == [f"- {note}"]
    none = virtual_host_words.lacking(rows(Guests(cells=())), stated("hidden"), [])
    assert none == "No guest was measured on this machine. It has no /dev/kvm."
    numba = virtual_host_words.lacking(rows(Guests(cells=())), stated(), [explain("engine-lacks", "guest_chase")])
    assert "- " + explain("engine-lacks", "guest_chase") in numba


@pytest.mark.parametrize(("hypervisor", "backing", "words"), [
    ("none", None, "says that it is no guest"), ("kvm", None, "nothing was measured"),
    ("kvm", Backing(verdict="splintered by the host", evidence="It is so."), "**splintered by the host**. It is so."),
    ("unknown", None, "which could not be told,")])
def test_the_inside_view_is_what_large_pages_say_of_the_host(hypervisor: str, backing: Backing | None, words: str):
    assert words in virtual_host_words.inside(stated(hypervisor=hypervisor), backing)


def test_containers_and_nodes_are_told_with_their_ratios():
    said = virtual_host_words.say(rows(Guests()), stated())
    assert "Namespaces change what a process sees" in said["containers_said"] and "6 intervals" in said["containers_said"]
    assert "1.5" in said["numa_said"] and "with remote memory and local page tables" in said["numa_said"]
    assert virtual_host_words.say(rows(), stated())["numa_said"] == explain("single-node")
    assert "no page table explains it" in virtual_host_words.say(rows(Guests(namespaces=1.2)), stated())["containers_said"]
    near = virtual_host_words.say(rows(Guests(namespaces=1.005, noise=0.0001)), stated())["containers_said"]
    assert "misses one by less than a hundredth" in near
    assert "too much to rule out" in virtual_host_words.say(rows(Guests(noise=0.5)), stated())["containers_said"]


def test_two_clocks_that_disagree_are_called_so():
    assert "More than that is lost" in virtual_words.of_guests(rows(Guests(outside=1.2)), stated())["clocks_said"]
    assert "More than that" not in virtual_words.of_guests(rows(), stated())["clocks_said"]


# --- figures

FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "guest_matrix": virtual_figures.matrix, "guest_lines": lambda f: virtual_figures.lines(f, ENTRIES),
    "guest_steps": lambda f: virtual_figures.steps(f, []), "guest_ratios": virtual_figures.ratios,
    "guest_references": lambda f: virtual_figures.references(virtual_counts.counted(virtual.at(virtual.matrix(f)), stated())),
}
DRAWN = ["everything", "a guest's guest", "noise", "free", "one cell", "no pools", "a cell without base pages", "one repeat", "tiny",
         "no clock"]


@pytest.mark.parametrize("machine", DRAWN)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_on_every_machine_that_has_its_rows(name: str, machine: str):
    if machine == "a cell without base pages" and name in ("guest_lines", "guest_steps"):
        with pytest.raises(Unavailable):
            FIGURES[name](MACHINES[machine]())
        return
    figure = FIGURES[name](MACHINES[machine]())
    json.dumps(figure.spec(), allow_nan=False)
    assert Elements(figure.svg()).tags.count("svg") == 1 and figure.name == name and len(figure.data)
    assert not HOLE.search(figure.alt) and figure.alt.endswith(".")


@pytest.mark.parametrize(("name", "machine"), [
    ("guest_matrix", "no guest"), ("guest_ratios", "no native"), ("guest_references", "no controls"), ("guest_steps", "no controls"),
    ("guest_lines", "nothing")])
def test_a_figure_without_rows_is_a_reason(name: str, machine: str):
    with pytest.raises(Unavailable) as why:
        FIGURES[name](MACHINES[machine]())
    assert why.value.code == "too-few-points"


def test_the_heat_map_shows_each_cell_once_a_size_with_the_plain_process_beside_it():
    data = virtual_figures.matrix(rows()).data
    assert len(data) == 3 * 3 * 5 and not data.duplicated(["guest", "host", "lines"]).any()
    text = Elements(virtual_figures.matrix(rows()).svg()).text
    assert f"{chased(rows(), '4k', '4k', 262144):.3g}" in "".join(text)


def test_a_guest_that_was_not_measured_leaves_the_plain_lines():
    assert set(virtual_figures.lines(rows(Guests(cells=())), ENTRIES).data["series"]) == {"no guest, 4k", "no guest, thp"}


# --- sections

PUBLISHED = pd.DataFrame({
    "quantity": ["guest over native cost", "remote over local latency", "references of a cold nested walk"], "low_ratio": [2, 1.5, None],
    "high_ratio": [3, 1.5, None], "references_count": [None, None, 24]})


class Told:
    """A chapter about a made-up machine beside a reference machine."""

    name, machine, notes = "virtualization", "here", ()

    def __init__(self, frame: pd.DataFrame, reference: pd.DataFrame | None = None, **changes: object) -> None:
        self.frame, self.host = frame, stated(**changes)
        self.store = SimpleNamespace(
            resolve=lambda name: "there", read_machine=lambda name: stated("shadow", "kvm").model_dump(mode="json"),
            load=lambda machine, name: reference if reference is not None and name == "virtualization" else pd.DataFrame())


def test_a_machine_with_a_guest_shows_its_own():
    about = virtual_sections.subject(Told(rows(), rows(NESTED)), rows())
    assert about.whose == "" and about.frame is rows() and about.entries == ENTRIES


def test_a_machine_without_one_shows_the_reference_machines_and_says_so():
    mine = rows(Guests(cells=(), far=()))
    chapter = Told(mine, rows(NESTED).assign(state="0" * 12), name="hidden")
    about = virtual_sections.subject(chapter, mine)
    assert "those of the reference machine: Imaginary Processor 9000" in about.whose and virtual.cells(about.frame) == CELLS
    assert about.host.kvm.tables == "shadow"
    said = virtual_sections.say(chapter, mine, about, PUBLISHED)
    assert said.keys() == GUEST_KEYS | HOST_KEYS | {"whose", "numa_published", "practical_low", "practical_high", "most_references"}
    assert said["translates"].startswith("`kvm_amd` says") and "does not make these walks" in said["references_said"]
    assert (said["numa_published"], said["practical_low"], said["practical_high"], said["most_references"]) == (1.5, 2.0, 3.0, 24.0)
    text = virtual_sections.verdicts(mine, about).text.splitlines()
    assert all("On the reference machine." in line for line in text[:3]) and "On the reference" not in text[3]


@pytest.mark.parametrize("reference", [None, rows(Guests(cells=()))])
def test_without_a_guest_anywhere_each_section_is_a_reason(reference: pd.DataFrame | None, monkeypatch: pytest.MonkeyPatch):
    mine, kept = rows(Guests(cells=(), far=())), {}
    monkeypatch.setattr(figures, "glue", lambda name, what, display=True: kept.update({name: what}))
    chapter = Told(mine, reference)
    about = virtual_sections.subject(chapter, mine)
    assert about.whose == ""
    for make in (virtual_sections.show_matrix, virtual_sections.show_ratios, virtual_sections.show_references):
        make(about)
    assert set(kept) == {"guest_matrix", "guest_ratios", "guest_references"} and all(isinstance(one, Html) for one in kept.values())
    readable({k: v for k, v in virtual_sections.say(chapter, mine, about, PUBLISHED).items() if k in GUEST_KEYS}, GUEST_KEYS)
    for table in (virtual_sections.counts_table(about), virtual_sections.touch_table(about)):
        assert "Not on this machine" in table.text
    assert "difference" in virtual_sections.containers_table(mine).text
    assert "Not on this machine" in virtual_sections.containers_table(mine[:0]).text


def test_each_section_shows_its_figure_or_table(monkeypatch: pytest.MonkeyPatch):
    kept: dict[str, object] = {}
    monkeypatch.setattr(figures, "glue", lambda name, what, display=True: kept.update({name: what}))
    about = virtual_sections.subject(Told(rows()), rows())
    for make in (virtual_sections.show_matrix, virtual_sections.show_lines, virtual_sections.show_ratios, virtual_sections.show_steps,
                 virtual_sections.show_references):
        make(about)
    assert len(kept) == 5 and all(isinstance(one, Figure) for one in kept.values())
    assert len(virtual_sections.counts_table(about).text.splitlines()) == 13
    assert len(virtual_sections.touch_table(about).text.splitlines()) == 13
    assert virtual_sections.verdicts(rows(), about).text.count("\n") == 3


@pytest.mark.parametrize(("outside", "truth", "words"), [
    ((0.9, 0.8, 1.0), None, "own are in pieces"), ((0.1, 0.0, 0.2), False, "outside they are whole"), ((0.6, 0.3, 1.1), None, "is open")])
def test_pieces_on_both_sides_are_held_against_large_pages_that_are_whole_outside_and_no_others(outside: tuple, truth, words: str):
    def share(guest: str, host: str, *bounds: float) -> virtual_entries.Share:
        return virtual_entries.Share(guest, host, Interval(*bounds, 0.95), (91, 1024))

    inside = [share(guest, host, 0.9, 0.8, 1.0) for guest, host in (("4k", "thp"), ("2m", "4k"), ("2m", "thp"))]
    found = virtual_claims.spans([share("", "thp", *outside), *inside])
    assert found[0] is truth and words in found[1]


def test_a_guest_of_five_levels_is_set_beside_one_of_four_and_never_counted_with_it():
    five = rows(Guests(five=1.25))
    lines, ratio = virtual_costs.five_levels(five)
    assert lines == GIB // 4096 and ratio.value == pytest.approx(1.25, rel=0.01)
    assert "with five levels a load over 1 GiB takes 1.25 times" in virtual_words.of_guests(five, stated())["levels_said"]
    assert "in a walk cache" in virtual_words.of_guests(rows(Guests(five=1.0)), stated())["levels_said"]
    assert "No guest with five levels was measured" in virtual_words.of_guests(rows(), stated())["levels_said"]
    pd.testing.assert_frame_equal(virtual.matrix(five), virtual.matrix(five[five["levels"] != 5].drop(columns="levels")))


# --- the grid

profiles = st.tuples(st.integers(64 << 10, 2**33), st.integers(1, 4), st.sampled_from(["c", "numba"]),
                     st.sampled_from([(), (16,), (64, 1536), (72, 3072), (32, 64)]))


@given(profiles)
@settings(deadline=None)
def test_every_spread_chase_has_its_packed_control_and_nothing_is_too_large(profile: tuple):
    found = points(*profile)
    assert len(found) == len(set(found)) and {point.engine for point in found} == {profile[2]}
    spread = {point for point in found if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == set(found) - spread
    assert all(point.lines * 4096 <= max(profile[0], 64 << 10) for point in found)
    assert all(Point.model_validate_json(point.model_dump_json()) == point for point in found[:20])


@given(profiles)
@settings(deadline=None)
def test_each_size_of_the_matrix_has_all_twelve_cells_the_plain_process_and_one_in_namespaces(profile: tuple):
    found = {(p.kernel, p.mode, p.pages, p.lines) for p in points(*profile) if p.layout == "spread"}
    for lines in {n for kernel, mode, _, n in found if mode == "namespaces"}:
        assert {("guest_chase", guest, host, lines) for guest, host in CELLS} <= found
        assert {("page_chase", "", host, lines) for host in HOSTS} <= found
    assert {mode for kernel, mode, *_ in found if kernel == "numa_chase"} == set(grids.NODES)


def test_the_matrix_begins_inside_the_stlb_and_ends_at_the_limit():
    def sizes(*how: object) -> list[int]:
        return sorted({p.lines for p in points(*how) if p.mode == "namespaces"})

    assert sizes(4 * GIB, 2) == [512, 16384, 262144] and sizes(4 * GIB, 4) == [512, 16384, 65536, 262144, 1048576]
    assert sizes(256 * MIB, 2) == [512, 16384, 65536] and sizes(16 * MIB, 1) == [512, 4096]
    assert sizes(4 * GIB, 2, "c", ()) == [1024, 16384, 262144] and sizes(64 << 10, 2) == [16]


def test_the_numba_engine_has_the_plain_sizes_and_no_fine_grid():
    fine = {p.lines for p in points(engine="numba") if p.kernel == "page_chase"}
    assert fine == {512, 16384, 262144}


# --- what translates here


def planted(root: Path, module: str = "", parameter: str = "", value: str = "", device: bool = True) -> Path:
    if module:
        folder = root / "sys/module" / module / "parameters"
        folder.mkdir(parents=True)
        if parameter:
            (folder / parameter).write_text(value)
    if device:
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev/kvm").write_text("")
    return root


@pytest.mark.parametrize(("module", "parameter", "value", "flags", "expected"), [
    ("kvm_intel", "ept", "Y\n", {"vmx"}, ("kvm_intel", "EPT")), ("kvm_intel", "ept", "N\n", {"vmx"}, ("kvm_intel", "shadow")),
    ("kvm_amd", "npt", "1\n", {"svm"}, ("kvm_amd", "NPT")), ("kvm_amd", "npt", "0\n", {"svm"}, ("kvm_amd", "shadow")),
    ("kvm_amd", "", "", {"svm"}, ("kvm_amd", "unknown")), ("kvm_amd", "npt", "perhaps", {"svm"}, ("kvm_amd", "unknown")),
    ("kvm_intel", "ept", "Y\n", set(), ("", "none")), ("kvm_pvm", "", "", set(), ("kvm_pvm", "shadow")),
    ("kvm_other", "", "", set(), ("kvm_other", "unknown")), ("", "", "", {"vmx"}, ("", "none"))])
def test_kvms_module_says_what_translates(tmp_path: Path, module: str, parameter: str, value: str, flags: set, expected: tuple):
    found = kvm.look(planted(tmp_path, module, parameter, value), flags)
    assert (found.module, found.tables, found.device) == (*expected, True)
    assert kvm.describe(found).strip() == kvm.describe(found) != ""


def test_a_built_in_module_of_another_cpu_does_not_serve(tmp_path: Path):
    planted(planted(tmp_path, "kvm_amd", "npt", "1"), "kvm_pvm", device=False)
    assert kvm.look(tmp_path, {"vmx"}).module == "kvm_pvm" and kvm.look(tmp_path, {"svm"}).tables == "NPT"


def test_without_the_device_it_is_said(tmp_path: Path):
    assert kvm.describe(kvm.look(planted(tmp_path, "kvm_amd", "npt", "1", device=False), {"svm"})) == "kvm_amd with NPT, but no /dev/kvm"
    assert kvm.describe(kvm.look(tmp_path / "nothing", ())) == "no module, no /dev/kvm"


def test_kvm_is_no_part_of_a_machines_id_or_state():
    from experiments.machine import doctor
    from experiments.machine.host import machine_id, state

    with_it, without = stated("npt"), stated("old")
    assert machine_id(with_it) == machine_id(without) and state(with_it) == state(without)
    assert dict(doctor.describe(with_it))["KVM"] == "kvm_amd with NPT" and "KVM" not in dict(doctor.describe(without))


def test_a_description_from_before_this_question_still_validates():
    from experiments.machine.host import Host

    old = {name: value for name, value in stated("old").model_dump(mode="json").items() if name != "kvm"}
    assert Host.model_validate(old).kvm is None


def test_every_reason_of_a_guest_that_is_known_is_one():
    assert {code for code in virtual_host_words.GUEST_REASONS if code in REASONS} >= {"engine-lacks", "kernel-hung"}
    assert tlbs()[0].entries == ENTRIES[0] == virtual_sections.Subject(rows(), stated(), "").entries[0]
