"""The verdicts on claims whose truth is known."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from support import chapter
from support.campaigns import put
from support.common import make_record
from support.synthetic import Stated

from experiments.overview import machine_verdicts
from experiments.overview.machine_verdicts import RoundedEffect
from tlb.measure.store import Store
from tlb.report import analysis
from tlb.report import claims as claims_module
from tlb.report.chapter import Chapter
from tlb.report.verdicts import Answer, claim, inside
from tlb.stats.intervals import median_interval
from tlb.system.reasons import Unavailable

MACHINE = "zen-3-aaaaaaaa"
DEFAULTS = chapter.DEFAULTS | {"machine": MACHINE, "minutes": 0.0}
TIMES = (6.4, 6.5, 6.6, 6.5, 6.4)


@pytest.fixture
def data(tmp_path) -> Store:
    """A data/ whose one machine takes 6.5 ns."""
    store = Store(tmp_path / "data")
    rows = [make_record(ns_per_access=ns, repeat=k) for k, ns in enumerate(TIMES)]
    put(store, MACHINE, "made_up", *rows)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    (store.root / "reference").write_text(f"{MACHINE}\n")
    return store


@pytest.fixture
def module(monkeypatch) -> Iterator[ModuleType]:
    """A chapter of four claims about the time of a load, one of which raises."""
    monkeypatch.setattr(claims_module, "REGISTRY", dict(claims_module.REGISTRY))
    made, claims = (
        ModuleType("experiments.made_up", "Made up: a chapter."),
        ModuleType("experiments.made_up.claims"),
    )
    made.Analysis, made.claims = analysis.Analysis, claims
    made.grid = type(
        "grid", (), {"points": staticmethod(lambda scope: [scope.point("page_chase", lines=4096)])}
    )

    def between(low: float, high: float):
        def decide(a: analysis.Analysis) -> Answer:
            time = median_interval(a.frame["ns_per_access"])
            return inside(time, low, high), f"A load takes {time:.1f} ns."

        return decide

    def lacking(a: analysis.Analysis) -> Answer:
        raise Unavailable("no-pmu", "in a test")

    for id, decide in {
        "takes-6": between(6, 7),
        "takes-9": between(9, 10),
        "takes-6.5": between(6.5, 7),
        "walks": lacking,
    }.items():
        decide.__module__ = claims.__name__
        decide.__qualname__ = id
        claim(id, source="boncz1999", says=id)(decide)
    monkeypatch.setattr(machine_verdicts, "CHAPTERS", (made,))
    yield made


def test_the_verdicts_are_those_of_the_rows_with_their_intervals(data, module):
    made = machine_verdicts.judge_claims(Chapter("scorecard", DEFAULTS, data))
    found = made.chapters["made_up"]
    assert {id: one.verdict for id, one in found.items()} == {
        "takes-6": "holds",
        "takes-9": "fails",
        "takes-6.5": "cannot tell",
        "walks": "not testable here",
    }
    (effect,) = found["takes-9"].effects
    assert effect == RoundedEffect(6.5, 6.4, 6.6, 9, 10)
    decided = [id for id, one in found.items() if one.is_decided]
    assert decided == ["takes-6", "takes-9"]
