"""Points and records: what makes two the same, and what is no option and no histogram."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tlb.lab.record import Option, Point


@pytest.mark.parametrize(
    "given",
    [
        (("bytes", 8), ("threads", 2)),
        (("threads", 2), ("bytes", 8)),
        [["threads", 2], ["bytes", 8]],
        {"threads": 2, "bytes": 8},
    ],
)
def test_the_same_options_in_any_order_are_the_same_point(given: object) -> None:
    point = Point(kernel="random_touch", lines=1, options=given)
    assert point.options == (
        Option("bytes", 8),
        Option("threads", 2),
    ) and point == Point.model_validate_json(point.model_dump_json())


@pytest.mark.parametrize(
    "given",
    [
        (("bytes", 1), ("bytes", 2)),
        (("bytes", -1),),
        (("bytes", 2**53 + 1),),
        (("bytes", 1.5),),
        (("bytes", "1"),),
        (("bytes", True),),
        (("Bytes", 1),),
        (("a b", 1),),
        (("", 1),),
        (("bytes",),),
        (("bytes", 1, 2),),
        "bytes",
        7,
        None,
        ((1, 2),),
    ],
)
def test_what_is_no_list_of_names_with_whole_numbers_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        Point(kernel="random_touch", lines=1, options=given)
