"""The points of the chapter about guests."""

from types import SimpleNamespace

import nbformat
import pytest
from support.synthetic import scope

from experiments import virtualization
from tlb.system.files import ROOT


@pytest.mark.parametrize("engine", ["c", "numba"])
def test_the_loop_on_the_page_measures_what_the_campaign_does(engine):
    cells = nbformat.read(ROOT / "book/virtualization.ipynb", as_version=4).cells
    loops = [cell.source for cell in cells if "scope.chase(" in cell.source]
    points = []
    asked = scope(1 << 32, (72, 3072), 4, 2, engine)
    chapter = SimpleNamespace(scope=asked, measure=points.extend)
    exec("\n".join(loops), {"chapter": chapter, "virtualization": virtualization})
    assert set(points) == set(virtualization.grid.points(asked))
