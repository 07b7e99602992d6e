"""The store: nothing finished is lost, nothing broken is loaded, no path leads outside."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.common import make_record

from experiments.lab.record import Option, Point, Quantity, Record
from experiments.lab.store import Health, Store, data_root, measuring_lock, record_key
from experiments.system import files
from experiments.words.reasons import Unavailable

ROOT = files.ROOT
KERNEL = "feedfeedfeedfeed"
MACHINE, EXPERIMENT = "zen-3-00c0ffee", "stlb_cliff"
needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
fork = multiprocessing.get_context("fork")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def path(store: Store) -> Path:
    """The file of the experiment, with three whole lines: repeats 0, 1 and 2."""
    for repeat in range(3):
        store.append(MACHINE, EXPERIMENT, make_record(repeat=repeat), KERNEL)
    return store.root / MACHINE / f"{EXPERIMENT}.jsonl"


def repeats(store: Store) -> list[int]:
    return store.load(MACHINE, EXPERIMENT)["repeat"].tolist()


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def sign(content: dict) -> bytes:
    """A line with the digest that its content asks for: written out again from the format's description."""

    def canonical(value: dict) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    digest = hashlib.sha256(canonical(content)).hexdigest()[:16]
    return canonical(content | {"digest": digest}) + b"\n"


def content_of(line: bytes) -> dict:
    content = json.loads(line)
    del content["digest"]
    return content


# --- a record there and back
# ---------------------------------------------------------------------------------

counts = st.integers(0, 2**63 - 1)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
quantities = st.one_of(
    st.builds(Quantity, value=finite, event=st.none() | texts, running_percent=st.none() | finite),
    st.builds(Quantity, reason=texts.filter(bool), event=st.none() | texts),
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
        "options": st.dictionaries(st.sampled_from(["bytes", "threads", "x"]), st.integers(0, 2**53)),
        "also": st.dictionaries(st.sampled_from(["free_ns_per_access", "y"]), finite),
        "histogram": st.lists(st.tuples(finite, st.integers(1, 2**63 - 1)), max_size=5, unique_by=lambda pair: pair[0]).map(sorted),
        "counters": st.dictionaries(st.sampled_from(["walk", "walk_cycles", "stlb_hit", "n-s"]), quantities),
    }
    for names, strategy in (
        ("stride_bytes working_set_bytes arena_bytes accesses", st.integers(1, 2**63 - 1)),
        ("elapsed_ns ns_per_access prepare_ns wall_ns", positive),
        (
            "seed cpu minor_faults major_faults voluntary_switches involuntary_switches migrations repeat",
            counts,
        ),
    ):
        choice |= dict.fromkeys(names.split(), strategy)
    return make_record(pages=pages, **{name: draw(strategy) for name, strategy in choice.items()})


@given(st.lists(records(), max_size=4))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_record_comes_back_as_it_went_in(made: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        keys = [store.append(MACHINE, EXPERIMENT, record, KERNEL) for record in made]
        first: dict[str, Record] = {}
        for key, record in zip(keys, made, strict=True):
            first.setdefault(key, record)
        frame = store.load(MACHINE, EXPERIMENT)
        assert store.keys(MACHINE, EXPERIMENT) == set(keys)
        nested = {"counters", "options", "also"}
        assert set(frame.columns) >= set(Record.model_fields) - nested
        for (_, row), record in zip(frame.iterrows(), first.values(), strict=True):
            for name, value in [*record.options, *record.also.items()]:
                assert row[name] == value
            for name in set(Record.model_fields) - nested:
                value = getattr(record, name)
                assert row[name] == value if value is not None else math.isnan(row[name])
            for name, quantity in record.counters.items():
                if quantity.value is None:
                    assert math.isnan(row[f"{name}_per_access"]) and row[f"{name}_reason"] == quantity.reason
                else:
                    assert row[f"{name}_per_access"] == quantity.value / record.accesses
                    assert row[f"{name}_reason"] == ""


def test_a_key_can_be_computed_again_from_its_line(store: Store, path: Path) -> None:
    for line in path.read_bytes().splitlines():
        content = json.loads(line)
        record = Record.model_validate(content["record"])
        assert content["key"] == record_key(record.point, record.repeat, content["kernel_digest"], record.state)


def test_a_key_changes_with_each_thing_that_decides_a_measurement() -> None:
    point, state = make_record().point, "00112233aabb"
    changes = ({"lines": 4097}, {"pages": "2m"}, {"layout": "packed"}, {"order": "random"},
               {"engine": "numba"}, {"kernel": "page_gather"}, {"region_ms": 61}, {"stride_pages": 2}, {"mode": "populate"},
               {"options": (Option("bytes", 1),)}, {"options": (Option("bytes", 2),)}, {"options": (Option("threads", 1),)},
               {"options": (Option("bytes", 1), Option("threads", 1))})
    keys = [record_key(point, 0, KERNEL, state)]
    keys += [record_key(point.model_copy(update=change), 0, KERNEL, state) for change in changes]
    for rest in ((1, KERNEL, state), (0, "0" * 16, state), (0, KERNEL, "00112233aabc")):
        keys.append(record_key(point, *rest))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)


def test_a_key_is_the_same_in_every_version_of_the_code(store: Store) -> None:
    """A change of the key would orphan all data; this one is computed from the format's description."""
    point = {"engine": "c", "kernel": "page_chase", "layout": "spread", "lines": 4096, "order": "cycle",
             "pages": "4k", "region_ms": 60}
    text = json.dumps({"kernel_digest": KERNEL, "point": point, "repeat": 0, "state": "00112233aabb"},
                      separators=(",", ":"))
    key = store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)
    assert key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_nothing_measured_is_an_empty_frame_with_the_same_columns_and_types(store: Store, path: Path) -> None:
    empty, filled = store.load(MACHINE, "another"), store.load(MACHINE, EXPERIMENT)
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == filled.dtypes.to_dict()
    assert list(empty.columns) == list(filled.columns)
    assert store.load("never-seen", EXPERIMENT).columns.tolist() == filled.columns.tolist()
    assert store.check("never-seen", EXPERIMENT) == Health(0, 0, 0, 0) and store.keys("never-seen", EXPERIMENT) == set()


def test_rows_come_in_the_order_of_appending_with_the_kernel_they_were_measured_with(store: Store) -> None:
    for repeat, kernel in ((5, "aa"), (1, "bb"), (3, "aa")):
        store.append(MACHINE, EXPERIMENT, make_record(repeat=repeat), kernel)
    frame = store.load(MACHINE, EXPERIMENT)
    assert frame["repeat"].tolist() == [5, 1, 3]
    assert frame["kernel_digest"].tolist() == ["aa", "bb", "aa"]
    pd.testing.assert_frame_equal(frame, Store(store.root).load(MACHINE, EXPERIMENT))


def test_a_second_result_for_one_key_does_not_replace_the_first(store: Store) -> None:
    store.append(MACHINE, EXPERIMENT, make_record(ns_per_access=6.5), KERNEL)
    store.append(MACHINE, EXPERIMENT, make_record(ns_per_access=1.0), KERNEL)
    assert store.load(MACHINE, EXPERIMENT)["ns_per_access"].tolist() == [6.5]


def test_a_counter_that_a_row_never_asked_for_has_a_reason_too(store: Store) -> None:
    store.append(MACHINE, EXPERIMENT, make_record(counters={"walk": Quantity(value=5e6)}), KERNEL)
    store.append(MACHINE, EXPERIMENT, make_record(repeat=1), KERNEL)
    frame = store.load(MACHINE, EXPERIMENT)
    assert frame["walk_per_access"].tolist()[0] == 0.5 and math.isnan(frame["walk_per_access"][1])
    assert frame["walk_reason"].tolist() == ["", "no-data"]


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {"ns": Quantity(value=1.0)}},
        {"counters": {"batch_ns": Quantity(value=1.0)}},
        {"counters": {"<script>": Quantity(value=1.0)}},
        {"counters": {"": Quantity(value=1.0)}},
        {"counters": {"walk": Quantity(reason="")}},
        {"accesses": 2**63},
        {"lines": 2**40 + 1},
        {"region_ms": 60_001},
    ],
)
def test_a_record_that_fits_no_column_is_refused_and_nothing_is_written(store: Store, changes: dict) -> None:
    with pytest.raises(ValueError, match="walk|counter cannot be called|does not fit 64 bits|lines|region_ms|accesses"):
        store.append(MACHINE, EXPERIMENT, make_record(**changes), KERNEL)
    assert not store.root.exists()


@pytest.mark.parametrize("digest", ["", "A" * 16, "a" * 65, "../x", "aa\n"])
def test_a_kernel_digest_that_is_no_slug_is_refused(store: Store, digest: str) -> None:
    with pytest.raises(ValueError, match="digest cannot be " + re.escape(repr(digest[:64]))):
        store.append(MACHINE, EXPERIMENT, make_record(), digest)


# --- lines that broke
# ----------------------------------------------------------------------------------------


def test_a_file_is_read_again_only_after_somebody_else_changed_it(store: Store, path: Path, monkeypatch) -> None:
    reads: list[Path] = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: (reads.append(self), read(self))[1])
    for repeat in (3, 4):
        store.append(MACHINE, EXPERIMENT, make_record(repeat=repeat), KERNEL)
    assert reads == []
    Store(store.root).append(MACHINE, EXPERIMENT, make_record(repeat=5), KERNEL)
    assert reads == [path]
    store.append(MACHINE, EXPERIMENT, make_record(repeat=6), KERNEL)
    assert reads == [path, path]


def test_a_torn_last_line_is_dropped_and_cut_off_by_the_next_append(store: Store, path: Path) -> None:
    whole = path.read_bytes()
    start = len(whole) - len(whole.splitlines()[-1]) - 1
    for keep in [start, *range(start + 1, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:keep])
        assert repeats(store) == [0, 1]
        torn = store.check(MACHINE, EXPERIMENT).torn
        assert torn == (not whole[:keep].endswith(b"\n"))
    store.append(MACHINE, EXPERIMENT, make_record(repeat=7), KERNEL)
    assert repeats(store) == [0, 1, 7]
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:2]))
    assert store.check(MACHINE, EXPERIMENT) == Health(3, 0, 0, 0)
    assert len(tree(store.root)) == 1  # a torn line is no evidence of anything: it is not quarantined


def test_no_flipped_bit_is_ever_loaded_as_another_value(store: Store, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    good = store.load(MACHINE, EXPERIMENT)
    rng = random.Random(1)
    for _ in range(100):
        bit = rng.randrange(8 * len(lines[1]))
        broken = bytearray(lines[1])
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(lines[0] + broken + lines[2])
        frame = store.load(MACHINE, EXPERIMENT)
        # The line is gone, or (its newline flipped) two are; never is there one that says something else.
        assert set(frame["repeat"]) <= {0, 2}
        pd.testing.assert_frame_equal(frame, good[good["repeat"].isin(frame["repeat"])].reset_index(drop=True))


def broken_lines(line: bytes) -> dict[str, bytes]:
    """One line for each way to fail, each with a right digest but the first two."""
    content = content_of(line)
    record = content["record"]
    return {
        "value": line.replace(b'"ns_per_access":6.5', b'"ns_per_access":1.5', 1),
        "digest": line.replace(b'"digest":"', b'"digest":"0', 1),
        "member twice, the first another": line.replace(b'{"digest"', b'{"key":"","digest"', 1),
        "member twice, both the same": line.replace(b'"lines":4096', b'"lines":4096,"lines":4096', 1),
        "spaces": line.replace(b'"lines":4096', b'"lines": 4096', 1),
        "same number otherwise": line.replace(b'"ns_per_access":6.5', b'"ns_per_access":6.50', 1),
        "order": line.replace(b'{"digest"', b'{"kernel_digest":"%s","digest"' % KERNEL.encode(), 1).replace(
            b'"kernel_digest":"%s","key"' % KERNEL.encode(), b'"key"', 1),
        "byte order mark": b"\xef\xbb\xbf" + line,
        "UTF-16": line.decode().strip().encode("utf-16-le").replace(b"\n", b"") + b"\n",
        "key": sign(content | {"key": "0" * 16}),
        "repeat": sign(content | {"record": record | {"repeat": 99}}),
        "kernel_digest": sign(content | {"kernel_digest": "0" * 16}),
        "schema": sign(content | {"record": record | {"ns_per_access": -1.0}}),
        "extra field": sign(content | {"record": record | {"user": "me"}}),
        "extra key": sign(content | {"user": "me"}),
        "backing": sign(content | {"record": record | {"backing": "2m"}}),
        "no record": sign({"key": content["key"], "kernel_digest": KERNEL}),
        "list": b"[1, 2]\n",
        "number": b"7\n",
        "empty": b"\n",
        "NUL": b"\0" * 100 + b"\n",
        "not UTF-8": b"\xff\xfe{}\n",
        "NaN": line.replace(b'"ns_per_access":6.5', b'"ns_per_access":NaN', 1),
        "deep": b"[" * 200_000 + b"\n",
        "long number": b"1" * 10_000 + b"\n",
    }


@pytest.mark.parametrize("how", broken_lines(sign({"key": "", "kernel_digest": "", "record": {}})))
def test_the_next_writer_moves_a_broken_line_to_quarantine(store: Store, path: Path, how: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    broken = broken_lines(lines[1])[how]
    path.write_bytes(lines[0] + broken + lines[2])
    before = tree(store.root)
    assert repeats(store) == [0, 2]
    assert store.check(MACHINE, EXPERIMENT) == Health(2, 0, 1, 0)
    assert len(store.keys(MACHINE, EXPERIMENT)) == 2
    assert tree(store.root) == before, "a reader changed the tree"
    store.append(MACHINE, EXPERIMENT, make_record(repeat=1), KERNEL)
    assert repeats(store) == [0, 2, 1]
    quarantine = path.with_name(f"{EXPERIMENT}.quarantine.jsonl")
    assert quarantine.read_bytes() == broken
    assert stat.S_IMODE(quarantine.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) & 0o644
    assert set(tree(store.root)) == {str(p.relative_to(store.root)) for p in (path, quarantine)}
    store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    assert quarantine.read_bytes() == broken


def test_a_quarantine_that_a_crash_left_half_done_gets_each_line_once(store: Store, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    quarantine = path.with_name(f"{EXPERIMENT}.quarantine.jsonl")
    quarantine.write_bytes(b"broken\ntor")  # the crash: after one whole line, before the file was replaced
    path.with_name(f".{path.name}.tmp").write_bytes(b"half a replacement")
    path.write_bytes(lines[0] + b"broken\n" + b"torn\n" + lines[2])
    store.append(MACHINE, EXPERIMENT, make_record(repeat=1), KERNEL)
    assert quarantine.read_bytes().splitlines() == [b"broken", b"tor", b"torn"]
    assert repeats(store) == [0, 2, 1]
    assert not path.with_name(f".{path.name}.tmp").exists()


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_a_line_of_another_schema_version_stays_and_is_not_loaded(store: Store, path: Path, version: object) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    content = content_of(lines[1])
    content["record"] = {"schema_version": version, "whatever": "it held"}
    path.write_bytes(lines[0] + sign(content) + lines[2])
    store.append(MACHINE, EXPERIMENT, make_record(repeat=1), KERNEL)
    assert repeats(store) == [0, 2, 1]
    assert store.check(MACHINE, EXPERIMENT) == Health(3, 1, 0, 0)
    assert sign(content) in path.read_bytes()
    assert len(tree(store.root)) == 1


def test_line_ends_of_another_system_change_nothing(store: Store, path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert repeats(store) == [0, 1, 2]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
GOOD = sign(
    {
        "key": record_key(make_record().point, 0, KERNEL, "00112233aabb"),
        "kernel_digest": KERNEL,
        "record": make_record().model_dump(exclude_none=True),
    }
)


def resigned(field: str, value: object) -> bytes:
    return sign(content_of(GOOD) | {"record": make_record().model_dump(exclude_none=True) | {field: value}})


@given(st.one_of(
    st.binary(max_size=200),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(["key", "kernel_digest", "record", "digest"]), json_values).map(
        lambda value: json.dumps(value).encode()),
    st.builds(resigned, st.sampled_from(sorted(Record.model_fields)), json_values),
    st.builds(lambda field, value: sign(content_of(GOOD) | {field: value}),
              st.sampled_from(["key", "kernel_digest", "record"]), json_values),
))
@example(b'{"digest": "' + b"\\ud800" * 3 + b'"}')
@example(b'{"digest":"0","key":1e999,"kernel_digest":0,"record":0}')
@settings(max_examples=150, deadline=None)  # tests/test_fuzz.py has thousands, from lines that are almost right
def test_no_line_whatsoever_breaks_a_reader_or_passes_for_a_record(line: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        file = Path(folder) / MACHINE / f"{EXPERIMENT}.jsonl"
        file.parent.mkdir()
        file.write_bytes(line.rstrip(b"\n") + b"\n" + GOOD)
        frame = store.load(MACHINE, EXPERIMENT)
        assert frame["checksum"].iloc[-1] == "0123456789abcdef"
        if len(frame) == 2:  # a field replaced by a valid value, signed: a record like any other
            Record.model_validate(content_of(line)["record"])


def test_the_lines_the_fuzzer_starts_from_are_those_that_append_writes(store: Store) -> None:
    store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)
    assert (store.root / MACHINE / f"{EXPERIMENT}.jsonl").read_bytes() == GOOD


# --- writers at once, writers killed
# -------------------------------------------------------------------------


def write_some(root: Path, writer: int, rounds: int) -> None:
    store = Store(root)
    for number in range(rounds):
        store.append(MACHINE, EXPERIMENT, make_record(repeat=1000 * writer + number), KERNEL)


def wait_for(processes: list) -> None:
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def test_eight_writers_at_once_lose_and_tear_nothing(store: Store) -> None:
    rounds = 6
    writers = [fork.Process(target=write_some, args=(store.root, w, rounds)) for w in range(8)]
    for writer in writers:
        writer.start()
    wait_for(writers)
    assert sorted(repeats(store)) == sorted(1000 * w + n for w in range(8) for n in range(rounds))
    assert store.check(MACHINE, EXPERIMENT) == Health(8 * rounds, 0, 0, 0)


def test_writers_at_once_mend_a_broken_file_once_and_lose_nothing(store: Store, path: Path) -> None:
    for turn in range(5):
        path.write_bytes(path.read_bytes() + f"broken {turn}\n".encode() + b'{"digest":"torn')
        writers = [fork.Process(target=write_some, args=(store.root, 10 * turn + w, 2)) for w in range(1, 5)]
        for writer in writers:
            writer.start()
        wait_for(writers)
    expected = {0, 1, 2} | {1000 * (10 * t + w) + n for t in range(5) for w in range(1, 5) for n in range(2)}
    assert set(repeats(store)) == expected
    quarantine = path.with_name(f"{EXPERIMENT}.quarantine.jsonl").read_bytes()
    assert quarantine.splitlines() == [f"broken {turn}".encode() for turn in range(5)]


def write_for_ever(root: Path, start: int, report: int) -> None:
    store = Store(root)
    for repeat in itertools.count(start):
        store.append(MACHINE, EXPERIMENT, make_record(repeat=repeat), KERNEL)
        os.write(report, b"%d\n" % repeat)


def test_a_writer_killed_at_any_moment_loses_no_finished_record(store: Store) -> None:
    rng = random.Random(2)
    finished: set[int] = set()
    kills = 12  # tests/test_endurance.py has 200, of a whole runner
    for turn in range(kills):
        reader, report = os.pipe()
        writer = fork.Process(target=write_for_ever, args=(store.root, 1000 * turn, report))
        writer.start()
        os.close(report)
        with open(reader) as reported:
            finished.add(int(reported.readline()))  # it is in its loop
            time.sleep(rng.uniform(0, 0.01))
            writer.kill()
            finished |= {int(line) for line in reported}
        writer.join()
        assert finished <= set(repeats(store))
    health = store.check(MACHINE, EXPERIMENT)
    assert health.corrupt == health.other_schema == 0
    assert health.whole <= len(finished) + kills  # at most the one in flight each time


# --- disks that refuse
# ---------------------------------------------------------------------------------------


def failing(call, code: int, after: int = 0, take: int | None = None):
    """`call`, failing with `code` from call number `after` on; a write before takes `take` bytes at most."""
    calls = 0

    def wrapped(fd, *args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(code, os.strerror(code))
        return call(fd, *(a[:take] for a in args), **kwargs) if args and take else call(fd, *args, **kwargs)

    return wrapped


REFUSALS = [
    (errno.ENOSPC, "disk-full"),
    (errno.EDQUOT, "disk-full"),
    (errno.EFBIG, "disk-full"),
    (errno.EROFS, "disk-read-only"),
    (errno.EACCES, "disk-read-only"),
]


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
@pytest.mark.parametrize("where", ["open", "write", "part of the write", "fsync"])
def test_a_disk_that_refuses_leaves_the_file_as_it_was(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int, reason: str
) -> None:
    before = tree(store.root)
    name = {"part of the write": "write"}.get(where, where)
    after, take = (3, 100) if where == "part of the write" else (0, None)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), code, after, take))
        with pytest.raises(Unavailable) as refused:
            store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    assert refused.value.code == reason
    assert EXPERIMENT in str(refused.value) and "\n" not in str(refused.value)
    assert tree(store.root) == before
    store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    assert repeats(store) == [0, 1, 2, 3]


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
@pytest.mark.parametrize("after", range(2))
def test_a_disk_that_refuses_during_a_quarantine_loses_nothing(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, after: int, code: int, reason: str
) -> None:
    path.write_bytes(path.read_bytes() + b"broken\n")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(os.write, code, after))
        with pytest.raises(Unavailable) as refused:
            store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    assert refused.value.code == reason
    assert path.read_bytes() == before
    assert not path.with_name(f".{path.name}.tmp").exists()
    store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    assert repeats(store) == [0, 1, 2, 3]
    quarantine = f"{MACHINE}/{EXPERIMENT}.quarantine.jsonl"
    assert tree(store.root) == {f"{MACHINE}/{EXPERIMENT}.jsonl": path.read_bytes(), quarantine: b"broken\n"}


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_the_whole_line(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(os, "write", failing(os.write, 0, after=10**6, take=7))
    store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)
    assert repeats(store) == [0]


def test_a_disk_that_takes_nothing_is_full_and_not_an_endless_loop(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(Unavailable, match="no room"):
        store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)


def test_a_line_is_one_write_and_is_synced_with_its_new_folders(store: Store, monkeypatch) -> None:
    calls: list[str] = []
    write, sync = os.write, os.fsync

    def seen(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    monkeypatch.setattr(os, "write", lambda fd, data: (calls.append("write " + seen(fd)), write(fd, data))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync " + seen(fd)), sync(fd))[1])
    file, folder = store.root / MACHINE / f"{EXPERIMENT}.jsonl", store.root / MACHINE
    store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)
    assert calls == [f"write {file}", f"sync {file}", f"sync {folder}", f"sync {store.root}"]
    calls.clear()
    store.append(MACHINE, EXPERIMENT, make_record(repeat=1), KERNEL)
    assert calls == [f"write {file}", f"sync {file}"]


def test_a_replacement_is_synced_with_its_folder(store: Store, path: Path, monkeypatch) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    store.write_machine(MACHINE, {"cpu_model": "Zen 3"})
    assert synced == [str(path.parent / ".machine.json.tmp"), str(path.parent)]


def test_another_failure_of_the_disk_is_not_called_full(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, errno.EIO))
    with pytest.raises(OSError) as failed:
        store.append(MACHINE, EXPERIMENT, make_record(), KERNEL)
    assert failed.value.errno == errno.EIO
    monkeypatch.undo()
    assert repeats(store) == []


def test_a_file_size_limit_stops_a_real_write_half_way_and_nothing_of_it_stays(store: Store, path: Path) -> None:
    before = path.read_bytes()
    program = f"""if True:
        import resource, sys
        sys.path[:0] = sys.argv[2:]
        from support.common import make_record
        from experiments.words.reasons import Unavailable
        from experiments.lab.store import Store
        resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100}, {len(before) + 100}))
        try:
            Store(sys.argv[1]).append({MACHINE!r}, {EXPERIMENT!r}, make_record(repeat=3), {KERNEL!r})
        except Unavailable as e:
            print(e.code)
    """
    command = [sys.executable, "-c", program, str(store.root), str(ROOT), str(ROOT / "tests")]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "disk-full"
    assert path.read_bytes() == before


@needs_root
def test_a_mended_file_stays_its_owners_when_root_mends_it(store: Store, path: Path) -> None:
    os.chown(path, 65534, 65534)
    os.chmod(path, 0o664)
    path.write_bytes(path.read_bytes() + b"broken\n")
    store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (65534, 65534, 0o664)


# --- names and paths
# -----------------------------------------------------------------------------------------

HOSTILE = [
    "../x",
    "a/b",
    "",
    "A",
    "a" * 65,
    "this/..",
    ".",
    "..",
    "a\n",
    "a\0b",
    "é",
    "a b",
    "</script>",
    7,
    None,
    ["a"],
]


@pytest.mark.parametrize("name", [*HOSTILE, "this", "reference", "literature"])
def test_no_hostile_machine_name_reaches_the_disk(store: Store, name: str) -> None:
    calls = [
        lambda: store.append(name, EXPERIMENT, make_record(), KERNEL),
        lambda: store.load(name, EXPERIMENT),
        lambda: store.keys(name, EXPERIMENT),
        lambda: store.write_machine(name, {}),
        lambda: store.read_machine(name),
    ]
    if name not in ("this", "reference"):
        calls.append(lambda: store.resolve(name))
    for call in calls:
        with pytest.raises(Unavailable) as refused:
            call()
        assert refused.value.code == "bad-parameter"
        assert "\n" not in str(refused.value)
        assert repr(str(name)[:80]) in refused.value.detail
    assert not store.root.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_experiment_name_reaches_the_disk(store: Store, name: str) -> None:
    for call in (
        lambda: store.append(MACHINE, name, make_record(), KERNEL),
        lambda: store.load(MACHINE, name),
        lambda: store.check(MACHINE, name),
    ):
        with pytest.raises(Unavailable) as refused:
            call()
        assert refused.value.code == "bad-parameter"
        assert repr(str(name)[:80]) in refused.value.detail
    assert not store.root.exists()


@pytest.mark.parametrize("link", ["folder", "file", "file to nowhere", "quarantine", "temporary"])
def test_no_symbolic_link_leads_out_of_the_store(store: Store, path: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / f"{EXPERIMENT}.jsonl"
    if link != "file to nowhere":
        target.write_bytes(path.read_bytes())
    before = tree(outside)
    if link == "folder":
        path.unlink()
        path.parent.rmdir()
        path.parent.symlink_to(outside)
    elif link.startswith("file"):
        path.unlink()
        path.symlink_to(target)
    else:
        path.write_bytes(path.read_bytes() + b"broken\n")
        other = f"{EXPERIMENT}.quarantine.jsonl" if link == "quarantine" else f".{path.name}.tmp"
        path.with_name(other).symlink_to(target)
    try:
        store.append(MACHINE, EXPERIMENT, make_record(repeat=3), KERNEL)
    except Unavailable as e:
        assert e.code == "bad-parameter"
    except OSError as e:
        assert (link, e.errno) == ("quarantine", errno.ELOOP)
    else:
        assert link == "temporary"  # it is removed, and the new file is a file of its own
        assert not path.is_symlink()
    assert tree(outside) == before
    if link in ("folder", "file"):
        with pytest.raises(Unavailable, match="symbolic link"):
            store.load(MACHINE, EXPERIMENT)


def test_the_root_itself_may_be_a_link(store: Store, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.root)
    assert repeats(Store(tmp_path / "link")) == [0, 1, 2]


def test_machines_are_the_folders_that_hold_results(store: Store, path: Path, tmp_path: Path) -> None:
    for name in ("literature", "empty", "Capital", "a.b"):
        (store.root / name).mkdir()
    (store.root / "literature" / "published.jsonl").touch()
    (store.root / "Capital" / "machine.json").touch()
    (store.root / "linked").symlink_to(path.parent)
    store.write_machine("inspected-only", {})
    assert store.machines() == ["inspected-only", MACHINE]
    assert Store(tmp_path / "nowhere").machines() == []


def test_machine_names_are_resolved_or_refused_in_one_sentence(store: Store, path: Path) -> None:
    assert store.resolve(MACHINE) == MACHINE
    assert store.resolve("this") == "this"
    assert store.resolve("this", this="ice-lake-00000000") == "ice-lake-00000000"
    for missing, says in (("reference", "^data/reference names no machine$"), ("not-here", "^no machine 'not-here' in data/$")):
        with pytest.raises(Unavailable) as refused:
            store.resolve(missing)
        assert re.search(says, refused.value.detail)
        assert refused.value.code == "no-data"
    (store.root / "reference").write_text(f"{MACHINE}\n")
    assert store.resolve("reference") == store.reference() == MACHINE


@pytest.mark.parametrize("text", [b"", b"not-here", b"../x", b"\xff", b"this"])
def test_a_reference_that_names_no_machine_is_refused(store: Store, path: Path, text: bytes) -> None:
    (store.root / "reference").write_bytes(text)
    with pytest.raises(Unavailable) as refused:
        store.reference()
    assert refused.value.code == "no-data"
    assert "no machine" in refused.value.detail if text == b"\xff" else repr(text.decode()) in refused.value.detail


def test_machine_json_comes_back_and_is_not_touched_without_a_change(store: Store) -> None:
    facts = {"cpu_model": "Zen 3 </script>", "caches": [{"level": 1}], "tlb_reason": None}
    store.write_machine(MACHINE, facts)
    assert store.read_machine(MACHINE) == facts
    # One fact a line, in the order of the alphabet: what a diff of data/ can show.
    assert (store.root / MACHINE / "machine.json").read_text().splitlines()[-3:] == [
        '  "cpu_model": "Zen 3 </script>",', '  "tlb_reason": null', "}"]
    with pytest.raises(ValueError):
        store.write_machine(MACHINE, facts | {"load1": math.nan})  # JSON has no NaN
    assert store.read_machine(MACHINE) == facts
    file = store.root / MACHINE / "machine.json"
    inode = file.stat().st_ino
    store.write_machine(MACHINE, dict(reversed(facts.items())))
    assert file.stat().st_ino == inode
    store.write_machine(MACHINE, facts | {"tlb_reason": "no-geometry"})
    assert store.read_machine(MACHINE)["tlb_reason"] == "no-geometry"
    assert [p.name for p in file.parent.iterdir()] == ["machine.json"]


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 200_000])
def test_a_machine_json_that_is_none_is_a_reason(store: Store, path: Path, text: bytes) -> None:
    (path.parent / "machine.json").write_bytes(text)
    with pytest.raises(Unavailable, match=f"{MACHINE} has no readable machine.json") as refused:
        store.read_machine(MACHINE)
    assert refused.value.code == "no-data"


@pytest.mark.parametrize("bad", [[(1.0, 2), (1.0, 3)], [(2.0, 1), (1.0, 1)], [(1.0, 0)], [(math.nan, 1)], [(1.0,)], [(1.0, 2, 3)],
                                 [(1.0, 2.5)], [("1", 2)], [1.0], 5])
def test_a_histogram_is_pairs_of_ascending_ns_and_how_many(bad: object) -> None:
    assert make_record(histogram=[[-1.5, 1], [0.0, 2]]).histogram == [(-1.5, 1), (0.0, 2)]
    with pytest.raises(ValidationError):
        make_record(histogram=bad)


def test_documents_lie_beside_the_rows_each_under_its_name(store: Store, path: Path) -> None:
    documents = {"runtimes": {"state": "00112233aabb", "reports": []}, "jmh": {"scores": [{"ns": 1.5}]}, "machine": {"cpu_model": "x"}}
    for name, content in documents.items():
        store.write_document(MACHINE, name, content)
    assert {name: store.read_document(MACHINE, name) for name in documents} == documents
    assert store.read_machine(MACHINE) == documents["machine"] and repeats(store) == [0, 1, 2]
    assert {p.name for p in path.parent.iterdir()} == {path.name, "machine.json", "runtimes.json", "jmh.json"}
    store.write_document(MACHINE, "jmh", {"scores": []})
    assert store.read_document(MACHINE, "jmh") == {"scores": []}


def test_a_document_that_is_not_there_or_none_is_no_data_and_names_itself(store: Store, path: Path) -> None:
    for text in (None, b"", b"[1]", b"{", b"\xff"):
        if text is not None:
            (path.parent / "jmh.json").write_bytes(text)
        with pytest.raises(Unavailable, match=f"{MACHINE} has no readable jmh.json") as refused:
            store.read_document(MACHINE, "jmh")
        assert refused.value.code == "no-data"


@pytest.mark.parametrize("name", ["", "../jmh", "a/b", "A", "jmh.json", "x" * 65, "é"])
def test_a_document_has_a_plain_name(store: Store, path: Path, name: str) -> None:
    before = tree(store.root)
    for call in (lambda: store.write_document(MACHINE, name, {}), lambda: store.read_document(MACHINE, name)):
        with pytest.raises(Unavailable) as refused:
            call()
        assert refused.value.code == "bad-parameter"
    assert tree(store.root) == before


def test_a_document_is_never_written_through_a_symbolic_link(store: Store, path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text("{}")
    (path.parent / "jmh.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(Unavailable):
        store.write_document(MACHINE, "jmh", {"scores": []})
    assert (tmp_path / "elsewhere.json").read_text() == "{}"


# --- what one kernel alone takes and gives


@pytest.mark.parametrize("given", [(("bytes", 8), ("threads", 2)), (("threads", 2), ("bytes", 8)), [["threads", 2], ["bytes", 8]],
                                   {"threads": 2, "bytes": 8}])
def test_the_same_options_in_any_order_are_the_same_point(given: object) -> None:
    point = Point(kernel="random_touch", lines=1, options=given)
    assert point.options == (Option("bytes", 8), Option("threads", 2)) and point == Point.model_validate_json(point.model_dump_json())


@pytest.mark.parametrize("given", [
    (("bytes", 1), ("bytes", 2)), (("bytes", -1),), (("bytes", 2**53 + 1),), (("bytes", 1.5),), (("bytes", "1"),), (("bytes", True),),
    (("Bytes", 1),), (("a b", 1),), (("", 1),), (("bytes",),), (("bytes", 1, 2),), "bytes", 7, None, ((1, 2),)])
def test_what_is_no_list_of_names_with_whole_numbers_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        Point(kernel="random_touch", lines=1, options=given)


def test_a_kernels_own_numbers_are_columns_and_nan_where_another_kernel_has_none(store: Store) -> None:
    touch = make_record(kernel="random_touch", options={"bytes": 1000}, also={"generator_ns_per_access": 1.5})
    fault = make_record(kernel="prefault", mode="populate", options={"threads": 2}, also={"free_ns_per_access": 50.0})
    for record in (touch, fault, make_record()):
        store.append(MACHINE, EXPERIMENT, record, KERNEL)
    frame = store.load(MACHINE, EXPERIMENT)
    assert frame["mode"].tolist() == ["", "populate", ""]
    for name, values in {"bytes": [1000, None, None], "generator_ns_per_access": [1.5, None, None], "threads": [None, 2, None],
                         "free_ns_per_access": [None, 50.0, None]}.items():
        assert frame[name].dtype == "float64" and [None if math.isnan(value) else value for value in frame[name]] == values


@pytest.mark.parametrize("changes", [
    {"options": {"lines": 1}}, {"also": {"repeat": 1.0}}, {"also": {"kernel_digest": 1.0}}, {"options": {"x": 1}, "also": {"x": 1.0}},
    {"also": {"walk_per_access": 1.0}, "counters": {"walk": Quantity(value=1.0)}},
    {"options": {"walk_reason": 1}, "counters": {"walk": Quantity(reason="no-pmu")}}])
def test_an_own_number_that_would_hide_a_column_is_refused(store: Store, changes: dict) -> None:
    with pytest.raises(ValueError):
        store.append(MACHINE, EXPERIMENT, make_record(**changes), KERNEL)
    assert store.load(MACHINE, EXPERIMENT).empty


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
def test_a_disk_that_refuses_a_machine_json_says_which(store: Store, path: Path, monkeypatch, code: int, reason: str) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, code))
    with pytest.raises(Unavailable, match="machine.json") as refused:
        store.write_machine(MACHINE, {})
    assert refused.value.code == reason
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_data_root_is_the_checkouts_or_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLB_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere")
    monkeypatch.delenv("TLB_DATA")
    assert data_root() == ROOT / "data"


# --- the measuring lock
# --------------------------------------------------------------------------------------

HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from experiments.system.files import measuring_lock
with measuring_lock(path=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    return tmp_path / "tlb-measuring.lock"


@pytest.fixture
def holder(lock_path: Path):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock_path), str(ROOT)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_measurement_is_refused_and_told_who_holds_the_lock(holder, lock_path: Path) -> None:
    with pytest.raises(Unavailable) as refused, measuring_lock(path=lock_path):
        pytest.fail("two measurements at once")
    assert refused.value.code == "measuring-already"
    assert refused.value.detail in (f"process {holder.pid}", "")  # "" where the system has no list of locks
    assert refused.value.detail or str(lock_path.stat().st_ino) not in Path("/proc/locks").read_text()


def test_a_killed_holder_leaves_no_lock_behind(holder, lock_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with measuring_lock(path=lock_path):
        pass


def test_who_waits_gets_the_lock_when_the_holder_is_gone(holder, lock_path: Path) -> None:
    waiter = fork.Process(target=wait_for_lock, args=(lock_path,))
    waiter.start()
    waiter.join(0.3)
    assert waiter.exitcode is None
    holder.kill()
    wait_for([waiter])


def wait_for_lock(path: Path) -> None:
    with measuring_lock(wait=True, path=path):
        pass


def test_the_lock_can_be_taken_again_once_left_and_not_inside_itself(lock_path: Path) -> None:
    for _ in range(2):
        with measuring_lock(path=lock_path), pytest.raises(Unavailable), measuring_lock(path=lock_path):
            pytest.fail("two measurements at once")


def test_a_kernel_process_that_outlives_its_runner_keeps_the_lock(lock_path: Path) -> None:
    with measuring_lock(path=lock_path) as fd:
        orphan = subprocess.Popen(["sleep", "60"], pass_fds=(fd,))
    try:
        with pytest.raises(Unavailable), measuring_lock(path=lock_path):
            pytest.fail("two measurements at once")
    finally:
        orphan.kill()
        orphan.wait()
    with measuring_lock(path=lock_path):
        pass


def test_a_lock_file_deleted_while_it_is_held_does_not_lock_out_the_next(holder, lock_path: Path) -> None:
    """A waiter must get the lock of the file that is there: nobody else sees that of the deleted one."""
    waiter = fork.Process(target=wait_for_lock, args=(lock_path,))
    waiter.start()
    waiter.join(0.3)
    lock_path.unlink()
    lock_path.touch()
    with measuring_lock(path=lock_path):
        holder.kill()
        waiter.join(0.3)
        assert waiter.exitcode is None, "the waiter took the lock of the deleted file"
    wait_for([waiter])


@pytest.mark.parametrize("umask", [0o077, 0o777, 0o000])
def test_the_lock_file_is_open_to_all_users_whatever_the_umask(lock_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with measuring_lock(path=lock_path):
            pass
        assert os.umask(umask) == umask, "the umask was not put back"
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_path.stat().st_mode) == 0o666


def test_an_existing_lock_file_is_not_opened_with_o_creat(lock_path: Path, monkeypatch) -> None:
    """fs.protected_regular refuses that for another user's file in a sticky folder, even to root."""
    lock_path.touch()
    really_open = os.open

    def protected(path, flags, *mode, **kwargs):
        if flags & os.O_CREAT and os.path.lexists(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, flags, *mode, **kwargs)

    monkeypatch.setattr(os, "open", protected)
    with measuring_lock(path=lock_path):
        pass


def test_two_that_create_the_lock_file_at_once_share_it(lock_path: Path, monkeypatch) -> None:
    really_open = os.open

    def late(path, flags, *mode, **kwargs):
        if flags & os.O_CREAT:  # the other was faster by this much
            os.close(really_open(path, flags, *mode))
            if not flags & os.O_EXCL:  # what fs.protected_regular does, the other being another user
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, flags, *mode, **kwargs)

    monkeypatch.setattr(os, "open", late)
    with measuring_lock(path=lock_path):
        assert lock_path.exists()


@needs_root
def test_root_and_an_ordinary_user_share_the_lock() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        for owner in (0, 65534):
            lock_path = Path(folder) / f"lock-of-{owner}"
            with_user(owner, wait_for_lock, lock_path)
            assert lock_path.stat().st_uid == owner
            with measuring_lock(path=lock_path):
                assert with_user(65534, is_refused, lock_path) == 0
            with_user(65534, wait_for_lock, lock_path)


def is_refused(path: Path) -> None:
    with pytest.raises(Unavailable), measuring_lock(path=path):
        pytest.fail("two measurements at once")


def with_user(user: int, call, *args: Path) -> int:
    """Runs call(*args) in a process of `user`; its exit code, which is 0."""

    def run() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        call(*args)

    process = fork.Process(target=run)
    process.start()
    wait_for([process])
    return process.exitcode


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "folder", "fifo"])
def test_a_lock_path_that_is_no_file_is_refused(lock_path: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "link":
        target.write_text("precious")
    if kind.startswith("link"):
        lock_path.symlink_to(target)
    elif kind == "folder":
        lock_path.mkdir()
    else:
        os.mkfifo(lock_path)
    with pytest.raises(Unavailable) as refused, measuring_lock(path=lock_path):
        pytest.fail("locked something that is no file")
    assert refused.value.code == "measuring-already"
    assert "remove it" in str(refused.value)
    assert kind != "link" or target.read_text() == "precious"
    assert target.exists() == (kind == "link")


def test_the_lock_is_one_for_the_host_and_not_one_for_each_tmpdir() -> None:
    program = "from experiments.system.files import MEASURING_LOCK; print(MEASURING_LOCK)"
    environment = os.environ | {"TMPDIR": "/var/tmp"}
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "/tmp/tlb-measuring.lock" == str(files.MEASURING_LOCK)


def test_what_cannot_lock_says_that_measuring_needs_linux(lock_path: Path, store: Store, monkeypatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.raises(Unavailable, match="Linux"), measuring_lock(path=lock_path):
        pytest.fail("locked without a lock")
    assert len(store.load(MACHINE, EXPERIMENT)) == 0
