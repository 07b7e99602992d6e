"""Pages about other machines than the published ones, and about machines with few measurements, as after
a short `make book`: each is drawn without an error, whatever the machine lacks. What is published
beside the text is whole."""

import json
import random
import re
import shutil
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.rendered import CHAPTER_NAMES, Shown, render

from tlb.measure.record import Point
from tlb.measure.store import Store, data_root
from tlb.report import charts
from tlb.report.notebooks import chapter_names_in_order
from tlb.report.overlay import OverlaidFigure, _encodings
from tlb.report.page import notebook_cells
from tlb.report.render import WRAPPED_NAME
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

SEEDS = range(3)
IN_SHORT = ("hugepages", "virtualization")  # of all pages; the others take a minute
# No number, or one as a machine writes it.
ODD = re.compile(r"\bnan\b|\bNone\b(?! of\b)|\de[+-]\d\d")
SILENT = {"tlb": [], "tlb_reason": "no-geometry"}
ARM = {"arch": "aarch64", "vendor": "ARM", "microarchitecture": "unknown", "la57": None}
# What a machine says of itself in place of its own words.
DESCRIPTIONS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda host: {},
    lambda host: SILENT,
    lambda host: SILENT | ARM,
    lambda host: {"tlb": [each for each in host["tlb"] if each["level"] == 1]},
    lambda host: {"hypervisor": "qemu-tcg"},
    lambda host: {"hypervisor": "none", "pmu": {"tier": "counters", "reason": None}},
    lambda host: {"pmu": {"tier": "software", "reason": "not-counted"}},
]


def of_each(names: list[str], in_short: Collection[str] = IN_SHORT) -> list[Any]:
    return [
        name if name in in_short else pytest.param(name, marks=pytest.mark.endurance)
        for name in names
    ]


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A copy of the published data."""
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("own"))
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def is_kept(share: float, *key: object) -> bool:
    """Of many keys, this share; the same ones each time."""
    return int.from_bytes(sha256(repr(key).encode()).digest()[:4], "big") < share * 2**32


def assert_readable(shown: Shown) -> None:
    for text in (*shown.texts, *shown.verdicts):
        assert not ODD.search(text), text
    for one in shown.drawn:
        if isinstance(one, OverlaidFigure):
            assert_names_what_is_drawn(one.spec())


def assert_names_what_is_drawn(spec: dict[str, Any]) -> None:
    """The names of curves stand at points of the own machine, and a legend has only what is drawn."""
    datasets = [rows for key, rows in spec["datasets"].items() if not key.startswith("reference-")]
    own = [row for rows in datasets for row in rows]
    names = [row for row in own if charts.NAME_Y in row]
    for row in names:
        place = {key: row[key] for key in row if key not in (charts.NAME_Y, WRAPPED_NAME)}
        points = [other for other in own if charts.NAME_Y not in other]
        # all but the place along x, which may be moved off the other chart's last points
        assert any(len(place.items() - other.items()) <= 1 for other in points)
    drawn = {value for rows in spec["datasets"].values() for row in rows for value in row.values()}
    for channel in ("color", "shape", "strokeDash"):
        for how in _encodings(spec, channel):
            assert {*((how.get("legend") or {}).get("values", ()))} <= drawn


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.endurance) for seed in SEEDS[1:])]
)
@pytest.mark.parametrize("notebook", of_each(chapter_names_in_order()))
def test_a_page_needs_no_particular_row_and_no_particular_machine(
    notebook, seed, data, monkeypatch
):
    choose = random.Random(f"{notebook} {seed}")
    points, processes = choose.choice([0.05, 0.2, 0.5, 0.9]), choose.choice([0.3, 0.6, 1.0])
    whole, sparse = Store.load, choose.choice(Store(data_root()).machines())
    changes = choose.choice(DESCRIPTIONS)
    for path in (data / sparse).glob("machine*.json"):
        host = json.loads(path.read_text())
        path.write_text(json.dumps(host | changes(host)))
    # of which one is left out as a whole
    kind = choose.choice(["pages", "kernel", "mode", "layout"])

    def load(self: Store, machine: str, experiment: str = "") -> pd.DataFrame:
        rows = whole(self, machine, experiment)
        if machine != sparse or rows.empty or self.root == ROOT / "data":
            return rows
        point = [name for name in Point.model_fields if name in rows]
        left_out = random.Random(seed).choice(sorted(rows[kind].unique()))
        kept = [
            is_kept(points, seed, *asked) and is_kept(processes, seed, repeat, *asked)
            for repeat, *asked in rows[["repeat", *point]].itertuples(index=False, name=None)
        ]
        return rows[pd.Series(kept, rows.index) & (rows[kind] != left_out)].reset_index(drop=True)

    monkeypatch.setattr(Store, "load", load)
    try:
        shown = render(notebook, sparse)
    except Unavailable:
        return  # nothing of the chapter is left
    assert_readable(shown)


@pytest.mark.parametrize("notebook", of_each(CHAPTER_NAMES))
def test_a_page_has_each_figure_where_next_to_nothing_was_measured(notebook, data, monkeypatch):
    """As committed: show_chart dims the reference's."""
    whole, sparse = Store.load, Store(data_root()).machines()[-1]
    shutil.rmtree(data / sparse / "documents")

    def load(self: Store, machine: str, experiment: str = "") -> pd.DataFrame:
        return whole(self, machine, experiment).head(1 if machine == sparse else None)

    monkeypatch.setattr(Store, "load", load)
    shown = render(notebook, sparse)
    assert_readable(shown)
    sources = "\n".join(cell.source for cell in notebook_cells(notebook) if cell.kind == "code")
    drawn = re.findall(r"^show_chart\(", sources, re.M)
    assert 0 < len(drawn) <= len(shown.figures)


@pytest.mark.parametrize("left_out", ["packed", "spread"])
@pytest.mark.parametrize("notebook", of_each(CHAPTER_NAMES, ["stlb_cliff"]))
def test_a_page_needs_no_more_than_one_of_two_that_it_subtracts(
    notebook, left_out, data, monkeypatch
):
    """As where the measurements of a first run were disturbed."""
    whole, sparse = Store.load, Store(data_root()).machines()[0]

    def load(self: Store, machine: str, experiment: str = "") -> pd.DataFrame:
        rows = whole(self, machine, experiment)
        if machine != sparse or rows.empty or self.root == ROOT / "data":
            return rows
        return rows[rows["layout"] != left_out].reset_index(drop=True)

    monkeypatch.setattr(Store, "load", load)
    assert_readable(render(notebook, sparse))
