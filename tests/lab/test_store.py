"""The store: what is measured comes back as it went in, under a key that any version of the code
computes; documents beside the rows."""

import hashlib
import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.common import ROOT, make_record
from support.lab import KERNEL, MACHINE, NAME, put

from tlb.lab import lines
from tlb.lab.lines import record_key
from tlb.lab.record import Identity, Option, Quantity, Record
from tlb.lab.store import Store

counts = st.integers(0, 2**63 - 1)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
quantities = st.one_of(
    st.builds(Quantity, value=finite, event=st.none() | texts, running_percent=st.none() | finite),
    st.builds(
        Quantity, reason=st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True), event=st.none() | texts
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
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_record_comes_back_as_it_went_in(made):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        keys = put(store, MACHINE, NAME, KERNEL, *made)
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
        whole = [lines.write(record, KERNEL)[1].removesuffix(b"\n") for record in made]
        (published := Path(folder) / "x.jsonl").write_bytes(lines.compact(whole))
        rows = [row for row, _ in lines.read(published)[0]]
        assert rows == [lines.parse(line) for line in whole]
        assert [row.line for row in rows] == whole


def test_a_key_changes_with_each_thing_that_decides_a_measurement():
    point, state = make_record().point, "00112233aabb"
    changes = (
        {"lines": 4097},
        {"pages": "2m"},
        {"layout": "packed"},
        {"order": "random"},
        {"engine": "numba"},
        {"kernel": "page_gather"},
        {"region_ms": 61},
        {"stride_pages": 2},
        {"mode": "populate"},
        {"options": (Option("bytes", 1),)},
        {"options": (Option("bytes", 2),)},
        {"options": (Option("threads", 1),)},
        {"options": (Option("bytes", 1), Option("threads", 1))},
    )
    here = Identity(1, KERNEL)
    keys = [record_key(point, 0, here, state)]
    keys += [record_key(point.model_copy(update=change), 0, here, state) for change in changes]
    for rest in (
        (1, here, state),
        (0, Identity(1, "0" * 16), state),
        (0, Identity(2, KERNEL), state),
        (0, here, "00112233aabc"),
    ):
        keys.append(record_key(point, *rest))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)
    # where it came from decides nothing
    assert record_key(point, 0, Identity(1, KERNEL, "0" * 16, "gcc: gcc 13"), state) == keys[0]


def test_a_key_is_the_same_in_every_version_of_the_code(store):
    """A change of the key would orphan all data; this one is computed from the format's
    description."""
    point = {
        "engine": "c",
        "kernel": "page_chase",
        "layout": "spread",
        "lines": 4096,
        "order": "cycle",
        "pages": "4k",
        "region_ms": 60,
    }
    shared = {"point": point, "repeat": 0, "state": "00112233aabb"}
    for version, digests in (
        (1, {"kernel_digest": KERNEL}),
        (2, {"code_digest": KERNEL, "measures": 1}),
    ):
        text = json.dumps(digests | shared, separators=(",", ":"), sort_keys=True)
        key = store.append(MACHINE, make_record(schema_version=version), KERNEL)
        assert key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_published_rows_of_version_1_are_written_as_they_were_read():
    """To the byte, of the last that were published (older ones lack fields of version 1): nothing
    that is younger comes in."""
    published = [
        row
        for path in sorted((ROOT / "data").glob("*/*.jsonl"))
        if path.stat().st_size < 200_000
        for row, _ in lines.read(path)[0][::10]
        if row.record.schema_version == 1
    ]
    assert len(published) > 100
    for row in published:
        assert lines.write(row.record, row.kernel_digest) == (row.key, row.line + b"\n")


def test_a_second_result_that_counts_what_the_first_could_not_stands_in_its_place(store):
    uncounted, counted = (
        {"walk": Quantity(reason="no-perf")},
        {"walk": Quantity(value=1e7, event="walks:u")},
    )
    for ns, counters in ((6.5, uncounted), (7.5, counted), (1.0, uncounted), (2.0, counted)):
        put(store, MACHINE, NAME, KERNEL, make_record(ns_per_access=ns, counters=counters))
    assert (
        store.load(MACHINE, NAME)["ns_per_access"].tolist() == [7.5]
        and len(store.keys(MACHINE, NAME)) == 1
    )
