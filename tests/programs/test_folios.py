"""The folios of base pages, on files of /proc whose truth is known: sizes by the flags, shares by
drawing, and what is not shown."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import refusal

from tlb.programs import folios
from tlb.programs.folios import folio_pages, shares
from tlb.system.smaps import Mapping

PAGE, HEAD, TAIL = 4096, 1 << 15, 1 << 16
ORDERS = {
    0: "4k",
    2: "16k",
    4: "64k",
    8: "1m",
}  # powers of two of base pages, and what they are called


def flags(orders: list[int]) -> list[int]:
    """Of folios one after the other, the larger first, so that each is aligned to its size."""
    return [
        flag for order in orders for flag in ([HEAD] + [TAIL] * (2**order - 1) if order else [0])
    ]


def process(
    folder: Path,
    orders: list[int],
    frame: int = 1 << 63,
    absent: int = 0,
    pid: int = 7,
    page: int = PAGE,
) -> tuple[int, list[Mapping]]:
    """A process all of whose memory lies in these folios, from frame 1,024 on; every `absent`th
    page is not there."""
    kinds = flags(orders)
    entries = [0 if absent and n % absent == 0 else frame | (1024 + n) for n in range(len(kinds))]
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "pagemap").write_bytes(
        bytes(8 * 16) + struct.pack(f"={len(entries)}Q", *entries)
    )
    (folder / "kpageflags").write_bytes(bytes(8 * 1024) + struct.pack(f"={len(kinds)}Q", *kinds))
    return pid, [Mapping(16 * page, (16 + len(kinds)) * page, True, page, len(kinds) * page, 0, 0)]


@given(st.lists(st.sampled_from([*ORDERS, 9]), min_size=1, max_size=40), st.data())
def test_a_folio_is_as_long_as_its_head_and_tails(orders, data):
    ordered = sorted(orders, reverse=True)
    kinds, sizes = flags(ordered), [2**order for order in ordered for _ in range(2**order)]
    at = data.draw(st.integers(0, len(kinds) - 1))
    start = at // 512 * 512  # a folio lies in one aligned stretch
    assert folio_pages(kinds[start : start + 512], at - start) == sizes[at]


@pytest.mark.parametrize(
    "orders", [[0] * 4096, [4] * 256, [8] * 8 + [4] * 64 + [0] * 1024, [9] * 4 + [2] * 512]
)
@pytest.mark.parametrize("absent", [0, 3])
def test_shares_are_those_of_the_pages_within_three_standard_errors(orders, absent, tmp_path):
    small = [order for order in orders if order < 9]
    true = {
        name: sum(2**order for order in small if order == of) / sum(2**order for order in small)
        for of, name in ORDERS.items()
    }
    found = shares([process(tmp_path, orders, absent=absent)], PAGE, tmp_path)
    for name, share in true.items():
        assert found.get(name, 0) == pytest.approx(
            share, abs=4.5 * (share * (1 - share) / folios.DRAWN) ** 0.5 + 1e-9
        )
    assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("how", ["frames are hidden", "no flags", "pages refused"])
def test_what_only_root_may_see_is_one_reason(how, tmp_path, monkeypatch):
    one = process(tmp_path, [0] * 64)
    if how == "frames are hidden":
        (tmp_path / "7" / "pagemap").write_bytes(struct.pack("=80Q", *[1 << 63] * 80))
    elif how == "no flags":
        (tmp_path / "kpageflags").unlink()
    else:
        opened, refused = Path.open, "kpageflags" if how == "flags refused" else "pagemap"

        def refuse(path: Path, *rest: object, **options: object) -> object:
            if path.name == refused:
                raise PermissionError(path)
            return opened(path, *rest, **options)

        monkeypatch.setattr(Path, "open", refuse)
    assert refusal(shares, [one], PAGE, tmp_path) == "not-permitted"


@pytest.mark.parametrize(
    ("base_kib", "order", "name"),
    [(16, 0, "4k"), (16, 1, "32k"), (16, 2, "64k"), (64, 0, "4k"), (64, 2, "256k")],
)
def test_large_base_pages_are_no_folios_of_that_size(base_kib, order, name, tmp_path):
    read = [process(tmp_path, [order] * 512, page=base_kib << 10)]
    assert shares(read, base_kib << 10, tmp_path) == {name: 1.0}
