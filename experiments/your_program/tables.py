"""The tables of the chapter about programs: what was measured."""

from __future__ import annotations

import re

import pandas as pd

from experiments.your_program.analysis import Analysis
from experiments.your_program.cases import CASES
from tlb.report.render import Html, data_table
from tlb.system.reasons import REASONS
from tlb.system.units import format_size

MIB = 1 << 20


def results(a: Analysis) -> Html:
    """Return a row a program: its version, the gain here and on the reference machine, and the
    verdict; or why it was not measured."""
    measured, lacking, rows = a.measured().set_index("case"), a.lacking, []
    theirs = {} if a.theirs is None else dict(zip(a.theirs["case"], a.theirs["gain"], strict=True))
    for name, case in CASES.items():
        reference = f"{theirs[name]:.2f}" if name in theirs else ""
        if name in measured.index:
            row = measured.loc[name]
            # Our own programs have the compiler's version.
            words = str(row["version"])
            number = re.search(r"\d+(?:\.\d+)+", words)
            version, gain = number[0] if number else words, f"{row['gain']:.2f}"
            rows.append((case.title, version, gain, reference, row["verdict"]))
        elif name in lacking:
            why = REASONS[lacking[name]].sentence
            if lacking[name] == "no-toolchain":
                why += f" apt install {case.tool.packages}"
            rows.append((case.title, "", "", reference, why))
    columns = ["program", "version", "times as fast", "the reference", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    return data_table(table if theirs else table.drop(columns="the reference"))


def taken(a: Analysis) -> Html:
    """Return a row a program: its lever, the share of its memory on large pages, its memory without
    and how it grows, and the share of its faults that is left."""
    rows = a.measured()
    resident = rows["resident_bytes"].map(lambda size: format_size(round(size / MIB) * MIB))
    columns = {
        "program": rows["title"],
        "change": rows["does"],
        "on huge pages": rows["large"].map("{:.0%}".format),
        "memory": resident,
        "grows to": rows["memory"].map("{:.2f} times".format),
        "faults left": rows["faults"].map("{:.1%}".format),
    }
    return data_table(pd.DataFrame(columns))
