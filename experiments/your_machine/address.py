"""How a machine's page table splits a virtual address into indices, and the figure that draws the
walk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from tlb.machine.host import Host, is_arm, is_x86
from tlb.report.render import INK, MUTED, PALETTE, RULE, Figure
from tlb.system.prose import in_words, listed
from tlb.system.units import format_size

ENTRY_BYTES = 8  # of x86-64 (SDM volume 3A, 4.5) and arm64 (Linux, arch/arm64/memory.rst)
X86_NAMES = {1: "PT", 2: "PD", 3: "PDPT", 4: "PML4", 5: "PML5"}
ARM_BITS = 48  # of an arm64 address at most, without the 52 bits that some kernels find at boot


class Level(NamedTuple):
    """A level of the page table, with the bits of an address that index a node of it."""

    name: str
    high_bit: int
    low_bit: int

    @property
    def bits(self) -> int:
        return self.high_bit - self.low_bit + 1

    @property
    def covers_bytes(self) -> int:
        """How much of the address space one entry maps."""
        return 2**self.low_bit

    @property
    def range(self) -> str:
        return f"{self.high_bit}–{self.low_bit}" if self.bits > 1 else f"{self.high_bit}"


class Split(NamedTuple):
    """An address, from the root's index down to the offset in the page."""

    levels: tuple[Level, ...]
    offset: Level
    stated: bool  # whether the kernel states how many levels it uses; else the usual number

    @property
    def bits(self) -> int:
        return self.levels[0].high_bit + 1

    @property
    def node_entries(self) -> int:
        """Entries of a node that fills a page; the root may be smaller."""
        return 2**self.offset.bits // ENTRY_BYTES


def split(host: Host) -> Split:
    """Return the levels that `host` walks, the root's first. A node fills a base page."""
    offset_bits = host.base_page_bytes.bit_length() - 1
    index_bits = offset_bits - (ENTRY_BYTES.bit_length() - 1)
    usual = -(-(ARM_BITS - offset_bits) // index_bits)
    count = host.page_table_levels or usual
    total = offset_bits + count * index_bits
    if is_arm(host):
        total = min(total, ARM_BITS)
    ends = [total, *(offset_bits + index_bits * n for n in range(count - 1, -1, -1))]
    levels = tuple(
        Level(_name(host, count - n), high - 1, low) for n, (high, low) in enumerate(pairwise(ends))
    )
    return Split(levels, Level("offset", offset_bits - 1, 0), host.page_table_levels is not None)


def _name(host: Host, above_pages: int) -> str:
    """Return the manuals' name of a level; 1 is the lowest, whose entries are pages."""
    if is_x86(host) and above_pages in X86_NAMES:
        return X86_NAMES[above_pages]
    return f"L{4 - above_pages}" if is_arm(host) else f"level {above_pages}"


# --- the figure ---

# Heights in pixels from the top. The width is the address, in bits, and stretches with the page.
_RANGE, _NAME, _LOAD, _HEADING, _COVERS, _HEIGHT = 8, 211, 229, 257, 276, 285
_BOX, _NODE, _ENTRY = (20, 50), (85, 193), (145, 157)
_IN = 95  # where an arrow meets the node that it points at: at its start
_MARGIN_BITS = 2  # left of the address, for the root
_SIDES = (0.34, 0.94)  # a node in its column; the arrow into it takes the rest
_LEAST_BITS = 7  # a column for a root of one bit still has room for its words


class _Column(NamedTuple):
    level: Level
    left: float  # of the box in the address, in bits from the left end
    right: float
    node_left: float
    node_right: float

    @property
    def middle(self) -> float:
        return (self.node_left + self.node_right) / 2

    @property
    def foot(self) -> float:
        """Where the line to the entry leaves the box: above the entry if the box reaches there."""
        margin = min(1.0, (self.right - self.left) / 2)
        return min(max(self.middle, self.left + margin), self.right - margin)


def _columns(split: Split) -> list[_Column]:
    """Return the address's boxes and a node under each, as wide as its box or _LEAST_BITS."""
    fields = [*split.levels, split.offset]
    widths = [max(field.bits, _LEAST_BITS) for field in fields]
    edges = (np.cumsum([0, *widths]) * split.bits / sum(widths)).tolist()
    columns = []
    for field, (start, end) in zip(fields, pairwise(edges), strict=True):
        left, right = split.bits - 1 - field.high_bit, split.bits - field.low_bit
        node = (start + side * (end - start) for side in _SIDES)
        columns.append(_Column(field, left, right, *node))
    return columns


def drawn(split: Split) -> Figure:
    columns, pen = _columns(split), _Pen(split.bits)
    *walk, page = columns
    _draw_nodes(pen, walk, page)
    pen.rules(_pointers(columns), INK)
    pen.heads([(c.node_left, _IN) for c in columns], "triangle-right", INK, xOffset=-4)
    centres = [((c.left + c.right) / 2, c.level) for c in columns]
    pen.words([(x, _RANGE, level.range) for x, level in centres], color=MUTED)
    # A box of four bits or fewer has room for the number alone.
    bits = [f"{level.bits}{' bits' * (level.bits > 4)}" for _, level in centres]
    pen.words([(x, sum(_BOX) / 2, text) for (x, _), text in zip(centres, bits, strict=True)])
    names, loads = [c.level.name for c in walk], [f"load {n}" for n, _ in enumerate(walk, 1)]
    for y, texts, style in (
        (_NAME, [*names, "page"], {"fontWeight": "bold"}),
        (_LOAD, [*loads, "your load"], {}),
        (_COVERS, [format_size(c.level.covers_bytes) for c in walk], {}),
    ):
        pen.words([(c.middle, y, text) for c, text in zip(columns, texts, strict=False)], **style)
    margin = [(-_MARGIN_BITS, _IN + 13, "root"), (-_MARGIN_BITS, _HEADING, "One entry covers")]
    pen.words(margin, color=MUTED, align="left")
    rows = [(*level, level.bits, 2**level.bits, level.covers_bytes) for _, level in centres]
    names = ["level", "high_bit", "low_bit", "bits", "chooses_among", "each_covers_bytes"]
    chart = alt.layer(*pen.layers).properties(height=_HEIGHT)
    return Figure(chart, _alternative(split), pd.DataFrame(rows, columns=names))


def _draw_nodes(pen: _Pen, walk: list[_Column], page: _Column) -> None:
    step = _ENTRY[1] - _ENTRY[0]
    # The lines between entries; the chosen entry has edges of its own.
    hairs = [y for y in range(_NODE[0] + step, _NODE[1], step) if y not in _ENTRY]
    pen.rules([(c.node_left, y, c.node_right, y) for c in [*walk, page] for y in hairs], RULE, 1)
    for group, colour in ((walk, PALETTE[0]), ([page], PALETTE[1])):
        pen.boxes([(c.node_left, c.node_right, *_NODE) for c in group], stroke=MUTED, strokeWidth=1)
        fields = [(c.left, c.right, *_BOX, *_tip(c.level)) for c in group]
        style = {"fill": colour, "fillOpacity": 0.16, "stroke": colour, "strokeWidth": 1.5}
        pen.boxes(fields, _TIPS, **style)
        pen.boxes([(c.node_left, c.node_right, *_ENTRY) for c in group], fill=colour, stroke=colour)
        pen.rules([(c.foot, _BOX[1], c.middle, _ENTRY[0] - 5) for c in group], colour)
        pen.heads([(c.middle, _ENTRY[0] - 5) for c in group], "triangle-down", colour)


def _tip(level: Level) -> tuple:
    return level.name, level.range, 2**level.bits, format_size(level.covers_bytes)


def _pointers(columns: list[_Column]) -> list[tuple]:
    """Return lines from the root, and from each chosen entry, to the start of the next node."""
    middle = sum(_ENTRY) / 2
    lines: list[tuple] = [(-_MARGIN_BITS, _IN, columns[0].node_left, _IN)]
    for column, following in pairwise(columns):
        start, end = column.node_right, following.node_left
        bend = (start + end) / 2
        lines += [(start, middle, bend, middle), (bend, middle, bend, _IN), (bend, _IN, end, _IN)]
    return lines


def _alternative(split: Split) -> str:
    sizes = list(dict.fromkeys(str(level.bits) for level in split.levels))
    every = listed(str(level.bits) for level in split.levels) if len(sizes) > 1 else sizes[0]
    steps = "; ".join(
        f"{level.name}, bit{'s' if level.bits > 1 else ''} {level.range}, "
        f"{format_size(level.covers_bytes)} an entry"
        for level in split.levels
    )
    return (
        f"A {split.bits}-bit virtual address as boxes. From the left, "
        f"{in_words(len(split.levels))} groups of {every} bits each index one level of the page "
        f"table: {steps}. An arrow leads from the root to the first node, and from the entry "
        "chosen in each node to the next; the last leads to the page, where bits "
        f"{split.offset.range} choose a byte."
    )


_TIPS = [
    alt.Tooltip("level:N"),
    alt.Tooltip("bits:N"),
    alt.Tooltip("covers:N", title="each covers"),
    alt.Tooltip("among:Q", title="chooses among", format=","),
]


class _Pen:
    """Collects layers in the two units of the figure: bits across, pixels down."""

    def __init__(self, bits: int) -> None:
        across = alt.Scale(domain=[-_MARGIN_BITS, bits], nice=False, zero=False)
        down = alt.Scale(domain=[_HEIGHT, 0], nice=False, zero=False)
        self.x, self.y = alt.X("x:Q", scale=across, axis=None), alt.Y("y:Q", scale=down, axis=None)
        self.layers: list[alt.Chart] = []

    def _chart(self, rows: list[tuple], columns: str, **encoded: Any) -> alt.Chart:
        data = pd.DataFrame(rows, columns=columns.split()[: len(rows[0])])
        return alt.Chart(data).encode(x=self.x, y=self.y, **encoded)

    def boxes(self, places: list[tuple], tips: Sequence[alt.Tooltip] = (), **style: Any) -> None:
        tooltip: dict[str, Any] = {"tooltip": list(tips)} if tips else {}
        chart = self._chart(
            places, "x x2 y y2 level bits among covers", x2="x2", y2="y2", **tooltip
        )
        self.layers.append(chart.mark_rect(**({"fill": "transparent"} | style)))

    def rules(self, lines: list[tuple], colour: str, width: float = 1.5) -> None:
        chart = self._chart(lines, "x y x2 y2", x2="x2", y2="y2")
        self.layers.append(chart.mark_rule(color=colour, strokeWidth=width))

    def heads(self, places: list[tuple], shape: str, colour: str, **style: Any) -> None:
        mark: dict[str, Any] = {"shape": shape, "color": colour, "filled": True, "size": 70} | style
        self.layers.append(self._chart(places, "x y").mark_point(**mark))

    def words(self, places: list[tuple], **style: Any) -> None:
        chart = self._chart(places, "x y text", text="text:N")
        self.layers.append(chart.mark_text(**({"baseline": "middle"} | style)))
