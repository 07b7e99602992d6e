"""Bundles that are almost right: whatever was changed is refused with a reason, or what is accepted
is a whole bundle."""

import hashlib
import json
import random
import resource
import struct
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from typing import Any

from support import bundles
from support.bundles import MACHINE
from support.campaigns import content_of, sign
from support.fuzzing import COUNT, ENDURANCE, VALUES, fuzz, mutated, parts
from support.zips import CENTRAL, END, LOCAL

from tlb.fleet import archive, check, documents
from tlb.fleet.check import Bundle
from tlb.machine import host as hosts
from tlb.system.reasons import Unavailable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REASONS = {"bundle-unsafe", "bundle-broken", "bundle-foreign", "bundle-impossible"}
MIB = 1 << 20
NUMBERS = json.loads(
    "[0, -1, 1, 2, 63, 64, 4096, 2147483648, 9007199254740992, 9223372036854775808, 1e30, 0.5, "
    "-0.5,"
    '6.5, 1e308, 5e-324, true, null, "", "x", "<b>", "\\u202e", [], {}]'
)
FIELDS = [0, 1, 2, 8, 9, 12, 20, 0x31, 255, 256, 65535, 2**31, 2**32 - 1]
OTHERS = ["ways.json", "README.md", "machine-00112233aabb.json", "numa_chase.jsonl", "../x.json"]


@cache
def small() -> dict[str, bytes]:
    """The least that a bundle has, and two rows."""
    kept = {name: bundles.files()[name] for name in ("machine.json", "grids.json", "flushes.json")}
    return kept | {
        "page_chase.jsonl": b"".join(
            bundles.files()["page_chase.jsonl"].splitlines(keepends=True)[:2]
        )
    }


@cache
def whole() -> bytes:
    return check.sealed(MACHINE, small())


def of_bytes(rng: random.Random) -> bytes:
    """The file broken anywhere."""
    return mutated(rng, [whole()])


def of_headers(rng: random.Random) -> bytes:
    """A field of a header of the archive, or several, set to something else."""
    content = bytearray(whole())
    for _ in range(rng.choice([1, 1, 2, 3])):
        mark, size = rng.choice([(LOCAL, 30), (CENTRAL, 46), (END, 22)])
        starts = [at for at in range(len(content) - 3) if content[at : at + 4] == mark]
        layout = rng.choice("BHL")
        at = rng.choice(starts or [0]) + rng.randrange(4, size - 3)
        if at + 4 <= len(content):
            value = rng.choice([*FIELDS, rng.randrange(2**32)])
            struct.pack_into(f"<{layout}", content, at, value % 256 ** struct.calcsize(layout))
    return bytes(content)


def of_members(rng: random.Random) -> bytes:
    """Members broken, left out, called otherwise or added, and sealed again."""
    files, how = dict(small()), rng.randrange(8)
    name = rng.choice(sorted(files))
    if how == 0:
        del files[name]
    elif how == 1:
        files[rng.choice(OTHERS)] = files[name]
    elif how == 2:
        other = rng.choice(sorted(files))
        files[name], files[other] = files[other], files[name]
    else:
        files[name] = mutated(rng, [files[name]])
    return check.sealed(MACHINE, files)


def of_values(rng: random.Random) -> bytes:
    """A value of a document set to another, as JSON has it, and written as the store does."""
    files, name = dict(small()), rng.choice(["machine.json", "grids.json", "flushes.json"])
    content = json.loads(files[name])
    place, key = rng.choice([*places(content)])
    place[key] = _other(rng)
    files[name] = bundles.written(content)
    return check.sealed(MACHINE, files)


def of_rows(rng: random.Random) -> bytes:
    """A value of a row set to another, its digest made right, and often its key."""
    number = rng.randrange(2)

    def change(record: dict[str, Any]) -> None:
        for _ in range(rng.choice([1, 1, 2])):
            place, key = rng.choice([*places(record)])
            if isinstance(place[key], (int, float)) and rng.random() < 0.5:
                place[key] = place[key] * rng.choice([0, -1, 2, 0.5, 1.0001, 1000]) + rng.choice(
                    [0, 0, 1]
                )
            else:
                place[key] = _other(rng)

    kept = small()["page_chase.jsonl"].splitlines(keepends=True)
    content = content_of(kept[number])
    change(content["record"])
    if rng.random() < 0.8:
        content["key"] = key_of(content)
    kept[number] = sign(content)
    return check.sealed(MACHINE, small() | {"page_chase.jsonl": b"".join(kept)})


def _other(rng: random.Random) -> Any:
    try:
        return rng.choice([*NUMBERS, json.loads(rng.choice(VALUES))])
    except ValueError:
        return rng.choice(NUMBERS)


def places(content: Any) -> Any:
    """Each (list or dict, index or key) of a document."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield content, key
        if isinstance(value, (dict, list)):
            yield from places(value)


def key_of(content: dict[str, Any]) -> str:
    """A row's key, written out again: of what a point asks, its repeat, what measured it and the
    state."""

    def digest(content: object) -> str:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    record = content["record"]
    names = ("kernel", "engine", "pages", "layout", "order", "lines", "region_ms")
    point = {name: record.get(name) for name in names}
    for name, default in (("stride_pages", 1), ("mode", ""), ("options", [])):
        point[name] = record.get(name, default)
    named = {name: record[name] for name in ("repeat", "state")}
    named |= {"measures": record.get("measures", 1), "compiler": record.get("compiler", "")}
    return digest(named | {"point": digest(point)})


def payload(rng: random.Random) -> bytes:
    return rng.choice([of_bytes, of_headers, of_members, of_values, of_rows, of_rows])(rng)


def answer(content: bytes) -> str:
    try:
        accepted = check.opened(content, NOW)
    except Unavailable as why:
        assert why.code in REASONS and str(why).isascii() and len(str(why)) < 1000
        return why.code
    prove(accepted)
    return "as it was" if accepted.files == small() else "whole"


def prove(accepted: Bundle) -> None:
    """A bundle that was accepted is one by rules that are written out here again."""
    assert (
        all(archive.NAME.fullmatch(name) for name in accepted.files) and accepted.machine == MACHINE
    )
    assert check.opened(check.sealed(MACHINE, accepted.files), NOW).files == accepted.files
    assert (
        hosts.machine_id(hosts.Host.model_validate_json(accepted.files["machine.json"])) == MACHINE
    )
    for name, content in accepted.files.items():
        for line in content.splitlines(keepends=True) if name.endswith(".jsonl") else ():
            told = content_of(line)
            assert sign(told) == line and told["key"] == key_of(told)
            plain(told)
            record = told["record"]
            assert (
                record["kernel"] == name.removesuffix(".jsonl")
                and record["started_at"] < "2026-01-03"
                and 0 <= record["cpu"] < 2
            )
            assert 0 < record["elapsed_ns"] + record["prepare_ns"] <= record["wall_ns"]
        if name.endswith(".json"):
            plain(json.loads(content))


def plain(content: Any) -> None:
    for _, leaf in documents.leaves(content):
        assert leaf is None or isinstance(leaf, str) or (isfinite(leaf) and abs(leaf) <= 2**63)
        assert not isinstance(leaf, str) or (
            leaf.isascii() and (leaf.isprintable() or not leaf) and not set(leaf) & set("<>&`\\")
        )


@parts
def test_a_bundle_that_was_changed_is_refused_or_whole(part):
    assert answer(whole()) == "as it was"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers = fuzz(part, payload, answer, COUNT if ENDURANCE else 500)
    assert set(answers) == {*REASONS, "as it was", "whole"}
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * MIB / 1024
    )  # in KiB on Linux
