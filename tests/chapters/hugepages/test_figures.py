"""The charts show the curves and prices of the analysis, or there is a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.hugepages import analysis, only

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
