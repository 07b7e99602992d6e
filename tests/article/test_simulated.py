"""A machine that was computed: every count of it is right, its chapter shows them, and says at each that it is simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from support.common import ROOT, make_record
from support.synthetic import MIB, Stated, Truth, frame, grid, lru

from experiments.article import chapter as chapters
from experiments.article import charts as figures
from experiments.article import machine_words as findings
from experiments.article.render import PALETTE
from experiments.inference import counts
from experiments.lab import events, perf
from experiments.lab.perf import Plan
from experiments.lab.record import Quantity
from experiments.lab.store import Store
from experiments.machine import microarchitecture as uarch
from experiments.machine.host import machine_id

CHAPTER, MACHINE = "stlb_cliff", "simulated-ice-lake-server"
CYCLES_PER_WALK, GHZ, REPEATS = 28.0, 3.2, 4
TRUTH = Truth(noise=0.002)


def plan_of(cpu: str) -> Plan:
    rows = events.SOFTWARE + events.quantities(cpu)
    return Plan("perf", tuple(row for row in rows if row.event), {row.quantity: row.reason for row in rows if row.reason},
                tuple(row for row in rows if row.derived))


def count(row: dict, plan: Plan) -> dict[str, Quantity]:
    """The counters of one process over an LRU TLB of 64 and 1,536 entries, in the group that is this repeat's turn."""
    spread, lines, n = row["layout"] == "spread", pd.Series([float(row["lines"])]).to_numpy(), row["accesses"]
    missed, walks = (float(lru(row["order"], lines, entries)[0]) * n * spread for entries in TRUTH.entries)
    counted = {"walk": walks, "stlb_hit": missed - walks, "l1_dtlb_miss": missed, "walk_cycles": walks * CYCLES_PER_WALK,
               "walk_pending": walks * CYCLES_PER_WALK, "core_cycles": row["ns_per_access"] * GHZ * n, "instructions": 1.1 * n}
    groups = plan.groups()
    group = groups[row["repeat"] % len(groups)]
    found = {e.quantity: Quantity(value=counted.get(e.quantity, 0.0), event=e.event, running_percent=100.0) for e in group}
    found |= {e.quantity: Quantity(reason="other-repeat", event=e.event) for e in plan.events if e not in group}
    return found | perf.derive(found, plan.derived) | {name: Quantity(reason=why) for name, why in plan.lacking.items()}


def simulate(store: Store, machine: str, cpu: str = "Ice Lake server", points: list | None = None) -> pd.DataFrame:
    """Writes the machine and its records into `store`; the frame that a chapter gets."""
    changes = {"microarchitecture": cpu, "pmu": {"tier": "counters", "reason": None}}
    store.write_machine(machine, Stated(changes=changes).host().model_dump(mode="json"))
    plan = plan_of(cpu)
    for row in frame(TRUTH, points or grid(64 * MIB), REPEATS).to_dict("records"):
        known = {name: value for name, value in row.items() if name not in ("kernel_digest", "counters")}
        store.append(machine, CHAPTER, make_record(**known, counters=count(row, plan)), "a" * 16)
    return store.load(machine, CHAPTER)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "data"
    simulate(Store(folder), MACHINE)
    return folder


@pytest.fixture(scope="module")
def rows(data: Path) -> pd.DataFrame:
    return Store(data).load(MACHINE, CHAPTER)


HOST = Stated(changes={"pmu": {"tier": "counters", "reason": None}}).host()
MISSES = chapters.literature("dtlb_misses_per_hop")


def test_the_chapter_of_a_simulated_machine_shows_its_counters_and_says_that_they_are_computed(data: Path, tmp_path: Path):
    output = tmp_path / "out.ipynb"
    run = "import json, sys; from pathlib import Path; from experiments.article import chapter as chapters; " \
          "chapters.execute(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))"
    done = subprocess.run([sys.executable, "-c", run, CHAPTER, str(output), json.dumps({"machine": MACHINE})], cwd=ROOT,
                          env=os.environ | {"TLB_DATA": str(data)}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [one for cell in nbformat.read(output, 4).cells if cell.cell_type == "code" for one in cell.outputs]
    assert not [one for one in shown if one.output_type == "error"]
    glued = {one.metadata.scrapbook.name: one.data for one in shown if "scrapbook" in one.get("metadata", {})}
    for name in ("counted_walks", "counted_cycles"):
        assert {"image/png", "text/html"} <= glued[name].keys()
        assert "simulated: " in glued[name]["text/plain"] and "simulated" in glued[name]["text/html"]
    said = {name: str(value) for name, value in glued.items()}
    assert "This machine is simulated: these counts were computed, not measured." in said["counters"]
    assert "simulated" in said["counts_are"] and "simulated: Imaginary" in said["machine"]
    tables = "\n".join(one.data["text/plain"] for one in shown if one.output_type == "execute_result")
    assert "\t1.00\t28.00\tcounters" in tables and "inferred from time" not in tables


def test_the_committed_chapter_is_of_a_computer_and_never_says_simulated():
    cells = nbformat.read(ROOT / "book" / f"{CHAPTER}.ipynb", 4).cells
    assert "simulated" not in json.dumps([cell.outputs for cell in cells if cell.cell_type == "code"])
    assert not findings.is_simulated(Store(ROOT / "data").reference())


def test_no_computer_gets_the_id_of_a_simulated_one():
    intel = {uarch.x86_name("GenuineIntel", 6, model, stepping) for model in range(256) for stepping in (3, 7, 11)}
    amd = {uarch.x86_name("AuthenticAMD", family, model, 0) for family in (0x17, 0x19, 0x1A) for model in range(256)}
    arm = {uarch.arm_name(maker, part) for maker in uarch.IMPLEMENTERS for part in range(0x1000)}
    for name in intel | amd | arm:
        for vendor in (*uarch.VENDORS, *uarch.IMPLEMENTERS.values(), "simulated"):
            host = Stated(changes={"microarchitecture": name, "vendor": vendor}).host()
            assert not findings.is_simulated(machine_id(host))
    assert findings.is_simulated(MACHINE)


# --- the counts behind the figures


def test_medians_are_over_the_repeats_that_counted(rows: pd.DataFrame):
    walks, fetches = counts.counted(rows, "walk"), counts.counted(rows, "itlb_walk")
    assert set(walks["n"]) == set(fetches["n"]) == {REPEATS // 2}
    by_lines = walks.set_index("lines")["median"]
    assert (by_lines[by_lines.index > 1536] == 1).all() and (by_lines[by_lines.index <= 1536] == 0).all()
    hits = counts.counted(rows, "l1_dtlb_miss").set_index("lines")["median"]
    assert (hits[hits.index > 64] == 1).all() and (hits[hits.index <= 64] == 0).all()


def test_cycles_per_walk_come_from_the_counters_of_the_repeats_that_have_them(rows: pd.DataFrame):
    table = counts.walk_table(rows).set_index("pages")
    assert set(table["cycles per walk from"]) == {"counters"}
    assert table.loc[table.index > 1536, "cycles per walk"].to_numpy() == pytest.approx(CYCLES_PER_WALK)
    assert table.loc[table.index <= 1536, "cycles per walk"].isna().all()


def test_each_series_says_of_what_kind_it_is(rows: pd.DataFrame):
    walks = counts.walk_series(rows, HOST, MISSES, MACHINE)
    assert list(walks) == ["walks, simulated", "walks, predicted: fully associative, LRU", "misses per hop of a graph walk, published"]
    assert list(counts.walk_series(rows, HOST, MISSES, "zen-4-0a1b2c3d"))[0] == "walks, counted"
    cycles = counts.walk_cycle_series(rows, HOST, MACHINE)
    assert list(cycles) == ["walk cycles, simulated", "price of translation, inferred from time"]
    price = cycles["price of translation, inferred from time"].set_index("lines")["median"]
    assert price[price.index > 3072].to_numpy() == pytest.approx((2 + 9) * GHZ, rel=0.02)
    published = walks["misses per hop of a graph walk, published"].set_index("lines")["median"]
    assert published.to_dict() == {2048: 0.17, 4096: 0.42, 8192: 0.6, 16384: 0.6}


def test_the_figure_of_counts_has_a_line_for_each_kind_and_points_for_what_is_not_predicted(rows: pd.DataFrame):
    series = counts.walk_series(rows, HOST, MISSES, MACHINE)
    figure = figures.counters(series, [64, 1536], name="walks", title="walks per access")
    assert set(figure.data["series"]) == set(series)
    for label in series:
        assert label in figure.svg() and f"{label[0].upper()}{label[1:]}: " in figure.alt
    counted, predicted = (figure.svg().count(f'fill="{colour}"') for colour in PALETTE[:2])
    assert predicted <= 1 < len(series["walks, simulated"]) <= counted  # one may be the legend's


def test_an_engine_without_a_clock_has_no_cycles_and_a_reason_in_the_place_of_the_figure(monkeypatch):
    rows = frame(TRUTH, grid(16 * MIB)).assign(core_ghz=0.0)
    series = counts.walk_cycle_series(rows, HOST)
    assert series == {} and counts.walk_table(rows)["price, cycles"].isna().all()
    shown = {}
    monkeypatch.setattr(figures, "glue", lambda name, what: shown.update({name: what.text}))
    figures.show_counters(series, [64], name="counted_cycles", title="cycles", cycles=True)
    figures.show_counters({}, [64], name="counted_walks", title="walks")
    assert "No core clock was measured here" in shown["counted_cycles"] and "no results" in shown["counted_walks"]


def test_where_walks_are_counted_and_their_cycles_are_not_these_are_inferred_and_it_says_so(tmp_path: Path):
    zen = simulate(Store(tmp_path), "simulated-zen-4", "Zen 4", grid(16 * MIB))
    said = counts.counting(zen, HOST)
    assert said["counts_are"] == "counted"
    assert "Their cycles are inferred from time: This CPU has no event that counts the cycles of a page walk." in said["counters"]
    table = counts.walk_table(zen).set_index("pages")
    assert set(table["cycles per walk from"]) == {"inferred from time"} and table.loc[4096, "walks per access"] == 1
    assert table.loc[4096, "cycles per walk"] == pytest.approx((2 + 9) * GHZ, rel=0.02)
    assert list(counts.walk_cycle_series(zen, HOST)) == ["price of translation, inferred from time"]


def test_without_counters_a_model_and_what_was_published_stand_in_and_are_labelled():
    timed = frame(TRUTH, grid(16 * MIB)).assign(walk_per_access=float("nan"), walk_reason="no-pmu")
    host = Stated(hypervisor="kvm").host()
    said = counts.counting(timed, host)
    assert said["counts_are"] == "predicted"
    assert said["counters"].startswith("Walks are timed, not counted: This computer shows no hardware counters.")
    assert list(counts.walk_series(timed, host, MISSES)) == [
        "walks, predicted: fully associative, LRU", "misses per hop of a graph walk, published"]
    silent = Stated(tlb=(), changes={"tlb_reason": "no-cpuid"}).host()
    assert list(counts.walk_series(timed, silent, MISSES)) == ["misses per hop of a graph walk, published"]
    tiny = frame(TRUTH, grid(64 << 10))
    assert "predicted" in next(iter(counts.walk_series(tiny, host, MISSES)))


def test_the_table_of_counters_has_a_number_or_a_reason_for_each(rows: pd.DataFrame):
    table = counts.counter_table(rows, HOST).set_index("counter")
    assert (table["per access"].isna() == (table["why not"] != "")).all() and ((table["processes"] > 0) == (table["why not"] == "")).all()
    assert table.loc["walk cycles", "per access"] == pytest.approx(CYCLES_PER_WALK)
    assert table.loc["nested walk cycles", "why not"].startswith("This CPU has no event that counts the second dimension")
    assert set(events.CANONICAL) <= {name.replace(" ", "_") for name in table.index}
