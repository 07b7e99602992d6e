"""nbval compares everything of a chapter's outputs but the drawing itself and the last digits of a
float."""

import re

import altair as alt
import pandas as pd
import pytest
from nbval.plugin import get_sanitize_patterns
from support.common import ROOT

from tlb.report.render import Figure

CONFIG = ROOT / "tests/nbval_sanitize.cfg"


def sanitized(text: str) -> str:
    for pattern, replacement in get_sanitize_patterns(CONFIG.read_text()):
        text = re.sub(pattern, replacement, text)
    return text


def figure(second: float) -> str:
    data = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, second]})
    return Figure(
        alt.Chart(data).mark_line().encode(x="x:Q", y="y:Q"), "A line that rises.", data
    ).html()


def test_a_drawing_of_many_lines_is_left_out_and_what_stands_around_it_is_not():
    html = figure(4.0)
    redrawn = re.sub(r'(<path[^>]* d="M?)', r"\1\n0.00", html)
    assert redrawn != html and sanitized(redrawn) == sanitized(html)
    assert sanitized(html).count("<svg></svg>") == 1
    for kept in (
        '<script type="application/json" class="tlb-spec">',
        'href="data:text/csv;charset=utf-8,x,y',
        'aria-label="A line that rises."',
    ):
        assert kept in sanitized(html)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("3.0000000000000004", "3.0", True),
        ("19.753039270000002", "19.75303927", True),
        ("-1.2345678901234e-05", "-1.2345678901239e-05", True),
        ("1.2345678901234e-05", "1.2345678901234e-06", False),
        ("10.0", "1.0", False),
        ('{"ns":0.0012345678}', '{"ns":0.0012345679}', False),
    ],
)
def test_only_digits_beyond_any_measurement_are_left_out(one, other, same):
    assert (sanitized(one) == sanitized(other)) is same
