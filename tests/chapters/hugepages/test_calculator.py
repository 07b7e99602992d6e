"""The calculator: its model against the closed form on machines whose truth is known, and what its
figure offers."""

from functools import cache
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from support import surveys
from support.hugepages import PAGES, analysis
from support.page_sizes import Paged, hugepages
from support.synthetic import GIB, MIB, PAGE_BYTES

from experiments.hugepages import figures
from experiments.hugepages.analysis import Analysis
from experiments.hugepages.figures import ModelledTlb
from tlb.stats import geometry
from tlb.stats.intervals import median_interval
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

BASIS = ModelledTlb(64, 1536, 2.0, False)
QUIET = Paged(noise=0.0)


@cache
def rows(machine: Paged = QUIET, most: int = 4 * GIB) -> pd.DataFrame:
    return machine.frame(
        [point for point in hugepages(most) if point.kernel == "page_chase"], repeats=3
    )


def model(frame: pd.DataFrame, **basis: float) -> pd.DataFrame:
    return with_ns(figures.loads_of(analysis(frame), BASIS._replace(**basis)))


def with_ns(loads: pd.DataFrame) -> pd.DataFrame:
    """The loads with the formula's times, by the cell of the page that has it."""
    cells = nbformat.read(ROOT / "book/hugepages.ipynb", as_version=4).cells
    (formula,) = (cell.source for cell in cells if 'terms["miss_both"] =' in cell.source)
    measured = SimpleNamespace(figures=SimpleNamespace(measured_loads=lambda _: loads))
    exec(formula, {"hugepages": measured, "hosts": {}})
    return loads


def figure_table(hosts: dict[str, Analysis]) -> pd.DataFrame:
    return figures.with_answers(with_ns(figures.measured_loads(hosts)), hosts)


def closed_form(machine: Paged, pages: str, log2_bytes: int) -> tuple[float, float]:
    """(walks per access, ns) of independent draws: 1 - C/M of each level, M pieces of what an entry
    spans."""
    pieces = 2**log2_bytes / (4096 if machine.splintered else PAGE_BYTES[pages])
    first, last = (1 - n / pieces if pieces > n else 0.0 for n in machine.entries)
    walk = machine.walk_ns * (1.0 if pages == "4k" else machine.depth)
    return last, machine.load_ns + first * machine.hit_ns + last * walk


@pytest.mark.parametrize(
    "machine",
    [QUIET, Paged(noise=0.0, splintered=True), Paged(noise=0.0, walk_ns=100.0, depth=0.3)],
)
def test_the_model_is_the_closed_form_of_independent_draws(machine):
    found = model(rows(machine), hit_ns=machine.hit_ns, is_splintered=machine.splintered)
    assert set(found["pages"]) == set(PAGES)
    for row in found.itertuples():
        walks, ns = closed_form(machine, row.pages, row.log2_bytes)
        assert row.miss_both == pytest.approx(walks)
        span = 4096 if machine.splintered else PAGE_BYTES[row.pages]
        assert (row.entry_bytes, row.last_entries, row.is_whole) == (span, 1536, span > 4096)
        # Between two octaves of a chase on pages that a few entries hold, the curve is drawn
        # straight.
        assert row.ns == pytest.approx(ns, rel=0.02), row


@pytest.mark.parametrize(
    "frame",
    [rows(most=8 * MIB), rows().query("layout == 'spread'"), rows().query("pages == 'none'")],
    ids=["small", "no controls", "no rows"],
)
def test_where_nothing_was_measured_past_twice_the_last_level_there_is_a_reason(frame):
    with pytest.raises(Unavailable) as why:
        model(frame)
    assert why.value.code == "too-few-points" and "3,072" in why.value.detail


# --- what it counts with


@pytest.mark.parametrize(
    ("stated", "counted"), [((64, 1536), (64, 1536)), ((), (63, 1500))], ids=["CPUID", "measured"]
)
def test_it_counts_with_the_entries_that_its_page_states(monkeypatch, stated, counted):
    levels = [surveys.level(n, surveys.estimate(of)) for n, of in enumerate((63.0, 1500.4), 1)]
    found = surveys.geometry(levels=levels)
    monkeypatch.setattr(geometry, "infer_tlb_geometry", lambda *_: found)
    machine = analysis(entries=stated, kept={"geometry": pd.DataFrame()})
    assert figures.modelled_tlb(machine)[:2] == machine.two_levels() == counted


def test_no_time_is_interpolated_across_sizes_in_which_a_step_may_hide():
    far = rows().query("pages == '4k' and (lines <= 8192 or lines >= 262144)")
    known = model(far).set_index("log2_bytes")["ns"].notna()
    assert known[[25, 30]].all() and not known[[26, 27, 28, 29]].any()


# --- its figure


@pytest.mark.parametrize("is_few", [False, True])
def test_a_machine_of_few_mappings_is_answered_without_another_one(monkeypatch, is_few):
    hosts = {"this computer": analysis(rows()), "another": analysis(rows())}
    monkeypatch.setattr(figures, "is_of_few", lambda a: is_few and a is hosts["this computer"])
    answers = figure_table(hosts)["answer"]
    assert answers.str.contains("another").any() == (not is_few)


def test_another_machine_keeps_pages_that_the_first_one_lacks():
    base = rows().query("pages == '4k'")
    hosts = {"this computer": analysis(base), "another": analysis(rows())}
    table = figure_table(hosts)
    assert set(table.query("machine == 'another'")["pages"]) == set(PAGES)
    assert figures.initial_choice(table) == (30, "4k")


def test_the_figure_offers_each_page_size_and_answers_the_first_choice():
    table = figure_table({"a host": analysis(rows())})
    assert figures.initial_choice(table) == (30, "2m")
    spec = figures.calculator(table).to_dict()
    parameters = {one["name"]: one for one in spec["params"]}
    assert parameters["pages"]["bind"]["options"] == list(PAGES)
    answer, past_reach = (parameters["answers"]["value"]["2m"][size] for size in ("30", "32"))
    assert answer.startswith("1 GiB on 2 MiB (pool) pages: reach at most 3 GiB, ")
    assert answer.endswith(" ns.") and ", no walks within it, " in answer
    assert " walks per load or more, " in past_reach
    assert "at most" not in parameters["answers"]["value"]["4k"]["30"]


def test_each_curve_has_its_name_at_its_last_time_and_none_covers_another():
    table = figure_table({"a host": analysis(rows()), "another": analysis(rows())})
    table = table.assign(name=table["pages"], is_drawn=True)
    places = table.assign(y=figures._name_places(table)).dropna(subset="y")
    for _, named in places.groupby("machine"):
        assert sorted(named["name"]) == sorted(PAGES) and set(named["log2_bytes"]) == {32}
        heights = named["y"].sort_values()
        assert (heights / heights.shift()).dropna().ge(1.99).all()


# --- what a load waits for


def test_what_may_be_nothing_is_called_too_small_to_measure_and_has_no_sign():
    may_be_nothing = median_interval([-12.0, -1.0, 8.0, 9.0, 12.0])
    for words in figures._words_of_parts(126.0, may_be_nothing):
        assert "under 12" in words and "-" not in words
    plain, short = figures._words_of_parts(126.0, median_interval([11.0, 11.5, 12.0, 12.2, 12.5]))
    assert plain == short == "126 data + 12 translation"
