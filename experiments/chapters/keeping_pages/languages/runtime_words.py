"""What the programs of kernels/runtimes/ got, in rows and in words."""

from __future__ import annotations

import math

import pandas as pd

from experiments.chapters.keeping_pages.languages.runtimes import Runtimes
from experiments.lab.toolchains import TOOLS
from experiments.words.prose import listed
from experiments.words.reasons import explain
from experiments.words.units import format_size

_ASKS = {  # who asks for huge pages where the program does not: what is known of those that got some under `madvise`
    "go": "its runtime asks for large allocations by itself, as older versions of Go do",
    "python": "NumPy asks for its large arrays by itself",
}
_RECIPES = {"huge": "With advice", "pool": "From the pool"}
_FEW = 3  # fewer repeats than this tell no two times apart


def _runs(doc: Runtimes) -> dict[tuple[str, str], pd.DataFrame]:
    """By language and variant, in the order of the reports: a row a process."""
    reports = pd.DataFrame([report.model_dump() | {"huge_share": report.huge_share} for report in doc.reports])
    return dict(list(reports.groupby(["language", "variant"], sort=False))) if len(reports) else {}


def table(doc: Runtimes) -> pd.DataFrame:
    """A row a language and variant, medians over the repeats: shares in percent, bytes, ns, and how many times as long a read takes
    in the `plain` one (NaN on plain rows, and without them)."""
    runs, rows = _runs(doc), []
    ns = {key: part["ns_per_access"].median() for key, part in runs.items()}
    for (language, variant), part in runs.items():
        gain = ns.get((language, "plain"), math.nan) / ns[language, variant] if variant != "plain" else math.nan
        rows.append((TOOLS[language].title, part["toolchain"].iloc[0], variant, 100 * part["huge_share"].median(),
                     int(part["rest_huge_bytes"].median()), ns[language, variant], gain))
    return pd.DataFrame(rows, columns=["language", "toolchain", "variant", "on_huge_pages_percent", "elsewhere_huge_bytes",
                                       "ns_per_access", "plain_over_this"])


def sentences(doc: Runtimes) -> list[str]:
    """What the plain arrays got, what the recipes got and gained, and what was lacking and why."""
    runs = _runs(doc)
    plain = {language: runs[language, "plain"]["huge_share"].median() for language in TOOLS if (language, "plain") in runs}
    told = []
    if none := [TOOLS[language].title for language, share in plain.items() if share == 0]:
        told.append(f"Allocated plainly, {format_size(doc.array_bytes)} get no huge pages in {listed(none)}.")
    told += [_without(doc.thp, language, share) for language, share in plain.items() if share > 0]
    told += [_with(language, how, mine, runs.get((language, "plain")))
             for variant, how in _RECIPES.items() for language in TOOLS if (mine := runs.get((language, variant))) is not None]
    for name, code in doc.lacking.items():
        language, _, variant = name.partition(" ")
        title = TOOLS[language].title
        some = any(key[0] == language and variant in ("", key[1]) for key in runs)
        told.append(f"{title}{f' ({variant})' if variant else ''} was not measured{' to the end' if some else ''}. "
                    + explain(code, TOOLS[language].lacking(title) if code == "no-toolchain" else ""))
    return told


def _without(thp: str, language: str, share: float) -> str:
    why = {"always": ", because the setting is `always`",
           "madvise": f", although the setting is `madvise`: {_ASKS.get(language, 'something asks on its behalf')}"}.get(thp, "")
    what = "heap" if language == "java" else "array"
    return f"Allocated plainly, {100 * share:.3g} % of {TOOLS[language].title}'s {what} is on huge pages{why}."


def _with(language: str, how: str, runs: pd.DataFrame, plain: pd.DataFrame | None) -> str:
    gain, rest = "", int(runs["rest_huge_bytes"].median())
    if plain is not None:
        huge_ns, plain_ns = runs["ns_per_access"], plain["ns_per_access"]
        apart = min(len(plain), len(runs)) >= _FEW and (plain_ns.max() < huge_ns.min() or huge_ns.max() < plain_ns.min())
        gain = f" A random read takes {huge_ns.median():.1f} ns" + (
            f" instead of {plain_ns.median():.1f} ns." if apart else
            f", which the repeats do not tell apart from the {plain_ns.median():.1f} ns without.")
    elsewhere = f"{format_size(rest)} elsewhere in the process are on them too" if rest else "nothing else in the process is"
    what = "whole heap (the flag knows no single array)" if language == "java" else "array"
    return (f"{how}, {100 * runs['huge_share'].median():.3g} % of {TOOLS[language].title}'s {what} is on huge pages, "
            f"and {elsewhere}.{gain}")
