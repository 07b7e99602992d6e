"""Heaps of hops that wait for one trip to memory, for two, for three: found from made-up hops whose
trips are known."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tlb.stats.hops import MemoryLatencyPeaks, latency_peaks_beyond_caches

CACHED_NS, MEMORY_NS = 40.0, 100.0


def hops(
    shares_of: dict[float, float], seed: int, hops: int = 60_000, tick_ns: float = 0.5
) -> pd.DataFrame:
    """A frame as `hops.smoothed_hops` gives it, of so many hops around each of these times."""
    random = np.random.default_rng(seed)
    at = random.choice(
        list(shares_of), hops, p=np.array([*shares_of.values()]) / sum(shares_of.values())
    )
    ns, counts = np.unique(
        np.round(at * np.exp(0.06 * random.standard_normal(hops)) / tick_ns) * tick_ns,
        return_counts=True,
    )
    return pd.DataFrame(
        {"low_ns": ns - tick_ns / 2, "high_ns": ns + tick_ns / 2, "share": counts / hops}
    )


def found(
    shares_of: dict[float, float], processes: int = 5, moved: float = 0.0
) -> MemoryLatencyPeaks:
    """moved: how far each process lies from the one before, as a share."""
    parts = [
        hops({ns * (1 + moved * k): share for ns, share in shares_of.items()}, k)
        for k in range(processes)
    ]
    return latency_peaks_beyond_caches(
        pd.concat([part.assign(share=part["share"] / processes) for part in parts]),
        parts,
        CACHED_NS,
        MEMORY_NS,
    )


@pytest.mark.parametrize(
    "places", [(160.0,), (160.0, 280.0), (160.0, 280.0, 400.0), (130.0, 230.0, 360.0)]
)
def test_each_trip_has_its_peak_its_share_and_the_line_before_it(places):
    a = found({10.0: 0.2} | dict.fromkeys(places, 0.8 / len(places)))
    assert [peak.value for peak in a.peaks_ns] == pytest.approx(list(places), rel=0.04)
    assert a.shares == pytest.approx([0.8 / len(places)] * len(places), abs=0.03)
    assert a.cuts_ns[0] == CACHED_NS
    assert all(
        p.value < cut < q.value
        for (p, q), cut in zip(pairwise(a.peaks_ns), a.cuts_ns[1:], strict=True)
    )
    assert all(peak.low <= peak.value <= peak.high and peak.coverage > 0.9 for peak in a.peaks_ns)


def test_a_process_without_a_heap_says_nothing_of_its_place():
    both, one = {10.0: 0.2, 160.0: 0.4, 280.0: 0.4}, {10.0: 0.2, 185.0: 0.8}
    parts = [hops(one if seed == 4 else both, seed) for seed in range(5)]
    pooled = pd.concat([part.assign(share=part["share"] / 5) for part in parts])
    first, second = latency_peaks_beyond_caches(pooled, parts, CACHED_NS, MEMORY_NS).peaks_ns
    assert first.low < 170 and second.low > 250
