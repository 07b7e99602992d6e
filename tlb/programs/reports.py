"""Write what `tlb try`, `where`, `watch` and `doctor` found: as JSON with one head
(data/report.schema.json), and as a page of one file, which loads nothing and runs nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import cycle
from math import exp, log
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from tlb.machine.doctor import ADVICE_SEVERITIES
from tlb.machine.host import Host
from tlb.programs.trial import ComparedQuantity, Trial
from tlb.programs.trial_report import trial_remarks, trial_table_rows, verdict_sentences
from tlb.system.units import format_size

if TYPE_CHECKING:
    from tlb.machine.doctor import Advice
    from tlb.programs.where.report import WhereReport

SCHEMA_VERSION = 1  # grows where a field goes, or means something else
ReportName = Literal["try", "try-pid", "where", "watch", "watch-all", "doctor"]
Rows = Iterable[Sequence[str]]


def document(report: ReportName, content: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """Return a report as JSON has it, with its head: versions, date and machine."""
    return {
        "schema_version": SCHEMA_VERSION,
        "report": report,
        "tool": {"name": "tlb", "version": version("every-load-is-two-loads")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": host.cpu_model,
            "microarchitecture": host.microarchitecture,
            "logical_cpus": host.logical_cpus,
            "hypervisor": host.hypervisor,
            "arch": host.arch,
            "os": host.os,
            "kernel_release": host.kernel_release,
            "base_page_bytes": host.base_page_bytes,
            "thp": {"enabled": host.thp_setting, "defrag": host.thp.defrag},
        },
        **content,
    }


# --- a page

# Okabe and Ito's colours, darkened where white text or paper needs it.
COLOURS = ("#0072b2", "#b34e00", "#007f5c", "#a8477b", "#5c5000", "#46525e")
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #46525e; --rule: #d0d7de; --paper: #fff;
  --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --muted: #a9b6c4; --rule: #4a5561; --paper: #14181c;
    --mark: #56b4e9; }
}
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5;
  font-family: -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 2rem 1rem; }
h1, code, p { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.scrolls { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 0.3rem 1rem 0.3rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
td { white-space: nowrap; }
td:first-child, td:last-child { white-space: normal; }
td:last-child { overflow-wrap: anywhere; min-width: 8rem; }
figure { margin: 1.6rem 0; }
figcaption, footer { color: var(--muted); font-size: 0.9rem; }
"""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\
<title>{}</title><style>{}</style></head>
<body><main>{}<footer><p>tlb {}, {}</p></footer></main></body></html>
"""
_SCROLLS = '<div class="scrolls" role="group" tabindex="0" aria-label="{}">{}</div>'


def _page(title: str, body: Markup) -> str:
    """Return a page as HTML. title: text; body: escaped by its maker."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    tool = version("every-load-is-two-loads")
    return str(Markup(_PAGE).format(title, Markup(_STYLE), body, tool, made))


def _each(template: str, items: Iterable[Any]) -> Markup:
    """Return a template of HTML formatted with each item or tuple, one after the other."""
    return Markup("").join(
        Markup(template).format(*(item if isinstance(item, tuple) else (item,))) for item in items
    )


def _prose(text: str) -> Markup:
    """Return a text whose parts between backticks are code."""
    return Markup("").join(
        Markup("<code>{}</code>" if n % 2 else "{}").format(part)
        for n, part in enumerate(text.split("`"))
    )


def _table(head: Sequence[str], rows: Rows) -> Markup:
    """Return a table in a box that scrolls; an empty head is left out."""
    body = _each("<tr>{}</tr>", (_each("<td>{}</td>", row) for row in rows))
    title = Markup("<thead><tr>{}</tr></thead>").format(_each('<th scope="col">{}</th>', head))
    table = Markup("<table>{}<tbody>{}</tbody></table>").format(title if any(head) else "", body)
    return Markup(_SCROLLS).format("Table", table)


def _sections(tables: Mapping[str, tuple[Sequence[str], Rows]]) -> Markup:
    shown = ((heading, _table(head, rows)) for heading, (head, rows) in tables.items())
    return _each("<h2>{}</h2>{}", shown)


# --- tlb try

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 440, 200, 50, 34  # px; the last two are margins for labels
_PAIRS_CAPTION = (
    "{}: the second side over the first, one point a pair, in the order of measuring, on a "
    "logarithmic axis. The line is the typical ratio, the band its interval; at the dashed line "
    "there is no difference."
)
_CHART = """<figure>{}<figcaption>{}</figcaption></figure>"""
_TICK = '<text x="{}" y="{:.1f}" text-anchor="end" font-size="12" fill="currentColor">{}</text>'
_POINT = '<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="none" stroke="{}" stroke-width="1.5"/>'
_PLOT = (
    '<svg viewBox="0 0 {} {}" width="100%" style="max-width: 36rem" role="img" aria-label="{}">'
    '<rect x="{}" y="{:.1f}" width="{}" height="{:.1f}" fill="{}" fill-opacity="0.2"/>'
    '<path d="M{} {:.1f}h{}" stroke="{}" stroke-width="2"/>'
    '<path d="M{} {:.1f}h{}" stroke="currentColor" stroke-dasharray="4 4"/>{}{}'
    '<text x="{}" y="{}" font-size="12" fill="currentColor">pair 1 to {}</text></svg>'
)


def _pairs_chart(quantity: ComparedQuantity) -> Markup:
    """Return a chart of each pair's ratio, over the typical one with its interval; nothing without
    a ratio."""
    if not (ratio := quantity.ratio):
        return Markup("")
    ratios = [b / a for a, b in zip(quantity.without, quantity.with_lever, strict=True)]
    ends = log(min([*ratios, ratio.low, 1.0])), log(max([*ratios, ratio.high, 1.0]))
    margin = 0.05 * (ends[1] - ends[0]) or 0.01
    low, high = ends[0] - margin, ends[1] + margin
    inner, width, colour = _HEIGHT - _BOTTOM, _WIDTH - _LEFT, "var(--mark)"

    def y(value: float) -> float:
        return inner * (high - log(value)) / (high - low)

    ticks = dict.fromkeys([f"{exp(low + margin):.3f}", "1.000", f"{exp(high - margin):.3f}"])
    step = width / len(ratios)
    points = ((_LEFT + (n + 0.5) * step, y(each), colour) for n, each in enumerate(ratios))
    words = (
        f"The ratios of {len(ratios)} pairs go from {min(ratios):.3f} to {max(ratios):.3f}; the "
        f"typical one is {ratio.value:.3f}, between {ratio.low:.3f} and {ratio.high:.3f}."
    )
    drawn = Markup(_PLOT).format(
        *(_WIDTH, _HEIGHT, words),
        *(_LEFT, y(ratio.high), width, max(y(ratio.low) - y(ratio.high), 1), colour),
        *(_LEFT, y(ratio.value), width, colour),
        *(_LEFT, y(1.0), width),
        _each(_TICK, ((_LEFT - 8, y(float(tick)) + 4, tick) for tick in ticks)),
        _each(_POINT, points),
        *(_LEFT, _HEIGHT - 8, len(ratios)),
    )
    caption = _PAIRS_CAPTION.format(quantity.title)
    return Markup(_CHART).format(drawn, caption)


def trial_page(trial: Trial) -> str:
    """Return a trial as HTML."""
    aim = trial.aim
    commands = [("Command", aim.command), ("Versus", aim.versus)]
    commands += [("Driver", aim.driver.command)] if aim.driver else []
    named = ((name, shlex.join(command)) for name, command in commands if command)
    what = "" if aim.versus else f"With {aim.lever.name}: {aim.lever.does}."
    title = ", ".join(f"{each.title}: {each.verdict}" for each in trial.quantities)
    body = _each("<h1>{}</h1>", [title])
    body += _each("<p>{}: <code>{}</code></p>", named)
    body += _each("<p>{}</p>", [text for text in (what, *verdict_sentences(trial)) if text])
    body += Markup("").join(map(_pairs_chart, trial.quantities))
    body += _each("<p>{}</p>", trial_remarks(trial))
    body += _table(("", *aim.sides), trial_table_rows(trial))
    return _page(f"tlb try: {aim.command[0]}", body)


# --- tlb where, with a flame graph of the exposed walks

_FLAME_WIDTH, _ROW = 720, 22  # px
_CAPTION = (
    "Exposed walks by the memory they lead to (bottom), the function and the line of code (top). "
    "Point at a box for its number."
)
_FLAMES = (
    '<svg viewBox="0 0 {} {}" width="100%" style="min-width: 40rem" role="img" '
    'aria-label="Flame graph">{}</svg>'
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
    colors = dict(zip(sorted({memory for memory, *_ in walks}), cycle(COLOURS), strict=False))
    boxes = list[tuple[object, ...]]()
    for depth in range(1, 4):
        merged, x = Counter[tuple[str, ...]](), 0.0
        for stack, number in sorted(walks.items()):
            merged[stack[:depth]] += number
        for frames, number in merged.items():
            width, y = _FLAME_WIDTH * number / total, height - depth * _ROW
            title = f"{frames[-1]}: {number:,} exposed walks, {number / total:.1%}"
            boxes.append((x, y, width, _ROW - 1, title, colors[frames[0]], frames[-1]))
            x += width
    drawn = Markup(_FLAMES).format(_FLAME_WIDTH, height, _each(_BOX, boxes))
    return Markup(_CHART).format(Markup(_SCROLLS).format("Flame graph", drawn), _CAPTION)


def where_page(made: WhereReport) -> str:
    """Return what `tlb where` found as HTML."""
    verdict, *sentences = made.sentences()
    tables: dict[str, tuple[Sequence[str], Rows]] = {**made.tables()}
    if made.geometry and made.found.curve:
        page_bytes = made.geometry.page_bytes
        curve = [
            (f"{entries:,}", format_size(entries * page_bytes), f"{walks:,}")
            for entries, walks in sorted(made.found.curve.items())
        ]
        head = "entries", "reach on base pages", "walks"
        tables["Second levels of other sizes (LRU, without sets)"] = head, curve
    body = _each("<h1>{}</h1><p><code>{}</code></p>", [(verdict, shlex.join(made.command))])
    body += _each("<p>{}</p>", sentences) + _each("<pre>{}</pre>", made.commands())
    body += flame_graph(made.found.stacks()) + _sections(tables)
    return _page(f"tlb where: {made.command[0]}", body)


# --- tlb watch and tlb doctor


def watch_page(
    name: str, sentences: Sequence[str], tables: Mapping[str, tuple[Sequence[str], Rows]]
) -> str:
    """Return what `tlb watch` saw as HTML: its verdict as the title, what it rests on, and the
    tables. name: the program, or its PID."""
    title, *others = sentences or [name]
    body = _each("<h1>{}</h1>", [title]) + _each("<p><code>{}</code></p>", [name])
    for text in others:
        body += _each("<pre>{}</pre>" if text.startswith(("tlb ", "cd ")) else "<p>{}</p>", [text])
    return _page(f"tlb watch: {name}", body + _sections(tables))


def doctor_page(advice: Sequence[Advice], description: Rows) -> str:
    """Return what disturbs measurements as HTML, with what this computer is."""
    title = f"{len(advice)} findings" if advice else "Nothing disturbs measurements here"
    ranked = sorted(advice, key=lambda each: ADVICE_SEVERITIES.index(each.severity))
    rows = [(each.severity, each.topic, _prose(f"{each.finding} {each.remedy}")) for each in ranked]
    tables: dict[str, tuple[Sequence[str], Rows]] = {"This computer": (("", ""), description)}
    body = _each("<h1>{}</h1>", [title])
    body += _table(("severity", "topic", "finding and remedy"), rows) if rows else ""
    return _page("tlb doctor", body + _sections(tables))
