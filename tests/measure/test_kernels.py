"""The catalogue of kernels says of each what its files say; frames, memory and sweeps follow from
it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tlb.measure import build, kernels
from tlb.measure.catalogue import KERNEL_DECLARATIONS, KernelDeclaration
from tlb.measure.kernels import arena_bytes
from tlb.measure.record import Point

KIB, MIB, GIB = 2**10, 2**20, 2**30

# --- what a file says of itself


class Stated(NamedTuple):
    """What a kernel's file takes, the defaults first; of its own numbers, what each is where
    nothing is said."""

    layouts: tuple[str, ...]
    orders: tuple[str, ...]
    modes: tuple[str, ...]
    options: dict[str, int]


def stated_in_c(text: str) -> Stated:
    def words(name: str) -> tuple[str, ...]:
        found = re.search(rf"\.{name} = {{([^}}]*)}}", text)
        return tuple(re.findall(r'"([^"]*)"', found[1])) if found else ()

    own = re.search(r"\.own = {((?:\s*{[^{}]*},?(?:\s*/\*.*?\*/)?)+)}", text)
    numbers = re.findall(r'{\.name = "(\w+)"([^}]*)}', own[1]) if own else []
    return Stated(
        words("layouts"),
        words("orders"),
        words("modes"),
        {
            name: int(value[1]) if (value := re.search(r"\.value = (\d+)", rest)) else 0
            for name, rest in numbers
        },
    )


def complaints(folder: Path, catalogue: Mapping[str, KernelDeclaration]) -> Iterator[str]:
    """Where catalogue and files disagree: a sentence each, which names the file."""
    files = {path.stem: path for path in sorted(folder.glob("*.c"))}
    for name in sorted(
        files.keys() - catalogue.keys() - {declared.session for declared in catalogue.values()}
    ):
        yield f"{files[name].name} is a kernel that tlb/measure/catalogue.py does not declare."
    for name, declared in catalogue.items():
        paths = [files[name]] if name in files else []
        if not paths:
            yield f"tlb/measure/catalogue.py declares {name}, which has no file in kernels/."
        for path in paths:
            file = f"kernels/{path.relative_to(folder)}"
            stated = stated_in_c(path.read_text())
            own = tuple(mode for mode in declared.modes if mode and mode not in declared.played)
            if own != stated.modes:
                yield f"{file} has the modes {stated.modes}, and tlb/measure/catalogue.py declares {own}."
            if (declared.layout, declared.order) != (stated.layouts[0], stated.orders[0]):
                yield (
                    f"{file} has by default {stated.layouts[0]} and {stated.orders[0]}, and "
                    f"tlb/measure/catalogue.py declares {declared.layout} and {declared.order}."
                )
            options = {option: value or 0 for option, value in declared.options.items()}
            if options != stated.options:
                yield f"{file} takes {stated.options}, and tlb/measure/catalogue.py declares {options}."


def test_each_declaration_says_what_its_files_say():
    assert list(complaints(build.KERNELS_FOLDER, KERNEL_DECLARATIONS)) == []


# --- memory and time


@given(
    st.integers(1, 2**30),
    st.sampled_from(["4k", "64k", "thp", "2m", "1g"]),
    st.sampled_from(["spread", "packed"]),
    st.sampled_from([4 * KIB, 16 * KIB, 64 * KIB]),
)
def test_what_a_point_needs_is_whole_pages_and_room_for_its_order(lines, pages, layout, base):
    needed = arena_bytes(Point(kernel="page_chase", lines=lines, pages=pages, layout=layout), base)
    page = {"4k": base, "64k": 64 * KIB, "thp": base // 8 * base, "2m": 2 * MIB, "1g": GIB}[pages]
    arena = needed - 16 * lines
    assert arena % page == 0 and 0 <= arena - lines * (base if layout == "spread" else 64) < page


def test_a_kernel_without_rows_has_its_options_as_columns():
    frame = pd.DataFrame({"kernel": ["page_chase"]})
    found = kernels.with_option_columns(frame, ["prefault", "page_chase"])
    assert found["threads"].isna().all() and len(found) == 1
    assert kernels.with_option_columns(found, ["prefault"]) is found
