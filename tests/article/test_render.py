"""The renderer: safe, the same bytes for the same data, readable in both colour schemes."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.article import charts as figures
from experiments.article import render
from experiments.article.render import Figure, data_table, escape_json, lacking_note, verdict_table
from experiments.system import files

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u2028`"
CSS = (files.ROOT / "book/assets/figures.css").read_text(encoding="utf-8")
FRAME = pd.DataFrame(
    {
        "working_set_bytes": [2**16, 2**24, 2**32] * 2,
        "ns_per_access": [1.2345678, 17.25, 127.1, 1.2, 5.5, 8.0],
        "layout": ["spread"] * 3 + ["packed"] * 3,
    }
)


def cliff(frame: pd.DataFrame = FRAME, title: str = "") -> alt.Chart:
    """A chart that uses what the chapters use: clipped lines, points, both axes, a selection, tooltips."""
    return (
        alt.Chart(frame, title=title)
        .mark_line(point=True, clip=True)
        .encode(
            x=alt.X("working_set_bytes:Q", scale=figures.log_scale(), axis=figures.bytes_axis()),
            y=alt.Y("ns_per_access:Q", axis=figures.ns_axis()),
            color=alt.Color("layout:N", legend=figures.line_legend()),
            tooltip=["layout:N", "ns_per_access:Q"],
        )
        .add_params(alt.selection_point(fields=["layout"], bind="legend"))
    )


def figure(name="cliff", frame: pd.DataFrame = FRAME, title="", alt_text="A cliff.") -> Figure:
    return Figure(cliff(frame, title), name, alt_text, frame)


class Elements(HTMLParser):
    """The elements and the text of a piece of HTML, as a browser's tokenizer sees them."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


# --- escaping ---

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_escaped_json_says_the_same_and_holds_nothing_that_ends_a_script(value):
    text = escape_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


def test_json_has_no_word_for_what_is_not_a_number():
    with pytest.raises(ValueError):
        escape_json([float("nan")])


def test_hostile_text_in_title_data_and_alternative_stays_text():
    frame = FRAME.assign(layout=HOSTILE)
    markup = figure(frame=frame, title=HOSTILE, alt_text=HOSTILE).html()
    seen = Elements(markup)
    assert seen.tags.count("script") == 1  # the spec
    assert seen.tags.count("a") == 1  # the data
    assert "img" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert ("aria-label", HOSTILE) in seen.attributes
    drawn = [text for text in seen.text if "alert(1)" in text and not text.startswith("{")]
    assert len(drawn) >= 2  # the title and the legend, letter by letter
    spec = json.loads(next(text for text in seen.text if text.startswith("{")))
    assert {row["layout"] for row in next(iter(spec["datasets"].values()))} == {HOSTILE}


def test_a_chart_that_would_load_something_is_refused():
    picture = alt.Chart(pd.DataFrame({"url": ["https://example.org/x.png"]})).mark_image().encode(url="url:N")
    with pytest.raises(ValueError, match="<image>"):
        Figure(picture, "picture", "A picture.", FRAME).svg()


def test_a_chart_that_links_is_refused():
    frame = FRAME.assign(to="https://example.org")
    linked = alt.Chart(frame).mark_point().encode(x="ns_per_access", href="to:N")
    with pytest.raises(ValueError, match="<a>"):
        Figure(linked, "linked", "Points.", FRAME).svg()


@pytest.mark.parametrize("name", ["", "Cliff", "a b", "../x", 'x"y', "x\n", "é"])
def test_a_name_that_could_leave_its_attribute_or_folder_is_refused(name):
    with pytest.raises(ValueError, match="a-z"):
        figure(name)


def test_a_figure_without_alternative_or_data_is_refused():
    with pytest.raises(ValueError, match="text alternative"):
        figure(alt_text=" ")
    with pytest.raises(ValueError, match="no data"):
        Figure(cliff(), "empty", "Nothing.", FRAME.head(0))


# --- determinism ---


def test_same_data_same_bytes_however_many_charts_came_before():
    first = figure()._repr_mimebundle_()
    for _ in range(3):
        cliff().to_dict()
    assert figure()._repr_mimebundle_() == first


def test_two_figures_of_a_page_share_no_id():
    ids = [set(re.findall(r'\bid="([^"]+)"', figure(name).html())) for name in ("one", "two")]
    assert len(ids[0]) > 1  # the clip path is among them
    assert not ids[0] & ids[1]
    used = set(re.findall(r"url\(#([^)]+)\)", figure("one").svg()))
    assert used and used <= ids[0]


def test_text_is_set_in_a_font_that_the_renderer_carries():
    fonts = set(re.findall(r'font-family="([^"]+)"', figure().svg()))
    assert fonts and all(font.startswith("Liberation Sans") for font in fonts)


def test_the_bundle_has_page_image_and_words():
    bundle = figure()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert bundle["text/plain"] == "A cliff."
    assert bundle["image/png"].startswith("iVBORw0KGgo")  # PNG's signature in base64


# --- data ---

NUMBERS = st.floats(allow_infinity=False, allow_subnormal=False)
CELLS = NUMBERS | st.text(st.characters(codec="utf-8")) | st.none()


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_the_csv_gives_back_every_value_to_six_digits(values):
    frame = pd.DataFrame({"value": pd.Series(values, dtype=object), "n": range(len(values))})
    rows = list(csv.DictReader(io.StringIO(Figure(cliff(), "x", "x", frame).csv(), newline="")))
    assert [int(row["n"]) for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        if value is None or value != value:
            assert row["value"] == ""
        elif isinstance(value, float):
            assert float(row["value"]) == pytest.approx(value, rel=1e-5)
        else:
            assert row["value"] == value


def test_whole_numbers_keep_all_their_digits():
    frame = FRAME.assign(working_set_bytes=[float(2**32 + 4096)] * 6)
    assert str(2**32 + 4096) in figure(frame=frame).csv()
    assert str(2**32 + 4096) in escape_json(figure(frame=frame).spec())


# --- axes ---


def drawn_labels(axis: alt.Axis, low: float, high: float) -> list[str]:
    frame = pd.DataFrame({"x": [low, high], "y": [1, 2]})
    chart = alt.Chart(frame).mark_point().encode(
        x=alt.X("x:Q", scale=figures.log_scale(domain=(low, high)), axis=axis), y=alt.Y("y:Q", axis=None)
    )
    return re.findall(r"<text[^>]*>([^<]+)</text>", Figure(chart, "axis", "An axis.", frame).svg())


def test_byte_ticks_carry_binary_units():
    labels = drawn_labels(figures.bytes_axis(), 2**16, 2**32)
    assert labels[0] == "64 KiB" and "1 MiB" in labels and "4 GiB" in labels
    assert labels[-1] == "Working set"


def test_line_ticks_carry_binary_prefixes():
    labels = drawn_labels(figures.lines_axis(values=[16, 1536, 4096, 2**20]), 16, 2**20)
    assert labels == ["16", "1.5 Ki", "4 Ki", "1 Mi", "Lines touched"]


def test_nanosecond_ticks_are_plain_numbers():
    assert drawn_labels(figures.ns_axis(values=[0.5, 20, 1500]), 0.5, 1500)[:3] == ["0.5", "20", "1,500"]


# --- colours ---


def linear(colour: str) -> np.ndarray:
    """Linear RGB of "#rrggbb", 0 to 1 (IEC 61966-2-1)."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2)."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def dark(colour: str, channel: str) -> str:
    """What figures.css paints in dark mode instead of `colour`."""
    found = re.search(rf'& \[{channel}="{colour}"\] {{ {channel}: (#[0-9a-f]{{6}}); }}', CSS)
    assert found, f"figures.css does not repaint {channel} {colour}"
    return found[1]


PAPER, NIGHT = "#ffffff", "#14181e"  # the theme's backgrounds


@pytest.mark.parametrize("colour", [render.INK, render.MUTED, *render.PALETTE])
def test_every_colour_is_seen_on_paper_and_at_night(colour):
    least = 4.5 if colour in (render.INK, render.MUTED) else 3  # text; lines and points
    assert contrast(colour, PAPER) >= least
    assert dark(colour, "fill") == dark(colour, "stroke")
    assert contrast(dark(colour, "fill"), NIGHT) >= least


def test_grid_lines_are_repainted_too():
    assert contrast(dark(render.RULE, "stroke"), NIGHT) < 2


def test_the_theme_draws_in_no_other_colour():
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]{6}|[a-z]+)"', figure().svg()))
    assert used <= {render.INK, render.MUTED, render.RULE, *render.PALETTE, "none", "transparent"}


# Full dichromacy (Machado, Oliveira and Fernandes 2009), on linear RGB.
EYES = {
    "any": np.eye(3),
    "without long cones": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "without medium cones": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB, white D65."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    ratio = np.clip(xyz / [0.9505, 1.0, 1.089], 0, None)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_colours_differ_for_every_eye(eye, scheme):
    colours = [colour if scheme == "light" else dark(colour, "stroke") for colour in render.PALETTE]
    seen = [lab(np.clip(EYES[eye] @ linear(colour), 0, 1)) for colour in colours]
    # A difference of 2.3 is just noticeable between patches side by side; thin lines need several times that.
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


# --- tables and notes ---


def test_a_verdict_table_escapes_and_has_a_twin_in_words():
    rows = [("flat < 8 MiB", "holds", "slope `0.02`"), (HOSTILE, "cannot tell", "no counters")]
    table = verdict_table(rows)
    seen = Elements(table.markup)
    assert not {"script", "img"} & set(seen.tags)
    assert HOSTILE.replace("`", "") in "".join(seen.text).replace("`", "")
    assert seen.tags.count("tr") == 3 and "code" in seen.tags
    assert {value for name, value in seen.attributes if name == "class"} >= {
        "tlb-verdict tlb-verdict-holds", "tlb-verdict tlb-verdict-unknown"}
    assert table.text.splitlines()[0] == "HOLDS: flat < 8 MiB [slope `0.02`]"
    assert table._repr_mimebundle_()["text/plain"] == table.text


def test_every_verdict_has_its_colour():
    table = verdict_table([("c", verdict, "e") for verdict in ("holds", "fails", "cannot tell")])
    classes = re.findall(r"tlb-verdict-\w+", table.markup)
    assert len(classes) == 3 and all(f".{name} " in CSS for name in classes)


def test_there_is_no_fourth_verdict():
    with pytest.raises(KeyError):
        verdict_table([("c", "probably", "e")])


def test_a_table_of_a_frame_keeps_order_places_and_gaps():
    frame = pd.DataFrame({"size": ["1 MB", "<b>"], "pages": [256, 1024], "ns": [4.25, None]})
    table = data_table(frame, decimals=2)
    assert table.text == "size\tpages\tns\n1 MB\t256\t4.25\n<b>\t1024\t–"
    assert "<b>" not in table.markup and table.markup.count('class="tlb-number"') == 6


def test_a_note_says_each_reason_in_a_paragraph():
    note = lacking_note("No counters. Use `perf`.", HOSTILE)
    seen = Elements(note.markup)
    assert seen.tags.count("p") == 3 and seen.tags.count("code") == 1 and "script" not in seen.tags
    assert note.text.splitlines()[0] == "Not on this machine: No counters. Use `perf`."


def test_a_number_that_rounds_to_zero_has_no_sign():
    table = render.data_table(pd.DataFrame({"price": [-0.001, 0.0, -0.006]}), decimals=2)
    assert "-0.00" not in str(table) and "-0.01" in str(table)
