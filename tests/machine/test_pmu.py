"""What the answer of perf means for a computer: its tier and, below counters, the reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host import plant

from tlb.machine import pmu


def row(value: str, event: str = "cycles:u") -> str:
    """As perf 6.1 prints it with -j."""
    counted = f'{{"counter-value" : "{value}", "unit" : "", "event" : "{event}", '
    return counted + '"event-runtime" : 1000, "pcnt-running" : 100.00}\n'


# --- counters


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (0, row("123456.000000"), ("counters", None)),
        (0, row("123456.000000").replace("}", ", }"), ("counters", None)),  # perf 6.13.0
        (0, row("<not supported>"), ("software", "no-pmu")),
        (0, row("<not counted>"), ("software", "not-counted")),
        (0, "", ("timing", "perf-failed")),
        (
            0,
            "123456,,cycles:u,1000,100.00,,\n",
            ("timing", "perf-failed"),
        ),  # no -j although it was asked for
        (
            129,
            "  Error: unknown switch `j'\n",
            ("timing", "event-unknown"),
        ),  # perf before 5.19, which counts nothing here
        (255, "Error: perf_event_paranoid setting is 4:\n", ("timing", "perf-denied")),
    ],
)
def test_the_answer_of_perf_decides_the_tier(status, stderr, expected):
    assert pmu.classify(status, stderr) == expected


@given(st.integers(-64, 255), st.text())
def test_any_answer_of_perf_is_a_tier_with_its_reason(status, stderr):
    tier, reason = pmu.classify(status, stderr)
    assert (tier == "counters") == (reason is None)


def test_the_pmus_of_a_hybrid_cpu_are_both_named(tmp_path):
    root = plant(
        tmp_path,
        {
            f"sys/bus/event_source/devices/{name}/type": "8"
            for name in (
                "cpu_core",
                "cpu_atom",
                "power",
                "uncore_imc_0",
                "armv8_pmuv3_0",
                "apple_firestorm_pmu",
            )
        },
    )
    found = pmu.look(root, lambda: ("counters", None))
    assert found.devices == ("apple_firestorm_pmu", "armv8_pmuv3_0", "cpu_atom", "cpu_core")
