"""The store: what is measured comes back as it went in, under a key that any version of the code
computes; documents beside the rows."""

import hashlib
import json
import math
import re
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.campaigns import MACHINE, NAME, put, says
from support.common import ROOT, make_record

from tlb.measure.record import CounterReading, Record
from tlb.measure.store import PUBLISHED_ROWS_FILE, Store, write_published_rows
from tlb.system.reasons import Unavailable

DATA = ROOT / "data"
KEY = ["lines", "repeat", "layout", "order", "mode"]

counts = st.integers(0, 2**63 - 1)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
quantities = st.one_of(
    st.builds(
        CounterReading, value=finite, event=st.none() | texts, running_percent=st.none() | finite
    ),
    st.builds(
        CounterReading,
        reason=st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True),
        event=st.none() | texts,
    ),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    pages = draw(st.sampled_from(["4k", "64k", "thp", "2m", "1g"]))
    choice = {
        "kernel": st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True),
        "engine": st.sampled_from(["c", "numba"]),
        "layout": st.sampled_from(["spread", "packed"]),
        "order": st.sampled_from(["cycle", "random", "sequential"]),
        "lines": st.integers(1, 2**40),
        "region_ms": st.integers(1, 60_000),
        "batch_ns_per_access": st.lists(positive, min_size=1, max_size=5),
        "core_ghz": st.floats(min_value=0, allow_infinity=False),
        "checksum": st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
        "state": st.from_regex(r"[0-9a-f]{12}", fullmatch=True),
        "mode": st.from_regex(r"[a-z0-9_-]{0,64}", fullmatch=True),
        "options": st.dictionaries(
            st.sampled_from(["bytes", "threads", "x"]), st.integers(0, 2**53)
        ),
        "also": st.dictionaries(st.sampled_from(["free_ns_per_access", "y"]), finite),
        "histogram": st.lists(
            st.tuples(finite, st.integers(1, 2**63 - 1)), max_size=5, unique_by=lambda pair: pair[0]
        ).map(sorted),
        "counters": st.dictionaries(
            st.sampled_from(["walk", "walk_cycles", "stlb_hit", "n-s"]), quantities
        ),
    }
    for names, strategy in (
        ("stride_bytes working_set_bytes arena_bytes accesses", st.integers(1, 2**63 - 1)),
        ("elapsed_ns ns_per_access prepare_ns wall_ns", positive),
        (
            "seed cpu minor_faults major_faults voluntary_switches involuntary_switches "
            "migrations repeat",
            counts,
        ),
    ):
        choice |= dict.fromkeys(names.split(), strategy)
    return make_record(pages=pages, **{name: draw(strategy) for name, strategy in choice.items()})


@pytest.mark.slow
@given(st.lists(records(), max_size=4))
@settings(max_examples=30)
def test_any_record_comes_back_as_it_went_in(made):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        keys = put(store, MACHINE, NAME, *made)
        first: dict[str, Record] = {}
        for key, record in zip(keys, made, strict=True):
            if key not in first or record.counts_more_than(first[key]):
                first[key] = record
        frame = store.load(MACHINE, NAME)
        assert store.keys(MACHINE, NAME) == set(keys)
        nested = {"counters", "options", "also"}
        assert set(frame.columns) >= set(Record.model_fields) - nested
        for (_, row), record in zip(
            frame.iterrows(), sorted(first.values(), key=lambda record: record.kernel), strict=True
        ):
            for name, value in [*record.options, *record.also.items()]:
                assert row[name] == value
            for name in set(Record.model_fields) - nested:
                value = getattr(record, name)
                assert row[name] == value if value is not None else math.isnan(row[name])
            for name, quantity in record.counters.items():
                if quantity.value is None:
                    assert (
                        math.isnan(row[f"{name}_per_access"])
                        and row[f"{name}_reason"] == quantity.reason
                    )
                else:
                    assert row[f"{name}_per_access"] == quantity.value / record.accesses
                    assert row[f"{name}_reason"] == ""
        published = [(record, [NAME]) for record in first.values()]
        (path := Path(folder) / "published" / PUBLISHED_ROWS_FILE).parent.mkdir()
        write_published_rows(path, published)
        assert Store(folder).published(path.parent.name) == published
        again = Store(folder).load(path.parent.name, NAME)
        by = ["kernel", *KEY]
        pd.testing.assert_frame_equal(
            again.sort_values(by, ignore_index=True), frame.sort_values(by, ignore_index=True)
        )


def test_a_key_is_the_same_in_every_version_of_the_code(store):
    """A change of the key would have all data measured again; this one is computed from the
    format's description."""

    def digest(content: object) -> str:
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    point = {
        "engine": "c",
        "kernel": "page_chase",
        "layout": "spread",
        "lines": 4096,
        "mode": "populate",
        "options": [["bytes", 7], ["threads", 2]],
        "order": "cycle",
        "pages": "4k",
        "region_ms": 60,
        "stride_pages": 1,
    }
    named = {"point": digest(point), "repeat": 3, "measures": 2, "compiler": "cc: cc 12"}
    record = make_record(
        **{"mode": "populate", "options": {"threads": 2, "bytes": 7}, "repeat": 3, "measures": 2},
        **{"compiler": "cc: cc 12", "source": "0" * 16, "boot_id": "1a2b3c0000000000"},
    )
    assert store.append(MACHINE, record) == digest(named | {"state": "00112233aabb"})


def test_a_published_file_that_is_damaged_is_one_sentence(store):
    (path := store.root / MACHINE / PUBLISHED_ROWS_FILE).parent.mkdir(parents=True)
    write_published_rows(path, [(make_record(), [NAME])])
    assert len(store.load(MACHINE, NAME)) == 1
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    for damaged in (bytes(content), content[:-9], b""):
        path.write_bytes(damaged)
        with pytest.raises(Unavailable) as refused:
            store.load(MACHINE, NAME)
        says(refused.value, "file-damaged")


@pytest.mark.parametrize("machine", [path.parent.name for path in DATA.glob("*/rows.parquet")])
def test_published_rows_are_typed_columns_that_pandas_reads_and_each_key_is_there_once(machine):
    rows = pd.read_parquet(DATA / machine / PUBLISHED_ROWS_FILE)
    assert len({record.key for record, _ in Store(DATA).published(machine)}) == len(rows)
    assert rows["ns_per_access"].dtype == "float64" and rows["lines"].dtype == "int64"
    assert (rows["backing"] == rows["pages"]).all()
    assert all(len(experiments) for experiments in rows["experiments"])


def test_the_readme_of_the_data_explains_each_column():
    columns = {
        name
        for path in DATA.glob(f"*/{PUBLISHED_ROWS_FILE}")
        for name in pd.read_parquet(path).columns
    }
    text = (DATA / "README.md").read_text(encoding="utf-8")
    assert columns and columns <= {*re.findall(r"`(\w+)`", text)}


def test_the_example_in_the_readme_of_the_data_loads_groups_and_plots(monkeypatch):
    monkeypatch.chdir(DATA.parent)
    (example,) = re.findall(r"(?s)```python\n(.+?)```", (DATA / "README.md").read_text("utf-8"))
    exec(example, names := {})
    loads = names["loads"]
    assert {*loads["layout"]} == {"packed", "spread", "alias"} and len(loads) > 100
    assert names["chart"].to_dict()["mark"]
