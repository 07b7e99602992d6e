"""Whole books about machines that never were: each chapter's Analysis of rows that one truth gave,
and all that the book says of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pandas as pd

from experiments import (
    code,
    flushes,
    hugepages,
    keeping_pages,
    page_faults,
    page_walks,
    stlb_cliff,
    tlb_blocking,
    virtualization,
    your_program,
)
from experiments.overview import chapter_name
from support import (
    blocking,
    events,
    faults,
    geometry,
    guests,
    page_sizes,
    strides,
    synthetic,
    tables,
    walk,
)
from support import code as jumps
from support import keeping_pages as keeping
from support import your_program as programs
from support.common import About
from support.page_sizes import Paged
from support.synthetic import Stated, Truth, tlbs
from tlb.machine.host import Host, tlb_entries
from tlb.measure import grid, kernels, survey
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.report import page
from tlb.report.analysis import Analysis
from tlb.report.article import Committed
from tlb.report.notebook import OverlaidFigure
from tlb.report.render import Figure, Html
from tlb.report.verdicts import chapter_verdicts

ARM = {
    "arch": "aarch64",
    "vendor": "ARM",
    "cpu_model": "An arm64 core",
    "microarchitecture": "unknown",
    "la57": None,
}


@dataclass(frozen=True)
class Book:
    """A machine: what its TLB is, what it states, and what translates for it."""

    entries: tuple[int, ...] = (64, 1536)  # of the levels that there are
    is_stated: bool = True  # CPUID names them
    hypervisor: str = "none"
    splintered: bool = False
    climb: float = 1.3  # by which a walk gets dearer with each octave
    joined: int = 1  # neighbours that share an entry
    counted: bool = False
    most_bytes: int = sys.maxsize  # where the sweeps end
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        stated = tlbs(self.entries, (0, 12)[: len(self.entries)]) if self.is_stated else ()
        return Stated(tlb=stated, hypervisor=self.hypervisor, changes=self.changes).host()

    def _walks(self, two: tuple[int, int]) -> pd.DataFrame:
        """The rows of walks through a graph, and through more and more page tables."""
        graph = walk.rows(walk.Walk(splintered=self.splintered, counted=self.counted))
        walker = tables.Walker(entries=two if two[1] < 10**6 else (two[0], 1536))
        return pd.concat([graph, tables.rows(walker)], ignore_index=True)

    def pages(self) -> list[Page]:
        """Each chapter about it, of five processes a point."""
        two = self.entries if len(self.entries) > 1 else (self.entries[0], 10**9)
        paged = Paged(splintered=self.splintered, entries=two, noise=0.004)
        rows = {
            stlb_cliff: synthetic.frame(
                Truth(entries=two, climb=self.climb), synthetic.grid(entries=self.entries), 5
            ),
            hugepages: paged.frame(page_sizes.hugepages(per_octave=2)),
            keeping_pages: paged.frame(page_sizes.keeping_pages(per_octave=2)),
            tlb_blocking: pd.concat(
                [
                    blocking.rows(blocking.Machine(splintered=self.splintered)),
                    strides.rows(
                        strides.Machine(splintered=self.splintered, walks=float(self.counted))
                    ),
                ],
                ignore_index=True,
            ),
            page_walks: self._walks(two),
            code: jumps.rows(),
            flushes: events.rows(),
            page_faults: faults.rows(
                faults.Kernel(takes=("thp",) if self.hypervisor != "none" else ())
            ),
            virtualization: guests.rows(
                guests.Guests(far=(), outer="4k" if self.splintered else ""), per_octave=2
            ),
        }
        rows = {
            module: frame[kernels.is_within(frame, self.most_bytes)]
            for module, frame in rows.items()
        }
        kept = {chapter_name(module): frame for module, frame in rows.items()}
        made = geometry.Made(geometry.lru(two[0]), geometry.lru(two[1]), joined=self.joined)
        surveyed = geometry.rows(made, "4k", 1)
        kept[survey.NAME] = surveyed[kernels.is_within(surveyed, self.most_bytes)]
        documents = {
            "ways": keeping.asked(),
            "runtimes": keeping.pool(),
            "kernel_side": faults.side(),
            "your_program": programs.document(),
        }
        rows[your_program] = pd.DataFrame()
        return [
            Page(module, frame, About(self.host, rows=kept, documents=documents))
            for module, frame in rows.items()
        ]


BOOKS = {
    "an Oryon-like core": Book((224, 32768), is_stated=False, changes=ARM),
    "a Cortex-A53-like core": Book((10, 512), is_stated=False, changes=ARM),
    "a Zen that joins neighbours": Book((72, 3072), joined=4, hypervisor="kvm", splintered=True),
    "base pages of 64 KiB": Book(
        (48, 1280),
        is_stated=False,
        changes={**ARM, "base_page_bytes": 65536, "page_table_levels": 3},
    ),
    "an emulator": Book(hypervisor="qemu-tcg", splintered=True),
    "a filtered PMU": Book(
        hypervisor="kvm",
        splintered=True,
        changes={"pmu": {"tier": "software", "reason": "not-counted"}},
    ),
    "one level": Book((64,)),
    "sweeps that end in the caches": Book(hypervisor="kvm", splintered=True, most_bytes=4 << 20),
    "bare metal with whole pages": Book(
        (64, 2048), changes={"pmu": {"tier": "counters", "reason": None}}
    ),
}


class Page(About):
    """The chapter of a notebook that is about rows made up: `said` is (where, text) of all that its
    cells put on the page."""

    def __init__(self, module: ModuleType, frame: pd.DataFrame, about: About):
        super().__init__(**vars(about))
        self.module, self.frame, self.said = module, frame, list[tuple[str, str]]()

    @property
    def scope(self) -> Scope:
        return Scope(
            grid.load_profile("quick"),
            "c",
            tuple(tlb_entries(self.host)),
            base_page_bytes=self.host.base_page_bytes,
        )

    def measure(self, points: Sequence[Point]) -> pd.DataFrame:
        return self.frame

    def survey(self) -> pd.DataFrame:
        return self.kept(survey.NAME)

    def _put(self, shown: Any) -> None:
        if isinstance(shown, Committed):
            shown = shown.figure
        if isinstance(shown, page.Text):
            self.said.append(("text", shown.markdown))
        elif isinstance(shown, Figure):
            if isinstance(shown, OverlaidFigure):
                shown.svg()  # raises for what Vega-Lite cannot draw
            self.said.append((shown.name, shown.alt))
        elif isinstance(shown, Html):
            self.said.append(("table", shown.text))

    def _judge(self, module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> None:
        self.said += [
            (f"{one.claim.id}, {one.verdict}", one.evidence)
            for one in chapter_verdicts(module, a, **bands)
        ]

    def execute(self) -> Page:
        """Every code cell of the committed notebook. Raises what a cell raises, as no reader's own
        rows may make one."""
        shown = page.Page(self.name, self._put, is_reference=False)
        page.open_page(shown)
        names: dict[str, Any] = {}
        for cell in page.notebook_cells(self.name):
            if cell.kind == "code":
                shown.cell = cell.number
                exec(compile(cell.source, f"{self.name}.ipynb, cell {cell.number}", "exec"), names)
                names |= {"begin": lambda *given: self, "judge": self._judge}
        return self

    @property
    def name(self) -> str:
        return chapter_name(self.module)
