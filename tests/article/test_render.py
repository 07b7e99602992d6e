"""The renderer: safe, the same bytes for the same data, readable in both colour schemes."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree.ElementTree import Element

import altair as alt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pages import FRAME, Elements, cliff, figure

from experiments.article import render
from experiments.article.render import Figure, data_table, escape_json, highlighted, lacking_note

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u2028`"


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
    (table,) = spec["datasets"].values()
    assert {row[table["columns"].index("layout")] for row in table["rows"]} == {HOSTILE}


def test_a_chart_that_would_load_something_is_refused():
    picture = alt.Chart(pd.DataFrame({"url": ["https://example.org/x.png"]})).mark_image().encode(url="url:N")
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


def test_a_figure_without_alternative_or_data_is_refused():
    with pytest.raises(ValueError, match="text alternative"):
        figure(alt_text=" ")
    with pytest.raises(ValueError, match="no data"):
        Figure(cliff(), "Nothing.", FRAME.head(0))


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


def test_names_in_a_spec_hang_on_its_shape_and_not_on_its_numbers():
    spec, other = (figure(frame=FRAME.assign(ns_per_access=FRAME["ns_per_access"] * factor)).spec() for factor in (1, 1.25))
    assert spec["datasets"].keys() == other["datasets"].keys() == {"data-0"} and spec["datasets"] != other["datasets"]
    assert spec["params"] == other["params"] and re.fullmatch(r"param_\d", spec["params"][0]["name"])


def test_text_that_looks_like_a_counted_name_is_left_alone():
    spec = figure(title="param_of data-3 view_a, data-bed").spec()
    assert spec["title"] == "param_of data-3 view_a, data-bed"


def test_digits_that_another_cpu_has_otherwise_change_nothing():
    noisy = FRAME.assign(ns_per_access=FRAME["ns_per_access"] * (1 + 1e-12), low=[1e-17, -3e-15, 0.0, 1.0, 2.0, 3.0])
    calm = FRAME.assign(low=[0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    drawn = [figure(frame=frame).html() for frame in (noisy, calm)]
    assert drawn[0] == drawn[1] and "e-1" not in drawn[0]


def test_text_is_set_in_a_font_that_the_renderer_carries():
    fonts = set(re.findall(r'font-family="([^"]+)"', figure().svg()))
    assert fonts and all(font.startswith("Liberation Sans") for font in fonts)


def test_the_bundle_has_page_and_words():
    bundle = figure()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"} and bundle["text/plain"] == "A cliff."


# --- weight ---


def test_a_data_set_stands_once_however_many_layers_draw_it_and_with_the_columns_that_are_drawn():
    frame = FRAME.assign(unused="never drawn")
    same = [cliff(frame.copy()), cliff(frame.assign(ns_per_access=frame["ns_per_access"] + 1e-13))]
    (rows,) = Figure(alt.layer(*same), "Twice.", frame).spec()["datasets"].values()
    assert len(rows) == len(FRAME) and set(rows[0]) == set(FRAME.columns)


def test_a_column_whose_name_is_no_word_is_kept():
    frame = FRAME.rename(columns={"ns_per_access": "ns a.b"})
    chart = alt.Chart(frame).mark_point().encode(y=alt.Y("ns a\\.b:Q"))
    (rows,) = Figure(chart, "Points.", frame).spec()["datasets"].values()
    assert rows[1]["ns a.b"] == 17.25


def test_a_page_has_the_theme_once_and_the_names_of_columns_once_a_table():
    spec = json.loads(re.search(r'class="tlb-spec">(.*?)</script>', figure().html())[1])
    assert "config" not in spec and spec["encoding"] == figure().spec()["encoding"]
    (table,), (rows,) = spec["datasets"].values(), figure().spec()["datasets"].values()
    assert [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]] == rows


def drawn(element: Element, inherited: dict[str, str | None] | None = None) -> Iterator[tuple[Element, dict[str, str | None]]]:
    """The elements of a drawing in turn, each with how it looks: what it says itself, or what it inherits."""
    looks = ("fill", "stroke", "stroke-width", "stroke-linecap", "font-family", "text-anchor")
    inherited = {key: element.get(key, (inherited or {}).get(key)) for key in looks}
    yield element, inherited
    for child in element:
        yield from drawn(child, inherited)


def kind(element: Element) -> str:
    return element.tag.rpartition("}")[2]


POINT_OR_LINE = re.compile(r"M([-\d.]+),([-\d.]+)(?:h0|l([-\d.]+),([-\d.]+))")


def test_a_drawing_says_once_what_all_of_it_has_and_draws_the_same():
    said = render.ET.fromstring(figure().svg())
    raw = render.ET.fromstring(render.vl_convert.vegalite_to_svg(figure().spec()))

    def looks(drawing: Element, what: str) -> list[tuple]:
        return [(element.text, looked["fill"], looked["stroke"], looked["stroke-width"], looked["font-family"] or said.get("font-family"),
                 looked["text-anchor"]) for element, looked in drawn(drawing)
                if kind(element) == what and element.get("d") not in ("", "M0,0h0v0h0Z") and "A" not in element.get("d", "")
                and not POINT_OR_LINE.match(element.get("d", ""))]

    for what in ("text", "path"):
        assert looks(said, what) == looks(raw, what)


def test_points_and_lines_that_follow_each_other_are_one_path_of_the_same_places_and_looks():
    frame = FRAME.assign(low=FRAME["ns_per_access"] / 2)
    points = alt.Chart(frame).mark_point(clip=True).encode(x="working_set_bytes", y="ns_per_access", color="layout", shape=alt.Shape(
        "layout", scale=alt.Scale(range=["circle", "square"])))
    chart = points + points.mark_rule(strokeDash=[4, 4]).encode(y2="low", shape=alt.Undefined)
    spec = Figure(chart, "Points and lines.", frame).spec()
    raw = render.ET.fromstring(render.vl_convert.vegalite_to_svg(spec))
    said = [(found, looked) for element, looked in drawn(render.ET.fromstring(Figure(chart, "Points and lines.", frame).svg()))
            if kind(element) == "path" and POINT_OR_LINE.match(element.get("d", "")) for found in [element.get("d", "")]]

    def px(text: str | None) -> float:
        return round(float(text or 0), 1) + 0.0

    asked = []
    for element, looked in drawn(raw):
        place = [px(part) for part in re.findall(r"[-\d.]+", element.get("transform", ""))]
        if kind(element) == "line":
            asked.append((*place, px(element.get("x2")), px(element.get("y2")), looked["stroke"]))
        elif re.match(r"M[\d.]+,0A|M-[\d.]+,-", element.get("d", "")) and not element.get("stroke") and not element.get("fill-opacity"):
            asked.append((*place, 0.0, 0.0, looked["fill"]))
    given = [(*map(px, place.groups()), looked["stroke"]) for path, looked in said for place in POINT_OR_LINE.finditer(path)]
    assert sorted(given) == sorted(asked) and len(said) < len(asked) / 3
    assert {looked["stroke-linecap"] for path, looked in said if "h0" in path} == {"round", "square"}


def test_a_drawing_has_one_font_and_coordinates_of_one_decimal():
    said = render.ET.fromstring(figure().svg())
    assert sum("font-family" in element.attrib for element in said.iter()) == 1
    assert not re.search(r'[ "(,]-?\d+\.\d\d', re.sub(r"<text.*?</text>", "", figure().svg()))


# --- data ---

NUMBERS = st.floats(allow_infinity=False, allow_subnormal=False)
CELLS = NUMBERS | st.text(st.characters(codec="utf-8")) | st.none()


@settings(deadline=None)
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


def test_whole_numbers_keep_all_their_digits():
    frame = FRAME.assign(working_set_bytes=[float(2**32 + 4096)] * 6)
    assert all(line.startswith(f"{2**32 + 4096},") for line in figure(frame=frame).csv().splitlines()[1:])
    assert str(2**32 + 4096) in escape_json(figure(frame=frame).spec())


@pytest.mark.parametrize("text", ["a,b", 'say "so"', "50 % & more", "é <b> #1", "two\nlines", "+1"])
def test_the_link_to_the_data_holds_the_csv_and_ends_no_attribute(text: str):
    made = figure(frame=FRAME.assign(layout=text))
    seen = dict(Elements(made.html()).attributes)
    kind, data = seen["href"].split(",", 1)
    assert (kind, unquote(data), seen["download"]) == ("data:text/csv;charset=utf-8", made.csv(), "cliff.csv")
    assert re.fullmatch(r"[!-~]+", seen["href"]) and not set(seen["href"]) & set("\"'<>&#\\")


# --- tables and notes ---


def test_code_is_shown_in_the_classes_of_the_pages_style_and_every_character_of_it():
    code = 'def f(a: int) -> str:\n    return "<b>" if a < 1 else "&"  # why\n'
    seen = Elements(highlighted(code))
    assert "".join(seen.text).strip() == code.strip() and "b" not in seen.tags
    assert ("class", "highlight") in seen.attributes and {"k", "c1"} <= {value for name, value in seen.attributes if name == "class"}


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
