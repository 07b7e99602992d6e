"""What a page says of its machine: its name, its TLB as stated, its counters, and whether it is a guest."""

from __future__ import annotations

import pandas as pd
import pytest
from support.stlb_cliff import SILENT, SIMULATED, analysis
from support.synthetic import HOLE, MIB, Stated, tlbs

from experiments.article import setting
from experiments.article.analysis import Analysis
from experiments.machine.host import data_tlbs
from experiments.machine.tlb import Tlb, ways_of
from experiments.words.reasons import PAGE_REASONS, REASONS, Note, Unavailable

pytestmark = pytest.mark.filterwarnings("error")


def about(tlb: tuple[Tlb, ...] | None = None, machine: str = "made-up", hypervisor: str = "none", **changes: object) -> Analysis:
    return analysis(stated=Stated(tlb=tlbs() if tlb is None else tlb, hypervisor=hypervisor, changes=changes), machine=machine)


def said(a: Analysis) -> dict[str, str]:
    """Each function's words, found fit to be glued."""
    told = {name: getattr(setting, name)(a) for name in ("machine", "guest_note", "stated_tlb", "counters")}
    for name, text in told.items():
        assert text and not HOLE.search(text), (name, text)
        assert name == "machine" or text.endswith("."), (name, text)
    return told


STATES = {
    "silent": about(()), "one level": about(tlbs()[:1]), "ways unknown": about(tlbs(ways=(None, None))), "guest": about(hypervisor="kvm"),
    "a doubt": about(hypervisor="unknown"), "simulated": about(machine=SIMULATED),
    "arm64": about((), tlb_reason="no-cpuid", arch="aarch64", base_page_bytes=16384),
    "says little": about((), cpu_model="", microarchitecture="unknown", page_table_levels=None, caches=(), microcode=None),
}


@pytest.mark.parametrize("name", STATES)
def test_every_kind_of_machine_has_its_sentences(name: str):
    said(STATES[name])


# --- what CPUID states


def test_a_silent_cpuid_is_said_with_its_reason():
    assert REASONS["no-geometry"].sentence in said(analysis(stated=SILENT))["stated_tlb"]
    assert REASONS["no-cpuid"].sentence in said(STATES["arm64"])["stated_tlb"]


@pytest.mark.parametrize(("page_bytes", "reach"), [(4096, ("4 KiB", "256 KiB and 6 MiB")), (16384, ("16 KiB", "1 MiB and 24 MiB"))])
def test_the_reach_is_the_entries_times_the_machines_page(page_bytes: int, reach: tuple[str, str]):
    told = said(about(base_page_bytes=page_bytes))["stated_tlb"]
    assert all(part in told for part in ("64 entries", "1,536 entries", *reach))


def test_only_tlbs_that_translate_loads_of_4_kib_count_and_parts_of_a_level_add_up():
    def tlb(level: int, kind: str, pages: tuple[str, ...], entries: int, ways: int = 4) -> Tlb:
        return Tlb(level=level, kind=kind, pages=pages, entries=entries, ways=ways, source="test")

    stated = (tlb(2, "unified", ("4k", "2m"), 1024), tlb(1, "instruction", ("4k",), 128), tlb(1, "store", ("4k",), 16),
              tlb(1, "load", ("4k",), 64), tlb(1, "load", ("2m",), 32), tlb(2, "unified", ("4k", "1g"), 1024), tlb(3, "data", ("4k",), 0))
    a = about(stated)
    assert [(one.level, one.entries, ways_of(one)) for one in data_tlbs(a.host)] == [(1, 64, 4), (2, 2048, None)]
    assert a.entries == [64, 2048] and a.two_levels() == (64, 2048)


@pytest.mark.parametrize(("entries", "between", "ways"), [(3072, (8, 15), 12), (1536, (5, 7), 6), (512, (4, 5), 4), (3072, (2, 15), None),
                                                          (7, (4, 5), None)])
def test_a_range_of_ways_is_resolved_only_where_one_gives_a_power_of_two_of_sets(entries: int, between: tuple, ways: int | None):
    assert ways_of(Tlb(level=2, kind="data", pages=("4k",), entries=entries, ways_between=between, source="test")) == ways


def test_without_two_levels_there_is_a_reason():
    for state, code in (("silent", "no-geometry"), ("one level", "one-level")):
        with pytest.raises(Unavailable) as refused:
            STATES[state].two_levels()
        assert refused.value.code == code


# --- what else the machine states


@pytest.mark.parametrize(("hypervisor", "where"), [("none", "bare metal"), ("kvm", "under KVM"), ("hyper-v", "under Hyper-V"),
                                                   ("vmware", "under VMware"), ("unknown", "could not be determined")])
def test_a_guest_is_told_that_it_is_one_and_a_doubt_is_said(hypervisor: str, where: str):
    told = said(about(hypervisor=hypervisor))
    assert where in told["machine"] and ("bare metal:" in told["guest_note"]) == (hypervisor == "none")
    assert ("could not be determined" in told["guest_note"]) == (hypervisor == "unknown")


@pytest.mark.parametrize("reason", ["no-pmu", "no-perf", "perf-denied", "perf-failed", "not-counted"])
def test_why_walks_are_timed_is_said(reason: str):
    assert REASONS[reason].sentence in said(about(pmu={"tier": "timing", "reason": reason}))["counters"]


def test_walks_are_counted_where_a_row_has_their_count_and_not_where_perf_merely_answers():
    timed = about(pmu={"tier": "counters", "reason": None})
    counted = Analysis(pd.DataFrame({"lines": [64], "walk_per_access": [1.0]}), timed.about)
    assert REASONS["no-data"].sentence in said(timed)["counters"]
    assert not any(text.sentence in said(counted)["counters"] for text in REASONS.values())


def test_a_simulated_machine_says_so_and_no_other_does():
    for name, a in STATES.items():
        told = said(a)
        assert [told["machine"].startswith("simulated: "), "computed, not measured" in told["counters"]] == [name == "simulated"] * 2


def test_a_machine_that_says_little_of_itself_still_has_its_line():
    assert "an unnamed CPU" in said(STATES["says little"])["machine"]
    assert STATES["says little"].cache_bytes(2) is None and about().cache_bytes(2) == MIB


def test_of_the_notes_those_about_page_sizes_are_listed_once():
    notes = [Note("No pool.", "pool-empty"), Note("No counters.", "no-pmu"), Note("No pool.", "pool-empty"),
             Note("THP is off.", "thp-never"), Note("Something.")]
    assert setting.about_pages(notes) == "- No pool.\n- THP is off." and set(REASONS) >= PAGE_REASONS
    assert setting.about_pages([]) == ""
