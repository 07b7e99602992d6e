"""Which points the chapter about page sizes asks for."""

from support.synthetic import scope

from experiments.hugepages import grid


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
