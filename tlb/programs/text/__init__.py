"""Render the sentences of a report from its template in this folder."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlb.system.page_sizes import page_words
from tlb.system.reasons import Unavailable, explain_reason
from tlb.system.units import format_ns, format_size, interval_with_unit, list_in_words


def _number(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things: "1 run", "1,200 runs". plural: where it is more than an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def render_template_lines(template: str, **facts: Any) -> list[str]:
    """Return the lines of a template, rendered with these facts, without empty ones."""
    texts = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts.filters |= {
        "explain": explain_reason,
        "listed": list_in_words,
        "median": lambda values: median([*values]),
        "number": _number,
        "ns": lambda price: interval_with_unit(f"{price:z.1f}", "ns"),
        "page": page_words,
        "size": lambda size: format_size(int(size)),
        "time": lambda seconds: format_ns(seconds * 1e9),
    }
    texts.tests["missing"] = lambda value: isinstance(value, Unavailable)
    lines = texts.get_template(f"{template}.j2").render(facts).split("\n")
    return [line for line in map(str.strip, lines) if line]
