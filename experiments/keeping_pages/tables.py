"""The tables of the chapter about getting pages, one function a table."""

from __future__ import annotations

import pandas as pd

from experiments.keeping_pages.analysis import Analysis
from experiments.keeping_pages.ways import WAYS_TO_MAP
from tlb.measure.toolchains import TOOLCHAINS
from tlb.report.render import Html, data_table
from tlb.system.reasons import REASONS
from tlb.system.units import format_size

_VARIANTS = {"plain": "plain", "huge": "advised", "pool": "from the pool"}
_REFUSED = {"pool-empty": "refused: pool empty"}  # then: other rows may have had pages of it


def ways(a: Analysis) -> Html:
    """Return a row a way of asking: what it made resident, and how much of it lies on large
    pages."""
    rows = []
    for name in WAYS_TO_MAP:
        got = next((got for got in a.ways.got if got.way == name), None)
        if name in a.ways.lacking:
            why = a.ways.lacking[name]
            rows.append((a.ways.asked(name), "–", _REFUSED.get(why, REASONS[why].sentence)))
        elif got:
            resident = format_size(got.resident_bytes)
            rows.append((a.ways.asked(name), resident, f"{100 * got.huge_share:.0f} %"))
    columns = ["asked by", "resident", "on huge pages"]
    return data_table(pd.DataFrame(rows, columns=columns))


def languages(a: Analysis) -> Html:
    """Return a row a language: of each variant's array the share on huge pages, and ns per read."""
    blank = dict.fromkeys(["language", *_VARIANTS.values()], "–")
    rows: dict[str, dict[str, str]] = {}
    for run in a.variants.to_dict("records"):
        row = rows.setdefault(run["language"], blank | {"language": run["language"]})
        ns = f"{run['low_ns']:.1f} to {run['high_ns']:.1f} ns"
        row[_VARIANTS[run["variant"]]] = f"{100 * run['huge_share']:.0f} %, {ns}"
    for name, why in a.programs.lacking.items():
        language, _, variant = name.partition(" ")
        if variant and why in _REFUSED and (known := rows.get(TOOLCHAINS[language].title)):
            known[_VARIANTS[variant]] = _REFUSED[why]
    return data_table(pd.DataFrame([*rows.values()]))
