"""The chapter's sentences: whole on every machine, with the numbers of its Analysis, and another one where the data say another thing."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd
import pytest
from support.blocking import ENTRIES, MACHINES, NOTHING, Machine, analysis, only, rows, times
from support.synthetic import HOLE, MIB

from experiments.chapters.tlb_blocking import prose
from experiments.words.prose import Prose
from experiments.words.reasons import REASONS, Note, Unavailable

pytestmark = pytest.mark.filterwarnings("error")


def said(name: str, frame: pd.DataFrame, entries: Iterable[int] = ENTRIES, notes: Iterable[Note] = ()) -> str:
    """What a function of the page's says, or the reason why it does not."""
    try:
        return getattr(prose, name)(analysis(frame, entries, notes))
    except Unavailable as why:
        return Prose(why)


def told(name: str, frame: pd.DataFrame, entries: Iterable[int] = ENTRIES) -> list[str]:
    """Its sentences without their numbers: what is claimed of them."""
    return re.sub(r"[\d.,]+ ?(?=[\d(a-z%])|\([^)]*\)|\d", "", said(name, frame, entries)).split(". ")


@pytest.mark.parametrize("entries", [ENTRIES, [72, 3072], [64], []])
@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_exists_on_every_machine_and_has_no_hole(machine: str, entries: list[int]):
    for name in prose.__all__:
        text = said(name, MACHINES[machine](), entries)
        assert not HOLE.search(text), (name, text)
        assert name == "machine" or isinstance(text, Prose) and text.endswith((".", ").")) and text.count(". ") < 14, (name, text)


def test_the_lead_tells_the_quantiles_of_the_remedies():
    tails = analysis(rows()).remedies.set_index(["remedy", "pages"])["p95"]
    text = said("lead", rows())
    assert all(f" {tails.loc[key]:.0f}" in text for key in (("none", "4k"), ("TLB blocking", "4k"), ("huge pages", "2m")))
    assert "4 GiB" in text and "1 MiB" in text
    assert "transparent 2 MiB pages" in said("lead", only("4k", "thp")) and "2 MiB pages" not in said("lead", only("4k"))


def test_the_sentence_about_blocks_tells_both_conditions():
    text = said("blocks_said", rows())
    assert all(number in text for number in ("2 MiB of 512 pages", "with 2 steps to a page"))
    assert "8 MiB of 2,048 pages" in said("blocks_said", rows(), [64, 3072])


def test_a_block_that_is_left_early_gains_nothing_or_more_than_the_tlb_explains_or_it_stays_open():
    early = "block_steps == 1024 and block_vertices == 131072"
    found = [told("blocks_said", times(rows(), factor, early), [64, 3072]) for factor in (1.6, 0.7)]
    open_ended = told("blocks_said", rows(Machine(noise=0.3)), [64, 3072])
    assert len({*map(len, found), len(open_ended) + 1}) == 1 and found[0] != found[1]


@pytest.mark.parametrize(("name", "frames"), [
    ("prefetch_said", [rows(), rows(Machine(walking_prefetch=False)), rows(Machine(noise=0.1, prefetch_gain=0.03))]),
    ("fan_out_said", [rows(), rows(Machine(jump_ns=0.0)), rows(Machine(noise=0.4))]),
    ("join_said", [rows(), rows(Machine(join_gain=1.3)), rows(Machine(join_gain=1.5, noise=0.2))]),
    ("mitigations_said", [rows(), rows(Machine(noise=0.5))]),
])
def test_another_sentence_is_chosen_where_the_data_say_another_thing(name: str, frames: list[pd.DataFrame]):
    assert len({tuple(told(name, frame)[1:]) for frame in frames}) == len(frames)


def test_two_passes_are_set_beside_one_of_as_many_partitions():
    both = "mode == 'partition' and bits == 12 and pages == '4k' and passes == 2"
    faster, slower = (told("fan_out_said", times(rows(), factor, both))[-1] for factor in (0.5, 3.0))
    assert faster != slower and "4,096 partitions" in said("fan_out_said", rows())
    assert "4,096 partitions" not in said("fan_out_said", rows().query("passes != 2"))


def test_the_fan_outs_limit_and_its_steepest_step_are_told_with_their_partitions():
    text = said("fan_out_said", rows())
    assert "256 partitions" in text and "with 32 " in text and "between 64 and 128 partitions" in text
    assert "between" not in said("fan_out_said", rows(Machine(jump_ns=0.0)))


def test_one_hop_ahead_is_told_where_it_is_nearly_as_good_as_the_best():
    alone, near, none = (told("prefetch_said", frame) for frame in (
        rows(), times(rows(), 0.58, "distance == 1"), rows(Machine(prefetch_gain=0.0))))
    assert len(near) == len(alone) + 1 > len(none) - 1 and "0.58" not in near


def test_a_join_is_told_with_its_numbers_and_a_small_one_says_that_it_shows_nothing():
    gain = analysis(rows()).best_join("4k")["gain"]
    assert f"{gain:.2f}" in said("join_said", rows())
    assert re.search(r" 0\.\d+ times", said("join_said", rows(Machine(join_gain=0.8))))
    small = said("join_said", rows(most=64 * MIB))
    assert "32,768 rows" in small and "1 MiB" in small and told("join_said", rows(most=64 * MIB))[1:] != told("join_said", rows())[1:]


def test_a_control_says_what_was_to_be_had_and_without_one_the_cache_is_named():
    assert "2 MiB pages of the pool" in said("blocks_said", MACHINES["with a control"]())
    assert "has 1 MiB" in said("blocks_said", rows()) and "2 MiB pages" not in said("blocks_said", rows())


def test_why_a_page_size_is_missing_stands_once_behind_the_lead():
    notes = [Note(str(Unavailable("pool-empty")), "pool-empty")] * 2 + [Note("Another note.", "no-pmu"), Note("One more.")]
    for frame, times_said in ((only("4k"), 1), (rows(), 0)):
        texts = [said(name, frame, notes=notes) for name in prose.__all__]
        assert sum(text.count(notes[0].text) for text in texts[:2]) == times_said
        assert not any("Another note." in text or "One more." in text for text in texts)


def test_what_was_not_measured_is_a_reason_in_every_sentence():
    for name in {*prose.__all__} - {"set_up", "run_this"}:  # which need no row
        assert REASONS["too-few-points"].sentence.removesuffix(".") in said(name, NOTHING)
