"""Why verdicts are open, on each published machine of which one mapping was measured: what it lacks comes
before what more measurements would tell, and no time is decided."""

from collections.abc import Iterator

import pandas as pd
import pytest

from experiments.overview import chapter_analysis, chapter_name
from tlb.measure.store import Store
from tlb.report import notebooks
from tlb.report.answers import OBSTACLES, ClaimDecision, StoredAnswer
from tlb.report.chapter import chapter_of_published_machine
from tlb.report.claims import statements
from tlb.report.verdicts import OPEN_TO_MORE_MAPPINGS, chapter_verdicts
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

IN_SHORT = "zen-5-b15e0e32"  # a guest without counters; the others take a quarter of a minute each
# Of runs of programs, which have repeats of their own.
DOCUMENTS_OF_RUNS = {"your_program", "housekeeping", "jmh"}
COUNTED = {"entries"}  # units of what CPUID states


@pytest.fixture(
    params=[
        name if name == IN_SHORT else pytest.param(name, marks=pytest.mark.endurance)
        for name in Store(ROOT / "data").machines_in_order()
    ]
)
def both(request, monkeypatch) -> list[tuple[str, ClaimDecision, ClaimDecision]]:
    """Each claim with the verdict of all rows, as kept, and that of the first mapping alone."""
    machine = request.param
    kept = Store(ROOT / "data").read_document(machine, "claims")
    whole = {id: StoredAnswer.model_validate(one) for of in kept.values() for id, one in of.items()}
    load, read = Store.load, Store.read_document

    def load_one(self: Store, of: str, experiment: str = "") -> pd.DataFrame:
        rows = load(self, of, experiment)
        if rows.empty:
            return rows
        first = rows.groupby(["kernel", "engine"])["repeat"].transform("min")
        return rows[rows["repeat"] == first].reset_index(drop=True)

    def read_one(self: Store, of: str, name: str) -> dict:
        if name in DOCUMENTS_OF_RUNS:
            raise Unavailable("no-data", name)
        return read(self, of, name)

    monkeypatch.setattr(Store, "load", load_one)
    monkeypatch.setattr(Store, "read_document", read_one)
    return [(id, whole[id].decide(), one) for id, one in verdicts_on(machine) if id in whole]


def verdicts_on(machine: str) -> Iterator[tuple[str, ClaimDecision]]:
    for module in notebooks.chapter_modules():
        chapter = chapter_of_published_machine(chapter_name(module), machine)
        try:
            a = chapter_analysis(module, chapter)
        except Unavailable:  # nothing of it was measured
            continue
        for one in chapter_verdicts(module.claims, a):
            yield one.claim.id, one


def test_of_one_mapping_each_open_verdict_names_what_the_machine_lacks_first(both):
    found = {id: one for id, _, one in both}
    assert len(found) > 100
    named = {id: one.reason for id, one in found.items() if one.reason in OPEN_TO_MORE_MAPPINGS}
    assert not named
    timed = {
        id
        for id, one in found.items()
        if one.is_decided and one.effects and statements()[id].unit not in COUNTED
    }
    assert not timed
    for id, whole, one in both:
        if whole.reason in OBSTACLES - {"splintered"}:
            # an upper bound, such as a walk's in a guest, may refute with more mappings
            is_bound = whole.reason == "two-dimensions" and one.reason == "few"
            assert one.verdict == whole.verdict or is_bound, id
        if whole.is_decided and not whole.effects and one.is_decided:
            assert one.verdict == whole.verdict, id
        if one.verdict == "not testable here":
            assert not whole.is_decided, id
