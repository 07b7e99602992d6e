"""The data card says how much was measured."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.common import ROOT

from tlb.lab.lines import point_id
from tlb.lab.record import Record

ASKED = (
    "kernel",
    "engine",
    "pages",
    "layout",
    "order",
    "lines",
    "stride_pages",
    "mode",
    "options",
    "region_ms",
)


def cells(text: str, row: str) -> list[str]:
    """A row of the card's table, by how it begins."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    "path",
    [
        path
        if path.parent.name.startswith("zen-5")
        else pytest.param(path, marks=pytest.mark.endurance)
        for path in sorted((ROOT / "data").glob("*/machine.json"))
    ],
    ids=lambda path: path.parent.name,
)
def test_a_published_card_counts_the_rows_beside_it(path: Path):
    """By a loop over the lines, which shares nothing with the card's."""
    text = (path.parent / "README.md").read_text()
    grids = json.loads((path.parent / "grids.json").read_text())
    for experiment, kernel, points in [
        (name, kernel, points) for name, grid in grids.items() for kernel, points in grid.items()
    ]:
        file = path.parent / f"{kernel}.jsonl"
        lines = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )  # none of what was lacking
        for engine in {line["record"]["engine"] for line in lines}:
            mine = [
                line
                for line in lines
                if line["record"]["engine"] == engine
                and point_id(Record.model_validate(line["record"]).point) in points
            ]
            if not mine:  # of an engine that another experiment asks for
                continue
            campaign = (mine[-1]["kernel_digest"], mine[-1]["record"]["state"])
            times = Counter(
                json.dumps({name: line["record"].get(name) for name in ASKED}, sort_keys=True)
                for line in mine
                if (line["kernel_digest"], line["record"]["state"]) == campaign
            )
            noisy = sum(bool(line["record"].get("noisy")) for line in mine)
            processes = f"{min(times.values())} to {max(times.values())}"
            assert cells(text, f"{experiment} | {kernel}.jsonl | {engine}")[:7] == [
                experiment,
                f"{kernel}.jsonl",
                engine,
                str(len(mine)),
                str(noisy),
                str(len(times)),
                processes,
            ]
