"""The chapters' parameters: declared in their notebooks, typed, and refused in one sentence where
they are wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.common import ROOT, in_turn

from tlb.reasons import Unavailable
from tlb.report import parameters
from tlb.report.chapter import begin

CHAPTERS = parameters.table_of_contents()
CHAPTER = "stlb_cliff"
DEFAULTS = {
    "machine": "reference",
    "profile": "quick",
    "max_working_set": "profile",
    "repeats": 0,
    "minutes": 10.0,
    "engine": "auto",
}
LONGER = {"your_program": {"minutes": 14.0}}  # whole programs, which no campaign measures


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data/ of the test's own."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def refused(call: Callable[[], object], word: str) -> None:
    """`call` is a bad parameter, said in one line that names `word`."""
    with pytest.raises(Unavailable) as why:
        call()
    assert why.value.code == "bad-parameter"
    assert len(str(why.value).splitlines()) == 1 and word in str(why.value)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_declares_the_same_parameters_typed(chapter: str):
    declared = parameters.declared(chapter)
    assert {name: default for name, (_, default) in declared.items()} == DEFAULTS | LONGER.get(
        chapter, {}
    )
    assert {name: kind for name, (kind, _) in declared.items()} == {
        name: type(value) for name, value in DEFAULTS.items()
    }


@pytest.mark.endurance
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_papermill_lists_the_parameters_typed_and_explained(chapter: str):
    papermill = [sys.executable, "-m", "papermill", "--help-notebook", f"book/{chapter}.ipynb"]
    listed = " ".join(
        subprocess.run(
            papermill, cwd=ROOT, capture_output=True, text=True, timeout=120
        ).stdout.split()
    )
    for name, default in (DEFAULTS | LONGER.get(chapter, {})).items():
        shown = f'"{default}"' if isinstance(default, str) else default
        assert re.search(
            rf"{name}: {type(default).__name__} \(default {shown}\) \S.{{20}}", listed
        ), name


def test_the_defaults_are_good_and_what_is_given_wins():
    assert parameters.check(CHAPTER, {}) == DEFAULTS
    given = {
        "machine": "zen-4-1a2b3c4d",
        "profile": "smoke",
        "max_working_set": "1.5 GiB",
        "repeats": 3,
        "minutes": 0.5,
        "engine": "numba",
    }
    assert parameters.check(CHAPTER, given) == given
    assert parameters.check(CHAPTER, {"minutes": 40}) == DEFAULTS | {"minutes": 40.0}


BAD = [
    ("max_working_set", "12 bananas"),
    ("max_working_set", "63KiB"),
    ("max_working_set", "nan"),
    ("max_working_set", "9" * 5000),
    ("repeats", -1),
    ("repeats", 10**30),
    ("repeats", "3"),
    ("repeats", True),
    ("minutes", 1441.0),
    ("minutes", float("nan")),
    ("minutes", float("-inf")),
    ("engine", "C"),
    ("profile", "../profiles/quick"),
    ("machine", "../x"),
    ("machine", "a" * 65),
    ("machine", "x\n"),
    ("machine", 7),
    ("max_working_sise", "256MiB"),
]


@pytest.mark.parametrize(
    ("name", "value"), BAD, ids=[f"{name}-{str(value)[:20]}" for name, value in BAD]
)
def test_a_bad_parameter_is_one_clear_sentence(name: str, value: object):
    refused(lambda: parameters.check(CHAPTER, {name: value}), name)


def test_a_misspelt_parameter_in_papermills_cell_is_refused(data: Path):
    cells = [
        "",
        "machine: str = 'reference'",
        "# Parameters\nmachine = 'reference'\nmax_working_sise = '256MiB'\n",
    ]
    refused(
        lambda: begin(CHAPTER, DEFAULTS | {"max_working_sise": "256MiB", "In": cells}),
        "max_working_sise",
    )
    begin(
        CHAPTER, DEFAULTS | {"max_working_sise": "256MiB", "In": ["max_working_sise = '256MiB'"]}
    )  # one's own variable is fine


# --- from the command line


def tlb(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    return in_turn(
        [sys.executable, "-c", "from tlb.cli import main; main()", *arguments], timeout=250, **how
    )


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("name", "value"),
    [("max_working_set", "12 bananas"), ("max_working_sise", "256MiB"), ("machine", "../x")],
)
def test_tlb_run_refuses_a_bad_parameter_before_it_starts_anything(
    data: Path, tmp_path: Path, name: str, value: str
):
    done = tlb("run", CHAPTER, "-p", name, value, "--output", str(tmp_path / "out.ipynb"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and name in done.stderr
    assert not (tmp_path / "out.ipynb").exists() and not data.exists()
