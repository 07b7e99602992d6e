"""The charts: drawn on a whole machine and on one of base pages alone, or a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from support.hugepages import MACHINES, analysis, only, rows
from support.synthetic import HOLE

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
    figures.far_load: {"pages", "part", "ns", "lines"},
}
PARTIAL = ["everything", "base pages alone"]


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
    assert not HOLE.search(figure.alt.replace("(", "")) and figure.alt.endswith(".")


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


def test_the_parts_of_a_far_load_add_up_to_it():
    a = analysis(rows())
    data = figures.far_load(a).data
    lines, whole = data["lines"].iloc[0], data.groupby("pages", sort=False)["ns"].sum()
    assert whole.to_list() == pytest.approx([a.spread[pages].at(lines).value for pages in ("4k", "64k", "thp", "2m")])
