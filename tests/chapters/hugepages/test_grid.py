"""Which points the chapter about page sizes asks for."""

from types import SimpleNamespace

from support.synthetic import scope

from experiments import hugepages
from experiments.hugepages import grid
from tlb.report.page import notebook_cells


def test_a_coarse_grid_can_show_whether_an_entry_spans_a_large_page():
    for entries in ((64, 1536), (48, 1280), (96, 3072), ()):
        points = grid.points(scope(entries=entries, per_octave=2))
        base, large = (
            {p.lines for p in points if p.kernel == "page_chase" and p.pages == pages}
            for pages in ("4k", "thp")
        )
        first, last = entries or (64, 2048)
        assert (
            len([n for n in base if n <= 1 << 15]) >= 12
            and len([n for n in base if n <= first]) >= 3
        )  # stats/fits.py
        assert len([n for n in base & large if 1.3 * first < n < 0.6 * last]) >= 3


def test_the_page_measures_the_points_of_the_grid():
    sources = [cell.source for cell in notebook_cells("hugepages") if cell.kind == "code"]
    source = "\n".join(one for one in sources if "scope.chase(" in one or "scope.point(" in one)
    for per_octave in (2, 4):
        wanted = scope(per_octave=per_octave)
        page = {"chapter": SimpleNamespace(scope=wanted), "hugepages": hugepages}
        exec(source, page)
        assert page["points"] == grid.points(wanted)
