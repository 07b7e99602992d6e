"""The catalogue of kernels says of each what its files say; frames, memory and sweeps follow from
it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import make_record

from tlb.lab import build, kernels
from tlb.lab.kernels import CATALOGUE, Declaration, arena_bytes, is_within, with_defaults
from tlb.lab.record import Point

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


def stated_in_python(text: str) -> Stated:
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    call = next(call for call in calls if getattr(call.func, "attr", "") == "parse_arguments")
    given = dict(zip(("kernel", "orders", "layouts", "modes", "own"), call.args, strict=False)) | {
        k.arg: k.value for k in call.keywords
    }
    own = given.get("own")
    options = (
        {key.value: value.elts[0].value for key, value in zip(own.keys, own.values, strict=True)}
        if own
        else {}
    )
    lists = {
        name: tuple(ast.literal_eval(given[name]))
        for name in ("orders", "layouts", "modes")
        if name in given
    }
    return Stated(
        lists.get("layouts", ("spread", "packed")), lists["orders"], lists.get("modes", ()), options
    )


def complaints(folder: Path, catalogue: Mapping[str, Declaration]) -> Iterator[str]:
    """Where catalogue and files disagree: a sentence each, which names the file."""
    twins = [
        path for path in sorted(folder.glob("twins/*.py")) if "\ndef main(" in path.read_text()
    ]
    files = {path.stem: path for path in [*twins, *sorted(folder.glob("*.c"))]}
    for name in sorted(
        files.keys() - catalogue.keys() - {declared.session for declared in catalogue.values()}
    ):
        yield f"{files[name].name} is a kernel that tlb/lab/kernels.py does not declare."
    for name, declared in catalogue.items():
        paths = [
            path for place in (f"{name}.c", f"twins/{name}.py") if (path := folder / place).exists()
        ]
        if not paths:
            yield f"tlb/lab/kernels.py declares {name}, and there is neither kernels/{name}.c nor kernels/twins/{name}.py."
        for path in paths:
            file = f"kernels/{path.relative_to(folder)}"
            stated = (
                stated_in_c(path.read_text())
                if path.suffix == ".c"
                else stated_in_python(path.read_text())
            )
            own = tuple(mode for mode in declared.modes if mode and mode not in declared.played)
            if own != stated.modes:
                yield f"{file} has the modes {stated.modes}, and tlb/lab/kernels.py declares {own}."
            if (declared.layout, declared.order) != (stated.layouts[0], stated.orders[0]):
                yield (
                    f"{file} has by default {stated.layouts[0]} and {stated.orders[0]}, and tlb/lab/kernels.py "
                    f"declares {declared.layout} and {declared.order}."
                )
            options = {option: value or 0 for option, value in declared.options.items()}
            if options != stated.options:
                yield f"{file} takes {stated.options}, and tlb/lab/kernels.py declares {options}."


def test_each_declaration_says_what_its_files_say():
    assert list(complaints(build.KERNELS, CATALOGUE)) == []


@pytest.mark.parametrize("file", ["graph_walk.c", "twins/graph_walk.py"])
def test_what_the_files_say_is_read(file: str):
    """Else a reader that reads nothing would find nothing to complain of."""
    read = stated_in_c if file.endswith(".c") else stated_in_python
    assert read((build.KERNELS / file).read_text()) == Stated(
        ("packed", "spread"),
        ("random",),
        ("plain", "blocked", "prefetch"),
        {
            "vertices": 0,
            "walkers": 1,
            "block_vertices": 0,
            "block_steps": 1024,
            "distance": 8,
            "per_hop": 0,
        },
    )


# --- what a point is where nothing is said


@pytest.mark.parametrize(
    ("name", "options", "shape", "mode"),
    [
        ("page_chase", {}, ("spread", "cycle", 4096), ""),
        ("prefault", {}, ("spread", "sequential", 4096), "touch"),
        ("random_touch", {"bytes": 1000}, ("packed", "random", 16), ""),
        ("random_touch", {}, ("packed", "random", 4096), ""),
        ("graph_walk", {"vertices": 1024}, ("packed", "random", 1024), "plain"),
        ("radix_partition", {"tuples": 1027}, ("packed", "random", 6 * 257), "naive"),
        ("guest_chase", {"levels": 5}, ("spread", "cycle", 4096), "4k"),
    ],
)
def test_shape_and_first_mode(name: str, options: dict[str, int], shape: tuple, mode: str):
    assert tuple(kernels.shape(name, options)[key] for key in ("layout", "order", "lines")) == shape
    assert kernels.first_mode(name) == mode


def rows(*points: tuple[str, dict]) -> pd.DataFrame:
    """A frame as the store gives it: an option that was not asked for is NaN."""
    frame = pd.DataFrame([{"kernel": name} | options for name, options in points])
    return frame.astype({column: float for column in frame.columns if column != "kernel"})


def test_a_frame_has_the_catalogue_s_default_wherever_nothing_was_asked():
    frame = with_defaults(
        rows(
            ("graph_walk", {"vertices": 64, "walkers": 4}),
            ("graph_walk", {"vertices": 128}),
            ("page_chase", {}),
            ("prefault", {}),
        )
    )
    for option, default in CATALOGUE["graph_walk"].options.items():
        if default is not None:
            asked = {"walkers": 4}.get(option, default)
            assert frame[option].tolist()[:2] == [asked, default], option
            assert frame[option].isna().tolist()[2:] == [True, True], (
                option
            )  # which is no number of theirs
    assert frame["vertices"].tolist()[:2] == [64, 128] and frame["threads"].tolist()[3] == 1


# --- memory and time


@given(
    st.integers(1, 2**30),
    st.sampled_from(["4k", "64k", "thp", "2m", "1g"]),
    st.sampled_from(["spread", "packed"]),
    st.sampled_from([4 * KIB, 16 * KIB, 64 * KIB]),
)
def test_what_a_point_needs_is_whole_pages_and_room_for_its_order(
    lines: int, pages: str, layout: str, base: int
):
    needed = arena_bytes(Point(kernel="page_chase", lines=lines, pages=pages, layout=layout), base)
    page = {"4k": base, "64k": 64 * KIB, "thp": 2 * MIB, "2m": 2 * MIB, "1g": GIB}[pages]
    arena = needed - 16 * lines
    assert arena % page == 0 and 0 <= arena - lines * (base if layout == "spread" else 64) < page


# --- what belongs to a sweep


def test_a_packed_control_belongs_to_its_spread_points_and_an_array_has_its_own_size():
    most = 64 * 4096
    made = [
        ("page_chase", "spread", 64),
        ("page_chase", "spread", 65),
        ("page_chase", "packed", 64),
        ("page_chase", "packed", 65),
        ("random_touch", "packed", 4096),
        ("random_touch", "packed", 4097),
    ]
    frame = pd.DataFrame(
        [
            make_record(kernel=name, layout=layout, lines=lines).model_dump()
            for name, layout, lines in made
        ]
    )
    assert is_within(frame, most).tolist() == [True, False, True, False, True, False]
