"""What was counted, beside what a model predicts, what the times imply and what others published: frames to series and tables.

A counter is a pair of columns, as `Store.load` makes them: `<quantity>_per_access` and `<quantity>_reason`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.article import machine_words as findings
from experiments.inference import curves as claims
from experiments.inference import intervals as stats
from experiments.inference import misses as model
from experiments.machine.host import Host
from experiments.words.reasons import REASONS, Unavailable, explain
from experiments.words.units import format_size


def _chase(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that counts are shown of: the dependent chase over spread lines in cyclic order."""
    return frame[(frame["kernel"] == "page_chase") & (frame["order"] == "cycle") & (frame["layout"] == "spread")]


def counted(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """`stats.summarise` of a counter of the chase, per access, by lines; empty where no row has a value.

    A quantity is counted in some of the repeats (its group's turn): the others do not count in n.
    """
    column = f"{quantity}_per_access"
    chosen = _chase(frame)
    if column not in chosen or chosen[column].notna().sum() == 0:
        return pd.DataFrame(columns=["lines", "median", "low", "high", "n"])
    return stats.summarise(chosen[chosen[column].notna()], ["lines"], column)


def why_not_counted(frame: pd.DataFrame, quantity: str, host: Host) -> str:
    """The reason code for a counter without any value: what most rows say, else what the machine says."""
    said = frame.get(f"{quantity}_reason", pd.Series(dtype="str"))
    said = said[~said.isin(["", "other-repeat", "no-data"])]
    return str(said.mode().iloc[0]) if len(said) else host.pmu.reason or "no-data"


def counting(frame: pd.DataFrame, host: Host, machine_id: str = "") -> findings.Said:
    """What the rows say of their counters: `counters`, a sentence or more, and `counts_are`: counted, simulated or predicted."""
    has = {quantity: not counted(frame, quantity).empty for quantity in ("walk", "walk_cycles")}
    if not has["walk"]:
        return {"counts_are": "predicted", "counters": findings.Prose(
            "Walks are timed, not counted: " + explain(why_not_counted(frame, "walk", host))
            + " In the place of counts stand what a model predicts, what the times imply, and what others published, each labelled.")}
    said = ("This machine is simulated: these counts were computed, not measured." if findings.is_simulated(machine_id) else
            "Hardware counters answer here, so walks are counted beside being timed.")
    if not has["walk_cycles"]:
        said += f" Their cycles are inferred from time: {explain(why_not_counted(frame, 'walk_cycles', host))}"
    return {"counts_are": "simulated" if findings.is_simulated(machine_id) else "counted", "counters": findings.Prose(said)}


def walk_series(frame: pd.DataFrame, host: Host, published: pd.DataFrame, machine_id: str = "") -> dict[str, pd.DataFrame]:
    """Walks per access by lines, by what they are: counted (or simulated), predicted from the TLB that CPUID states, published.

    published: `dtlb_misses_per_hop` of the literature, a random walk of a graph on another machine.
    """
    series = {}
    walks, tlb = counted(frame, "walk"), findings.data_tlbs(host)
    if not walks.empty:
        series[f"walks, {counting(frame, host, machine_id)['counts_are']}"] = walks
    most = int(frame["lines"].max())
    if tlb:
        try:
            kind = findings.second_step_fits(claims.price(frame), tlb)[0].kind
        except Unavailable:
            kind = "fully associative, LRU"
        entries = tlb[-1].entries
        least = int(frame["lines"].min())
        near = {round(entries * 2 ** (k / 16)) for k in range(-32, 65)}
        lines = sorted({n for n in near | {least, most} if least <= n <= most})
        missed = model.StepFit(kind, 0.0, 1.0, 0.0).predict(lines, entries, findings.ways_of(tlb[-1]))
        series[f"walks, predicted: {kind}"] = pd.DataFrame({"lines": lines, "median": missed})
    small = published[(published["pages"] == "4k") & (published["working_set_from_bytes"] <= most * claims.PAGE)]
    ends = small["working_set_to_bytes"].clip(upper=most * claims.PAGE)  # a figure for a range holds at both of its ends
    points = pd.DataFrame({"lines": pd.concat([small["working_set_from_bytes"], ends]) // claims.PAGE,
                           "median": pd.concat([small["misses_per_hop"]] * 2)}).drop_duplicates()
    series["misses per hop of a graph walk, published"] = points.sort_values("lines")
    return {name: one for name, one in series.items() if not one.empty}


def walk_cycle_series(frame: pd.DataFrame, host: Host, machine_id: str = "") -> dict[str, pd.DataFrame]:
    """Cycles per access by lines: with a walk in progress, as counted (or simulated), and the price of translation, from time."""
    series = {}
    cycles = counted(frame, "walk_cycles")
    if not cycles.empty:
        series[f"walk cycles, {counting(frame, host, machine_id)['counts_are']}"] = cycles
    priced = claims.price(frame).dropna(subset=["median"])
    ghz = priced["lines"].map(_chase(frame).groupby("lines")["core_ghz"].median())
    times = pd.DataFrame({"lines": priced["lines"], "n": priced["n_spread"]} | {
        name: priced[name] * ghz for name in ("median", "low", "high")})
    series["price of translation, inferred from time"] = times[ghz > 0]
    return {name: one for name, one in series.items() if not one.empty}


def counter_table(frame: pd.DataFrame, host: Host) -> pd.DataFrame:
    """Every counter of the chase per access at its largest size, from how many processes, or why it has no value."""
    quantities = [c.removesuffix("_reason") for c in frame.columns if c.endswith("_reason")]
    rows = []
    for quantity in quantities:
        values, name = counted(frame, quantity), quantity.replace("_", " ")
        if values.empty:
            rows.append((name, float("nan"), 0, REASONS[why_not_counted(_chase(frame), quantity, host)].sentence))
        else:
            rows.append((name, float(values["median"].iloc[-1]), int(values["n"].iloc[-1]), ""))
    return pd.DataFrame(rows, columns=["counter", "per access", "processes", "why not"])


def walk_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Walks and their cost per access: counted where the CPU counts them, the cost from time where not, and labelled."""
    chosen = _chase(frame)
    priced = claims.price(frame).set_index("lines")
    ghz = chosen.groupby("lines")["core_ghz"].median().where(lambda clock: clock > 0)  # 0 is an engine without a clock
    shown = [n for n in sorted(priced.index) if n in _octaves(priced.index)]
    table = pd.DataFrame({"working set": [format_size(n * claims.PAGE) for n in shown], "pages": shown})
    table["price, ns"] = [float(priced.loc[n, "median"]) for n in shown]
    table["price, cycles"] = [float(priced.loc[n, "median"] * ghz[n]) for n in shown]
    walks, cycles = (counted(frame, quantity).set_index("lines")["median"].reindex(shown) for quantity in ("walk", "walk_cycles"))
    if walks.notna().any():
        table["walks per access"] = walks.to_numpy(dtype=float)
        spent = cycles.to_numpy(dtype=float) if cycles.notna().any() else table["price, cycles"]
        table["cycles per walk"] = (spent / table["walks per access"]).where(table["walks per access"] > 0.01)
    table["cycles per walk from"] = "counters" if cycles.notna().any() else "inferred from time"
    return table


def _octaves(lines: Sequence[int]) -> set[int]:
    """The sizes that are four times one another, from the largest power of two down: a table's worth of a sweep."""
    return {n for n in lines if n & (n - 1) == 0 and n.bit_length() % 2 == 1}
