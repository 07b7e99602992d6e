"""What the pages that re-run an article write of several machines."""

import pandas as pd

from experiments import reruns
from tlb.stats.curves import Curve
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval


def test_a_sentence_and_a_table_leave_out_what_a_machine_lacks():
    few, known = Interval(7.0, 6.0, 9.0, 0.75), Interval(45.0, 40.0, 55.0)
    found = {"Zen 4": known, "Zen 3": UNKNOWN_INTERVAL, "Zen 5": few}
    assert reruns.on_each_machine(found) == "45 (40 to 55) on Zen 4 and 7 (3 repeats) on Zen 5"
    rows = pd.DataFrame({"lines": [1, 1, 1, 1, 1, 1], "ns_per_access": [2.0] * 6})
    table = reruns.interval_cells({"Zen 4": Curve.of(rows)}, [1, 2], ".1f")
    assert table["Zen 4"].fillna("–").tolist() == ["2.0", "–"]
    assert reruns.name_and_end("Zen 5", 2**28, 2**32) == "Zen 5, up to 256 MiB"
    assert reruns.name_and_end("Zen 4", 2**33, 2**32) == "Zen 4"


def test_points_of_one_size_stand_apart_and_no_line_spans_a_size_that_is_missing():
    sizes = [2**20, 2**21, 2**23, 2**20]
    hops = pd.DataFrame({"series": [*["Zen 4"] * 3, "Zen 3"], "working_set_bytes": sizes})
    drawn = reruns.hops_by_graph(hops.assign(median=9.0, low=8.0, high=10.0)).layer[0].data
    assert drawn["piece"].tolist() == [0, 0, 1, 0]
    assert drawn["x"].nunique() == 4
