"""graph_walk hop by hop: the histogram tells the quantiles, and each hop stands between two
readings."""

import platform
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graph_walk import parsed, walking
from support.kernels import disassembled, needs_c, run_c

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999]

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


TICKS = st.lists(
    st.one_of(st.integers(0, 1000), st.integers(0, 2**32 - 1)), min_size=1, max_size=300
)


def in_c(probe: Callable[..., str], ticks: list[int]) -> tuple[list[float], np.ndarray]:
    first, *rows = probe(text=" ".join(map(str, ticks))).splitlines()
    return [float(word) for word in first.split()], np.array(
        [[int(word) for word in row.split()] for row in rows]
    )


@needs_c
@given(ticks=TICKS)
@settings(max_examples=50)
def test_quantiles_of_the_histogram_are_within_one_percent_of_exact_ones(probe, ticks):
    for found, q in zip(in_c(probe, ticks)[0], QUANTILES, strict=True):
        exact = int(np.quantile(ticks, q, method="inverted_cdf"))
        assert found == pytest.approx(exact, rel=0.01, abs=0)


@needs_c
def test_quantiles_and_mean_in_the_report_follow_from_its_histogram():
    asked = walking(2**16, "--per_hop", 1)
    report = parsed(asked, run_c("graph_walk", asked).stdout)
    least, hops = np.array(report.histogram).T
    also, reached = report.also, np.cumsum(hops)
    named = [
        also[f"p{str(100 * q).rstrip('0').rstrip('.').replace('.', '')}_ns"] for q in QUANTILES
    ]
    for q, ns in zip(QUANTILES, named, strict=True):
        at = least[np.searchsorted(reached, q * reached[-1])]
        width = max(1 / also["tsc_ghz"], at / 128)
        assert ns == pytest.approx(
            max(at + width / 2 - also["clock_ns"], 0), abs=0.51 * width + 1e-6
        )
    assert named == sorted(named)
    mean = np.average(least, weights=hops)
    assert mean * 0.999 - also["clock_ns"] <= also["mean_ns"] <= mean * 1.009 - also["clock_ns"]
    assert also["clock_ns"] > 0 and also["clock_step_ns"] >= 0.99 / also["tsc_ghz"]
    # which holds the counting too
    assert also["mean_ns"] + also["clock_ns"] < report.elapsed_ns / report.accesses


@needs_c
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the stamp's own instructions")
@pytest.mark.needs("objdump")
def test_each_hop_stands_between_two_readings_that_wait_for_it():
    code = disassembled("graph_walk", "walk_clocked")
    stamps = [i for i, one in enumerate(code) if one.startswith("rdtscp")]
    assert len(stamps) == 2 and all(code[i + 1].startswith("lfence") for i in stamps)
    loads = [one for one in code[stamps[0] + 2 : stamps[1]] if re.match(r"mov\w*\s.*\(%.*\),", one)]
    assert len(loads) == 1, code[stamps[0] : stamps[1]]
