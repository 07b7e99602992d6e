"""The sentences about guests: the numbers in them, and which of two opposite ones the rows choose. Wording is not asserted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import pytest
from support.guests import KVM, MACHINES, NESTED, Guests, analysis, chased, of, rows, stated
from support.synthetic import HOLE

from experiments.chapters.virtualization import prose
from experiments.chapters.virtualization.analysis import Analysis, pair_words
from experiments.inference.intervals import Interval
from experiments.words.pages import words
from experiments.words.reasons import REASONS, Note, Unavailable, explain

pytestmark = pytest.mark.filterwarnings("error")
NUMBERS = ("most_references", "practical_low", "practical_high", "numa_published")


@pytest.mark.parametrize("tables", KVM)
@pytest.mark.parametrize("hypervisor", ["none", "kvm", "unknown"])
def test_every_kind_of_kvm_has_every_sentence(tables: str, hypervisor: str):
    for name in ("one cell", "no guest"):
        a = analysis(of(name).frame, stated(tables, hypervisor))
        for sentence in (prose.translates, prose.compared, prose.lacking, prose.inside_said):
            assert not HOLE.search(sentence(a)) and sentence(a).rstrip().endswith(".")


# --- of guests


def test_the_lead_has_the_medians_of_base_pages_on_base_pages_and_of_the_cheapest_pair():
    guest, plain, best = (chased(rows(), *chase, 262144) for chase in (("4k", "4k"), ("", "4k"), ("1g", "1g")))
    text = prose.lead(of())
    assert all(number in text for number in ("Over 1 GiB", f" {guest:.0f} ns in a guest", f"{guest / plain:.2f} (", f"{best:.0f} ns"))
    assert text == prose.brief(of())
    assert prose.lead(of("one cell")).count(" ns") == 1
    assert "times" in prose.lead(of("one cell")) and "times" not in prose.lead(of("no native"))


def test_the_brief_is_this_machines_and_the_lead_the_guests_that_are_shown():
    other = analysis(rows(), stated("shadow", "kvm"), rows={"virtualization": rows(NESTED)}).about
    mine = analysis(MACHINES["no guest"](), other=other)
    assert prose.lead(mine) == prose.brief(mine.guests) != prose.brief(of()) and "Imaginary Processor 9000" in prose.whose(mine)
    assert prose.whose(of()) == ""
    with pytest.raises(Unavailable):
        prose.brief(mine)
    for name in ("matrix_said", "references_said", "steps_said", "clocks_said", "touch_said", "levels_said"):
        assert getattr(prose, name)(mine) == getattr(prose, name)(mine.guests) != ""
    assert "kvm_amd" in prose.translates(mine) and prose.containers_said(mine) == prose.containers_said(analysis(mine.frame))


def test_the_matrix_is_told_by_its_extremes():
    text, far = prose.matrix_said(of()), of().far
    for guest in ("4k", "2m", "1g"):
        low, *_, high = far[far["guest"] == guest].sort_values("median").itertuples()
        assert f"{low.median:.0f} ns on {words(low.host)} to {high.median:.0f} on {words(high.host)}" in text
    assert f"{far['over_alike'].max():.2f} (" in text and f" of {len(far)} pairs" in text
    frame = rows()
    for host, is_beyond in (("thp", True), ("4k", False)):  # faster than the process beside it, on larger pages of the host or on the same
        faster = (frame["mode"] == "4k") & (frame["pages"] == host) & (frame["layout"] == "spread") & (frame["kernel"] == "guest_chase")
        told = prose.matrix_said(analysis(frame.assign(ns_per_access=frame["ns_per_access"].mask(faster, 0.5))))
        assert ("contradiction" in told, "the processor's own" in told) == (is_beyond, True)
    slower = frame["ns_per_access"] * (1 + 0.2 * (frame["kernel"] == "guest_chase"))
    assert "the processor's own" not in prose.matrix_said(analysis(frame.assign(ns_per_access=slower)))


def test_a_shadowing_kvm_is_told_from_hardware_that_walks_two_dimensions():
    shadow, npt = (prose.references_said(analysis(rows(), stated(name))) for name in ("shadow", "npt"))
    assert shadow != npt and shadow.split(". ")[0] == npt.split(". ")[0] and "takes 4 references" in shadow
    assert "24 references and pays" in npt and "could need 8 " in npt


def test_steps_are_told_with_the_neighbouring_numbers_of_lines():
    text = prose.steps_said(of())
    _, both, one, spans = text.split("\n\n")
    assert both.startswith("Between 64 and 76, then between 1,448 and 1,722 lines") and both.count("host's") + both.count("outside") == 4
    assert "ot up to 16,384" in one and one.count("host's") + one.count("outside") == 2
    assert spans == prose.spanned(of()) and both in prose.steps_said(analysis(rows(), stated("shadow")))


@pytest.mark.parametrize(("outside", "both"), [
    ((0.9, 0.8, 1.0), (0.9, 0.8, 1.0)), ((0.1, 0.0, 0.2), (0.9, 0.8, 1.0)), ((0.6, 0.3, 1.1), (0.9, 0.8, 1.0)),
    ((0.9, 0.8, 1.0), (0.1, 0.0, 0.2)), ((0.1, 0.0, 0.2), (0.6, 0.3, 1.1))])
def test_what_an_entry_spans_follows_pieces_inside_and_outside_the_guest(outside: tuple, both: tuple):
    bounds = {("", "thp"): outside, ("4k", "thp"): (0.9, 0.8, 1.0), ("2m", "4k"): (0.9, 0.8, 1.0), ("2m", "thp"): both}
    a = analysis(rows())
    a.shares = {chase: Interval(*share, 0.95) for chase, share in bounds.items()}
    assert ("if both" in prose.spanned(a)) == (both[2] < 0.5)  # whole only where both sides are whole


@pytest.mark.parametrize(("five", "is_same"), [(1.25, False), (1.0, True)])
def test_five_levels_are_told_by_their_ratio(five: float, is_same: bool):
    text = prose.levels_said(analysis(rows(Guests(five=five))))
    assert f"1 GiB takes {five:.2f}"[:-1] in text and (re.search(r" of \d+%", text) is not None) == is_same
    assert not re.search(r"\d", prose.levels_said(of()))


@pytest.mark.parametrize(("outside", "is_lost"), [(1.2, True), (1.002, False)])
def test_two_clocks_that_disagree_are_called_so(outside: float, is_lost: bool):
    a = analysis(rows(Guests(outside=outside)))
    text, agree = prose.clocks_said(a), 0 if is_lost else len(a.clocks)
    assert f"{outside:.4f}" in text and f" and {agree:,} of " in text and ("lost" in text) == is_lost


def test_the_first_touch_is_told_by_the_dearest_and_the_cheapest():
    text = prose.touch_said(of())
    assert "3,000 ns" in text and "times less" in text and "times less" not in prose.touch_said(of("one cell"))


# --- of this machine


def test_what_translates_is_what_kvms_module_says():
    told = {name: prose.translates(analysis(rows(), stated(name))) for name in KVM}
    assert len(set(told.values())) == len(KVM)
    assert "EPT" in told["ept"] and "NPT" in told["npt"] and "`kvm_pvm`" in told["shadow"] and "`kvm_other`" in told["silent"]
    assert told["hidden"].startswith(told["npt"]) and "/dev/kvm" in told["hidden"] and "/dev/kvm" not in told["none"] + told["npt"]
    assert "aarch64" in prose.translates(analysis(rows(), stated("none", arch="aarch64")))


def test_what_a_ratio_compares_follows_the_host_and_its_tables():
    told = {(hypervisor, name): prose.compared(analysis(rows(), stated(name, hypervisor)))
            for hypervisor in ("none", "kvm", "unknown") for name in ("npt", "shadow", "old")}
    assert len(set(told.values())) == 6 and all(told[hypervisor, "npt"] == told[hypervisor, "old"] for hypervisor in ("none", "kvm"))
    assert {key for key, text in told.items() if "over bare metal" in text} == {key for key in told if key[0] != "none"}
    assert {key for key, text in told.items() if "no second dimension" in text} == {("none", "shadow")}


def test_what_is_lacking_is_named_with_the_reasons_of_this_run():
    assert "all 12 pairs" in prose.lacking(of())
    note, other = (Note(explain(code, "as it is"), code) for code in ("pool-empty", "no-pmu"))
    some = prose.lacking(analysis(MACHINES["no pools"](), notes=[note, note, other, Note("A note.")]))
    assert f"{pair_words('4k', '2m')}, {pair_words('4k', '1g')}," in some and some.splitlines()[2:] == [f"- {note.text}"]
    none = analysis(MACHINES["no guest"](), stated("hidden"))
    assert "/dev/kvm" in prose.lacking(none) and "\n" not in prose.lacking(none)
    why = Note(explain("engine-lacks", "guest_chase"), "engine-lacks")
    said_why = prose.lacking(analysis(none.frame, stated("hidden"), notes=[why]))
    assert "- " + why.text in said_why and "/dev/kvm" not in said_why.splitlines()[0]
    assert set(REASONS) >= prose.GUEST_REASONS


@pytest.mark.parametrize(("hypervisor", "verdict"), [("none", None), ("kvm", None), ("kvm", "splintered by the host"), ("unknown", None)])
def test_the_inside_view_is_what_large_pages_say_of_the_host(monkeypatch: pytest.MonkeyPatch, hypervisor: str, verdict: str | None):
    class Found:
        evidence = "It is so."

    Found.verdict = verdict
    monkeypatch.setattr(Analysis, "splintering", lambda self: Found if verdict else None)
    text = prose.inside_said(analysis(rows(), stated(hypervisor=hypervisor)))
    assert (f"**{verdict}**. It is so." in text) == (verdict is not None)
    assert ("tlb geometry" in text) == (hypervisor != "none" and verdict is None) and ("told" in text) == (hypervisor == "unknown")


def test_containers_are_told_with_their_ratio_and_what_it_means():
    machines = {"same": Guests(noise=0.0005), "noise": Guests(noise=0.5), "near": Guests(namespaces=1.005, noise=0.0001),
                "apart": Guests(namespaces=1.2)}
    told = {name: prose.containers_said(analysis(rows(machine))) for name, machine in machines.items()}
    assert all(" of 8 intervals" in text for text in told.values()) and "1.2" in told["apart"] and "1.005" in told["near"]
    for name, word in (("same", "nothing of how"), ("noise", "rule out"), ("near", "misses one"), ("apart", "no page table")):
        assert [other for other, text in told.items() if word in text] == [name]


@pytest.mark.parametrize(("make", "notes", "number"), [
    (MACHINES["everything"], [], "1.5"), (MACHINES["bare metal"], [], explain("single-node")),
    (MACHINES["bare metal"], [Note("One node, says the run.", "single-node")], "One node, says the run."), (MACHINES["far alone"], [], "")])
def test_nodes_are_told_with_their_ratios_or_why_there_are_none(make: Callable[[], pd.DataFrame], notes: list[Note], number: str):
    text = prose.numa_said(analysis(make(), notes=notes))
    assert number in text and (text.count("times") == 3) == (number == "1.5")


def test_the_published_numbers_are_those_of_the_literature():
    assert [getattr(prose, name)(of()) for name in NUMBERS] == [24.0, 2.0, 3.0, 1.5]
