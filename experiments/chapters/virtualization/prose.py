"""What the rows of guests say, in sentences; about the machine that they are from, which need not be the reader's."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.article.machine_words import Said, data_tlbs, say_each
from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization import costs as virtual_costs
from experiments.chapters.virtualization import entries as virtual_entries
from experiments.chapters.virtualization import references as virtual_counts
from experiments.chapters.virtualization.claims import spans
from experiments.inference.curves import PAGE
from experiments.lab.grid import GUEST_PAGES
from experiments.machine.host import Host
from experiments.machine.kvm import Tables
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

AGREE = 0.01  # by which two clocks may differ: a tick of the timer in a thousand


def of_guests(frame: pd.DataFrame, host: Host) -> Said:
    """What the rows of guests say; `host` is the machine that they are from."""
    tables = host.kvm.tables if host.kvm else "unknown"
    entries = [tlb.entries for tlb in data_tlbs(host)]
    return say_each({
        "lead": lambda: lead(frame), "matrix_said": lambda: _matrix(frame), "references_said": lambda: _references(frame, host, tables),
        "steps_said": lambda: _steps(frame, entries), "clocks_said": lambda: _clocks(frame), "touch_said": lambda: _touch(frame),
        "levels_said": lambda: _levels(frame)})


def _named(row: pd.Series) -> str:
    return f"{row['guest']} pages on the host's {row['host']} pages"


def _ratio(row: pd.Series, name: str = "over_alike") -> str:
    return f"{row[name]:.2f} times ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def lead(frame: pd.DataFrame) -> str:
    """The result in brief: the first pair of page sizes at the largest size, and the cheapest. Raises Unavailable."""
    here = virtual.at(virtual.matrix(frame))
    size = format_size(int(here["lines"].iloc[0]) * PAGE)
    first, best = here.iloc[0], here.loc[here["median"].idxmin()]
    said = f"One line to each 4 KiB of {size}: in a guest with {_named(first)} a dependent load takes {first['median']:.0f} ns"
    if pd.notna(first["over_alike"]):
        said += f", {_ratio(first)} what the same load takes in a plain process on the same page size"
    said += "."
    if best.name != first.name:
        said += f" The cheapest pair of page sizes is {_named(best)}, with {best['median']:.0f} ns."
    return said


def _matrix(frame: pd.DataFrame) -> str:
    found = virtual.matrix(frame)
    here = virtual.at(found)
    told = []
    for guest in (one for one in GUEST_PAGES if one in set(here["guest"])):
        mine = here[here["guest"] == guest].sort_values("median")
        if len(mine) > 1:
            low, high = mine.iloc[0], mine.iloc[-1]
            told.append(f"With {guest} pages in the guest, the host's choice moves a load from {low['median']:.0f} ns on {low['host']} to "
                        f"{high['median']:.0f} on {high['host']}.")
    known = here[here["over_alike"].notna()]
    if len(known):
        low, high = (known.loc[getattr(known["over_alike"], name)()] for name in ("idxmin", "idxmax"))
        size = format_size(int(low["lines"]) * PAGE)
        told.append(f"Over a plain process on the guest's page size, a load at {size} takes {_ratio(low)} as long on "
                    f"{virtual.cell_name(low['guest'], low['host'])}" + (
                        "." if low.name == high.name else f" and {_ratio(high)} on {virtual.cell_name(high['guest'], high['host'])}."))
        if low["over_alike_high"] < 1 and virtual.hardware(low["host"]) != low["guest"]:
            told.append("A guest that is faster than the process beside it is no contradiction. Its pages lie in larger ones of the host, "
                        "so neighbours are neighbours in the host's memory, too, which a process's own small pages need not be.")
    told.append(_near(frame))
    return " ".join(one for one in told if one) or "One pair of page sizes was measured, and nothing beside it."


def _near(frame: pd.DataFrame) -> str:
    """What the guest's chase costs where nothing is missed; "" where that was not measured."""
    try:
        ratio = virtual_costs.inside_a_cache(frame, *virtual.cells(frame)[0])
    except Unavailable:
        return ""
    said = f"Where all lines fit into the first cache, a load in the guest takes {ratio.value:.2f} times ({ratio.low:.2f} to " \
           f"{ratio.high:.2f}) a plain process's"
    return said + (": a guest's instructions are the processor's own." if ratio.low <= 1.03 and ratio.high >= 0.97 else
                   ", which translation does not explain.")


def _references(frame: pd.DataFrame, host: Host, tables: Tables) -> str:
    here = virtual.at(virtual.matrix(frame))
    counts = virtual_counts.counted(here[here["price"].notna()], host)
    if counts.empty:
        raise Unavailable("too-few-points", "no guest's chase was measured with its packed control")
    low, high = counts.loc[counts["formula"].idxmin()], counts.loc[counts["formula"].idxmax()]
    said = (f"At {format_size(int(high['lines']) * PAGE)}, {high['cell']} could need {high['formula']} references and pays "
            f"{high['price']:z.0f} ns")
    if low["cell"] != high["cell"]:
        said += f"; {low['cell']} could need {low['formula']} and pays {low['price']:z.0f}"
    said += f". With its caches warm, the simulated walk of {high['cell']} makes {high['warm']:.1f} references a load."
    if tables == "shadow":
        return (f"{said} The processor here does not make these walks. It walks the shadow table, which takes {high['shadow']} references "
                "down to the smaller page. So the formula bounds what other machines pay, and it is not what tells these prices apart.")
    return f"{said} Walk caches and nested TLBs are why a walk that could take so many references does not take so long."


def _levels(frame: pd.DataFrame) -> str:
    try:
        lines, ratio = virtual_costs.five_levels(frame)
    except Unavailable:
        return "No guest with five levels was measured here; it takes a CPU that has them and a KVM that passes them on."
    said = (f"In a guest with five levels a load over {format_size(lines * PAGE)} takes {ratio.value:.2f} times ({ratio.low:.2f} to "
            f"{ratio.high:.2f}) what it takes in one with four.")
    return said + (" The fifth level's one entry is in a walk cache all the time." if ratio.low <= 1 <= ratio.high else "")


def _steps(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    found = virtual_entries.steps(frame, entries)
    told = []
    for row in found.itertuples():
        name = f"in a guest, {virtual.cell_name(row.guest, row.host)}" if row.guest else f"outside, {row.host}"
        places = [f"between {low:,.0f} and {high:,.0f}" if pd.notna(low) else f"not up to {row.most:,}"
                  for low, high in ((row.first_low, row.first_high), (row.second_low, row.second_high))]
        told.append(f"{name}: {places[0]}" + (f", then {places[1]}" if places[1] != places[0] else ""))
    said = f"At so many lines the price of translation leaves the first level of the TLB, and then the second: {'; '.join(told)}."
    try:
        return f"{said} {spans(virtual_entries.shares(frame))[1]}"
    except Unavailable:
        return said


def _clocks(frame: pd.DataFrame) -> str:
    ratio = virtual_costs.clocks(frame)
    if ratio.empty:
        raise Unavailable("too-few-points", "no guest was timed by two clocks")
    off = (ratio - 1).abs()
    said = (f"Over {len(ratio):,} processes, the time by the clock outside is {ratio.median():.4f} times the one by the guest's own clock "
            f"in the median, and {int((off <= AGREE).sum()):,} of them agree to 1 %.")
    return said + ("" if abs(ratio.median() - 1) <= AGREE else " More than that is lost between the two: leaving and entering the guest, "
                   "and what else ran meanwhile.")


def _touch(frame: pd.DataFrame) -> str:
    found = virtual_costs.first_touches(frame)
    if found.empty:
        raise Unavailable("too-few-points", "no first touch was timed in a guest")
    low, high = found.loc[found["median"].idxmin()], found.loc[found["median"].idxmax()]
    said = (f"At {format_size(int(high['lines']) * PAGE)} the first touch of a line to each 4 KiB costs {high['median']:,.0f} ns a "
            f"line with {_named(high)}")
    if low.name != high.name:
        said += f" and {low['median']:,.0f} ns with {_named(low)}, {high['median'] / low['median']:,.0f} times less"
    return said + "."
