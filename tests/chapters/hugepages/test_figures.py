"""The charts: drawn on every machine that has their rows, one colour a page size, the numbers told beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from support.hugepages import MACHINES, PAGES, analysis, chased, median, only, priced, rows
from support.pages import Elements
from support.synthetic import GIB, HOLE, MIB

from experiments.article.render import Figure
from experiments.chapters.hugepages import Analysis, figures
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

CURVE = {"lines", "median", "low", "high", "n"}
FIGURES: dict[Callable[[Analysis], Figure], set[str]] = {
    figures.page_sizes: CURVE | {"pages", "working_set_bytes", "coverage", "unstable"},
    figures.page_prices: CURVE | {"pages", "working_set_bytes", "unstable"},
    figures.splinter: CURVE | {"series"},
    figures.touch: {"where", "pages", "array_bytes", "median", "low", "high", "n"},
}
PARTIAL = ["everything", "splintered", "one repeat", "base pages alone"]


@pytest.mark.parametrize("machine", PARTIAL)
@pytest.mark.parametrize("make", FIGURES, ids=lambda make: make.__name__)
def test_every_figure_is_drawn_on_every_machine_that_has_its_rows(make: Callable[[Analysis], Figure], machine: str):
    a = analysis(MACHINES[machine]())
    if make is figures.splinter and machine == "base pages alone":
        with pytest.raises(Unavailable):
            make(a)
        return
    figure = make(a)
    assert FIGURES[make] <= set(figure.data.columns) and len(figure.csv().splitlines()) == len(figure.data) + 1
    json.dumps(figure.spec(), allow_nan=False)
    assert Elements(figure.svg()).tags.count("svg") == 1
    assert not HOLE.search(figure.alt.replace("(", "")) and figure.alt.endswith(".")


def colours(spec: dict, field: str) -> dict[str, str]:
    """Value -> colour, of every colour encoding of a field; asserts that they agree."""
    found: dict[str, str] = {}

    def walk(node: object) -> None:
        if isinstance(node, dict):
            colour = node.get("color")
            if isinstance(colour, dict) and colour.get("field") == field:
                new = dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))
                assert all(found.get(key, value) == value for key, value in new.items())
                found.update(new)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(spec)
    return found


def test_a_page_size_has_one_colour_in_every_figure_and_on_every_machine():
    known: dict[str, str] = {}
    for make in (figures.page_sizes, figures.page_prices, figures.touch, figures.calculator):
        for machine in ("everything", "base pages alone"):
            found = colours(make(analysis(MACHINES[machine]())).spec(), "pages")
            assert {"4k"} <= found.keys() <= set(PAGES)
            assert all(known.get(pages, colour) == colour for pages, colour in found.items())
            known |= found
    assert set(known) == set(PAGES) and len(set(known.values())) == 5
    pieces = colours(figures.splinter(analysis()).spec(), "series")
    assert (pieces["base pages"], pieces["2 MiB pages of the pool"]) == (known["4k"], known["2m"])


def test_the_alternatives_tell_the_numbers_at_the_right():
    frame = rows(per_octave=4)
    a = analysis(frame)
    assert f"{chased(frame, '4k', 4 * GIB):.0f} ns on 4k at 4 GiB" in figures.page_sizes(a).alt
    assert f"2m {priced(frame, '2m', 4 * GIB):.1f} ns" in figures.page_prices(a).alt
    assert f"base pages {priced(frame, '4k', 128 * MIB):.1f} ns" in figures.splinter(a).alt
    assert f"{median(frame, kernel='random_touch', pages='2m', bytes=10**9):.1f} ns on 2m" in figures.touch(a).alt


@pytest.mark.parametrize(("make", "there", "code"), [
    (figures.splinter, ("4k",), "pool-empty"), (figures.touch, ("1g",), "too-few-points"),
    (figures.page_sizes, (), "too-few-points"), (figures.page_prices, (), "too-few-points")])
def test_a_figure_without_rows_is_a_reason(make: Callable[[Analysis], Figure], there: tuple[str, ...], code: str):
    with pytest.raises(Unavailable) as why:
        make(analysis(only(*there)))
    assert why.value.code == code


def test_prices_without_their_controls_are_a_reason_and_times_are_not():
    a = analysis(MACHINES["no controls"]())
    with pytest.raises(Unavailable, match="control"):
        figures.page_prices(a)
    assert len(figures.page_sizes(a).data) and not re.search(r"\bnan\b", figures.page_sizes(a).alt)
