"""Whatever perf, the kernel, /proc or a disk hands us: no exception but the ones announced, and
never a number made up.

A sample here; 20 000 inputs of each kind in `make endurance`.
"""

import json
import random
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from support.common import SUPPORT, compiled, make_record
from support.fuzzing import COUNT, fuzz, mutated, parts
from support.lab import KERNEL, MACHINE, NAME, ROWS, put

from tlb.lab.record import Quantity
from tlb.lab.store import Store

pytestmark = pytest.mark.slow


# --- lines of the store

COUNTED = {
    "walk": Quantity(value=5e6, event="x", running_percent=100.0),
    "walk_cycles": Quantity(reason="no-walk-cycle-event"),
}


def appended(folder: Path) -> list[bytes]:
    """Lines as `append` writes them."""
    whole = [
        {},
        {"repeat": 1, "counters": COUNTED},
        {"repeat": 2, "layout": "packed"},
        {"repeat": 3, "ns_per_access": 1e-3},
    ]
    put(Store(folder), MACHINE, NAME, KERNEL, *(make_record(**more) for more in whole))
    return (folder / MACHINE / f"{ROWS}.jsonl").read_bytes().splitlines()


BATCH = 200  # lines a file


@parts
def test_a_line_is_read_only_if_it_is_what_append_wrote_to_the_byte(part, tmp_path):
    """Broken lines among whole ones. Whole is what is equal to a seed and nothing else; the next
    writer keeps these alone."""
    seeds = appended(tmp_path / "seeds")
    good = Store(tmp_path / "seeds").load(MACHINE, NAME).set_index("repeat")
    file = tmp_path / "fuzzed" / MACHINE / f"{ROWS}.jsonl"
    Store(tmp_path / "fuzzed").ask(
        MACHINE, NAME, [make_record().point, make_record(layout="packed").point]
    )
    quarantine = file.with_name(f"{ROWS}.quarantine.jsonl")

    def make(rng: random.Random) -> bytes:
        lines = [
            mutated(rng, seeds) if rng.random() < 0.95 else rng.choice(seeds) for _ in range(BATCH)
        ]
        return b"\n".join(lines) + b"\n" * (rng.random() < 0.5)

    def check(content: bytes) -> str:
        file.write_bytes(content)
        store = Store(tmp_path / "fuzzed")
        *lines, _ = content.split(b"\n")
        whole = [line for line in lines if line.removesuffix(b"\r") in seeds]
        frame = store.load(MACHINE, NAME)
        assert (
            len(frame)
            == len({line.removesuffix(b"\r") for line in whole})
            == len(store.keys(MACHINE, NAME))
        )
        rows = frame.set_index("repeat")
        pd.testing.assert_frame_equal(rows, good.loc[rows.index, rows.columns])
        store.append(MACHINE, make_record(repeat=9), KERNEL)
        kept, gone = (
            file.read_bytes().splitlines(),
            quarantine.read_bytes().split(b"\n") if quarantine.exists() else [],
        )
        assert [line for line in kept if line.removesuffix(b"\r") in seeds] == whole
        rest = [line for line in kept[:-1] if line.removesuffix(b"\r") not in seeds]
        assert all(
            json.loads(line)["record"].get("schema_version") not in (1, 2) for line in rest
        )  # lines of another version stay
        assert set(lines) <= set(kept) | set(gone)
        quarantine.unlink(missing_ok=True)
        return "whole" if whole else "none"

    fuzz(part, make, check, COUNT // BATCH)


# --- smaps

BASE, ARENA_KB = 0x7F0000000000, 1 << 20


def mapping(
    start: int,
    kb: int,
    name: str = "",
    page_kb: int = 4,
    rss: int | None = None,
    thp: int = 0,
    hugetlb: int = 0,
) -> str:
    """One mapping as Linux 6.1 prints it."""
    rss = kb if rss is None else rss
    fields = {
        "Size": kb,
        "KernelPageSize": page_kb,
        "MMUPageSize": page_kb,
        "Rss": rss,
        "Pss": rss,
        "Private_Dirty": rss,
        "Anonymous": rss,
        "AnonHugePages": thp,
        "ShmemPmdMapped": 0,
        "FilePmdMapped": 0,
        "Shared_Hugetlb": 0,
        "Private_Hugetlb": hugetlb,
        "Swap": 0,
        "Locked": 0,
    }
    lines = [f"{field + ':':<16}{value:>8} kB" for field, value in fields.items()]
    head = f"{start:x}-{start + (kb << 10):x} rw-p 00000000 00:00 0 {name}".rstrip()
    return (
        "\n".join([head, *lines, "THPeligible:           0", "VmFlags: rd wr mr mw me ac nh"])
        + "\n"
    )


CODE, STACK = (
    mapping(0x5604FDA3B000, 80, "/tmp/page_chase", rss=60),
    mapping(0x7FFC00000000, 132, "[stack]", rss=12),
)
MIB4 = 4 << 10
ARENAS = {
    "4k": [
        mapping(BASE, ARENA_KB),
        mapping(BASE - (MIB4 << 10), ARENA_KB + MIB4),
        mapping(BASE, MIB4) + mapping(BASE + (MIB4 << 10), ARENA_KB - MIB4),
        mapping(BASE, ARENA_KB, thp=2048),
    ],
    "thp": [
        mapping(BASE, ARENA_KB, thp=ARENA_KB),
        mapping(BASE, ARENA_KB, thp=ARENA_KB - 2048),
        mapping(BASE, ARENA_KB),
    ],
    "2m": [mapping(BASE, ARENA_KB, page_kb=2048, rss=0, hugetlb=ARENA_KB), mapping(BASE, ARENA_KB)],
    "1g": [
        mapping(BASE, ARENA_KB, page_kb=1 << 20, rss=0, hugetlb=ARENA_KB),
        mapping(BASE, ARENA_KB, page_kb=2048, rss=0, hugetlb=ARENA_KB),
    ],
}
SMAPS = [(CODE + arena + STACK).encode() for arenas in ARENAS.values() for arena in arenas]


# A line that opens a mapping; and as scanf reads it, which takes signs, 0x and what follows for
# granted. Of a head that is broken, either reading may be right.
HEADS = (
    re.compile(rb"()([0-9a-f]+)-()([0-9a-f]+) "),
    re.compile(rb"(?!.* kB)\s*([-+]?)(?:0[xX])?([0-9a-fA-F]+)-\s*([-+]?)(?:0[xX])?([0-9a-fA-F]+)"),
)


def address(sign: bytes, digits: bytes) -> int:
    value = min(int(digits, 16), 2**64 - 1)
    return -value % 2**64 if sign == b"-" else value


def proves(pages: str, text: bytes, head: re.Pattern[bytes]) -> bool:
    """Whether a text, read to the letter, says that each mapping of the arena is on this page size
    and all of it is there."""
    want = {"4k": 4, "thp": 4, "2m": 2048, "1g": 1 << 20}[pages]
    found: list[dict[bytes, list[int]]] = []
    inside = False
    for line in text.split(b"\n"):
        if opens := head.match(line):
            inside = (
                address(*opens.group(1, 2)) < BASE + (ARENA_KB << 10)
                and address(*opens.group(3, 4)) > BASE
            )
            found += [{}] if inside else []
        elif inside and (field := re.match(rb"(\w+):\s*([0-9]{1,15})\s*kB", line)):
            found[-1].setdefault(field[1], []).append(int(field[2]))
    resident = sum(
        sum(m.get(name, []))
        for m in found
        for name in (b"Rss", b"Private_Hugetlb", b"Shared_Hugetlb")
    )
    thp = sum(sum(m.get(name, [])) for m in found for name in (b"AnonHugePages", b"ShmemPmdMapped"))
    stated = all(
        set(m.get(b"KernelPageSize", [])) == {want} and b"AnonHugePages" in m for m in found
    )
    return stated and resident >= ARENA_KB and thp == (ARENA_KB if pages == "thp" else 0)


def a_smaps(rng: random.Random) -> tuple[str, bytes]:
    pages = rng.choice(list(ARENAS))
    if rng.random() < 0.1:
        return pages, (CODE + rng.choice(ARENAS[pages]) + STACK).encode()
    return pages, mutated(
        rng,
        SMAPS
        if rng.random() < 0.3
        else [(CODE + arena + STACK).encode() for arena in ARENAS[pages]],
    )


def judged(said: str, pages: str, text: bytes) -> str:
    """What a kernel said of the text: accepted only what proves it, else one complaint with its
    reason."""
    if said == "accepted":
        assert any(proves(pages, text, head) for head in HEADS), "accepted without proof"
        return said
    complaint = json.loads(said)
    assert complaint.keys() == {"reason", "detail"} and complaint["reason"] == "backing-partial"
    return "refused"


@pytest.fixture(scope="module")
def smaps_reader(tmp_path_factory) -> list[str]:
    """tests/support/fuzz_smaps.c around the C kernels' own reader, compiled."""
    binary, flags = tmp_path_factory.mktemp("smaps") / "fuzz_smaps", ("-std=gnu11", "-O1", "-Wall")
    compiled(SUPPORT / "fuzz_smaps.c", binary, *flags, "-Wno-unused-function")
    return [str(binary), hex(BASE), str(ARENA_KB << 10), str(ARENA_KB << 10)]


@parts
@pytest.mark.measures
@pytest.mark.needs("a C compiler")
def test_no_smaps_breaks_the_c_kernels_or_passes_for_a_page_size_that_it_does_not_state(
    part, smaps_reader
):
    cases: list[tuple[str, bytes]] = []
    fuzz(part, a_smaps, lambda case: cases.append(case) or "made")
    asked = b"".join(b"%s %d\n%s" % (pages.encode(), len(text), text) for pages, text in cases)
    done = subprocess.run(smaps_reader, input=asked, capture_output=True)
    answers = iter(done.stdout.decode().splitlines())
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", len(cases))
    answered = fuzz(part, a_smaps, lambda case: judged(next(answers), *case))
    assert min(answered["accepted"], answered["refused"]) > COUNT / 50, answered
