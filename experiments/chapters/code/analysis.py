"""What jumps to one page after another say: what the front end foresees, and the TLB of instructions behind it."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.article import analysis
from experiments.chapters.code import ways
from experiments.chapters.code.grid import HOT_EVERY, KINDS, LARGE_TEXT, LINE_BYTES, MOST_LINES, TEXT_MIB
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import UNKNOWN, Interval
from experiments.inference.misses import RandomFit, fit_random_curve, two_level_cost
from experiments.machine import flags
from experiments.words.pages import BASE
from experiments.words.reasons import Unavailable, if_available, required

NONE = 1e-9  # entries of a level that is always missed
FAR = 4  # times a level's entries: there three of four draws miss it
TREAD = 24  # pages that a first level holds: of those published that are no mere buffer before it, the smallest has 32 entries


class Levels(NamedTuple):
    """A TLB for instructions: entries, and what a jump takes longer past them."""

    held_ns: float  # a drawn jump to a page that the first level holds
    first: Interval
    hit_ns: Interval
    last: Interval
    walk_ns: Interval

    def predict(self, pages: np.ndarray) -> np.ndarray:
        """ns a drawn jump."""
        return two_level_cost(pages, self.first.value, self.last.value, self.held_ns, self.hit_ns.value, self.walk_ns.value)


class Analysis(analysis.Analysis):
    """The rows of `code_chase`: ns a jump. Curves run over lines of code, one to a page but for the packed ones. What nothing was measured
    for is empty here; methods raise Unavailable."""

    documents = ("flags", "ways")

    def _jumps(self, kind: str, layout: str, pages: str = BASE) -> Curve:
        mode, order = KINDS[kind]
        rows = select(self.frame, kernel="code_chase", mode=mode, order=order, layout=layout, pages=pages, every=1)
        return Curve.of(rows[rows["lines"] <= MOST_LINES])  # the texts have more

    @cached_property
    def spread(self) -> dict[str, Curve]:
        """By kind of jump: a line of code to a page."""
        return {kind: curve for kind in KINDS if len(curve := self._jumps(kind, "spread"))}

    @cached_property
    def packed(self) -> dict[str, Curve]:
        """By kind of jump: as many lines side by side."""
        return {kind: curve for kind in KINDS if len(curve := self._jumps(kind, "packed"))}

    @cached_property
    def price(self) -> dict[str, Curve]:
        """By kind of jump: what it costs more that each line has a page of its own."""
        return {kind: self.spread[kind] - self.packed[kind] for kind in KINDS if kind in self.spread and kind in self.packed}

    @cached_property
    def alias(self) -> Curve:
        """Drawn jumps to as many pages of addresses that are eight pages of memory: translation alone."""
        return self._jumps("drawn", "alias")

    @cached_property
    def on_large(self) -> Curve:
        """Drawn jumps to lines a base page apart, on large pages."""
        return self._jumps("drawn", "spread", LARGE_TEXT)

    # --- the TLB of instructions

    @property
    def stated(self) -> list[int]:
        """Its entries for base pages by level, as CPUID states them, ascending; empty where it is silent."""
        by_level: dict[int, int] = {}
        for tlb in self.host.tlb:
            if BASE in tlb.pages and tlb.kind in ("instruction", "unified"):
                by_level[tlb.level] = by_level.get(tlb.level, 0) + tlb.entries
        return [by_level[level] for level in sorted(by_level)]

    @cached_property
    def tlb(self) -> Levels | None:
        """Its two levels by the aliased draws, of which C entries miss 1 - C/M; None where they do not show two."""
        try:
            rest = self.alias.between(TREAD, np.inf)
            rough = fit_random_curve(rest.xs, rest.table["median"] - self.alias.level(0, TREAD))
            last = rough.l2_entries.value
            near = self._step(TREAD, last / 2)  # each by itself: what a jump takes before a level is full is not the same for both
            far = self._step(FAR * near.l2_entries.value, FAR * last)
        except (Unavailable, ValueError):
            return None
        levels = Levels(near.stlb_cost_ns.value, near.l2_entries, near.walk_ns, far.l2_entries, far.walk_ns)
        is_whole = all(level.low * 2 > level.high for level in (levels.first, levels.last))
        return levels if is_whole and levels.hit_ns.low > 0 and levels.walk_ns.low > 0 else None

    def _step(self, low: float, high: float) -> RandomFit:
        """One level alone: its entries are the second ones of the fit, whose first are none, and so missed by every jump."""
        part = self.alias.between(low, high)
        return fit_random_curve(part.xs, part.table["median"], l1_entries=NONE)

    def found(self) -> Levels:
        """`tlb`. Raises Unavailable("no-step") where two levels do not show."""
        return required([self.tlb] if self.tlb else [], "the aliased jumps show no two levels", "no-step")[0]

    def counted(self, quantity: str, kind: str) -> Curve:
        """A counter of the spread jumps of a kind, per jump; empty where no row has a value."""
        mode, order = KINDS[kind]
        rows, column = select(self.frame, mode=mode, order=order, layout="spread", pages=BASE), f"{quantity}_per_access"
        return Curve.of(rows if column in rows else rows.iloc[:0].assign(**{column: 0.0}), value=column)

    # --- large texts

    @cached_property
    def texts(self) -> pd.DataFrame:
        """A row a MiB of code that is all jumped to: mib; base and large, ns a jump, and their ratio, each an Interval; UNKNOWN where not
        measured."""
        rows = []
        for mib in TEXT_MIB:
            base, large = (self._text(pages, (mib << 20) // LINE_BYTES) for pages in (BASE, LARGE_TEXT))
            rows.append((mib, base, large, _over(base, large)))
        table = pd.DataFrame(rows, columns=["mib", "base", "large", "ratio"])
        return table[[base.value == base.value for base in table["base"]]].reset_index(drop=True)

    @cached_property
    def hot(self) -> pd.DataFrame:
        """A row a share of the largest text that is hot: share; mib, of the text; apart, a jump where it is a line here and there in
        every page, large, the same on large pages, and together, where as much hot code lies side by side; ns, each an Interval, UNKNOWN
        where not measured."""
        columns, most = ["share", "mib", "apart", "large", "together"], int(self.texts["mib"].max()) if len(self.texts) else 0
        lines = (most << 20) // LINE_BYTES
        rows = [(1 / every, most, self._text(BASE, lines, every), self._text(LARGE_TEXT, lines, every),
                 self._text(BASE, lines // every) if every > 1 else UNKNOWN)  # all of it is side by side
                for every in (1, *HOT_EVERY)]
        return pd.DataFrame([row for row in rows if row[2].coverage], columns=columns)

    def _text(self, pages: str, lines: int, every: int = 1) -> Interval:
        """A drawn jump in so many lines of code, side by side, of which one in so many is hot; UNKNOWN where not measured."""
        curve = Curve.of(self.frame, kernel="code_chase", layout="packed", order="random", pages=pages, lines=lines, every=every)
        return curve.last if len(curve) else UNKNOWN

    def gain(self, mib: int) -> Interval:
        """How many times as long a jump takes on base pages as on large ones, in a text of so many MiB. Raises Unavailable."""
        rows = [ratio for size, ratio in zip(self.texts["mib"], self.texts["ratio"], strict=True) if size == mib and ratio.coverage]
        return required(rows, f"no text of {mib} MiB was measured on both")[0]

    @cached_property
    def is_splintered(self) -> bool:
        """Whether large pages are known to miss as base pages do."""
        pieces = self.splintering()
        return pieces is not None and pieces.is_splintered

    @cached_property
    def ways(self) -> ways.Texts:
        """What code lies on, by the way in which it was made executable. Raises Unavailable, as `document` does."""
        return self.document("texts", ways.make, ways.Texts)

    @cached_property
    def huge_shares(self) -> dict[str, float]:
        """By way of making code executable: the part of it on large pages, of those that gave code. Empty without the document."""
        asked = if_available(lambda: self.ways)
        return {got.way: got.huge_share for got in asked.got} if asked else {}

    @cached_property
    def flags(self) -> flags.Flags:
        """What this computer's kernel and Java list. Raises Unavailable, as `document` does."""
        return self.document("flags", flags.make, flags.Flags)


def _over(base: Interval, large: Interval) -> Interval:
    return base / large if base.value > 0 and large.value > 0 else UNKNOWN
