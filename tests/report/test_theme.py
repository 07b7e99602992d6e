"""Colours that every eye tells apart, on paper and at night."""

import itertools
import re

import numpy as np
import pytest
from support.pages import contrast, linear

from tlb.report import charts, render
from tlb.system import files

CSS = (files.ROOT / "book/assets/figures.css").read_text(encoding="utf-8")


def dark(colour: str, channel: str) -> str:
    """What figures.css paints in dark mode instead of `colour`."""
    found = re.search(rf'& \[{channel}="{colour}"\] {{ {channel}: (#[0-9a-f]{{6}}); }}', CSS)
    assert found, f"figures.css does not repaint {channel} {colour}"
    return found[1]


PAPER, NIGHT = "#ffffff", "#14181e"  # the theme's backgrounds


MACHINES = [*charts.MACHINE_COLOURS.values()]
OTHERS = charts.OTHER_COLOURS
COLOURS = [render.TEXT_COLOUR, render.MUTED_COLOUR, *render.PALETTE, *MACHINES, *OTHERS]


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_is_seen_on_paper_and_at_night(colour):
    least = (
        4.5 if colour in (render.TEXT_COLOUR, render.MUTED_COLOUR) else 3
    )  # text; lines and points
    assert contrast(colour, PAPER) >= least
    assert dark(colour, "fill") == dark(colour, "stroke")
    assert contrast(dark(colour, "fill"), NIGHT) >= least


# Full dichromacy (Machado, Oliveira and Fernandes 2009), on linear RGB.
EYES = {
    "any": np.eye(3),
    "without long cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "without medium cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB, white D65."""
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ rgb
    )
    ratio = np.clip(xyz / [0.9505, 1.0, 1.089], 0, None)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("series", [render.PALETTE, MACHINES, OTHERS])
def test_series_colours_differ_for_every_eye(eye, scheme, series):
    colours = [colour if scheme == "light" else dark(colour, "stroke") for colour in series]
    seen = [lab(np.clip(EYES[eye] @ linear(colour), 0, 1)) for colour in colours]
    # A difference of 2.3 is just noticeable between patches side by side; thin lines need several
    # times that.
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15
