"""The charts show the curves and prices of the analysis, or there is a reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.hugepages import analysis, only, without_controls

from experiments.hugepages import Analysis, figures
from tlb.reasons import Unavailable
from tlb.report.render import Figure

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(
    ("make", "there", "code"),
    [
        (figures.splinter, ("4k",), "pool-empty"),
        (figures.touch, ("1g",), "too-few-points"),
        (figures.page_sizes, (), "too-few-points"),
        (figures.page_prices, (), "too-few-points"),
    ],
)
def test_a_figure_without_rows_is_a_reason(
    make: Callable[[Analysis], Figure], there: tuple[str, ...], code: str
):
    with pytest.raises(Unavailable) as why:
        make(analysis(only(*there)))
    assert why.value.code == code


def test_prices_without_their_controls_are_a_reason_and_times_are_not():
    a = analysis(without_controls())
    with pytest.raises(Unavailable, match="control"):
        figures.page_prices(a)
    assert len(figures.page_sizes(a).data) and not re.search(r"\bnan\b", figures.page_sizes(a).alt)
