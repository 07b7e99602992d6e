"""The data card says how much was measured."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.common import ROOT

from tlb.lab.lines import point_id
from tlb.lab.record import Record

CARDS = sorted(path.parent for path in (ROOT / "data").glob("*/machine.json"))


@pytest.mark.parametrize("folder", CARDS[-1:], ids=lambda folder: folder.name)
def test_a_published_card_counts_the_rows_beside_it(folder: Path):
    """By a loop over the lines, which shares nothing with the card's."""
    table = (folder / "README.md").read_text().splitlines()
    for experiment, grid in json.loads((folder / "grids.json").read_text()).items():
        for kernel, points in grid.items():
            if not (file := folder / f"{kernel}.jsonl").exists():
                continue  # it was lacking there
            by_engine: dict[str, list[tuple[str, dict]]] = {}
            for line in map(json.loads, file.read_text().splitlines()):
                id = point_id(Record.model_validate(line["record"]).point)
                if id in points:
                    by_engine.setdefault(line["record"]["engine"], []).append((id, line))
            for engine, mine in by_engine.items():
                last = mine[-1][1]
                campaign = (last["kernel_digest"], last["record"]["state"])
                times = Counter(
                    id
                    for id, line in mine
                    if (line["kernel_digest"], line["record"]["state"]) == campaign
                )
                noisy = sum(bool(line["record"].get("noisy")) for _, line in mine)
                processes = f"{min(times.values())} to {max(times.values())}"
                cells = [experiment, f"{kernel}.jsonl", engine, len(mine), noisy, len(times)]
                row = f"| {' | '.join(map(str, cells))} | {processes} |"
                assert any(line.startswith(row) for line in table), row
