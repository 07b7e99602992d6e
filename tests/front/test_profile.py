"""The translation profile: its quantities on a machine whose truth is known, why it lacks others, its document, figure and comparison."""

from __future__ import annotations

import io
import json
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import jsonschema
import nbformat
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from support import faults, geometry, guests, synthetic
from support.common import ROOT, About
from support.synthetic import Paged, Stated, Truth

from experiments.article.chapter import Chapter
from experiments.chapters import hugepages, page_faults, stlb_cliff, virtualization, your_machine
from experiments.front import compare, compare_words, profile_figure, profiles
from experiments.front import profile as room
from experiments.front.profile import Profile, Quantity, profile
from experiments.inference.intervals import median_interval
from experiments.lab.store import Store
from experiments.words.reasons import REASONS, Unavailable

DEFAULTS = {"profile": "quick", "max_working_set": "profile", "repeats": 0, "minutes": 0.0, "engine": "auto"}
TRUTH, PAGED = Truth(noise=0.003), Paged(noise=0.003)
FAR = room.FAR_BYTES // 4096
ROWS = {
    stlb_cliff: lambda: synthetic.frame(TRUTH), hugepages: lambda: PAGED.frame(synthetic.hugepages()), page_faults: faults.rows,
    virtualization: guests.rows, your_machine: lambda: geometry.rows(geometry.SHARP, "4k", 1)}


@cache
def rows(module: ModuleType) -> pd.DataFrame:
    return ROWS[module]()


def of(*modules: ModuleType, **stated: Any) -> Any:
    about = About(Stated(**stated).host())

    def analysis(module: ModuleType) -> Any:
        if module not in modules:
            raise Unavailable("no-data", module.__name__)
        return module.Analysis(rows(module), about)
    return cache(analysis)


@cache
def whole() -> Profile:
    return profile("made-up", of(*ROWS))


# --- what it says of a machine


@pytest.mark.parametrize(("name", "value"), [
    ("load_first_level", TRUTH.load_ns), ("hit_last_level", TRUTH.hit_ns), ("walk_past_last_level", TRUTH.hit_ns + TRUTH.walk_ns),
    ("walk_over_2_gib", TRUTH.hit_ns + TRUTH.walk_ns), ("stated_level_1", 64), ("stated_level_2", 1536)])
def test_a_load_costs_what_the_machine_takes(name: str, value: float):
    assert whole()[name].value == pytest.approx(value, rel=0.03)


def test_the_entries_are_those_that_the_survey_finds():
    assert [whole()[f"entries_level_{level}"].value for level in (1, 2)] == pytest.approx([64, 1536], rel=0.03)


def test_a_walk_is_told_in_ns_by_the_clock_beside_the_survey():
    a = your_machine.Analysis(rows(your_machine), About(Stated().host()))
    costs = {walk.table_in: walk.cost.value for walk in a.geometry.walks if walk.cost}
    ghz = rows(your_machine)["core_ghz"].median()
    assert costs and a.geometry.unit == "cycles"
    for place, cycles in costs.items():
        assert whole()[f"walk_table_{place.lower()}"].value == pytest.approx(cycles / ghz, rel=0.01)


@pytest.mark.parametrize("pages", ["64k", "thp", "2m", "1g"])
def test_a_gain_is_the_chase_s_time_on_base_pages_over_that_on_larger_ones(pages: str):
    chase = rows(hugepages).query("kernel == 'page_chase' and layout == 'spread' and order == 'cycle' and lines == @FAR")
    times = chase.groupby("pages")["ns_per_access"].median()
    assert whole()[f"gain_{pages}"].value == pytest.approx(times["4k"] / times[pages], rel=1e-4)
    assert whole()["gain_2m"].value > 1.3 * whole()["gain_64k"].value  # a page of 64 KiB reaches no farther here than 1,536 of them


def test_a_first_touch_is_that_of_its_way():
    table = rows(page_faults).query("kernel == 'page_fault' and populate == 0 and written == 1 and order == 'cycle'")
    times = table.groupby(["mode", "pages"])["ns_per_access"].median()
    found = {name: whole()[f"fault_{name}"].value for name in ("fresh", "fresh_large", "file")}
    medians = {"fresh": times["anonymous", "4k"], "fresh_large": times["anonymous", "thp"], "file": times["file", "4k"]}
    assert found == pytest.approx(medians, rel=1e-4)


def test_a_guest_is_beside_a_process_on_its_own_page_size():
    frame, lines = rows(virtualization), room.GUEST_BYTES // 4096
    for guest, host, alike in (("4k", "4k", "4k"), ("2m", "4k", "2m"), ("2m", "2m", "2m")):
        times = guests.chased(frame, guest, host, lines), guests.chased(frame, "", alike, lines)
        assert whole()[f"guest_{guest}_on_{host}"].value == pytest.approx(times[0] / times[1], rel=1e-4)


def test_bounds_hold_the_value_and_cover_what_five_processes_do():
    known = [quantity for quantity in whole().quantities if quantity.value is not None]
    assert len(known) > 20
    assert all(quantity.low <= quantity.value <= quantity.high and quantity.coverage > 0.5 for quantity in known)


def test_the_same_rows_in_another_order_are_the_same_profile():
    about = About(Stated().host())
    again = profile("made-up", cache(lambda module: module.Analysis(rows(module).sample(frac=1, random_state=3), about)))
    assert again == whole()


# --- what it lacks


def test_what_is_lacking_has_its_reason_and_no_value():
    made = profile("made-up", of(stlb_cliff))
    for quantity in made.quantities:
        assert (quantity.value is None) == (quantity.reason in REASONS)
        assert quantity.reason is None or (quantity.low, quantity.high, quantity.coverage) == (None, None, None)
    assert {quantity.part for quantity in made.quantities if quantity.value is not None} == {"levels"}
    assert [quantity.name for quantity in made.quantities] == [quantity.name for quantity in whole().quantities]


def test_without_geometry_stated_or_found_the_levels_are_not_told():
    made = profile("made-up", of(stlb_cliff, tlb=()))
    assert made["load_first_level"].value and made["hit_last_level"].reason == "no-geometry"


def test_a_short_sweep_has_no_far_walk(monkeypatch: pytest.MonkeyPatch):
    short = synthetic.frame(TRUTH, synthetic.grid(64 << 20))
    made = profile("made-up", lambda module: stlb_cliff.Analysis(short, About(Stated().host())) if module is stlb_cliff else of()(module))
    assert made["walk_past_last_level"].value and made["walk_over_2_gib"].reason == "too-few-points"


# --- its document

MACHINES = Store(ROOT / "data").machines()


def committed(machine: str) -> Profile:
    return room.read(Store(ROOT / "data"), machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_committed_profiles_are_those_of_the_committed_rows(machine: str):
    """Else: `tlb refresh index`."""
    made = room.of_chapter(Chapter(room.PAGE, DEFAULTS | {"machine": machine}, Store(ROOT / "data")))
    assert made == committed(machine), "run `tlb refresh index`"
    assert room.is_current(Store(ROOT / "data"), made)


@pytest.mark.parametrize("machine", MACHINES)
def test_committed_profiles_are_as_the_published_schema_has_them(machine: str):
    schema = json.loads((ROOT / "data" / room.SCHEMA).read_text(encoding="utf-8"))
    document = json.loads((ROOT / "data" / machine / "translation.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    for wrong in ({"version": 2}, {"more": 1}, {"quantities": [{"name": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document | wrong, schema)
    assert schema == json.loads(room.schema()), "run `tlb refresh index`"


def test_the_first_page_shows_the_reference_s_document():
    cells = nbformat.read(ROOT / "book" / "index.ipynb", 4).cells
    (shown,) = [html for cell in cells for output in cell.get("outputs", [])
                if 'id="tlb-figure-index_profile"' in (html := output.get("data", {}).get("text/html", ""))]
    link = BeautifulSoup(shown, "html.parser").select_one("a[download]")["href"].partition(",")[2]
    data = pd.read_csv(io.StringIO(unquote(link))).set_index("name")
    known = committed(Store(ROOT / "data").reference())
    assert data["value"].to_dict() == {quantity.name: quantity.value for quantity in known.quantities
                                       if quantity.value is not None and quantity.part != "entries"}


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2}', '{"version": 1, "machine": "a", "quantities": [{"name": "A B"}]}'])
def test_a_document_that_is_none_is_a_reason(tmp_path: Path, content: str):
    (tmp_path / "zen-3-aaaaaaaa").mkdir()
    (tmp_path / "zen-3-aaaaaaaa" / "translation.json").write_text(content)
    with pytest.raises(Unavailable) as why:
        room.read(Store(tmp_path), "zen-3-aaaaaaaa")
    assert why.value.code == "no-data"


# --- its figure


def test_the_figure_has_a_row_for_each_quantity_that_there_is():
    figure = profile_figure.drawn(whole())
    known = {quantity.name: quantity.value for quantity in whole().quantities if quantity.value is not None and quantity.part != "entries"}
    assert dict(zip(figure.data["name"], figure.data["value"], strict=True)) == known
    assert ", 64 entries" in figure.data["what"].iloc[0] and figure.data["what"].is_unique
    assert len(figure.data) == len(profile_figure.drawn(profile("made-up", of(stlb_cliff))).data) + len(known) - 4


def test_its_words_name_what_is_dearest_and_what_helps_most():
    told = profile_figure.drawn(whole()).alt
    gains = {quantity.words: quantity.value for quantity in whole().quantities if quantity.part == "pages"}
    assert f"{max(gains, key=gains.get)} gain most: {max(gains.values()):.2f}" in told
    assert "nan" not in told and "None" not in told


def test_a_machine_without_any_has_no_figure_and_the_page_says_why():
    with pytest.raises(Unavailable, match="no quantity of the profile"):
        profile_figure.drawn(profile("made-up", of()))


# --- two of them


def drawn(random: np.random.Generator, factor: float = 1.0, processes: int = 9, noise: float = 0.02) -> Profile:
    """Twenty quantities of a machine, measured once more."""
    quantities = []
    for place in range(20):
        found = median_interval((1 + place) * factor * np.exp(noise * random.standard_normal(processes)))
        quantities.append(Quantity(name=f"q_{place}", part="levels", words=f"quantity {place}", unit="ns", value=found.value, low=found.low,
                                   high=found.high, coverage=found.coverage))
    return Profile(machine="made-up", quantities=tuple(quantities))


def words(factor: float, **how: Any) -> Counter[str]:
    random = np.random.default_rng(7)
    return sum((Counter(pair.verdict for pair in profiles.beside(drawn(random, **how), drawn(random, factor, **how)))
                for _ in range(20)), Counter())


def test_a_machine_seldom_differs_from_itself_and_a_fifth_is_found():
    assert words(1.0)[profiles.DIFFERS] <= 0.05 * 20 and words(1.0)[profiles.SAME] > 0.9 * 400  # of 20 comparisons one may err
    assert words(1.2)[profiles.DIFFERS] >= 0.9 * 400
    assert words(1.2, processes=4) == {profiles.UNKNOWN: 400} and words(1.0, noise=0.3)[profiles.SAME] == 0


def test_what_is_exact_differs_where_it_does_and_what_has_no_ratio_cannot_be_told():
    def one(name: str, value: float, low: float, high: float) -> Quantity:
        return Quantity(name=name, part="entries", words=name, unit="entries", value=value, low=low, high=high, coverage=1.0)

    a = Profile(machine="a", quantities=(one("same", 64, 64, 64), one("more", 64, 64, 64), one("free", -0.1, -0.2, 0.1)))
    b = Profile(machine="b", quantities=(one("more", 72, 72, 72), one("same", 64, 64, 64), one("free", 1.0, 0.9, 1.1), one("b", 1, 1, 1)))
    assert {pair.a.name: pair.verdict for pair in profiles.beside(a, b)} == {
        "same": profiles.SAME, "more": profiles.DIFFERS, "free": profiles.UNKNOWN}


def test_compare_begins_with_the_profiles_of_whole_machines_and_of_nothing_else():
    first, second = MACHINES[0], MACHINES[-1]
    stores = Store(ROOT / "data")
    found = profiles.of_machines((stores, first), (stores, second))
    whole = compare.Comparison(*[compare.Side(name, name, stores, pd.DataFrame({"state": ["a"]}), {}) for name in (first, second)],
                               [], [], [], found)
    table = next(part for part in compare_words.told(whole) if isinstance(part, pd.DataFrame))
    assert len(table) == len(found) > 10 and list(table.columns)[0] == "profile"
    told = compare_words.as_json(whole)["profile"]
    assert [one["name"] for one in told] == [pair.a.name for pair in found]
    json.dumps(told, allow_nan=False)


def test_a_profile_of_other_rows_is_not_compared(tmp_path: Path):
    store = Store(tmp_path)
    for machine in ("zen-3-aaaaaaaa", "zen-5-bbbbbbbb"):
        store.write_machine(machine, {"of": machine})
        room.keep(store, whole().model_copy(update={"machine": machine}))
    sides = [(store, machine) for machine in store.machines()]
    assert len(profiles.of_machines(*sides)) > 20
    store.write_document("zen-3-aaaaaaaa", "flags", {"known": True})
    assert profiles.of_machines(*sides) == []
