"""Lines of the store that broke: none is read, none passes for a record, and the next writer moves
them to quarantine."""

import stat

import pytest
from support.common import make_record
from support.lab import KERNEL, MACHINE, NAME, ROWS, assert_whole, content_of, repeats, sign, tree

from tlb.lab import lines


def test_a_torn_last_line_is_dropped_and_cut_off_by_the_next_append(store, path):
    whole = path.read_bytes()
    start = len(whole) - len(whole.splitlines()[-1]) - 1
    for keep in [start, *range(start + 1, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:keep])
        assert repeats(store) == [0, 1]
    store.append(MACHINE, make_record(repeat=7), KERNEL)
    assert repeats(store) == [0, 1, 7]
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:2]))
    assert_whole(store, 3)
    # a torn line is no evidence of anything: it is not quarantined
    assert len(tree(store.root)) == 2


def test_a_published_line_changes_the_last_whole_one_and_breaks_with_it(store, path):
    path.write_bytes(lines.compact(path.read_bytes().splitlines()))
    first, second, third = path.read_bytes().splitlines(keepends=True)
    assert repeats(store) == [0, 1, 2] and len(second + third) < len(first)
    store.append(MACHINE, make_record(repeat=7), KERNEL)
    last = path.read_bytes().splitlines(keepends=True)[-1]
    wrong = second.replace(b'"repeat":1', b'"repeat":9')
    for content, left in (
        (first + wrong + third, [0, 2]),
        (first.replace(b'"cpu":0', b'"cpu":1') + second + third + last, [7]),
        (second + first + third, [0, 2]),
        (first + second.replace(b"{", b'{"digest":"",', 1) + third, [0, 2]),
    ):
        path.write_bytes(content)
        assert repeats(store) == left


def test_a_line_that_no_patch_gives_is_published_whole():
    made = [b'{"a":{"b":1}}', b'{"a":{"b":1.0}}', b'{"a":null}', b'{"c":[]}', b'{"a":[],"c":[]}']
    patch = b'{"patch":{"a":{"b":1.0}}}'
    assert lines.compact(made).splitlines() == [
        made[0],
        patch,
        made[2],
        b'{"patch":{"a":null,"c":[]}}',
        b'{"patch":{"a":[],"c":[]}}',
    ]


def broken_lines(line: bytes) -> dict[str, bytes]:
    """One line for each way to fail, each with a right digest but the first two."""
    content = content_of(line)
    record = content["record"]
    return {
        "value": line.replace(b'"ns_per_access":6.5', b'"ns_per_access":1.5', 1),
        "digest": line.replace(b'"digest":"', b'"digest":"0', 1),
        "key": sign(content | {"key": "0" * 16}),
        "repeat": sign(content | {"record": record | {"repeat": 99}}),
        "kernel_digest": sign(content | {"kernel_digest": "0" * 16}),
        "schema": sign(content | {"record": record | {"ns_per_access": -1.0}}),
        "empty": b"\n",
        "not UTF-8": b"\xff\xfe{}\n",
        "NaN": line.replace(b'"ns_per_access":6.5', b'"ns_per_access":NaN', 1),
        "deep": b"[" * 200_000 + b"\n",
    }


@pytest.mark.parametrize("how", broken_lines(sign({"key": "", "kernel_digest": "", "record": {}})))
def test_the_next_writer_moves_a_broken_line_to_quarantine(store, path, how):
    first, second, third = path.read_bytes().splitlines(keepends=True)
    broken = broken_lines(second)[how]
    path.write_bytes(first + broken + third)
    before = tree(store.root)
    assert repeats(store) == [0, 2]
    assert len(store.keys(MACHINE, NAME)) == 2
    assert tree(store.root) == before, "a reader changed the tree"
    store.append(MACHINE, make_record(repeat=1), KERNEL)
    assert repeats(store) == [0, 2, 1]
    quarantine = path.with_name(f"{ROWS}.quarantine.jsonl")
    assert quarantine.read_bytes() == broken
    assert stat.S_IMODE(quarantine.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) & 0o644
    assert {name for name in tree(store.root) if "jsonl" in name} == {
        str(p.relative_to(store.root)) for p in (path, quarantine)
    }
    store.append(MACHINE, make_record(repeat=3), KERNEL)
    assert quarantine.read_bytes() == broken


def test_a_quarantine_that_a_crash_left_half_done_gets_each_line_once(store, path):
    first, _, third = path.read_bytes().splitlines(keepends=True)
    quarantine = path.with_name(f"{ROWS}.quarantine.jsonl")
    quarantine.write_bytes(
        b"broken\ntor"
    )  # the crash: after one whole line, before the file was replaced
    path.with_name(f".{path.name}.tmp").write_bytes(b"half a replacement")
    path.write_bytes(first + b"broken\n" + b"torn\n" + third)
    store.append(MACHINE, make_record(repeat=1), KERNEL)
    assert quarantine.read_bytes().splitlines() == [b"broken", b"tor", b"torn"]
    assert repeats(store) == [0, 2, 1]
    assert not path.with_name(f".{path.name}.tmp").exists()
