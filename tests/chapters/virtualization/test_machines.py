"""Every sentence, verdict and figure about guests, on every machine that never was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.guests import CELLS, HOSTS, MACHINES, NESTED, Guests, analysis, rows, stated
from support.synthetic import GIB, HOLE, fit_to_be_shown

from experiments.article.render import Figure
from experiments.article.verdicts import verdicts
from experiments.chapters.virtualization import claims, figures, prose
from experiments.chapters.virtualization.analysis import Analysis
from experiments.words.prose import Prose
from experiments.words.reasons import Note, Unavailable

pytestmark = pytest.mark.filterwarnings("error")
FIGURES = (figures.guest_matrix, figures.guest_lines, figures.guest_steps, figures.guest_ratios, figures.guest_references)
ABOUT_GUESTS = ("guest_matrix", "guest_ratios", "guest_references")
UNDRAWN = {"no guest": ABOUT_GUESTS, "no native": ("guest_ratios",), "no controls": ("guest_steps", "guest_references"),
           "a cell without base pages": ("guest_lines", "guest_steps"), "nothing": (*ABOUT_GUESTS, "guest_lines", "guest_steps"),
           "packed alone": (*ABOUT_GUESTS, "guest_lines", "guest_steps")}
ODD = ("noise", "free", "one cell", "no pools", "no native", "one repeat", "tiny", "no guest")
QUICK = ("one cell", "tiny", "no guest", "nothing")


def readable(a: Analysis) -> None:
    """Each sentence is one, and each claim has a verdict."""
    for name in prose.__all__:
        try:
            text = getattr(prose, name)(a)
        except Unavailable as why:
            text = Prose(why)
        if isinstance(text, Prose) and (text or name != "whose"):
            assert text.rstrip().endswith(".") and not re.search(r"[a-z],? \.|\.\.|,\.", text), (name, text)
            assert not HOLE.search(text), (name, text)
        assert isinstance(text, Prose) or name == "machine" or isinstance(text, float) and text > 0
    fit_to_be_shown(verdicts(claims, a), "virtualization")


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
def test_every_machine_has_every_sentence_and_verdict_and_the_figures_that_its_rows_allow(name: str):
    a = analysis(MACHINES[name](), notes=[Note("A note.")])
    readable(a)
    assert {figure.__name__ for figure in FIGURES if not drawn(a, figure, name in ODD)} == set(UNDRAWN.get(name, ()))


@pytest.mark.endurance
@given(st.sets(st.sampled_from(CELLS)), st.sets(st.sampled_from(HOSTS)), st.sampled_from([GIB, 64 << 10]), st.integers(1, 3), st.booleans(),
       st.booleans())
@settings(max_examples=6, deadline=None)
def test_whatever_is_missing_there_are_all_sentences(cells: set, pages: set, most: int, repeats: int, shadow: bool, controls: bool):
    frame = rows(NESTED if shadow else Guests(), most, 3, 1)
    guest = (frame["kernel"] == "guest_chase") & ~pd.MultiIndex.from_frame(frame[["mode", "pages"]]).isin(list(cells))
    plain = (frame["kernel"] == "page_chase") & ~frame["pages"].isin(list(pages))
    kept = frame[~guest & ~plain & (frame["repeat"] < repeats) & (controls | (frame["layout"] == "spread"))]
    readable(analysis(kept, stated("shadow", "kvm")))
