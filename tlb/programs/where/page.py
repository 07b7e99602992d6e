"""Write what `tlb where` found as a page in the book's style, with a flame graph of the exposed
walks. It loads nothing and runs nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

import pandas as pd
from markupsafe import Markup

from tlb.programs.where.report import PROVED, SITES, Report, stacks
from tlb.report import standalone
from tlb.report.render import PALETTE, join

_WIDTH, _ROW = 720, 22  # px
_CHARACTER = 6.2  # px that a character of a label takes
_CAPTION = (
    "Exposed walks by the memory they lead to (bottom), the function and the line of code (top). "
    "Point at a box for its number."
)
_BODY = Markup(
    "<h1>{verdict}</h1><p><code>{command}</code></p><p>{tlb}.</p>{sentences}<h2>Lines of code</h2>"
    "{lines}<h2>Allocations</h2>{sites}{proof}<h2>Where the exposed walks are</h2>{graph}"
    "<h2>What to do</h2>{commands}"
)
_BOX = Markup(
    '<g><title>{title}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" '
    'fill="{color}" fill-opacity="0.35" stroke="currentColor" stroke-opacity="0.3"/>'
    '<text x="{text_x:.1f}" y="{text_y}" fill="currentColor" font-size="11">{label}</text></g>'
)


def flame_graph(walks: Counter[tuple[str, str, str]]) -> Markup:
    """Return an SVG with a box for each beginning of a stack, as wide as its walks; nothing without
    any."""
    total = sum(walks.values())
    if not total:
        return Markup("")
    height = 3 * _ROW
    colors = {
        name: PALETTE[n % len(PALETTE)] for n, name in enumerate(sorted({m for m, *_ in walks}))
    }
    boxes = [
        _box(frames, left, number, total, height, colors[frames[0]])
        for frames, left, number in _boxes(sorted(walks.items()))
    ]
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" width="100%" role="img" aria-label="Flame graph">{}</svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(_WIDTH, height, Markup("").join(boxes), _CAPTION)


def _boxes(walks: list[tuple[tuple[str, ...], int]]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield the beginning of a stack, the walks to the left of it, and its walks."""
    for depth in range(1, 4):
        left = 0
        merged = Counter[tuple[str, ...]]()
        for stack, number in walks:
            merged[stack[:depth]] += number
        for frames, number in merged.items():
            yield frames, left, number
            left += number


def _box(
    frames: tuple[str, ...], left: int, number: int, total: int, height: int, color: str
) -> Markup:
    width, room = _WIDTH * number / total, int(_WIDTH * number / total / _CHARACTER) - 1
    y = height - len(frames) * _ROW
    name = frames[-1]
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 3 else ""
    return _BOX.format(
        title=f"{name}: {number:,} exposed walks, {number / total:.1%}",
        x=_WIDTH * left / total,
        y=y,
        width=width,
        height=_ROW - 1,
        color=color,
        text_x=_WIDTH * left / total + 4,
        text_y=y + 15,
        label=label,
    )


def page(made: Report) -> str:
    """Return the page as HTML."""
    verdict, *sentences = made.sentences()
    proof = _table(PROVED, made.proof_rows()) if made.proof else ""
    return standalone.page(
        f"tlb where: {made.command[0]}",
        _BODY.format(
            verdict=verdict,
            command=shlex.join(made.command),
            tlb=made.geometry,
            sentences=standalone.paragraphs(sentences),
            lines=_table(made.line_head, made.line_rows()),
            sites=_table(SITES, made.site_rows()),
            proof=proof,
            graph=flame_graph(stacks(made.found)),
            commands=join("<pre>{}</pre>", [*made.commands()] or ["nothing"]),
        ),
    )


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Markup:
    return standalone.table(pd.DataFrame(list(rows), columns=head))
