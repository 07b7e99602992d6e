"""What the programs of kernels/runtimes/ got, in rows and in words."""

from __future__ import annotations

import math
import statistics
from typing import get_args

import pandas as pd

from experiments.chapters.hugepages.languages.runtimes import Runtimes
from experiments.chapters.hugepages.languages.toolchains import TOOLS, Variant
from experiments.words.prose import listed
from experiments.words.reasons import explain
from experiments.words.units import format_size

_COLUMNS = ["language", "toolchain", "variant", "on_huge_pages_percent", "elsewhere_huge_bytes", "ns_per_access", "plain_over_huge"]
_ASKS = {  # who asks for huge pages where the program does not: what is known of those that got some under `madvise`
    "go": "its runtime asks for large allocations by itself, as older versions of Go do",
    "python": "NumPy asks for its large arrays by itself",
}
_FEW = 3  # fewer repeats than this tell no two times apart


def _values(doc: Runtimes, language: str, variant: str, quantity: str) -> list[float]:
    return [getattr(report, quantity) for report in doc.reports if (report.language, report.variant) == (language, variant)]


def _median(doc: Runtimes, language: str, variant: str, quantity: str) -> float:
    """The median of an attribute of the reports; NaN where there are none."""
    values = _values(doc, language, variant, quantity)
    return statistics.median(values) if values else math.nan


def table(doc: Runtimes) -> pd.DataFrame:
    """A row a language and variant, medians over the repeats: shares in percent, bytes, ns, and how many times as long a read takes
    `plain` as `huge` (NaN on plain rows, and without both variants)."""
    rows = []
    for language, variant in dict.fromkeys((report.language, report.variant) for report in doc.reports):
        percent, elsewhere, ns = (_median(doc, language, variant, quantity)
                                  for quantity in ("huge_share", "rest_huge_bytes", "ns_per_access"))
        gain = _median(doc, language, "plain", "ns_per_access") / ns if variant == "huge" else math.nan
        toolchain = next(report.toolchain for report in doc.reports if report.language == language)
        rows.append((TOOLS[language].title, toolchain, variant, 100 * percent, elsewhere, ns, gain))
    return pd.DataFrame(rows, columns=_COLUMNS)


def sentences(doc: Runtimes) -> list[str]:
    """What the plain arrays got, what the recipes got and gained, and what was lacking and why."""
    plain = {language: _median(doc, language, "plain", "huge_share") for language in TOOLS}
    told = []
    if none := [TOOLS[language].title for language, share in plain.items() if share == 0]:
        told.append(f"Allocated plainly, {format_size(doc.array_bytes)} get no huge pages in {listed(none)}.")
    told += [_without(doc, language, share) for language, share in plain.items() if share > 0]
    told += [_with(doc, language) for language in TOOLS if _values(doc, language, "huge", "huge_share")]
    for name, code in doc.lacking.items():
        language, _, variant = name.partition(" ")
        title = TOOLS[language].title
        some = any(variant in ("", report.variant) for report in doc.reports if report.language == language)
        told.append(f"{title}{f' ({variant})' if variant else ''} was not measured{' to the end' if some else ''}. "
                    + explain(code, TOOLS[language].lacking(title) if code == "no-toolchain" else ""))
    return told


def _without(doc: Runtimes, language: str, share: float) -> str:
    why = {"always": ", because the setting is `always`",
           "madvise": f", although the setting is `madvise`: {_ASKS.get(language, 'something asks on its behalf')}"}.get(doc.thp, "")
    what = "heap" if language == "java" else "array"
    return f"Allocated plainly, {100 * share:.3g} % of {TOOLS[language].title}'s {what} is on huge pages{why}."


def _with(doc: Runtimes, language: str) -> str:
    plain, huge = (_values(doc, language, variant, "ns_per_access") for variant in get_args(Variant))
    gain = ""
    if plain:
        times = f"{statistics.median(huge):.1f} ns", f"{statistics.median(plain):.1f} ns"
        apart = min(len(plain), len(huge)) >= _FEW and (max(plain) < min(huge) or max(huge) < min(plain))
        gain = f" A random read takes {times[0]} instead of {times[1]}." if apart else \
            f" A random read takes {times[0]}, which the repeats do not tell apart from the {times[1]} without."
    rest = _median(doc, language, "huge", "rest_huge_bytes")
    elsewhere = f"{format_size(int(rest))} elsewhere in the process are on them too" if rest else "nothing else in the process is"
    what = "whole heap (the flag knows no single array)" if language == "java" else "array"
    share = _median(doc, language, "huge", "huge_share")
    return f"With the recipe, {100 * share:.3g} % of {TOOLS[language].title}'s {what} is on huge pages, and {elsewhere}.{gain}"
