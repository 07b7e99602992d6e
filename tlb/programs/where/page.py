"""Write what `tlb where` found as a page in the book's style, with a flame graph of the exposed
walks. It loads nothing and runs nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import cycle

import pandas as pd
from markupsafe import Markup

from tlb.programs.where.report import Report
from tlb.report import standalone
from tlb.report.render import PALETTE, join
from tlb.system.units import format_size

_WIDTH, _ROW = 720, 22  # px
_CAPTION = (
    "Exposed walks by the memory they lead to (bottom), the function and the line of code (top). "
    "Point at a box for its number."
)
# An inner svg cuts off a label that is wider than its box.
_BOX = (
    '<svg x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title>'
    '<rect width="100%" height="100%" fill="{}" fill-opacity="0.35" stroke="currentColor" '
    'stroke-opacity="0.3"/><text x="4" y="15" fill="currentColor" font-size="11">{}</text></svg>'
)


def flame_graph(walks: Counter[tuple[str, str, str]]) -> Markup:
    """Return an SVG with a box for each beginning of a stack, as wide as its walks; nothing without
    any."""
    total, height = sum(walks.values()), 3 * _ROW
    if not total:
        return Markup("")
    colors = dict(zip(sorted({memory for memory, *_ in walks}), cycle(PALETTE), strict=False))
    boxes = list[tuple[object, ...]]()
    for depth in range(1, 4):
        merged, x = Counter[tuple[str, ...]](), 0.0
        for stack, number in sorted(walks.items()):
            merged[stack[:depth]] += number
        for frames, number in merged.items():
            width, y = _WIDTH * number / total, height - depth * _ROW
            title = f"{frames[-1]}: {number:,} exposed walks, {number / total:.1%}"
            boxes.append((x, y, width, _ROW - 1, title, colors[frames[0]], frames[-1]))
            x += width
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" width="100%" role="img" aria-label="Flame graph">{}</svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(_WIDTH, height, join(_BOX, boxes), _CAPTION)


def page(made: Report) -> str:
    """Return the page as HTML."""
    verdict, *sentences = made.sentences()
    curve = [
        (f"{entries:,}", format_size(entries * made.geometry.page_bytes), f"{walks:,}")
        for entries, walks in sorted(made.found.curve.items())
    ]
    tables = made.tables()
    if curve:
        head = "entries", "reach on base pages", "walks"
        tables["Second levels of other sizes (LRU, without sets)"] = head, curve
    shown = [
        (heading, standalone.table(pd.DataFrame(rows, columns=head)))
        for heading, (head, rows) in tables.items()
    ]
    body = join("<h1>{}</h1><p><code>{}</code></p>", [(verdict, shlex.join(made.command))])
    body += standalone.paragraphs(sentences) + join("<pre>{}</pre>", made.commands())
    body += flame_graph(made.found.stacks()) + join("<h2>{}</h2>{}", shown)
    return standalone.page(f"tlb where: {made.command[0]}", body)
