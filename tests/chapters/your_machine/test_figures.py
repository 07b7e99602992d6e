"""The measured geometry as a figure, two tables and sentences: on machines of one level and of two, whatever they lack."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import pandas as pd
import pytest
from support.common import make_record
from test_render import Elements

from experiments.article import charts as figures
from experiments.article.machine_words import Prose
from experiments.article.render import Figure
from experiments.chapters.your_machine import figures as staircase
from experiments.inference import geometry_words as wording
from experiments.inference.geometry import Estimate, Geometry, Level, Walk
from experiments.words.reasons import REASONS, Unavailable, explain

GHZ = 2.0
LINES = (8, *(2**k for k in range(4, 15)))
STEPS = ((64, 7.0), (2048, 30.0))  # pages that a level holds, cycles that the next costs more
PENALTY = 9.0


def measured(steps=STEPS, layouts=("spread", "packed", "alias"), ghz: float = GHZ, pages: str = "4k", tried=LINES) -> pd.DataFrame:
    """A row a point of chases that cost 4 cycles, and more past each step: no noise, so that every number is known."""
    rows = []
    for layout in layouts:
        for lines in tried:
            cycles = 4 + (PENALTY if layout == "alias" else 0) + sum(cost for n, cost in steps if lines > n and layout != "packed")
            ns = cycles / (ghz or 1)
            rows.append(make_record(layout=layout, lines=lines, pages=pages, ns_per_access=ns, batch_ns_per_access=[ns], core_ghz=ghz,
                                    stride_pages=512 if pages == "2m" and layout != "packed" else 1).model_dump(exclude={"counters"}))
    return pd.DataFrame(rows)


def about(value: float, low: float | None = None, high: float | None = None, method: str = "alias, step") -> Estimate:
    return Estimate(value=value, low=value if low is None else low, high=value if high is None else high, method=method)


def level(number: int, entries: Estimate, **changes: object) -> Level:
    pages = entries.value
    given = {"opinions": {"price": entries, "alias": entries}, "stated": int(pages), "hit_cost": about(7, 6.9, 7.2) if number > 1 else None,
             "rise": (pages, pages + 1), "verdict": f"Price and alias agree on {pages:,.0f} pages."}
    return Level.model_validate({"level": number, "entries": entries, **given, **changes})


FIRST, SECOND = level(1, about(64, 64, 65), ways=0), level(2, about(2048, 1998.6, 2100.2))
WALKS = [
    Walk(table_in="L2", pages=16384, stride_pages=1, table_bytes=131072, cost=about(20, 19.8, 20.1)),
    Walk(table_in="L3", pages=65536, stride_pages=8, table_bytes=4 << 20, cost=None, reason=explain("no-data")),
    Walk(table_in="memory", pages=1 << 20, stride_pages=8, table_bytes=64 << 20, cost=about(300, 250, 410)),
]


def geometry(**changes: object) -> Geometry:
    return Geometry.model_validate({"pages": "4k", "unit": "cycles", "core_ghz": GHZ, "first_tread": 4.0, "levels": [FIRST, SECOND],
                                    "walks": WALKS, "alias_penalty": PENALTY, "notes": ["Alias chases: a note."], **changes})


IN_NS = {"unit": "ns", "core_ghz": None}
UNKNOWN = level(1, about(64), stated=None, ways=None, ways_reason=explain("no-step", "16 pages cost no more than two"))
BARE = level(2, about(1500), opinions={"alias": about(1500)}, stated=None, hit_cost=None)
MACHINES: dict[str, tuple[pd.DataFrame, Geometry]] = {
    "two levels": (measured(), geometry()),
    "one level": (measured(STEPS[:1]), geometry(levels=[FIRST])),
    "alias alone": (measured(layouts=("alias",)), geometry(first_tread=4 + PENALTY)),
    "price alone": (measured(layouts=("spread", "packed")), geometry(alias_penalty=None)),
    "no clock": (measured(ghz=0), geometry(**IN_NS)),
    "2 MiB": (measured(pages="2m"), geometry(pages="2m")),
    "ways": (measured(), geometry(levels=[level(1, about(64), ways=4), SECOND])),
    "next to nothing": (measured(), geometry(levels=[UNKNOWN, BARE], walks=[], alias_penalty=None, notes=[])),
    "no walk": (measured(), geometry(walks=WALKS[1:2])),
}


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- the figure


def layers(figure: Figure, mark: str, **of_mark: object) -> list[list[dict]]:
    """The rows that each layer of a mark draws."""
    spec = figure.spec()
    wanted = [one for one in spec["layer"] if one["mark"]["type"] == mark and of_mark.items() <= one["mark"].items()]
    return [spec["datasets"][one.get("data", spec.get("data"))["name"]] for one in wanted]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_has_a_figure_that_is_drawn(machine: str):
    figure = staircase.figure(*MACHINES[machine])
    drawn = Elements(figure.svg())
    assert figure.name == "staircase" and drawn.tags.count("svg") == 1
    levels = len(MACHINES[machine][1].levels)
    treads = ["hits in the L1 dTLB", "hits in the STLB", "walks"] if levels == 2 else ["hits in the L1 dTLB", "walks"]
    assert [text for text in drawn.text if text in treads] == treads
    assert f"{MACHINES[machine][1].unit} per access" in drawn.text


def test_a_rule_stands_at_the_entries_of_each_level_with_its_name():
    (rules,) = layers(staircase.figure(*MACHINES["two levels"]), "rule", strokeDash=[4, 4])
    assert [(rule["lines"], rule["label"]) for rule in rules] == [(64, "L1 dTLB: 64"), (2048, "STLB: 2,048")]


def test_each_label_stands_on_its_tread():
    treads, = (rows for rows in layers(staircase.figure(*MACHINES["two levels"]), "text") if "start" in rows[0])
    assert [(row["start"], row["end"]) for row in treads] == [(16, 64), (65, 2048), (2049, 16384)]
    assert all(row["start"] < row["lines"] < row["end"] for row in treads)
    assert [row["cost"] for row in treads] == pytest.approx([4, 11, 41])  # of the lower curve, which a label is written below


def test_the_text_alternative_names_the_steps_and_the_treads():
    assert staircase.figure(*MACHINES["two levels"]).alt == (
        "A staircase of cost over pages touched, with steps at 64 pages and 2,048 pages. Treads: hits in the L1 dTLB from 16 to 64 "
        "pages; hits in the STLB from 65 to 2,048 pages; walks from 2,049 to 16,384 pages.")
    assert "with steps at 64 pages. Treads: hits in the L1 dTLB from 16 to 64 pages; walks" in staircase.figure(*MACHINES["one level"]).alt


@pytest.mark.parametrize(("machine", "series"), [
    ("two levels", {"spread - packed", "alias"}), ("alias alone", {"alias"}), ("price alone", {"spread - packed"}),
    ("no clock", {"spread - packed", "alias"})])
def test_the_data_are_both_curves_in_the_unit_of_the_axis(machine: str, series: set[str]):
    data = staircase.figure(*MACHINES[machine]).data
    assert [*data.columns] == ["series", "lines", "cost", "low", "high", "n"]
    assert set(data["series"]) == series
    for name in series:
        first = 4 + (PENALTY if name == "alias" else 0)
        assert dict(zip(data[data["series"] == name]["lines"], data[data["series"] == name]["cost"], strict=True)) == pytest.approx(
            {n: first + (7 if n > 64 else 0) + (30 if n > 2048 else 0) for n in LINES[1:]})
    assert (data["n"] == 1).all()


def test_prices_that_would_flatten_the_stairs_are_left_out():
    frame = measured((*STEPS, (8192, 4 * 60)))
    assert staircase.figure(frame, geometry()).data["lines"].max() == 8192
    frame = measured((*STEPS, (8192, 4 * 60 - 60)))
    assert staircase.figure(frame, geometry()).data["lines"].max() == 16384


def test_a_frame_without_a_point_of_the_stairs_has_no_figure():
    for frame in (measured(tried=(8,)), measured().query("layout == 'packed'")):
        with pytest.raises(Unavailable) as why:
            staircase.figure(frame, geometry())
        assert why.value.code == "too-few-points"


# --- the tables


def test_the_levels_table_has_each_opinion_with_its_bounds():
    rows = wording.levels_table(geometry(levels=[FIRST, SECOND.model_copy(update={
        "opinions": {"price": about(1999.7), "draws": about(2050, 2000, 2100.4)}, "stated": 3072})])).to_dict("records")
    assert rows == [
        {"level": "L1 dTLB", "entries": "64 (64 to 65)", "by": "alias", "price": "64 (64 to 65)", "alias": "64 (64 to 65)", "draws": "–",
         "CPUID": "64", "hit, cycles": "0", "ways": "all"},
        {"level": "STLB", "entries": "2,048 (1,999 to 2,100)", "by": "alias", "price": "2,000", "alias": "–",
         "draws": "2,050 (2,000 to 2,100)", "CPUID": "3,072", "hit, cycles": "7.0 (6.9 to 7.2)", "ways": "–"}]


def test_a_level_of_which_little_is_known_has_dashes():
    first, second = wording.levels_table(MACHINES["next to nothing"][1]).to_dict("records")
    assert (first["CPUID"], first["ways"], first["hit, cycles"]) == ("–", "–", "0")
    assert (second["price"], second["alias"], second["draws"], second["CPUID"], second["hit, cycles"]) == ("–", "1,500", "–", "–", "–")


@pytest.mark.parametrize(("ways", "shown"), [(0, "all"), (4, "4"), (None, "–")])
def test_ways_are_a_number_or_all_or_a_dash(ways: int | None, shown: str):
    assert wording.levels_table(geometry(levels=[level(1, about(64), ways=ways)]))["ways"].item() == shown


def test_the_walks_table_has_cycles_and_ns_or_a_dash():
    rows = wording.walks_table(geometry()).to_dict("records")
    assert rows == [
        {"page table in": "L2", "lines of it": "128 KiB", "pages": "16,384", "one in": "1", "walk, cycles": "20", "ns": "10"},
        {"page table in": "L3", "lines of it": "4 MiB", "pages": "65,536", "one in": "8", "walk, cycles": "–", "ns": "–"},
        {"page table in": "memory", "lines of it": "64 MiB", "pages": "1,048,576", "one in": "8", "walk, cycles": "300 (250 to 410)",
         "ns": "150 (125 to 205)"}]


def test_without_a_clock_walks_are_in_ns_alone():
    table = wording.walks_table(geometry(**IN_NS))
    assert [*table.columns] == ["page table in", "lines of it", "pages", "one in", "walk, ns"]
    assert [*table["walk, ns"]] == ["20", "–", "300 (250 to 410)"]
    assert "hit, ns" in wording.levels_table(geometry(**IN_NS)).columns


def test_where_no_walk_was_asked_for_the_table_is_empty_and_has_a_head():
    table = wording.walks_table(geometry(walks=[]))
    assert len(table) == 0 and [*table.columns] == ["page table in", "pages"]


# --- the sentences


def test_the_sentences_are_the_verdicts_the_ways_the_penalty_and_the_notes():
    levels, ways, walk, penalty, note = (said := wording.sentences(geometry()))[:2], said[2], said[3], said[4], said[5]
    assert walk == f"Walks with the page table in L3 were not measured. {explain('no-data')}"
    assert len(said) == 6
    assert levels == ["L1 dTLB: Price and alias agree on 64 pages.", "STLB: Price and alias agree on 2,048 pages."]
    assert ways == "L1 dTLB: all pages fit wherever they lie, up to 64 pages apart, so it has no sets."
    assert "adds 9 cycles here" in penalty and "way" in penalty
    assert note == "Alias chases: a note."


def test_ways_that_are_not_known_have_their_reason():
    assert f"Its ways are not known: {UNKNOWN.ways_reason}" in wording.sentences(geometry(levels=[UNKNOWN]))
    for known in (0, 4):
        levels = [level(1, about(64), ways=known)]
        assert not [one for one in wording.sentences(geometry(levels=levels)) if "not known" in one]


@pytest.mark.parametrize(("cost", "said"), [(None, False), (-3.0, False), (0.0, False), (0.99, False), (1.0, True), (9.4, True)])
def test_the_way_predictor_is_named_only_where_aliasing_costs_a_cycle(cost: float | None, said: bool):
    assert bool(wording.penalty(geometry(alias_penalty=cost))) == said
    assert any("way" in one and "virtual address" in one for one in wording.sentences(geometry(alias_penalty=cost))) == said


def test_the_penalty_is_in_the_unit_of_the_rest():
    assert "adds 9 ns here" in wording.penalty(geometry(**IN_NS))[0]


# --- the chapter's section


@pytest.fixture
def glued(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What was glued, by name."""
    kept: dict[str, object] = {}
    for module in (staircase, figures):
        monkeypatch.setattr(module, "glue", lambda name, what, display=True: kept.update({name: what}))
    return kept


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_has_every_sentence_and_both_tables(machine: str, glued: dict[str, object]):
    frame, found = MACHINES[machine]
    said, levels, walks = staircase.tell(lambda: (frame, found))
    assert isinstance(glued["staircase"], Figure)
    assert said.keys() == {"geometry_lead", "geometry_verdicts", "geometry_walks"}
    for words in said.values():
        assert isinstance(words, Prose) and words.rstrip().endswith(".")
        assert not re.search(r"\b(None|nan|inf)\b|\{\w|  ", words)
    assert said["geometry_verdicts"].splitlines() == [f"- {one}" for one in wording.sentences(found)]
    for table, rows in ((levels, len(found.levels)), (walks, len(found.walks))):
        seen = Elements(table.markup)
        assert seen.tags.count("tr") == rows + 1
        assert not re.search(r"\b(None|nan)\b", table.text)


@pytest.mark.parametrize(("machine", "words"), [
    ("two levels", "the stairs have 3 treads. The first costs 4.0 cycles an access and ends at 64 pages. "
                   "The next adds 7.0 and reaches to 2,048."),
    ("two levels", "no sets to crowd"),
    ("one level", "the stairs have 2 treads."),
    ("no clock", "costs 4.0 ns an access"),
    ("ways", "show 4 ways in the first level"),
    ("next to nothing", "ends at 64 pages."),
])
def test_the_lead_says_what_was_found(machine: str, words: str, glued: dict[str, object]):
    assert words in staircase.tell(lambda: MACHINES[machine])[0]["geometry_lead"]


def test_the_lead_says_nothing_of_ways_and_costs_that_are_not_known(glued: dict[str, object]):
    lead = staircase.tell(lambda: MACHINES["next to nothing"])[0]["geometry_lead"]
    assert lead.endswith("ends at 64 pages.") and "way" not in lead and "sets" not in lead


@pytest.mark.parametrize(("walks", "words"), [
    (WALKS, "With its table in L2 a walk adds 20 cycles, with its table in memory 300: 15.0 times as much"),
    (WALKS[:2], "fewer than two places"), (WALKS[1:2], "fewer than two places"), ([], "fewer than two places")])
def test_walks_are_compared_where_two_of_them_have_a_price(walks: list[Walk], words: str, glued: dict[str, object]):
    assert words in staircase.tell(lambda: (MACHINES["two levels"][0], geometry(walks=walks)))[0]["geometry_walks"]


@pytest.mark.parametrize("code", ["engine-lacks", "no-data", "no-step", "not-linux"])
def test_what_is_lacking_is_a_note_in_the_place_of_the_figure_and_the_tables(code: str, glued: dict[str, object]):
    whole = staircase.tell(lambda: MACHINES["two levels"])[0].keys() | glued.keys()
    glued.clear()

    def lacks() -> tuple[pd.DataFrame, Geometry]:
        raise Unavailable(code, "a detail & no <b>")

    said, levels, walks = staircase.tell(lacks)
    assert said.keys() | glued.keys() == whole
    assert all(isinstance(words, Prose) for words in said.values())
    assert REASONS[code].sentence.rstrip(".") in said["geometry_lead"]
    for note in (glued["staircase"], levels, walks):
        assert "Not on this machine" in note.text and "a detail &amp; no &lt;b&gt;" in note.markup


def test_a_frame_too_small_for_a_figure_is_a_note_too(glued: dict[str, object]):
    said, levels, walks = staircase.tell(lambda: (measured(tried=(8,)), geometry()))
    assert REASONS["too-few-points"].sentence.rstrip(".") in said["geometry_lead"]
    assert levels == walks == glued["staircase"]
