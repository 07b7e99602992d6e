"""Whole books about machines that never were: each chapter's Analysis of rows that one truth gave, and all that the book says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from experiments.article.analysis import Analysis
from experiments.article.verdicts import verdicts
from experiments.chapters import graph_walk, hugepages, keeping_pages, stlb_cliff, tlb_blocking, virtualization, your_machine
from experiments.machine.host import Host
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable
from support import blocking, geometry, guests, synthetic, walk
from support import keeping_pages as keeping
from support.common import About
from support.synthetic import Paged, Stated, Truth, tlbs

ARM = {"arch": "aarch64", "vendor": "ARM", "cpu_model": "An arm64 core", "microarchitecture": "unknown", "la57": None}


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
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        stated = tlbs(self.entries, (0, 12)[: len(self.entries)]) if self.is_stated else ()
        return Stated(tlb=stated, hypervisor=self.hypervisor, changes=self.changes).host()

    def chapters(self) -> dict[ModuleType, Analysis]:
        """Each chapter's Analysis, of five processes a point."""
        two = self.entries if len(self.entries) > 1 else (self.entries[0], 10**9)
        paged = Paged(splintered=self.splintered, entries=two, noise=0.004)
        rows = {
            stlb_cliff: synthetic.frame(Truth(entries=two, climb=self.climb), synthetic.grid(entries=self.entries), 5),
            hugepages: paged.frame(synthetic.hugepages()), keeping_pages: paged.frame(synthetic.keeping_pages()),
            graph_walk: walk.rows(walk.Walk(splintered=self.splintered, counted=self.counted)),
            tlb_blocking: blocking.rows(blocking.Machine(splintered=self.splintered)),
            virtualization: guests.rows(guests.Guests(far=(), outer="4k" if self.splintered else "")),
            your_machine: geometry.rows(geometry.Made(geometry.lru(two[0]), geometry.lru(two[1]), joined=self.joined), "4k", 1),
        }
        kept = {module.__name__.rpartition(".")[2]: frame for module, frame in rows.items()}
        documents = {"ways": keeping.asked(), "runtimes": keeping.pool()}
        return {module: module.Analysis(frame, About(self.host, rows=kept, documents=documents)) for module, frame in rows.items()}


BOOKS = {
    "an Oryon-like core": Book((224, 32768), is_stated=False, changes=ARM),
    "a Cortex-A53-like core": Book((10, 512), is_stated=False, changes=ARM),
    "a Zen that joins neighbours": Book((72, 3072), joined=4, hypervisor="kvm", splintered=True),
    "base pages of 64 KiB": Book((48, 1280), is_stated=False, changes={**ARM, "base_page_bytes": 65536, "page_table_levels": 3}),
    "an emulator": Book(hypervisor="qemu-tcg", splintered=True),
    "a filtered PMU": Book(hypervisor="kvm", splintered=True, changes={"pmu": {"tier": "software", "reason": "not-counted"}}),
    "one level": Book((64,)),
    "bare metal with whole pages": Book((64, 2048), changes={"pmu": {"tier": "counters", "reason": None}}),
}


@cache
def said(name: str) -> tuple[tuple[str, str, str], ...]:
    """(chapter, where, text) of every sentence and of each verdict's evidence."""
    return tuple(_said(BOOKS[name]))


def _said(book: Book) -> Iterator[tuple[str, str, str]]:
    for module, a in book.chapters().items():
        chapter = module.__name__.rpartition(".")[2]
        for name in module.prose.__all__:
            try:
                text = getattr(module.prose, name)(a)
            except Unavailable as why:
                yield chapter, f"{name}, lacking", str(why)
                continue
            yield chapter, name, str(text) if isinstance(text, Prose) else f"({text})"
        for one in verdicts(module.claims, a):
            yield chapter, f"{one.claim.id}, {one.verdict}", one.evidence
