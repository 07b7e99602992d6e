"""Pages about a machine with few measurements, as after a short `make book`: each is drawn without an
error, whatever points and processes are missing. What is published beside the text is whole."""

import random
import re
import shutil
from hashlib import sha256

import pandas as pd
import pytest
from support.rendered import render

from tlb.measure.record import Point
from tlb.measure.store import Store, data_root
from tlb.report.discovery import table_of_contents
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

SEEDS = range(3)


def is_kept(share: float, *key: object) -> bool:
    """Of many keys, this share; the same ones each time."""
    return int.from_bytes(sha256(repr(key).encode()).digest()[:4], "big") < share * 2**32


@pytest.mark.endurance
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("notebook", table_of_contents())
def test_a_page_needs_no_particular_row(notebook, seed, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("own"))
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    choose = random.Random(f"{notebook} {seed}")
    points, processes = choose.choice([0.05, 0.2, 0.5, 0.9]), choose.choice([0.3, 0.6, 1.0])
    whole, sparse = Store.load, choose.choice(Store(data_root()).machines())

    def load(self: Store, machine: str, experiment: str = "") -> pd.DataFrame:
        rows = whole(self, machine, experiment)
        if machine != sparse or rows.empty or self.root == ROOT / "data":
            return rows
        point = [name for name in Point.model_fields if name in rows]
        kept = [
            is_kept(points, seed, *asked) and is_kept(processes, seed, repeat, *asked)
            for repeat, *asked in rows[["repeat", *point]].itertuples(index=False, name=None)
        ]
        return rows[kept].reset_index(drop=True)

    monkeypatch.setattr(Store, "load", load)
    try:
        shown = render(notebook, sparse)
    except Unavailable:
        return  # nothing of the chapter is left
    assert not any(re.search(r"\bnan\b", text) for text in shown.texts)
