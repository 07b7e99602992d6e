"""The queries on the page about many machines, run over the published data."""

import re

import duckdb
import pandas as pd
import pytest

from tlb.system.files import ROOT

QUERIES = re.findall(r"```sql\n(.*?)```", (ROOT / "book" / "fleet.md").read_text(), re.DOTALL)


def asked(query: str, monkeypatch) -> pd.DataFrame:
    monkeypatch.chdir(ROOT)
    return duckdb.sql(query).df()


def test_each_query_finds_rows(monkeypatch):
    assert len(QUERIES) == 3
    for query in QUERIES:
        found = asked(query, monkeypatch)
        assert len(found) and not found["machine"].isna().any()


def test_the_gain_by_sql_is_the_one_by_pandas(monkeypatch):
    found, gains = asked(QUERIES[0], monkeypatch).set_index("machine")["gain"], {}
    for path in (ROOT / "data").glob("*/rows.parquet"):
        rows = pd.read_parquet(path)
        far = rows[
            (rows["kernel"] == "page_chase")
            & (rows["layout"] == "spread")
            & (rows["order"] == "cycle")
            & (rows["mode"] == "")
            & (rows["stride_pages"] == 1)
            & (rows["working_set_bytes"] == 2 << 30)
        ]
        medians = far.groupby("pages")["ns_per_access"].median()
        if {"4k", "thp"} <= {*medians.index}:
            gains[path.parent.name] = medians["4k"] / medians["thp"]
    assert gains and found.dropna().to_dict() == pytest.approx(gains)
