"""Verdicts kept beside a machine's rows: those of claims whose truth is known, when they are judged
again, and whether the committed ones are those of the committed rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from support import chapter
from support.campaigns import put
from support.common import ROOT, make_record
from support.synthetic import Stated

import tlb.report.verdicts as room
from experiments.overview import CHAPTERS, machine_verdicts
from tlb.measure.store import Store
from tlb.report import analysis
from tlb.report import claims as claims_module
from tlb.report.chapter import Chapter
from tlb.report.verdicts import Answer, claim, inside, statements
from tlb.stats.intervals import median_interval
from tlb.system.reasons import Unavailable

MACHINE = "zen-3-aaaaaaaa"
DEFAULTS = chapter.DEFAULTS | {"machine": MACHINE, "minutes": 0.0}
TIMES = (6.4, 6.5, 6.6, 6.5, 6.4)


def about(data: Path, machine: str = MACHINE, **changes: object) -> Chapter:
    return Chapter(machine_verdicts.PAGE, DEFAULTS | {"machine": machine} | changes, Store(data))


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A data/ whose one machine takes 6.5 ns."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    store = Store(tmp_path / "data")
    rows = [make_record(ns_per_access=ns, repeat=k) for k, ns in enumerate(TIMES)]
    put(store, MACHINE, "made_up", *rows)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    (store.root / "reference").write_text(f"{MACHINE}\n")
    return store.root


@pytest.fixture
def module(monkeypatch) -> Iterator[ModuleType]:
    """A chapter of four claims about the time of a load, one of which raises; it counts how often
    it is judged."""
    monkeypatch.setattr(claims_module, "REGISTRY", dict(claims_module.REGISTRY))
    made, claims = (
        ModuleType("experiments.made_up", "Made up: a chapter."),
        ModuleType("experiments.made_up.claims"),
    )
    made.Analysis, made.claims, made.asked = analysis.Analysis, claims, []
    made.grid = type(
        "grid", (), {"points": staticmethod(lambda scope: [scope.point("page_chase", lines=4096)])}
    )

    def between(low: float, high: float):
        def decide(a: analysis.Analysis) -> Answer:
            made.asked.append(low)
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


def words(made: machine_verdicts.Verdicts) -> dict[str, str]:
    return {id: one.verdict for id, one in made.chapters["made_up"].items()}


def test_the_verdicts_are_those_of_the_rows_with_their_intervals(data, module):
    made = machine_verdicts.verdicts_on_machine(about(data))
    assert words(made) == {
        "takes-6": "holds",
        "takes-9": "fails",
        "takes-6.5": "cannot tell",
        "walks": "not testable here",
    }
    (effect,) = made.chapters["made_up"]["takes-9"].effects
    assert [*effect.model_dump().values()] == [6.5, 6.4, 6.6, 9, 10]
    decided = [id for id, one in made.chapters["made_up"].items() if one.is_decided]
    assert decided == ["takes-6", "takes-9"]


def test_published_verdicts_are_judged_by_refresh_and_then_read(data, module, monkeypatch):
    monkeypatch.setattr(machine_verdicts.parameters, "check", lambda name, given: DEFAULTS | given)
    before = machine_verdicts.verdicts_on_machine(about(data))
    assert not (
        data / MACHINE / "verdicts.json"
    ).exists()  # a page writes nothing of a published machine
    assert machine_verdicts.refresh() == [MACHINE] and machine_verdicts.refresh() == []
    module.asked.clear()
    assert machine_verdicts.verdicts_on_machine(about(data)) == before and module.asked == []


@pytest.mark.parametrize("change", ["a row", "a band", "broken JSON", "another shape"])
def test_what_is_of_other_rows_or_cannot_be_read_is_judged_again(data, module, change, monkeypatch):
    monkeypatch.setattr(machine_verdicts.parameters, "check", lambda name, given: DEFAULTS | given)
    machine_verdicts.refresh()
    path, store = data / MACHINE / "verdicts.json", Store(data)
    if change == "a row":
        slower = [make_record(ns_per_access=9.5, repeat=k) for k in range(5, 20)]
        put(store, MACHINE, "made_up", *slower)
    elif change == "a band":
        row = next(row for row in statements().values() if row.status == "judged" and row.low)
        monkeypatch.setattr(
            machine_verdicts, "statements", lambda: statements() | {row.id: row._replace(low="7")}
        )
    else:
        known = json.loads(text := path.read_text())
        other = known | {"chapters": {"made_up": {"takes-6": "holds"}}}
        path.write_text(text[:-20] if change == "broken JSON" else json.dumps(other))
    module.asked.clear()
    made = machine_verdicts.verdicts_on_machine(about(data))
    assert len(module.asked) == 3 and (words(made)["takes-9"] == "holds") == (change == "a row")
    assert machine_verdicts.refresh() == [MACHINE] and words(
        machine_verdicts.verdicts_on_machine(about(data))
    ) == words(made)


def test_this_computer_s_own_are_kept_and_judged_again_after_a_change(data, module, monkeypatch):
    rows = pd.DataFrame({"kernel": "page_chase", "measures": 2, "ns_per_access": TIMES})
    monkeypatch.setattr(
        machine_verdicts, "analysis_of", lambda module, chapter: module.Analysis(rows, chapter)
    )
    host = Stated().host()
    monkeypatch.setattr(machine_verdicts.hosts, "state", lambda of: "1" * 12)
    monkeypatch.setattr("tlb.report.chapter.hosts.inspect", lambda: host)

    def asked(**changes: object) -> int:
        module.asked.clear()
        chapter = about(data, "this", **changes)
        assert words(machine_verdicts.verdicts_on_machine(chapter))["takes-6"] == "holds"
        assert (chapter.store.root / chapter.machine / "verdicts.json").is_file()
        return len(module.asked)

    assert [asked(), asked()] == [3, 0]
    assert [asked(max_working_set="1GiB", **more) for more in ({}, {}, {"minutes": 5.0})] == [
        3,
        0,
        0,
    ]
    own = Store(data).own
    put(own, about(data, "this").machine, "made_up", make_record())
    assert asked() == 3
    busy = host.model_dump(mode="json") | {"noise": {"load1": 9.0}}
    own.write_machine(about(data, "this").machine, busy)
    assert asked() == 0  # the load of the minute is no other machine
    monkeypatch.setattr(machine_verdicts, "_code", lambda: (Path(__file__),))
    assert [asked(), asked()] == [3, 0]
    monkeypatch.setattr(machine_verdicts.hosts, "state", lambda of: "2" * 12)  # another boot
    assert [asked(), asked()] == [3, 0]


# --- what is committed

MACHINES = Store(ROOT / "data").machines()


@pytest.mark.parametrize("machine", MACHINES)
def test_committed_verdicts_are_of_the_committed_rows(machine):
    """Else: `tlb refresh scorecard`."""
    known = machine_verdicts.Verdicts.model_validate_json(
        (ROOT / "data" / machine / "verdicts.json").read_bytes()
    )
    assert known.data == machine_verdicts.digest(about(ROOT / "data", machine)), (
        "run `tlb refresh scorecard`"
    )
    told = {
        machine_verdicts.chapter_name(chapter): {
            claim.id for claim in room.claims_of(chapter.claims)
        }
        for chapter in CHAPTERS
    }
    assert {*known.chapters} | {*known.lacking} == {*told}
    assert all({*ids} == told[name] for name, ids in known.chapters.items())


@pytest.mark.endurance  # ten seconds each
@pytest.mark.parametrize("machine", MACHINES)
def test_committed_verdicts_are_what_the_claims_say_now(machine):
    known = machine_verdicts.Verdicts.model_validate_json(
        (ROOT / "data" / machine / "verdicts.json").read_bytes()
    )
    now = machine_verdicts.judge(about(ROOT / "data", machine), CHAPTERS, known.data, known.code)
    assert now == known
