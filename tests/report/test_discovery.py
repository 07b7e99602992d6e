"""A module of the book that is not there is one reason, and a library that it lacks another."""

import pytest

import experiments
from tlb.report import discovery
from tlb.system.reasons import Unavailable


def test_a_library_that_a_chapter_lacks_is_no_missing_book(tmp_path, monkeypatch):
    (tmp_path / "with_a_library.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="a_library_that_nobody_has"):
        discovery.load("with_a_library")
    with pytest.raises(Unavailable) as why:
        discovery.load("that_is_not_there")
    assert why.value.code == "no-extra"
