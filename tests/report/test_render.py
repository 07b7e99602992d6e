"""The renderer: safe, and the same bytes for the same data."""

import csv
import io
import json
import re
from urllib.parse import unquote

import altair as alt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import FRAME, Elements, cliff, figure

from tlb.report import charts, render
from tlb.report.render import Figure, escape_json

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u2028`"


# --- escaping ---

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_escaped_json_says_the_same_and_holds_nothing_that_ends_a_script(value):
    text = escape_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


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
    (table,) = spec["datasets"].values()
    assert {row[table["columns"].index("layout")] for row in table["rows"]} == {HOSTILE}


def test_a_chart_that_would_load_something_is_refused():
    picture = (
        alt.Chart(pd.DataFrame({"url": ["https://example.org/x.png"]}))
        .mark_image()
        .encode(url="url:N")
    )
    with pytest.raises(ValueError, match="<image>"):
        Figure(picture, "A picture.", FRAME).svg()


def test_a_chart_that_links_is_refused():
    frame = FRAME.assign(to="https://example.org")
    linked = alt.Chart(frame).mark_point().encode(x="ns_per_access", href="to:N")
    with pytest.raises(ValueError, match="<a>"):
        Figure(linked, "Points.", FRAME).svg()


@pytest.mark.parametrize("name", ["", "Cliff", "a b", "../x", 'x"y', "x\n", "é"])
def test_a_name_that_could_leave_its_attribute_or_folder_is_refused(name):
    with pytest.raises(ValueError, match="a-z"):
        figure(name)


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


def test_digits_that_another_cpu_has_otherwise_change_nothing():
    noisy = FRAME.assign(
        ns_per_access=FRAME["ns_per_access"] * (1 + 1e-12), low=[1e-17, -3e-15, 0.0, 1.0, 2.0, 3.0]
    )
    calm = FRAME.assign(low=[0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    drawn = [figure(frame=frame).html() for frame in (noisy, calm)]
    assert drawn[0] == drawn[1] and "e-1" not in drawn[0]


# --- data ---

NUMBERS = st.floats(allow_infinity=False, allow_subnormal=False)
CELLS = NUMBERS | st.text(st.characters(codec="utf-8")) | st.none()


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_the_csv_gives_back_every_value_to_six_digits(values):
    frame = pd.DataFrame({"value": pd.Series(values, dtype=object), "n": range(len(values))})
    rows = list(csv.DictReader(io.StringIO(Figure(cliff(), "x", frame).csv(), newline="")))
    assert [int(row["n"]) for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        if value is None or value != value:
            assert row["value"] == ""
        elif isinstance(value, float) and abs(value) < render.NOTHING:
            assert row["value"] == "0"
        elif isinstance(value, float):
            assert float(row["value"]) == pytest.approx(value, rel=1e-5)
        else:
            assert row["value"] == value


@pytest.mark.parametrize("text", ["a,b", 'say "so"', "50 % & more", "é <b> #1", "two\nlines", "+1"])
def test_the_link_to_the_data_holds_the_csv_and_ends_no_attribute(text):
    made = figure(frame=FRAME.assign(layout=text))
    seen = dict(Elements(made.html()).attributes)
    kind, data = seen["href"].split(",", 1)
    assert (kind, unquote(data), seen["download"]) == (
        "data:text/csv;charset=utf-8",
        made.csv(),
        "cliff.csv",
    )
    assert re.fullmatch(r"[!-~]+", seen["href"]) and not set(seen["href"]) & set("\"'<>&#\\")


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8))
def test_names_at_curves_stand_apart_and_in_the_order_of_their_curves(lasts):
    points = [(str(n), x, y) for n, last in enumerate(lasts) for x, y in ((1, 5.0), (2, last))]
    data = pd.DataFrame(points, columns=["series", "x", "y"])
    ends = charts.ends_of_curves(data, "series", "x", "y", 1.2)
    assert (ends["x"] == 2).all() and sorted(ends["series"]) == sorted(data["series"].unique())
    assert ends["y"].is_monotonic_increasing and (ends["name_y"] >= ends["y"]).all()
    steps = ends["name_y"].to_numpy()
    assert (steps[1:] / steps[:-1] > 1.1999).all()
    linear = charts.ends_of_curves(data, "series", "x", "y", 1.0, 3.0)["name_y"]
    assert (linear.diff().dropna() > 2.999).all()


@pytest.mark.parametrize(
    ("title", "shown"), [("ns", "ns, log scale"), ("gain →", "gain, log scale →"), ("", "")]
)
def test_a_logarithmic_axis_says_so_in_each_layer_that_shares_it(title, shown):
    base = alt.Chart(FRAME).encode(x=alt.X("lines:Q", axis=alt.Axis(title="lines")))
    y = alt.Y("median:Q", axis=alt.Axis(title=title))
    layers = base.mark_line().encode(y=y.scale(type="log")), base.mark_point().encode(y=y)
    spec = Figure(alt.layer(*layers), "Two layers.", FRAME).spec()
    axes = [layer["encoding"][channel]["axis"] for layer in spec["layer"] for channel in "xy"]
    assert [axis["title"] for axis in axes] == ["lines", shown] * 2
