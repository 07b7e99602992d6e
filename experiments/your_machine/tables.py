"""The chapter's tables, one function each."""

from __future__ import annotations

import re

import pandas as pd
from markupsafe import Markup

from experiments.your_machine.analysis import Analysis
from tlb.machine.cpuid import Tlb
from tlb.machine.doctor import advice, describe
from tlb.report.render import Html, data_table, inline, lacking_note
from tlb.stats import geometry_tables
from tlb.system.prose import listed
from tlb.system.reasons import explain
from tlb.system.units import format_size, parse_size


def reach_table(a: Analysis) -> Html:
    """Return entries times page size, row by row, and what is left of it where the host splinters
    huge pages; or why nothing is stated."""
    if a.reaches.empty:
        return _silent(a)
    entries, reach = a.reaches["entries"], a.reaches["reach_bytes"].map(format_size)
    columns = {
        "TLB level": a.reaches["level"].astype(str),
        "page": a.reaches["page_bytes"].map(format_size),
        "entries": entries,
    }
    if a.is_splintered:
        here = (entries * a.base_page_bytes).map(format_size)
        columns |= {"reach on whole pages": reach, "reach on this machine": here}
    else:
        columns["reach"] = reach
    return data_table(pd.DataFrame(columns))


def machine_table(a: Analysis) -> Html:
    """Return everything that the inspection found, a row each."""
    return data_table(pd.DataFrame(describe(a.host), columns=["", "what this machine says"]))


def tlb_table(a: Analysis) -> Html:
    """Return every TLB that CPUID states, with the leaf; or why there is none."""
    if not a.host.tlb:
        return _silent(a)
    rows = [
        (str(t.level), t.kind, listed(map(_size, t.pages)), t.entries, ways_text(t), t.source)
        for t in a.host.tlb
    ]
    columns = ["level", "for", "pages", "entries", "ways", "stated by"]
    return data_table(pd.DataFrame(rows, columns=columns))


def ways_text(tlb: Tlb) -> str | None:
    """Return the associativity as stated: "full", "12", "8 to 15"; None if it is not."""
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


def levels_table(a: Analysis) -> Html:
    """Return a row a level of the TLB: its entries by each method."""
    return data_table(geometry_tables.levels_table(a.geometry))


def advice_list(a: Analysis) -> Html:
    """Return what `tlb doctor` says, an item each. Commands may break after a slash."""
    items = [(item.topic, f"{item.finding} {item.remedy}") for item in advice(a.host)]
    if not items:
        nothing = "Nothing was found that keeps this machine from measuring well."
        return Html(f'<div class="tlb-advice"><p>{nothing}</p></div>', nothing)
    item, rows = Markup("<li><strong>{}:</strong> {}</li>"), Markup("")
    for topic, text in items:
        broken = re.sub(
            r"<code>.*?</code>",
            lambda code: code[0][:-7].replace("/", "/<wbr>") + code[0][-7:],
            inline(text),
        )
        rows += item.format(topic, Markup(broken))
    plain = "\n".join(f"{topic}: {text}" for topic, text in items)
    return Html(f'<div class="tlb-advice"><ul>{rows}</ul></div>', plain)
