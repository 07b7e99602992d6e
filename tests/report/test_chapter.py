"""The object that a notebook talks to: its machine, its rows and documents, and what it puts on the
page."""

import pytest
from support.campaigns import put
from support.chapter import CHAPTER, DEFAULTS, this
from support.common import make_record, refusal
from support.synthetic import Stated, grid

from tlb.machine import host as hosts
from tlb.measure import campaign, machine_states, survey
from tlb.report.chapter import begin
from tlb.system.reasons import Unavailable

# --- which machine, and how much of it


def test_more_than_half_of_the_free_memory_is_refused_and_so_is_100_tib(world):
    assert this(max_working_set="3.5GiB").profile.max_working_set == 7 << 29  # 7 GiB of it usable
    for size in ("3.75 GiB", "100TiB"):
        with pytest.raises(Unavailable, match=r"3\.5 GiB") as why:
            this(max_working_set=size).profile  # noqa: B018
        assert why.value.code == "bad-parameter"


def test_a_profile_larger_than_the_memory_is_cut_and_a_note_says_so_once(world, capsys):
    little = {"total_bytes": 2 << 30, "available_bytes": 1 << 30, "usable_bytes": 1 << 30}
    little["limit_source"] = "cgroup"
    world["host"] = Stated(changes={"memory": little}).host()
    chapter = this()
    assert chapter.profile.max_working_set == chapter.scope.profile.max_working_set == 512 << 20
    (note,) = chapter.notes
    assert "512 MiB" in note.text and note.code == ""
    assert capsys.readouterr().err.count(note.text) == 1


# --- committed data


def test_a_chapter_about_the_reference_machine_reads_and_never_measures(committed, monkeypatch):
    monkeypatch.setattr(campaign, "run", lambda *_, **__: pytest.fail("it measured"))
    chapter = begin(CHAPTER, dict(DEFAULTS))
    rows = chapter.measure([])
    about = chapter.machine, chapter.is_this, chapter.scope.entries
    assert about == ("made-up", False, (64, 1536))
    stored = committed.load("made-up", CHAPTER)
    assert len(rows) == (stored["engine"] == "c").sum() and chapter.notes == []
    # the published loop, in numpy, where it is asked for
    assert len(begin(CHAPTER, dict(DEFAULTS)).measure(grid(1 << 20))) == len(stored)
    kept = chapter.kept(CHAPTER, "numpy")
    assert set(kept.loc[kept["kernel"] == "page_gather", "engine"]) == {"numpy"}
    assert begin(CHAPTER, DEFAULTS | {"machine": "made-up"}).measure([]).equals(rows)
    assert begin("hugepages", dict(DEFAULTS)).measure([], CHAPTER).equals(rows)


def test_a_chapter_is_about_the_machine_as_it_was_in_the_state_of_its_rows(committed):
    """Another chapter was measured in a later state, by which most rows are; the description of
    each is kept."""
    now = Stated(changes={"kernel_release": "6.99.0"}).host()
    before = Stated(changes={"kernel_release": "6.5.0"}).host()
    state = hosts.state_digest(before)
    rows = [make_record(kernel="cold_chase", repeat=k, state=state) for k in range(3)]
    put(committed, "made-up", "flushes", *rows)
    for host in (before, now):
        machine_states.write_description(committed, "made-up", host)
    assert begin("flushes", DEFAULTS | {"machine": "made-up"}).host == before
    assert begin("code", DEFAULTS | {"machine": "made-up"}).host == now  # it has no rows


def test_a_head_line_counts_the_mappings_of_chapters_and_not_those_of_the_survey(committed):
    machine_states.write_description(committed, "small", Stated().host())
    put(committed, "small", "flushes", make_record(kernel="cold_chase", repeat=0))
    again = [make_record(kernel="page_chase", repeat=k) for k in range(2)]
    put(committed, "small", survey.NAME, *again)
    few = {
        name: begin(name, DEFAULTS | {"machine": "small"}).few_mappings
        for name in ("flushes", "method")
    }
    assert few == {"flushes": "one mapping each", "method": "one mapping each in the chapters"}


@pytest.mark.parametrize("machine", ["reference", "nobody"])
def test_a_machine_without_rows_is_no_data(data, machine):
    assert refusal(lambda: begin(CHAPTER, DEFAULTS | {"machine": machine}).measure([])) == "no-data"
    assert refusal(lambda: begin(CHAPTER, DEFAULTS | {"machine": machine}).survey()) == "no-data"


def test_this_machines_chapter_reads_the_reference_machine_and_never_measures_there(
    committed, world
):
    reference = this().on("reference")
    assert (reference.is_this, reference.machine) == (False, "made-up") and len(
        reference.kept(CHAPTER)
    )
