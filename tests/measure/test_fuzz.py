"""Whatever smaps says: no crash, and no page size that it does not state.

A sample here; 20,000 texts in `make endurance`.
"""

import json
import random
import re
import subprocess
from collections import Counter

import pytest
from support.common import SUPPORT, compiled
from support.fuzzing import ENDURANCE, SEED, mutated, times

pytestmark = pytest.mark.slow
COUNT = 10_000 if ENDURANCE else 1_000  # texts of each part


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
        assert any(proves(pages, text, head) for head in HEADS), text
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


@times("part", 2)
@pytest.mark.measures
@pytest.mark.needs("a C compiler")
def test_no_smaps_breaks_the_c_kernels_or_passes_for_a_page_size_that_it_does_not_state(
    part, smaps_reader
):
    rng = random.Random(f"{SEED} {part}")
    cases = [a_smaps(rng) for _ in range(COUNT)]
    asked = b"".join(b"%s %d\n%s" % (pages.encode(), len(text), text) for pages, text in cases)
    done = subprocess.run(smaps_reader, input=asked, capture_output=True)
    answers = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr, len(answers)) == (0, b"", len(cases))
    answered = Counter(judged(said, *case) for said, case in zip(answers, cases, strict=True))
    assert min(answered["accepted"], answered["refused"]) > COUNT / 50, answered
