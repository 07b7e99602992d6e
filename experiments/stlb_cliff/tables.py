"""The tables of the chapter about the cliff, one function each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.stlb_cliff.analysis import Analysis
from tlb.inference.intervals import JUMP
from tlb.report.bibliography import sources
from tlb.report.chapter import literature
from tlb.report.render import Html, data_table
from tlb.units import format_size


def side_by_side(a: Analysis) -> Html:
    """Return the published run beside this machine's gather and chase, a row a published size."""
    columns = {
        "working set": a.published["working_set_bytes"].map(format_size),
        "pages": a.published["pages"],
        "published, ns": a.published["ns_per_access"],
        "published reach": a.published["reach"],
        "gather here, ns": a.side_by_side["gather"],
        "chase here, ns": a.side_by_side["chase"],
        "chase / gather": a.side_by_side["ratio"],
    }
    return data_table(pd.DataFrame(columns))


def walk_costs(a: Analysis) -> Html:
    """Return the price of translation and, where walks are counted, how many and what one costs."""
    costs, is_counted = a.walk_costs, len(a.counted("walk_cycles")) > 0
    prices = [a.price.get(lines) for lines in costs["lines"]]
    ghz = costs["price_cycles"] / costs["price_ns"]
    cycles = [price * each for price, each in zip(prices, ghz, strict=True)]
    table = pd.DataFrame(
        {
            "working set": (costs["lines"] * a.base_page_bytes).map(format_size),
            "pages": costs["lines"],
            "price, ns": ["–" if np.isnan(ns.value) else f"{ns:.1f}" for ns in prices],
            "price, cycles": ["–" if np.isnan(each.value) else f"{each:.0f}" for each in cycles],
        }
    )
    if costs["walks"].notna().any():
        is_known = [is_counted or price.low > price.high / JUMP for price in prices]
        table["walks per access"] = costs["walks"]
        table["cycles per walk"] = costs["per_walk"].where(np.array(is_known)).round()
    table["cycles per walk from"] = "counters" if is_counted else "inferred from time"
    return data_table(table, decimals=2)


def published_walks(a: Analysis) -> Html:
    """What is published of a walk's cost."""
    stated = literature("walk_costs").query("unit in ['cycles', 'ns']")
    columns = {
        "published": stated["what"],
        "by": stated["source"].map(sources()),
        "value": [*map(_span, stated["value_low"], stated["value_high"])],
        "unit": stated["unit"],
    }
    return data_table(pd.DataFrame(columns))


def _span(low: float, high: float) -> str:
    """A range in words: "60 to 250"; "250 and more" where it is open, a dash where there is
    nothing."""
    if np.isnan(low):
        return "–"
    if np.isnan(high):
        return f"{low:,.0f} and more"
    return f"{low:,.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:,.0f} to {high:,.0f}"


def counter_table(a: Analysis) -> Html:
    """Every counter of the chase at its largest size, or why it has no value."""
    return data_table(a.counters, decimals=3)
