"""How an address is split, and the figure of it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.pages import Elements
from support.your_machine import host, kind, stating

from experiments.chapters.your_machine import address, figures

# Address bits, and the shifts of PGD to PTE: Linux, arch/x86/include/asm/pgtable_64_types.h, and for arm64
# the tables of Documentation/arch/arm64/memory.rst.
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


@given(st.sampled_from(["x86_64", "aarch64", "riscv64"]), st.sampled_from([12, 14, 16]), st.none() | st.integers(2, 5))
def test_every_bit_of_an_address_has_one_place(arch, offset_bits, levels):
    # A level that would begin above bit 47 is one that no arm64 kernel has.
    assume(arch != "aarch64" or offset_bits + ((levels or 2) - 1) * (offset_bits - 3) < 48)
    split = address.split(host(arch=arch, base_page_bytes=2**offset_bits, page_table_levels=levels))
    fields = (*split.levels, split.offset)
    places = [bit for field in fields for bit in range(field.high_bit, field.low_bit - 1, -1)]
    assert places == list(range(split.bits - 1, -1, -1))
    assert all(level.bits >= 1 for level in split.levels) and split.stated == (levels is not None)


def test_the_figure_names_each_level_with_its_bits_and_what_an_entry_covers():
    figure = figures.address_bits(stating(host(page_table_levels=5)))
    for words in (
        "57-bit", "five groups of 9 bits", "PML5, bits 56–48, 256 TiB", "PML4, bits 47–39, 512 GiB",
        "PDPT, bits 38–30, 1 GiB", "PD, bits 29–21, 2 MiB", "PT, bits 20–12, 4 KiB", "bits 11–0",
    ):
        assert words in figure.alt
    assert "1, 11, 11 and 11 bits" in figures.address_bits(kind("arm64, 16 KiB")).alt


@pytest.mark.parametrize(("name", "groups"), [("guest", 4), ("five levels", 5), ("arm64, 39 bits", 3)])
def test_as_many_groups_are_drawn_as_the_machine_walks_levels(name, groups):
    figure = figures.address_bits(kind(name))
    assert len(figure.data) == groups + 1
    drawn = Elements(figure.svg()).text
    assert [text for text in drawn if text.startswith("load ")] == [f"load {n + 1}" for n in range(groups)]
    assert drawn.count("your load") == drawn.count("page") == 1
    assert drawn.count("9 bits") == groups and drawn.count("12 bits") == 1
    names = figure.data["level"].iloc[:-1]
    assert set(names) < set(drawn) and list(figure.data["bits"]) == [9] * groups + [12]
    assert list(figure.data["chooses_among"]) == [512] * groups + [4096]
    assert list(figure.data["each_covers_bytes"])[-2:] == [4096, 1]


@pytest.mark.parametrize("name", ["guest", "five levels", "arm64, 16 KiB", "arm64, 64 KiB"])
def test_a_box_is_as_wide_as_it_has_bits(name):
    figure = figures.address_bits(kind(name))
    rows = [row for rows in figure.spec()["datasets"].values() for row in rows if "among" in row]
    width = {row["level"]: row["x2"] - row["x"] for row in rows}
    assert width == dict(zip(figure.data["level"], figure.data["bits"], strict=True))


def test_a_page_that_splits_an_address_otherwise_has_another_figure():
    a = kind("guest")
    a.split = address.split(host(page_table_levels=5))
    assert len(figures.address_bits(a).data) == 6
