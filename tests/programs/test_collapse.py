"""What a collapse reaches and takes: synthetic tables of pages, and a process with known holes."""

import mmap
import struct
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlb.programs import collapse
from tlb.programs.collapse import _growth, _runs, blocks_of, collapsible, forecast, free_blocks
from tlb.system import procfs
from tlb.system.smaps import SmapsMapping, parse_smaps_rollup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PAGE, HUGE = 4096, 2 << 20
PAGES = HUGE // PAGE
PRESENT, SWAPPED = 1 << 63, 1 << 62


def process(folder: Path, blocks: list[list[int]], start: int) -> SmapsMapping:
    """Write the pagemap of process 7, whose only mapping has these entries from block `start` on."""
    (folder / "7").mkdir(exist_ok=True)
    entries = [entry for block in blocks for entry in block]
    with (folder / "7" / "pagemap").open("wb") as file:
        file.seek(8 * start * PAGES)
        file.write(struct.pack(f"={len(entries)}Q", *entries))
    resident = sum(bool(entry & PRESENT) for entry in entries) * PAGE
    return SmapsMapping(start * HUGE, (start + len(blocks)) * HUGE, True, PAGE, resident, 0, 0)


@given(st.lists(st.tuples(st.integers(0, PAGES), st.integers(0, PAGES)), max_size=6))
def test_blocks_are_those_with_a_page_and_growth_fills_their_holes(tmp_path_factory, drawn):
    counts = [(present, min(swapped, PAGES - present)) for present, swapped in drawn]
    blocks = [
        [PRESENT | 9] * present + [SWAPPED] * swapped + [0] * (PAGES - present - swapped)
        for present, swapped in counts
    ]
    folder = tmp_path_factory.mktemp("proc")
    mapping = process(folder, blocks, 3)
    found = [*blocks_of(7, mapping, HUGE, folder, PAGE)]
    assert [(block.start // HUGE - 3, block.present) for block in found] == [
        (n, present) for n, (present, swapped) in enumerate(counts) if present + swapped
    ]
    absent = sum(PAGES - present for present, swapped in counts if present + swapped)
    assert _growth(mapping, found, HUGE, PAGE) == (len(found), absent * PAGE)


def test_zero_pages_are_shown_as_present_and_grow_all_the_same(tmp_path):
    mapping = process(tmp_path, [[PRESENT] * PAGES] * 2, 1)
    seen = mapping._replace(resident_bytes=mapping.resident_bytes - 100 * PAGE)
    found = [*blocks_of(7, seen, HUGE, tmp_path, PAGE)]
    assert _growth(seen, found, HUGE, PAGE) == (2, 100 * PAGE)
    assert _growth(mapping._replace(thp_bytes=HUGE), found, HUGE, PAGE) == (1, 0)


def test_a_collapse_reaches_private_anonymous_memory_that_does_not_refuse():
    plain = SmapsMapping(0, 4 * HUGE, True, PAGE, HUGE, 0, 0)
    others = [
        plain._replace(private_anonymous=False),
        plain._replace(refuses_thp=True),
        plain._replace(thp_bytes=HUGE),
    ]
    assert [*collapsible([plain, *others])] == [plain]
    cut = plain._replace(start=HUGE, end=2 * HUGE)
    assert [*collapsible([plain], (HUGE, 2 * HUGE))] == [cut]
    assert [*collapsible([plain], (5 * HUGE, 6 * HUGE))] == []


@given(st.sets(st.integers(0, 200)))
def test_neighbouring_blocks_are_collapsed_together_and_each_once(numbers):
    starts = [number * HUGE for number in sorted(numbers)]
    ranges = [*_runs(starts, HUGE)]
    assert [start for begin, end in ranges for start in range(begin, end, HUGE)] == starts
    assert all(0 < end - begin <= 64 << 20 for begin, end in ranges)


def test_larger_free_blocks_count_as_often_as_they_can_be_split():
    text = (
        "Node 0, zone    DMA32      2      1      4      2      5      4      4      4      5      3    751 \n"
        "Node 1, zone   Normal    384   3773  33920  22308   8340   8002   2906   1461    626    521   1155 \n"
    )
    assert free_blocks(text, 512) == 3 + 2 * 751 + 521 + 2 * 1155
    assert free_blocks(text, 1024) == 751 + 1155
    assert free_blocks("", 512) == 0


HOLES = """import mmap, sys
size = 64 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(0, size // 4096):
    if page // 512 % 3 and page % 7:
        memory[page * 4096] = 1
for page in range(0, size // 4096, 512 * 3 + 1):
    memory[page * 4096]  # a zero page
memory.madvise(mmap.MADV_HUGEPAGE)
print("ready", flush=True)
input()
"""


@pytest.mark.skipif(mmap.PAGESIZE != PAGE, reason="huge pages of 2 MiB")
@pytest.mark.skipif(
    procfs.chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")) == "absent", reason="none"
)
def test_a_forecast_is_what_a_collapse_does_within_a_hundredth():
    command = [sys.executable, "-c", HOLES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            if why := collapse.refusal(child.pid):
                pytest.skip(f"a collapse is refused here: {why}")

            def resident_bytes() -> int:
                rollup = procfs.text(Path(f"/proc/{child.pid}/smaps_rollup"))
                return parse_smaps_rollup(rollup).resident_bytes

            made, before = forecast([child.pid]), resident_bytes()
            _, errors = collapse.collapse(child.pid, HUGE, Event())
            after = resident_bytes()
        finally:
            child.kill()
    if errors & {"ENOMEM", "EAGAIN", "EBUSY"}:
        pytest.skip("Linux found no free huge page")
    assert after - before > 16 << 20
    assert after == pytest.approx(before + made.growth_bytes, rel=0.01)
