"""The chapters' modules, found or named as missing; their parameters: declared in their notebooks,
typed, and refused in one sentence."""

from collections.abc import Callable

import pytest
from support.chapter import CHAPTER, DEFAULTS

import experiments
from tlb.report import notebooks, publish
from tlb.report.chapter import begin
from tlb.system.reasons import Unavailable

LONGER = {"your_program": {"minutes": 14.0}}  # whole programs, which no campaign measures


def refused(call: Callable[[], object], word: str) -> None:
    """The call must raise a bad parameter in one line that names `word`."""
    with pytest.raises(Unavailable) as why:
        call()
    assert why.value.code == "bad-parameter"
    assert len(str(why.value).splitlines()) == 1 and word in str(why.value)


@pytest.mark.parametrize("chapter", notebooks.chapter_names_in_order())
def test_every_chapter_declares_the_same_parameters_typed(chapter):
    wanted = DEFAULTS | LONGER.get(chapter, {})
    declared = notebooks.declared_parameters(chapter)
    assert declared == {name: (type(value), value) for name, value in wanted.items()}


BAD = [
    ("max_working_set", "12 bananas"),
    ("repeats", -1),
    ("repeats", True),
    ("minutes", float("nan")),
    ("profile", "../profiles/quick"),
    ("machine", "../x"),
    ("machine", "x\n"),
    ("max_working_sise", "256MiB"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: str(value)[:20])
def test_a_bad_parameter_is_one_clear_sentence(name, value):
    refused(lambda: notebooks.check_parameters(CHAPTER, {name: value}), name)


def test_a_misspelt_parameter_in_papermills_cell_is_refused(data):
    names = DEFAULTS | {"max_working_sise": "256MiB"}
    cell = "# Parameters\nmachine = 'reference'\nmax_working_sise = '256MiB'\n"
    refused(lambda: begin(CHAPTER, names | {"In": ["", cell]}), "max_working_sise")
    begin(CHAPTER, names | {"In": ["max_working_sise = '256MiB'"]})  # one's own variable is fine


def test_a_library_that_a_chapter_lacks_is_no_missing_book(tmp_path, monkeypatch):
    (tmp_path / "with_a_library.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="a_library_that_nobody_has"):
        notebooks.load_book_module("with_a_library")
    with pytest.raises(Unavailable) as why:
        notebooks.load_book_module("that_is_not_there")
    assert why.value.code == "no-extra"


def test_a_page_is_executed_after_those_whose_quantities_it_reads():
    names = notebooks.chapter_names_in_order()
    chapters, first, others = publish.in_turns(names)
    assert sorted([*chapters, *first, *others]) == sorted(names)
    assert first == names[:1] and {*filter(publish.records_quantities, names)} <= {
        *chapters,
        *first,
    }
