"""What articles say of whole programs, as predicates on the chapter's Analysis."""

from __future__ import annotations

from scipy.stats import beta

from experiments.your_program.analysis import ONE, Analysis
from tlb.inference.intervals import Interval
from tlb.prose import in_words, many
from tlb.reasons import required
from tlb.report.verdicts import Answer, Band, claim, inside
from tlb.units import format_size

MUCH_BYTES = 64 << 20  # much data: several times what any TLB here reaches with base pages
COVERAGE = 0.95


@claim("walks-hide-from-profilers", points=None)
def walks_hide_from_profilers(a: Analysis, band: Band) -> Answer:
    """A bar of the walker's own would take its samples from the load, so what is not at the load is
    the most that it can have."""
    profile = a.profile
    elsewhere = _share(profile.ticks - profile.most, profile.ticks)
    return inside(elsewhere, *band), (
        f"Of {profile.ticks:,} samples of a chase, {elsewhere:.1%} are at anything but one instruction, the "
        "load or the one after it."
    )


def _share(hits: int, of: int) -> Interval:
    """A part of independent samples with its interval (Clopper & Pearson, Biometrika 26, 1934)."""
    tail = (1 - COVERAGE) / 2
    low = float(beta.ppf(tail, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, of - hits)) if hits < of else 1.0
    return Interval(hits / of, low, high, COVERAGE)


@claim("per-thread-sharding-gains", points=None)
def sharding_gains(a: Analysis, band: Band) -> Answer:
    gain = a.gain("sharded")
    return (
        inside(gain, *band),
        f"A read takes {gain:.2f} times as long with all threads over all pages as with each on its own part.",
    )


@claim("large-pages-boost-applications", points=None)
def large_pages_boost(a: Analysis, band: Band, much_bytes: float = MUCH_BYTES) -> Answer:
    rows = a.of_pages(ours=False)
    rows = required(
        rows[rows["resident_bytes"] >= much_bytes], "no program with much data was measured"
    )
    return [inside(gain, *band) for gain in rows["gain"]], (
        f"Of {in_words(len(rows))} programs of others with {format_size(int(much_bytes))} and more, large pages make "
        f"{many(rows['faster'].sum())} faster and {many(rows['slower'].sum())} slower."
    )


@claim("redis-latency-after-fork", points=None)
def redis_waits_after_a_fork(a: Analysis, band: Band) -> Answer:
    ratio = ONE / a.gain("redis-save")
    return (
        inside(ratio, *band),
        f"While it saves, its slowest write in a thousand takes {ratio:.2f} times as long with large pages.",
    )


@claim("go-big-heaps-gain", points=None)
def big_go_heaps_gain(a: Analysis, band: Band) -> Answer:
    gain = a.gain("go-map")
    return inside(
        gain, *band
    ), f"Look-ups in a map of a GiB go {gain:.2f} times as fast with large pages."
