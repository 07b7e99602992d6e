"""How an address is split."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.your_machine import host

from experiments.your_machine import address

# Address bits, and the shifts of PGD to PTE: Linux, arch/x86/include/asm/pgtable_64_types.h, and
# for arm64 the tables of Documentation/arch/arm64/memory.rst.
SHIFTS = {
    ("x86_64", 4096, 4): (48, [39, 30, 21, 12]),
    ("x86_64", 4096, 5): (57, [48, 39, 30, 21, 12]),
    ("aarch64", 4096, 3): (39, [30, 21, 12]),
    ("aarch64", 4096, 4): (48, [39, 30, 21, 12]),
    ("aarch64", 16384, 4): (48, [47, 36, 25, 14]),
    ("aarch64", 65536, 2): (42, [29, 16]),
    ("aarch64", 65536, 3): (48, [42, 29, 16]),
}


@pytest.mark.parametrize(("arch", "page", "levels"), SHIFTS)
def test_an_address_splits_where_linux_splits_it(arch, page, levels):
    bits, lows = SHIFTS[arch, page, levels]
    split = address.split(host(arch=arch, base_page_bytes=page, page_table_levels=levels))
    assert split.bits == bits and split.stated
    assert [level.low_bit for level in split.levels] == lows
    assert split.offset.high_bit == lows[-1] - 1 and 2**split.offset.bits == page


@given(
    st.sampled_from(["x86_64", "aarch64", "riscv64"]),
    st.sampled_from([12, 14, 16]),
    st.none() | st.integers(2, 5),
)
def test_every_bit_of_an_address_has_one_place(arch, offset_bits, levels):
    # A level that would begin above bit 47 is one that no arm64 kernel has.
    assume(arch != "aarch64" or offset_bits + ((levels or 2) - 1) * (offset_bits - 3) < 48)
    split = address.split(host(arch=arch, base_page_bytes=2**offset_bits, page_table_levels=levels))
    fields = (*split.levels, split.offset)
    places = [bit for field in fields for bit in range(field.high_bit, field.low_bit - 1, -1)]
    assert places == list(range(split.bits - 1, -1, -1))
    assert all(level.bits >= 1 for level in split.levels) and split.stated == (levels is not None)
