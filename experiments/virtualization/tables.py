"""The tables of the chapter about guests, one function each."""

from __future__ import annotations

import pandas as pd

from experiments.virtualization.analysis import Analysis
from tlb.lab.declaration import LINE_BYTES
from tlb.reasons import required
from tlb.report.render import Html, data_table
from tlb.units import format_size


def _table(frame: pd.DataFrame, decimals: int = 1, **columns: str) -> Html:
    """The columns named, under their titles."""
    return data_table(frame[list(columns)].set_axis(list(columns.values()), axis=1), decimals)


def guest_counts(a: Analysis) -> Html:
    """The references of each cell beside its price."""
    return _table(
        a.references,
        cell="guest on host",
        formula="by the formula",
        simulated="simulated, cold",
        warm="simulated, warm, per load",
        shadow="of a shadow table",
        price="price here, ns",
    )


def guest_depths(a: Analysis) -> Html:
    """The most references, base pages on base pages, by the levels of the guest's tables (rows) and
    of the host's."""
    table = (
        pd.Series(a.depths)
        .unstack()
        .rename("guest, {} levels".format)
        .rename("host, {} levels".format, axis=1)
    )
    return data_table(table.rename_axis("").reset_index())


def guest_touches(a: Analysis) -> Html:
    """What a line's first touch costs by cell."""
    touches = required(a.touches, "no first touch was timed in a guest")
    return _table(
        touches,
        0,
        guest="guest's page",
        host="host's page",
        median="first touch, ns a line",
        low="low",
        high="high",
    )


def containers(a: Analysis) -> Html:
    """Namespaces and the plain process, point by point."""
    line_bytes = a.containers["layout"].map({"spread": a.base_page_bytes, "packed": LINE_BYTES})
    return _table(
        a.containers.assign(
            size=(a.containers["lines"] * line_bytes).map(format_size),
            lines=a.containers["lines"].map("{:,}".format),
        ),
        2,
        layout="layout",
        lines="lines",
        size="working set",
        plain="plain, ns",
        inside="in namespaces, ns",
        difference="difference, ns",
        low="low",
        high="high",
    )
