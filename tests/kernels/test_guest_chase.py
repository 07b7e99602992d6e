"""guest_chase visits the lines that page_chase visits, through page tables of its own, and says
what it took inside and outside."""

import re
import subprocess
from pathlib import Path

import pytest
from support.guest import guest, real
from support.kernels import checksum, measured, needs_c, on_x86, visits
from support.stand_ins import PAGE

from tlb.measure import build
from tlb.measure.catalogue import BOOKKEEPING_BYTES_PER_LINE
from tlb.measure.kernels import arena_bytes
from tlb.measure.plan import order_seed
from tlb.measure.record import Record

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def possible_tables(record: Record) -> range:
    """Tables for the record's lines, which begin at a whole GiB and end in the same 512 GiB here,
    and two for the program, which stands in another GiB of those. Where the system laid the two
    in different ranges of 512 GiB, there is one more."""
    leaf, levels = {"4k": 1, "2m": 2, "1g": 3}[record.mode], int(record.also["guest_levels"])
    fewest = 3 + sum(
        -(-record.working_set_bytes // 2 ** (12 + 9 * level)) for level in range(leaf, levels)
    )
    return range(fewest, fewest + 2)


# --- through a software walker (tests/support/other_kvm.c): every hop of it is translated by the
# guest's own tables


@on_x86
@needs_c
@pytest.mark.parametrize("layout", ["spread", "packed"])
@pytest.mark.parametrize(("mode", "levels"), [("4k", 4), ("4k", 5), ("2m", 4), ("1g", 5)])
@pytest.mark.parametrize("lines", [1, 65, 5000])
def test_a_guest_visits_every_line_in_the_order_of_page_chase(kvm, mode, levels, layout, lines):
    point = guest(mode, lines=lines, layout=layout, options={"levels": levels})
    record = measured(point)
    assert record.point == point
    assert record.checksum == checksum(visits("page_chase", "cycle", lines, order_seed(point, 0)))
    assert record.working_set_bytes == lines * (64 if layout == "packed" else 4096)
    assert (
        record.arena_bytes
        <= arena_bytes(point)
        <= record.arena_bytes + lines * BOOKKEEPING_BYTES_PER_LINE
    )
    assert record.also["guest_table_bytes"] / 4096 in possible_tables(record)
    assert record.also["guest_levels"] == levels
    assert record.accesses % lines == 0


@on_x86
@needs_c
@pytest.mark.parametrize(
    ("mode", "pages"), [("4k", "4k"), ("4k", "2m"), ("2m", "thp"), ("1g", "2m")]
)
def test_every_guest_page_size_runs_on_every_host_page_size(hosted, mode, pages):
    record = measured(guest(mode, pages, 2000))
    assert (record.backing, record.mode) == (pages, mode)
    lines, program, table_bytes = (
        record.working_set_bytes,
        2 * 4096,
        int(record.also["guest_table_bytes"]),
    )
    pages_of_lines, pages_of_tables = (-(-size // PAGE[pages]) for size in (lines, table_bytes))
    # each has pages to itself
    assert record.arena_bytes - program >= (pages_of_lines + pages_of_tables) * PAGE[pages]
    assert (record.arena_bytes - program) % PAGE[pages] == 0 and record.arena_bytes <= arena_bytes(
        record.point
    )


@on_x86
@needs_c
def test_the_record_has_the_time_outside_and_what_the_first_touch_cost(kvm):
    record = measured(guest())
    split = (
        {"nx_huge_pages"} if Path("/sys/module/kvm/parameters/nx_huge_pages").exists() else set()
    )
    named = {
        "outside_ns_per_access",
        "tsc_ghz",
        "first_touch_ns_per_access",
        "guest_table_bytes",
        "guest_levels",
    }
    assert set(record.also) == named | split
    assert record.ns_per_access <= 1.01 * record.also["outside_ns_per_access"]
    assert record.elapsed_ns == pytest.approx(
        sum(record.batch_ns_per_access) / len(record.batch_ns_per_access) * record.accesses,
        rel=1e-3,
    )


# --- in a real guest, where this computer runs one


@on_x86
@needs_c
@pytest.mark.parametrize("pages", ["4k", "thp"])
@pytest.mark.parametrize("mode", ["4k", "2m"])
def test_a_real_guest_visits_them_too(mode, pages):
    point = guest(mode, pages, 3000)
    record = real(point)
    assert record.point == point and record.backing == pages
    assert record.checksum == checksum(visits("page_chase", "cycle", 3000, order_seed(point, 0)))
    assert record.also["guest_table_bytes"] / 4096 in possible_tables(record)
    assert record.ns_per_access <= 1.01 * record.also["outside_ns_per_access"]
    assert record.also.get("vcpu_exits", 0) >= 0 and record.also["first_touch_ns_per_access"] > 0


# --- the timed loop


@on_x86
@pytest.mark.needs("a C compiler", "objdump")
def test_between_the_guests_two_clocks_are_loads_and_the_counting_of_them():
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", *build.kernel("guest_chase").command],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    body = re.search(r"<guest_code>:\n(.*?)<guest_code_end>", text, re.DOTALL)[1]
    code = [line.split("\t", 1)[1].strip() for line in body.splitlines() if "\t" in line]
    first, last = (at for at, line in enumerate(code) if line.startswith("rdtsc"))
    assert {code[first - 1], code[first + 1], code[last - 1]} == {
        "lfence"
    }  # so that no load is begun before, or ended after
    between = [
        line
        for line in code[first + 1 : last]
        if not line.startswith(("nop", "xchg", "data16", "cs nop"))
    ]
    loads = [line for line in between if re.fullmatch(r"mov\s+\(%rdi\),%rdi", line)]
    assert len(loads) == 16 + 1 + 1
    others = {line.split()[0] for line in between if line not in loads}
    assert others <= {"lfence", "mov", "test", "je", "dec", "jne", "jrcxz"}
    written = [line for line in between if re.fullmatch(r"mov\s+%\w+,\w+\(%rbx\)", line)]
    # the first clock's halves, and where the last hop starts: none is in the loop
    assert len(written) == 3
