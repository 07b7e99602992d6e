"""What the programs of kernels/runtimes/ got, as a table and in words."""

from __future__ import annotations

import math
import statistics
from typing import get_args

import pandas as pd

from experiments.chapters.hugepages.languages.runtimes import Runtimes
from experiments.chapters.hugepages.languages.toolchains import TOOLS, Variant
from experiments.chapters.your_machine.address import listed
from experiments.words.reasons import explain
from experiments.words.units import format_size


def _median(doc: Runtimes, language: str, variant: str, quantity: str) -> float:
    """The median of an attribute of the reports; NaN where there are none."""
    values = [getattr(r, quantity) for r in doc.reports if (r.language, r.variant) == (language, variant)]
    return statistics.median(values) if values else math.nan


def table(doc: Runtimes) -> pd.DataFrame:
    """A row a language and variant, medians over the repeats: shares in percent, ns, and how much faster `huge` is than `plain`.

    Columns: language, toolchain, variant, on_huge_pages_percent, elsewhere_huge_bytes, ns_per_access, speedup (NaN on plain
    rows, and without both variants).
    """
    rows = []
    for language, variant in dict.fromkeys((r.language, r.variant) for r in doc.reports):
        ns = _median(doc, language, variant, "ns_per_access")
        rows.append({
            "language": TOOLS[language].title,
            "toolchain": next(r.toolchain for r in doc.reports if r.language == language), "variant": variant,
            "on_huge_pages_percent": 100 * _median(doc, language, variant, "huge_share"),
            "elsewhere_huge_bytes": _median(doc, language, variant, "rest_huge_bytes"), "ns_per_access": ns,
            "speedup": _median(doc, language, "plain", "ns_per_access") / ns if variant == "huge" else math.nan})
    columns = ["language", "toolchain", "variant", "on_huge_pages_percent", "elsewhere_huge_bytes", "ns_per_access", "speedup"]
    return pd.DataFrame(rows, columns=columns)


_ASKS = {  # who asks for huge pages where the program does not: what is known of those that got some under `madvise`
    "go": "its runtime asks for large allocations by itself, as older versions of Go do",
    "python": "NumPy asks for its large arrays by itself",
}
_FEW = 3  # fewer repeats than this tell no two times apart


def sentences(doc: Runtimes) -> list[str]:
    """What the plain arrays got, what the recipes got and gained, and what was lacking and why."""
    plain = {language: _median(doc, language, "plain", "huge_share") for language in TOOLS}
    said = []
    if none := [TOOLS[language].title for language, share in plain.items() if share == 0]:
        said.append(f"Allocated plainly, {format_size(doc.array_bytes)} get no huge pages in {listed(none)}.")
    said += [_without(doc, language, share) for language, share in plain.items() if share > 0]
    said += [_with(doc, language) for language in TOOLS if not math.isnan(_median(doc, language, "huge", "huge_share"))]
    for name, code in doc.lacking.items():
        language, _, variant = name.partition(" ")
        title = TOOLS[language].title
        some = any(variant in ("", r.variant) for r in doc.reports if r.language == language)
        said.append(f"{title}{f' ({variant})' if variant else ''} was not measured{' to the end' if some else ''}. "
                    + explain(code, TOOLS[language].lacking(title) if code == "no-toolchain" else ""))
    return said


def _without(doc: Runtimes, language: str, share: float) -> str:
    why = {"always": ", because the setting is `always`",
           "madvise": f", although the setting is `madvise`: {_ASKS.get(language, 'something asks on its behalf')}"}.get(doc.thp, "")
    what = "heap" if language == "java" else "array"
    return f"Allocated plainly, {100 * share:.3g} % of {TOOLS[language].title}'s {what} is on huge pages{why}."


def _with(doc: Runtimes, language: str) -> str:
    plain, huge = ([r.ns_per_access for r in doc.reports if (r.language, r.variant) == (language, variant)]
                   for variant in get_args(Variant))
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
