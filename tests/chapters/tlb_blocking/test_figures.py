"""The chapter's figures: each drawn where it has rows, and a reason where not."""

from __future__ import annotations

import pytest
from support.blocking import ENTRIES, MACHINES, analysis, rows
from support.pages import Elements
from support.synthetic import HOLE

from experiments.tlb_blocking import figures
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

FIGURES = {
    make.__name__: make
    for make in (
        figures.blocks,
        figures.block_prices,
        figures.prefetch,
        figures.mitigations,
        figures.fan_out,
        figures.join,
    )
}
LACKING = {
    "blocks": {"no walks", "no blocks", "no base pages"},
    "prefetch": {"no walks", "no prefetch"},
    "block_prices": {"no walks", "no base pages", "none apart"},
    "mitigations": {"no walks", "no plain walk", "no base pages", "no hop by hop"},
    "fan_out": {"no join"},
    "join": {"no join"},
}


MORE = (
    "everything",
    "no base pages",
    "no join",
    "no walks",
    "no prefetch",
    "no blocks",
    "none apart",
    "no plain walk",
    "no hop by hop",
    "no columns",
)


@pytest.mark.parametrize(
    ("machine", "entries"),
    [*((machine, ENTRIES) for machine in MORE), ("everything", [64]), ("everything", [])],
)
def test_every_figure_is_drawn_where_it_has_rows_and_is_a_reason_where_not(
    machine: str, entries: list[int]
):
    a = analysis(MACHINES[machine](), entries)
    for name, make in FIGURES.items():
        if machine in LACKING[name] | {"no columns"}:
            with pytest.raises(Unavailable):
                make(a)
            continue
        figure = make(a)
        assert len(figure.csv().splitlines()) == len(figure.data) + 1
        assert machine != "everything" or Elements(figure.svg()).tags.count("svg") == 1
        assert not HOLE.search(figure.alt) and figure.alt.endswith(".")


def test_the_published_remedies_are_drawn_beside_ours_and_never_as_ours():
    data = figures.mitigations(analysis(rows())).data
    assert len(data.query("where == 'published'")) == 8 and len(data.query("where == 'here'")) == 12
    assert data.query("where == 'published'")["n"].isna().all()
    assert sorted(data.query("where == 'published' and quantile == '95th percentile'")["ns"]) == [
        60,
        71,
        117,
        242,
    ]
