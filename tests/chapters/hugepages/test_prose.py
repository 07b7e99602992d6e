"""The sentences: the numbers that they tell, which of several is chosen, and one or its reason on every machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import told
from support.hugepages import (
    ENTRIES,
    MACHINES,
    PAGES,
    QUIET,
    SPLIT,
    WHOLE,
    analysis,
    chased,
    median,
    only,
    priced,
    rows,
    times,
)
from support.hugepages_documents import scores
from support.synthetic import GIB, MIB, Paged

from experiments.chapters.hugepages import Analysis, prose
from experiments.words.reasons import REASONS, Note

pytestmark = pytest.mark.filterwarnings("error")

OF_THE_MACHINE = {"machine", "tlb", "counters"}
DOCUMENTS = {"jvm_said"}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def spoken(a: Analysis, names: Iterable[str] = tuple(prose.__all__)) -> Mapping[str, str]:
    return told.spoken(prose, a, set(names) - OF_THE_MACHINE)


def said(name: str, frame: pd.DataFrame | None = None, **how: object) -> str:
    return spoken(analysis(frame, **how), [name])[name]


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def holds(text: str, *values: float, digits: int) -> bool:
    """Whether the numbers stand in the text, in this order, with so many decimals."""
    rest = [f"{value:.{digits}f}" for value in values]
    found = iter(NUMBER.findall(text))
    return all(any(number.replace(",", "") == one for number in found) for one in rest)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_every_sentence_or_its_reason(name: str):
    for entries, hypervisor in ((ENTRIES, "kvm"), ((), "none")):
        spoken(analysis(MACHINES[name](), entries, hypervisor, [Note("A note.", "pool-empty")], jmh=scores()))


@given(st.sets(st.tuples(st.sampled_from(["page_chase", "random_touch"]), st.sampled_from(PAGES))),
       st.sampled_from([4 * GIB, 16 * MIB, 64 << 10]), st.sampled_from([(), (64,), ENTRIES]))
@settings(max_examples=40, deadline=None)
@pytest.mark.endurance
def test_whatever_is_missing_there_are_all_sentences(there: set, most: int, entries: tuple[int, ...]):
    frame = rows(most=most, repeats=2)
    spoken(analysis(frame[pd.MultiIndex.from_frame(frame[["kernel", "pages"]]).isin(list(there))], entries))


def test_the_lead_has_the_medians_at_the_largest_size_and_their_ratio():
    base, large, giga = (chased(rows(SPLIT), pages, 4 * GIB) for pages in ("4k", "2m", "1g"))
    lead = said("lead", rows(SPLIT))
    assert holds(lead, base, large, digits=0) and holds(lead, base / large, digits=2)
    assert holds(lead, base, large, giga, digits=0)
    assert "1 GiB" not in said("lead", only("4k", "thp"))


def test_1_gib_pages_that_share_no_size_with_the_others_leave_the_rest_of_the_lead():
    apart = rows().query("pages != '1g' or lines == 16").query("pages == '1g' or lines != 16")
    assert said("lead", apart) == said("lead", only("4k", "64k", "thp", "2m", of=apart))


def test_the_lead_says_why_2_mib_pages_are_missing_and_the_brief_does_not():
    notes = [Note("The pool is empty, of course.", "pool-empty"), Note("Something else.", "no-pmu")]
    lead, brief = said("lead", only("4k", "thp"), notes=notes), prose.brief(analysis(only("4k", "thp"), notes=notes))
    assert lead.splitlines() == [brief, "", "- The pool is empty, of course."]
    assert said("lead", rows(), notes=notes) == prose.brief(analysis())


def test_the_levers_are_the_prices_at_the_largest_size_beside_their_tables():
    levers = said("levers")
    for pages, name, table in (("4k", "base pages", "8 MiB"), ("2m", "2 MiB pages of the pool", "16 KiB")):
        assert re.search(rf" {priced(rows(), pages, 4 * GIB):z.0f} ns on {name}, [^\d]*{table}", levers), (name, levers)


@pytest.mark.parametrize(("machine", "first", "second"), [
    (Paged(noise=0.004), "nothing to gain.", "which large ones spare."),
    (Paged(splintered=True, noise=0.004), "nothing to gain.", "Both pay the second level's hit."),
    (Paged(splintered=True, noise=0.5), "Noise leaves it open.", "Noise leaves it open.")])
def test_below_the_reach_nothing_is_to_gain_where_the_data_say_so(machine: Paged, first: str, second: str):
    before, after = said("below", rows(machine)).split(" Between the two levels' reaches ")
    assert before.endswith(first) and after.endswith(second) and numbers(before)[0] == 54


def test_a_gain_below_the_reach_is_not_called_nothing():
    before = said("below", times(rows(QUIET), 2.0, pages="4k")).split(" Between ")[0]
    assert "2.0" in before and "nothing to gain" not in before and "open" not in before


@pytest.mark.parametrize(("machine", "hypervisor", "verdict"), [
    (SPLIT, "kvm", "splintered by the host"), (WHOLE, "kvm", "not splintered"), (SPLIT, "none", "cannot tell")])
def test_the_verdict_on_splintering_comes_with_what_follows_from_it(machine: Paged, hypervisor: str, verdict: str):
    text = said("splinter_verdict", rows(machine), hypervisor=hypervisor)
    assert f"**{verdict}**" in text and analysis(rows(machine), hypervisor=hypervisor).pieces.evidence in text
    shorter = re.search(r"(\d+) cycles in place of (\d+), (0\.\d\d) \(", text)
    if verdict == "splintered by the host":
        assert int(shorter[1]) == pytest.approx(3.2 * 23, abs=4) and int(shorter[2]) == pytest.approx(3.2 * 32, abs=4)
        assert float(shorter[3]) == pytest.approx(23 / 32, abs=0.05)
    else:
        assert shorter is None


def test_a_splintered_walk_that_is_no_shorter_is_not_called_so():
    assert "in place of" not in said("splinter_verdict", rows(Paged(splintered=True, depth=1.0)))


def test_the_two_kinds_of_2_mib_pages_are_compared_over_all_sizes():
    ratio = [chased(rows(), "thp", n * 4096) / chased(rows(), "2m", n * 4096) for n in sorted(set(
        rows().query("kernel == 'page_chase' and pages == 'thp'")["lines"]))]
    text = said("thp_pool")
    assert holds(text, len(ratio), digits=0) and holds(text, float(np.median(ratio)), digits=2)


@pytest.mark.parametrize(("frame", "code"), [(only("4k", "thp"), "pool-empty"), (only("4k", "2m"), "no-data"),
                                             (MACHINES["sizes apart"](), "too-few-points")])
def test_two_kinds_that_share_no_size_have_a_reason(frame: pd.DataFrame, code: str):
    assert said("thp_pool", frame).startswith(REASONS[code].sentence.removesuffix("."))


def test_what_a_read_takes_is_told_at_both_ends():
    small, large, thin = (median(rows(), kernel="random_touch", pages=pages, bytes=size)
                          for pages, size in (("4k", 10**3), ("4k", 10**9), ("2m", 10**9)))
    text = said("touch_said")
    assert holds(text, Paged.DRAW_NS, small, digits=2) and holds(text, 1000, 10**9, digits=0) and holds(text, large, thin, digits=1)


def test_what_is_lacking_is_named_with_the_reasons_of_this_run_and_each_once():
    notes = [Note("Empty.", "pool-empty"), Note("Off.", "mthp-off"), Note("Empty.", "pool-empty"), Note("Slow.", "no-pmu")]
    assert "Empty" not in said("lacking", notes=notes) and len(said("lacking").splitlines()) == 1
    first, _, *why = said("lacking", only("4k", "thp"), notes=notes).splitlines()
    assert all(name in first for name in ("64 KiB pages", "2 MiB pages of the pool", "1 GiB pages")) and "transparent" not in first
    assert why == ["- Empty.", "- Off."]


# --- documents


def test_jmh_is_compared_with_the_loop_in_c():
    text = said("jvm_said", jmh=scores())
    assert holds(text, 1.00, 1.00, 1.00, digits=2) and " 15 pairs" in text and "differ by more" not in text


def test_where_jmh_and_the_loop_in_c_differ_the_smallest_array_says_of_what():
    text = said("jvm_said", jmh=scores(1.5))
    assert "in 15 of them" in text
    theirs, ours = map(float, re.search(r"In 1,000 bytes, .* ([\d.]+) ns and the loop in C ([\d.]+):", text).groups())
    assert any(ours == pytest.approx(median(rows(), kernel="random_touch", pages=pages, bytes=1000), abs=0.006)
               for pages in ("4k", "thp", "2m"))
    assert theirs == pytest.approx(1.5 * ours, abs=0.02)


@pytest.mark.parametrize(("longer", "most"), [(1.5, True), (1.0, False)])
def test_whether_a_longer_loop_in_c_explains_the_jvm_is_told_by_how_near_it_comes(longer: float, most: bool):
    spare, keys = rows()["spare_draws"] == 1, ["pages", "bytes"]
    plain = rows()[rows()["spare_draws"] == 0].groupby(keys)["ns_per_access"].median().reindex(pd.MultiIndex.from_frame(rows()[keys]))
    frame = rows().assign(ns_per_access=rows()["ns_per_access"].where(~spare, longer * plain.to_numpy()))
    text = said("jvm_said", frame, jmh=scores(1.5))
    assert ("most of the difference" in text) == most and f"{15 if most else 0} of the 15 pairs" in text


def test_jmh_without_reads_of_our_own_is_told_without_a_comparison():
    text = said("jvm_said", rows().query("kernel == 'page_chase'"), jmh=scores())
    assert "loop in C is" not in text and len(text) > 100


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_documents_that_are_not_there_are_a_reason(name: str):
    assert said(name).startswith(REASONS["no-data"].sentence.removesuffix("."))


def test_all_that_the_page_glues_is_a_function():
    assert len(prose.__all__) == len(set(prose.__all__)) and all(callable(getattr(prose, name)) for name in prose.__all__)


@pytest.mark.parametrize("splintered", [True, False])
def test_the_calculator_says_whose_entries_it_counts_with_and_what_one_spans(splintered: bool):
    text = said("calculator_said", rows(SPLIT if splintered else WHOLE))
    assert numbers(text)[:2] == [64, 1536] and numbers(text)[2] == pytest.approx(2, abs=0.1) and "CPUID" in text
    assert ("splinters" in text) == splintered
