"""The translation profile: its quantities on a machine whose truth is known, why it lacks others,
its document."""

import json
from functools import cache
from types import ModuleType
from typing import Any

import jsonschema
import pandas as pd
import pytest
from support import chapter, faults, geometry, guests, page_sizes, synthetic
from support.common import ROOT, About
from support.page_sizes import Paged
from support.synthetic import Stated, Truth

from experiments import hugepages, page_faults, stlb_cliff, virtualization
from experiments.overview import profile as room
from experiments.overview.profile import TranslationProfile, profile_of_analyses
from tlb.measure import survey
from tlb.measure.store import Store
from tlb.report.chapter import Chapter
from tlb.system.reasons import REASON_TEXTS, Unavailable

DEFAULTS = chapter.DEFAULTS | {"minutes": 0.0}
TRUTH, PAGED = Truth(noise=0.003), Paged(noise=0.003)
FAR = room.FAR_BYTES // 4096
ROWS = {
    stlb_cliff: lambda: synthetic.frame(TRUTH),
    hugepages: lambda: PAGED.frame(page_sizes.hugepages()),
    page_faults: faults.rows,
    virtualization: guests.rows,
}


@cache
def rows(module: ModuleType) -> pd.DataFrame:
    return ROWS[module]()


@cache
def surveyed() -> pd.DataFrame:
    return geometry.rows(geometry.SHARP, "4k", 1)


def of(*modules: ModuleType, **stated: Any) -> Any:
    kept = {survey.NAME: surveyed()}
    about = About(Stated(**stated).host(), rows=kept)

    def analysis(module: ModuleType) -> Any:
        if module not in modules:
            raise Unavailable("no-data", module.__name__)
        return module.Analysis(rows(module), about)

    return cache(analysis)


@cache
def whole() -> TranslationProfile:
    return profile_of_analyses("made-up", of(*ROWS))


# --- what it says of a machine


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("load_first_level", TRUTH.load_ns),
        ("hit_last_level", TRUTH.hit_ns),
        ("walk_past_last_level", TRUTH.hit_ns + TRUTH.walk_ns),
        ("walk_over_2_gib", TRUTH.hit_ns + TRUTH.walk_ns),
        ("stated_level_1", 64),
        ("stated_level_2", 1536),
    ],
)
def test_a_load_costs_what_the_machine_takes(name, value):
    assert whole()[name].value == pytest.approx(value, rel=0.03)


def test_a_walk_is_told_in_ns_by_the_clock_beside_the_survey():
    found = of(stlb_cliff)(stlb_cliff).survey
    costs = {walk.table_in: walk.cost.value for walk in found.walks if walk.cost}
    ghz = surveyed()["core_ghz"].median()
    assert costs and found.unit == "cycles"
    for place, cycles in costs.items():
        assert whole()[f"walk_table_{place.lower()}"].value == pytest.approx(cycles / ghz, rel=0.01)


@pytest.mark.parametrize("pages", ["64k", "thp", "2m", "1g"])
def test_a_gain_is_the_chase_s_time_on_base_pages_over_that_on_larger_ones(pages):
    chase = rows(hugepages).query(
        "kernel == 'page_chase' and layout == 'spread' and order == 'cycle' and lines == @FAR"
    )
    times = chase.groupby("pages")["ns_per_access"].median()
    assert whole()[f"gain_{pages}"].value == pytest.approx(times["4k"] / times[pages], rel=1e-4)
    assert (
        whole()["gain_2m"].value > 1.3 * whole()["gain_64k"].value
    )  # a page of 64 KiB reaches no farther here than 1,536 of them


# --- what it lacks


def test_what_is_lacking_has_its_reason_and_no_value():
    made = profile_of_analyses("made-up", of(stlb_cliff))
    for quantity in made.quantities:
        assert (quantity.value is None) == (quantity.reason in REASON_TEXTS)
        assert quantity.reason is None or (quantity.low, quantity.high, quantity.coverage) == (
            None,
            None,
            None,
        )
    known = {quantity.part for quantity in made.quantities if quantity.value is not None}
    assert known == {"levels", "entries", "walk by place"}
    assert [quantity.name for quantity in made.quantities] == [
        quantity.name for quantity in whole().quantities
    ]


# --- its document

PUBLISHED = Store(ROOT / "data")
MACHINES = PUBLISHED.machines()


def committed(machine: str) -> TranslationProfile:
    return room.read_translation_profile(PUBLISHED, machine)


@pytest.mark.parametrize(
    "machine",
    [
        name if name == PUBLISHED.reference() else pytest.param(name, marks=pytest.mark.endurance)
        for name in MACHINES
    ],
)
def test_committed_profiles_are_those_of_the_committed_rows(machine):
    """Else: `tlb refresh index`."""
    made = room.profile_of_chapter(Chapter(room.PAGE, DEFAULTS | {"machine": machine}, PUBLISHED))
    assert made == committed(machine), "run `tlb refresh index`"
    assert room.is_profile_current(PUBLISHED, made)


@pytest.mark.parametrize("machine", MACHINES)
def test_committed_profiles_are_as_the_published_schema_has_them(machine):
    schema = json.loads((ROOT / "data" / room.PROFILE_SCHEMA_FILE).read_text(encoding="utf-8"))
    document = json.loads(
        (ROOT / "data" / machine / "translation.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    for wrong in ({"version": 2}, {"more": 1}, {"quantities": [{"name": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document | wrong, schema)
    assert schema == json.loads(room.schema()), "run `tlb refresh index`"
