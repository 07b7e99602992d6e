"""Every verdict and figure about guests, on every machine that never was."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.guests import MACHINES, analysis
from support.synthetic import HOLE, fit_to_be_shown

from experiments.article.render import Figure
from experiments.article.verdicts import verdicts
from experiments.chapters.virtualization import claims, figures
from experiments.chapters.virtualization.analysis import Analysis
from experiments.words.reasons import Note, Unavailable

pytestmark = pytest.mark.filterwarnings("error")
FIGURES = (figures.guest_matrix, figures.guest_lines, figures.guest_steps, figures.guest_ratios, figures.guest_references)
ABOUT_GUESTS = ("guest_matrix", "guest_ratios", "guest_references")
UNDRAWN = {"no guest": ABOUT_GUESTS, "no native": ("guest_ratios",), "no controls": ("guest_steps", "guest_references"),
           "a cell without base pages": ("guest_lines", "guest_steps"), "nothing": (*ABOUT_GUESTS, "guest_lines", "guest_steps"),
           "packed alone": (*ABOUT_GUESTS, "guest_lines", "guest_steps")}
ODD = ("noise", "free", "one cell", "no pools", "no native", "one repeat", "tiny", "no guest")
QUICK = ("one cell", "tiny", "no guest", "nothing")


def drawn(a: Analysis, figure: Callable[[Analysis], Figure], is_odd: bool) -> bool:
    """Whether a figure's rows are there; if so, it is fit to be shown. is_odd: so its chart may be, and is made."""
    try:
        made = figure(a)
    except Unavailable:
        return False
    if is_odd:
        json.dumps(made.spec(), allow_nan=False)
    assert len(made.data) and not HOLE.search(made.alt) and made.alt.endswith(".")
    return True


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.endurance) for name in MACHINES])
def test_every_machine_has_every_verdict_and_the_figures_that_its_rows_allow(name: str):
    a = analysis(MACHINES[name](), notes=[Note("A note.")])
    fit_to_be_shown(verdicts(claims, a), "virtualization")
    assert {figure.__name__ for figure in FIGURES if not drawn(a, figure, name in ODD)} == set(UNDRAWN.get(name, ()))
