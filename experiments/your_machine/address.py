"""How a machine's page table splits a virtual address into indices, and the figure that draws the
walk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from tlb.machine.host import Host, is_arm, is_x86
from tlb.prose import in_words, listed
from tlb.report.render import INK, MUTED, PALETTE, RULE, Figure
from tlb.units import format_size

ENTRY_BYTES = (
    8  # at every level of x86-64 (SDM volume 3A, 4.5) and of arm64 (Linux, arch/arm64/memory.rst)
)
X86_NAMES = {1: "PT", 2: "PD", 3: "PDPT", 4: "PML4", 5: "PML5"}
# An address of arm64 has 48 bits at most, short of the 52 that Linux uses where the boot finds
# them.
ARM_BITS = 48


class Level(NamedTuple):
    """One level of the tree: what its vendor calls it, and which bits of an address index a node of
    it."""

    name: str
    high_bit: int
    low_bit: int

    @property
    def bits(self) -> int:
        return self.high_bit - self.low_bit + 1

    @property
    def covers_bytes(self) -> int:
        """How much of the address space one entry stands for."""
        return 2**self.low_bit

    @property
    def range(self) -> str:
        return f"{self.high_bit}–{self.low_bit}" if self.bits > 1 else f"{self.high_bit}"


class Split(NamedTuple):
    """An address, from the root's index down to the offset in the page."""

    levels: tuple[Level, ...]
    offset: Level
    # False: nothing says how many levels this kernel uses, so the usual number stands here
    stated: bool

    @property
    def bits(self) -> int:
        return self.levels[0].high_bit + 1

    @property
    def node_entries(self) -> int:
        """Entries of a node that fills a page; the root may be smaller."""
        return 2**self.offset.bits // ENTRY_BYTES


def split(host: Host) -> Split:
    """The levels that `host` walks, the root's first. A node fills a base page, whose size gives
    the bits."""
    offset_bits = host.base_page_bytes.bit_length() - 1
    index_bits = offset_bits - (ENTRY_BYTES.bit_length() - 1)
    count = host.page_table_levels or -(
        -(ARM_BITS - offset_bits) // index_bits
    )  # as many as 48 bits take
    total = offset_bits + count * index_bits
    if is_arm(host):
        total = min(total, ARM_BITS)
    ends = [total, *(offset_bits + index_bits * n for n in range(count - 1, -1, -1))]
    levels = tuple(
        Level(_name(host, count - n), high - 1, low) for n, (high, low) in enumerate(pairwise(ends))
    )
    return Split(levels, Level("offset", offset_bits - 1, 0), host.page_table_levels is not None)


def _name(host: Host, above_pages: int) -> str:
    """What the manuals call a level; the lowest, whose entries are pages, is 1."""
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
        """Where the line down to the entry leaves the box: above the entry, as far as the box
        reaches."""
        margin = min(1.0, (self.right - self.left) / 2)
        return min(max(self.middle, self.left + margin), self.right - margin)


def _columns(parts: Split) -> list[_Column]:
    """The address's boxes and a node under each, in a column as wide as the box unless that is too
    narrow."""
    fields = [*parts.levels, parts.offset]
    widths = [max(part.bits, _LEAST_BITS) for part in fields]
    edges = np.cumsum([0, *widths]) * parts.bits / sum(widths)
    return [
        _Column(
            part,
            parts.bits - 1 - part.high_bit,
            parts.bits - part.low_bit,
            *(start + side * (end - start) for side in _SIDES),
        )
        for part, (start, end) in zip(fields, pairwise(edges.tolist()), strict=True)
    ]


def drawn(parts: Split) -> Figure:
    """The address as boxes, each as wide as it has bits, and under each the node that it indexes."""
    columns, pen = _columns(parts), _Pen(parts.bits)
    *walk, page = columns
    step = _ENTRY[1] - _ENTRY[0]
    # What makes a node a table; not through the chosen entry, which has its edges.
    hairs = [y for y in range(_NODE[0] + step, _NODE[1], step) if y not in _ENTRY]
    pen.rules([(c.node_left, y, c.node_right, y) for c in columns for y in hairs], RULE, 1)
    for group, colour in ((walk, PALETTE[0]), ([page], PALETTE[1])):
        pen.boxes([(c.node_left, c.node_right, *_NODE) for c in group], stroke=MUTED, strokeWidth=1)
        pen.boxes(
            [
                (
                    c.left,
                    c.right,
                    *_BOX,
                    c.level.name,
                    c.level.range,
                    2**c.level.bits,
                    format_size(c.level.covers_bytes),
                )
                for c in group
            ],
            _TIPS,
            fill=colour,
            fillOpacity=0.16,
            stroke=colour,
            strokeWidth=1.5,
        )
        pen.boxes([(c.node_left, c.node_right, *_ENTRY) for c in group], fill=colour, stroke=colour)
        pen.rules([(c.foot, _BOX[1], c.middle, _ENTRY[0] - 5) for c in group], colour)
        pen.heads([(c.middle, _ENTRY[0] - 5) for c in group], "triangle-down", colour)
    pen.rules(_pointers(columns), INK)
    pen.heads([(c.node_left, _IN) for c in columns], "triangle-right", INK, xOffset=-4)
    pen.words([((c.left + c.right) / 2, _RANGE, c.level.range) for c in columns], color=MUTED)
    # A box of four bits or fewer has room for the number alone.
    pen.words(
        [
            ((c.left + c.right) / 2, sum(_BOX) / 2, f"{c.level.bits}{' bits' * (c.level.bits > 4)}")
            for c in columns
        ]
    )
    pen.words(
        [(c.middle, _NAME, "page" if c is page else c.level.name) for c in columns],
        fontWeight="bold",
    )
    pen.words(
        [
            (c.middle, _LOAD, "your load" if c is page else f"load {n}")
            for n, c in enumerate(columns, 1)
        ]
    )
    pen.words([(c.middle, _COVERS, format_size(c.level.covers_bytes)) for c in walk])
    pen.words(
        [(-_MARGIN_BITS, _IN + 13, "root"), (-_MARGIN_BITS, _HEADING, "One entry covers")],
        color=MUTED,
        align="left",
    )
    data = pd.DataFrame(
        [
            (
                c.level.name,
                c.level.high_bit,
                c.level.low_bit,
                c.level.bits,
                2**c.level.bits,
                c.level.covers_bytes,
            )
            for c in columns
        ],
        columns=["level", "high_bit", "low_bit", "bits", "chooses_among", "each_covers_bytes"],
    )
    return Figure(alt.layer(*pen.layers).properties(height=_HEIGHT), _alternative(parts), data)


def _pointers(columns: list[_Column]) -> list[tuple]:
    """Lines from the root, and from each chosen entry, to the start of the next node."""
    middle, lines = sum(_ENTRY) / 2, [(-_MARGIN_BITS, _IN, columns[0].node_left, _IN)]
    for start, end in (
        (column.node_right, following.node_left) for column, following in pairwise(columns)
    ):
        bend = (start + end) / 2
        lines += [(start, middle, bend, middle), (bend, middle, bend, _IN), (bend, _IN, end, _IN)]
    return lines


def _alternative(parts: Split) -> str:
    """The figure in words: the levels, their bits, what an entry covers."""
    sizes = [str(level.bits) for level in parts.levels]
    groups = f"{in_words(len(parts.levels))} groups of {listed(sizes) if len(set(sizes)) > 1 else sizes[0]} bits"
    steps = "; ".join(
        f"{level.name}, bit{'s' if level.bits > 1 else ''} {level.range}, {format_size(level.covers_bytes)} an entry"
        for level in parts.levels
    )
    return (
        f"A {parts.bits}-bit virtual address as boxes. From the left, {groups} each index one level of the page table: {steps}. An "
        "arrow leads from the root to the first node, and from the entry chosen in each node to the next; the last leads to the "
        f"page, where bits {parts.offset.range} choose a byte."
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
        self.across = alt.Scale(domain=[-_MARGIN_BITS, bits], nice=False, zero=False)
        self.down = alt.Scale(domain=[_HEIGHT, 0], nice=False, zero=False)
        self.layers: list[alt.Chart] = []

    def _add(
        self,
        kind: str,
        rows: list[tuple],
        columns: str,
        of_mark: dict[str, object],
        **encoded: object,
    ) -> None:
        x, y = alt.X("x:Q", scale=self.across, axis=None), alt.Y("y:Q", scale=self.down, axis=None)
        chart = alt.Chart(pd.DataFrame(rows, columns=columns.split()[: len(rows[0])])).encode(
            x=x, y=y, **encoded
        )
        self.layers.append(getattr(chart, f"mark_{kind}")(**of_mark))

    def boxes(self, places: list[tuple], tips: Sequence[alt.Tooltip] = (), **mark: object) -> None:
        tooltip = {"tooltip": list(tips)} if tips else {}
        self._add(
            "rect",
            places,
            "x x2 y y2 level bits among covers",
            {"fill": "transparent"} | mark,
            x2="x2",
            y2="y2",
            **tooltip,
        )

    def rules(self, lines: list[tuple], colour: str, width: float = 1.5) -> None:
        self._add(
            "rule", lines, "x y x2 y2", {"color": colour, "strokeWidth": width}, x2="x2", y2="y2"
        )

    def heads(self, places: list[tuple], shape: str, colour: str, **mark: object) -> None:
        self._add(
            "point",
            places,
            "x y",
            {"shape": shape, "color": colour, "filled": True, "size": 70} | mark,
        )

    def words(self, places: list[tuple], **mark: object) -> None:
        self._add("text", places, "x y text", {"baseline": "middle"} | mark, text="text:N")
