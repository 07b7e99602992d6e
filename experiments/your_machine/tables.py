"""The chapter's tables, one function each: what this machine states, what that reaches, what others
published, what was measured."""

from __future__ import annotations

import re

import pandas as pd
from markupsafe import Markup

from experiments.your_machine.analysis import Analysis
from tlb.inference import geometry_words
from tlb.machine.doctor import advice, describe
from tlb.machine.tlb import Tlb
from tlb.prose import listed
from tlb.reasons import explain
from tlb.report.render import Html, data_table, inline, lacking_note
from tlb.units import format_size, parse_size


def hit_costs(a: Analysis) -> Html:
    return data_table(a.hit_costs)


def reach_table(a: Analysis) -> Html:
    """The multiplication, row by row; or why there is nothing to multiply."""
    if a.reaches.empty:
        return _silent(a)
    return data_table(
        pd.DataFrame(
            {
                "TLB level": a.reaches["level"].astype(str),
                "page": a.reaches["page_bytes"].map(format_size),
                "entries": a.reaches["entries"],
                "reach": a.reaches["reach_bytes"].map(format_size),
            }
        )
    )


def outgrow_table(a: Analysis) -> Html:
    """The working set at which the last level of the page table, alone, fills each cache."""
    if a.caches.empty:
        return lacking_note(
            "Nothing states the caches of this machine. A measurement shows them as steps."
        )
    return data_table(
        pd.DataFrame(
            {
                "cache": "L" + a.caches["level"].astype(str),
                "size": a.caches["size_bytes"].map(format_size),
                "filled at a working set of": a.caches["filled_at_bytes"].map(format_size),
            }
        )
    )


def machine_table(a: Analysis) -> Html:
    """Everything the inspection found, a row each."""
    return data_table(pd.DataFrame(describe(a.host), columns=["", "what this machine says"]))


def tlb_table(a: Analysis) -> Html:
    """Every TLB as CPUID states it, with the leaf that does; or why there is none."""
    if not a.host.tlb:
        return _silent(a)
    return data_table(
        pd.DataFrame(
            [
                {
                    "level": str(tlb.level),
                    "for": tlb.kind,
                    "pages": listed(map(_size, tlb.pages)),
                    "entries": tlb.entries,
                    "ways": ways_text(tlb),
                    "stated by": tlb.source,
                }
                for tlb in a.host.tlb
            ]
        )
    )


def ways_text(tlb: Tlb) -> str | None:
    """The associativity as stated: "full", "12", "8 to 15"; None where nothing is."""
    if tlb.ways_between:
        return f"{tlb.ways_between[0]} to {tlb.ways_between[1]}"
    return None if tlb.ways is None else "full" if tlb.ways == 0 else str(tlb.ways)


def _silent(a: Analysis) -> Html:
    return lacking_note(explain(a.host.tlb_reason or "no-geometry"))


def _size(page: str) -> str:
    try:
        return format_size(parse_size(page))
    except ValueError:
        return page


def disagreements(a: Analysis) -> Html:
    return data_table(a.disagreements)


def levels_table(a: Analysis) -> Html:
    """A row a level of the TLB: its entries by each opinion."""
    return data_table(geometry_words.levels_table(a.geometry))


def walks_table(a: Analysis) -> Html:
    """A row a place of the page table: what a walk adds to a hit."""
    return data_table(geometry_words.walks_table(a.geometry))


def advice_list(a: Analysis) -> Html:
    """What `tlb doctor` says, an item each. A command may break after its slashes: it fits a narrow
    page."""
    items = [(item.topic, f"{item.finding} {item.remedy}") for item in advice(a.host)]
    if not items:
        nothing = "Nothing was found that keeps this machine from measuring well."
        return Html(f'<div class="tlb-advice"><p>{nothing}</p></div>', nothing)
    rows = Markup("").join(
        Markup("<li><strong>{}:</strong> {}</li>").format(topic, _code(text))
        for topic, text in items
    )
    return Html(
        f'<div class="tlb-advice"><ul>{rows}</ul></div>',
        "\n".join(f"{topic}: {text}" for topic, text in items),
    )


def _code(text: str) -> Markup:
    """Plain text as HTML, with `code` between backticks."""
    return Markup(
        re.sub(
            r"(?<=<code>).*?(?=</code>)", lambda code: code[0].replace("/", "/<wbr>"), inline(text)
        )
    )
