"""Six numbers a paragraph at most: what every chapter says, of the reference machine and of machines that never were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from support import blocking, faults, guests, stlb_cliff, synthetic, walk
from support import churn as churn_rows
from support import code as code_rows
from support import hugepages as hugepages_rows
from support import keeping_pages as keeping_pages_rows
from support import strides as strides_rows
from support import tables as tables_rows
from support import your_program as programs

from experiments.article.analysis import Analysis
from experiments.chapters import (
    churn,
    code,
    graph_walk,
    hugepages,
    keeping_pages,
    page_faults,
    strides,
    tlb_blocking,
    virtualization,
    walk_anatomy,
    your_program,
)
from experiments.chapters import stlb_cliff as cliff
from experiments.system.files import ROOT
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable

MOST = 6
PAGES = re.compile(r"\d+ [KMG]iB (data )?pages")  # a name, as base pages are
NUMBER = re.compile(r"(?<![\w^{/.-])\d[\d,]*(?:\.\d+)?(?! [-−] C)")  # not those of names, footnotes and 1 - C/M


def crowded(text: str) -> list[str]:
    """The paragraphs and items of a list that have more numbers."""
    parts = [part for paragraph in text.split("\n\n") for part in re.split(r"(?m)^- ", paragraph)]
    return [part for part in parts if len(NUMBER.findall(PAGES.sub("pages", part))) > MOST]


def test_what_counts_as_a_number():
    assert crowded("1 2.5 3,000 4 % of 5 on 2 MiB pages, 6 and 1 - C/M") == [] and crowded("1 2 3 4 5 6 7") != []
    assert crowded("1 2 3 4\n\n5 6 7") == [] and crowded("- 1 2 3 4\n- 5 6 7") == []


@pytest.mark.parametrize("path", sorted((ROOT / "book").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_paragraph_about_the_reference_has_more(path):
    outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
    texts = [text for output in outputs for kind, text in output.get("data", {}).items() if kind.endswith("text/markdown")]
    assert texts and [part for text in texts for part in crowded("".join(text))] == []


def said(module, a: Analysis) -> Iterator[str]:
    for name in module.prose.__all__:
        try:
            text = getattr(module.prose, name)(a)
        except Unavailable:
            continue
        if isinstance(text, Prose):
            yield text


MACHINES: dict[str, tuple[object, Callable[[], Analysis]]] = {
    "a cliff of the textbook": (cliff, lambda: stlb_cliff.of(synthetic.Truth())),
    "a cliff that climbs": (cliff, lambda: stlb_cliff.of(synthetic.Truth(entries=(224, 2**15), climb=1.3))),
    "every page size": (hugepages, hugepages_rows.analysis),
    "every way of asking": (keeping_pages, lambda: keeping_pages_rows.analysis(
        ways=keeping_pages_rows.asked(), runtimes=keeping_pages_rows.pool())),
    "a graph": (graph_walk, lambda: walk.analysis(walk.rows())),
    "a graph whose pages are in pieces": (graph_walk, lambda: walk.analysis(walk.rows(walk.Walk(splintered=True)))),
    "blocks": (tlb_blocking, lambda: blocking.analysis(blocking.rows())),
    "blocks of a loud machine": (tlb_blocking, lambda: blocking.analysis(blocking.rows(blocking.LOUD))),
    "strides": (strides, strides_rows.analysis),
    "jumps": (code, code_rows.analysis),
    "churn": (churn, churn_rows.analysis),
    "churn that keeps nothing": (churn, lambda: churn_rows.analysis(churn_rows.rows(churn_rows.Churn(kept=0.0, copies_whole=True)))),
    "faults": (page_faults, faults.analysis),
    "walks": (walk_anatomy, tables_rows.analysis),
    "walks of a guest": (walk_anatomy, lambda: tables_rows.analysis(hypervisor="kvm")),
    "programs": (your_program, lambda: programs.analysis(programs.document())),
    "guests": (virtualization, lambda: guests.analysis(guests.rows())),
}


@pytest.mark.parametrize("name", MACHINES)
def test_no_paragraph_about_a_machine_that_never_was_has_more(name: str):
    module, make = MACHINES[name]
    texts = list(said(module, make()))
    assert len(texts) > 4 and [part for text in texts for part in crowded(text)] == []
