"""Points and records: what makes two the same, and what is no option and no histogram."""

import pytest

from tlb.measure.record import Option, Point


@pytest.mark.parametrize(
    "given",
    [
        (("bytes", 8), ("threads", 2)),
        (("threads", 2), ("bytes", 8)),
        [["threads", 2], ["bytes", 8]],
        {"threads": 2, "bytes": 8},
    ],
)
def test_the_same_options_in_any_order_are_the_same_point(given):
    point = Point(kernel="random_touch", lines=1, options=given)
    assert point.options == (
        Option("bytes", 8),
        Option("threads", 2),
    ) and point == Point.model_validate_json(point.model_dump_json())
