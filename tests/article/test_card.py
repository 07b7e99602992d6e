"""The data card says how much was measured, and what it must not be taken for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.common import ROOT, make_record
from support.lab import put
from support.synthetic import Stated

from experiments.article.card import card
from experiments.lab.lines import point_id
from experiments.lab.record import Record
from experiments.lab.store import Store
from experiments.words.reasons import explain

ASKED = ("kernel", "engine", "pages", "layout", "order", "lines", "stride_pages", "mode", "options", "region_ms")


def cells(text: str, row: str) -> list[str]:
    """A row of the card's table, by how it begins."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_card_counts_records_points_repeats_and_what_is_noisy_or_unstable(tmp_path: Path):
    store = Store(tmp_path)
    for lines, times in ((16, [1.0, 1.01, 1.0]), (64, [1.0, 2.0])):
        for repeat, ns in enumerate(times):
            record = make_record(lines=lines, repeat=repeat, ns_per_access=ns, noisy="migrated" if ns == 2 else "",
                                 started_at=f"2025-01-1{repeat}T12:00:00Z")
            put(store, "one", "walks", "a" * 16, record)
    *counts, when = cells(card(store, "one", Stated().host()), "walks")
    assert counts == ["walks", "page_chase.jsonl", "c", "5", "1", "2", "2 to 3", "1"]
    assert when == "2025-01-10T12:00:00Z to 2025-01-12T12:00:00Z"


def test_points_differ_by_mode_option_region_and_engine_and_each_kernel_has_a_row(tmp_path: Path):
    store = Store(tmp_path)
    for changes in ({"mode": "plain"}, {"mode": "blocked", "options": {"block_vertices": 8}},
                    {"mode": "blocked", "options": {"block_vertices": 16}}, {"mode": "blocked", "region_ms": 1}):
        for repeat in range(3):
            put(store, "one", "walks", "a" * 16, make_record(kernel="graph_walk", repeat=repeat, **changes))
    put(store, "one", "walks", "a" * 16, make_record())
    put(store, "one", "walks", "b" * 16, make_record(engine="numba"))
    text = card(store, "one", Stated().host())
    rows = [[cell.strip() for cell in line.strip("|").split("|")][1:7] for line in text.splitlines() if line.startswith("| walks")]
    assert rows == [["graph_walk.jsonl", "c", "12", "0", "4", "3 to 3"], ["page_chase.jsonl", "c", "1", "0", "1", "1 to 1"],
                    ["page_chase.jsonl", "numba", "1", "0", "1", "1 to 1"]]


@pytest.mark.parametrize("path", sorted((ROOT / "data").glob("*/machine.json")), ids=lambda path: path.parent.name)
def test_a_published_card_counts_the_rows_beside_it(path: Path):
    """By a loop over the lines, which shares nothing with the card's."""
    text = (path.parent / "README.md").read_text()
    grids = json.loads((path.parent / "grids.json").read_text())
    for experiment, kernel, points in [(name, kernel, points) for name, grid in grids.items() for kernel, points in grid.items()]:
        file = path.parent / f"{kernel}.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []  # none of what was lacking
        for engine in {line["record"]["engine"] for line in lines}:
            mine = [line for line in lines if line["record"]["engine"] == engine
                    and point_id(Record.model_validate(line["record"]).point) in points]
            if not mine:  # of an engine that another experiment asks for
                continue
            campaign = (mine[-1]["kernel_digest"], mine[-1]["record"]["state"])
            times = Counter(json.dumps({name: line["record"].get(name) for name in ASKED}, sort_keys=True)
                            for line in mine if (line["kernel_digest"], line["record"]["state"]) == campaign)
            noisy = sum(bool(line["record"].get("noisy")) for line in mine)
            processes = f"{min(times.values())} to {max(times.values())}"
            assert cells(text, f"{experiment} | {kernel}.jsonl | {engine}")[:7] == [
                experiment, f"{kernel}.jsonl", engine, str(len(mine)), str(noisy), str(len(times)), processes]


@pytest.mark.parametrize(("hypervisor", "is_metal"), [("none", True), ("kvm", False)])
def test_a_card_tells_a_guest_from_bare_metal_and_says_which_the_numbers_are_not(tmp_path: Path, hypervisor: str, is_metal: bool):
    text = card(Store(tmp_path), "one", Stated(hypervisor=hypervisor).host())
    assert ("Bare metal" in text, "A guest's numbers" in text, "under kvm" in text) == (is_metal, not is_metal, not is_metal)
    assert ".jsonl |" not in text and explain("no-pmu") in text and "8 GiB" in text


def test_with_counters_the_card_warns_of_another_thing(tmp_path: Path):
    text = card(Store(tmp_path), "one", Stated(changes={"pmu": {"tier": "counters", "reason": None}}).host())
    assert explain("no-pmu") not in text and text.count("\n- ") == 3
