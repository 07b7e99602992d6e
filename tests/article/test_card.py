"""The data card says how much was measured, and what it must not be taken for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.common import make_record
from support.synthetic import Stated

from experiments.article.card import card
from experiments.lab.store import Store
from experiments.words.reasons import explain


def cells(text: str, file: str) -> list[str]:
    """The row of a file in the card's table."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {file}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_card_counts_records_points_repeats_and_what_is_noisy_or_unstable(tmp_path: Path):
    store = Store(tmp_path)
    for lines, times in ((16, [1.0, 1.01, 1.0]), (64, [1.0, 2.0])):
        for repeat, ns in enumerate(times):
            record = make_record(lines=lines, repeat=repeat, ns_per_access=ns, noisy="migrated" if ns == 2 else "",
                                 started_at=f"2025-01-1{repeat}T12:00:00Z")
            store.append("one", "walks", record, "a" * 16)
    file, records, noisy, points, repeats, unstable, when = cells(card(store, "one", Stated().host()), "walks.jsonl")
    assert (file, records, noisy, points, repeats, unstable) == ("walks.jsonl", "5", "1", "2", "2 to 3", "1")
    assert when == "2025-01-10T12:00:00Z to 2025-01-12T12:00:00Z"


@pytest.mark.parametrize(("hypervisor", "is_metal"), [("none", True), ("kvm", False)])
def test_a_card_tells_a_guest_from_bare_metal_and_says_which_the_numbers_are_not(tmp_path: Path, hypervisor: str, is_metal: bool):
    text = card(Store(tmp_path), "one", Stated(hypervisor=hypervisor).host())
    assert ("Bare metal" in text, "A guest's numbers" in text, "under kvm" in text) == (is_metal, not is_metal, not is_metal)
    assert ".jsonl |" not in text and explain("no-pmu") in text and "8 GiB" in text


def test_with_counters_the_card_warns_of_another_thing(tmp_path: Path):
    text = card(Store(tmp_path), "one", Stated(changes={"pmu": {"tier": "counters", "reason": None}}).host())
    assert explain("no-pmu") not in text and text.count("\n- ") == 3
