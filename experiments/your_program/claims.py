"""What articles say of whole programs, as predicates on the chapter's Analysis."""

from __future__ import annotations

from experiments.your_program.analysis import NO_SPEEDUP_INTERVAL, Analysis
from tlb.report.claims import Answer, Band, claim
from tlb.stats.effects import effect_inside_band
from tlb.system.reasons import require_nonempty
from tlb.system.units import count_in_words, format_size, number_in_words

MUCH_BYTES = 64 << 20  # much data: several times what any TLB here reaches with base pages


@claim("walks-hide-from-profilers", points=None)
def walks_hide_from_profilers(a: Analysis, band: Band) -> Answer:
    """A bar of the walker's own would take its samples from the load, so what is not at the load is
    the most that it can have."""
    share = a.elsewhere
    return effect_inside_band(share, *band, what="samples elsewhere:"), (
        f"Of {a.profile.ticks:,} samples of a chase all but {share:.1%} fall on one instruction, the load or "
        "the one after it."
    )


@claim("per-thread-sharding-gains", points=None)
def sharding_gains(a: Analysis, band: Band) -> Answer:
    gain = a.gain("sharded")
    return effect_inside_band(gain, *band), (
        f"A read takes {gain:rounded} times as long with all threads over all pages as with each on "
        "its own part."
    )


@claim("large-pages-boost-applications", points=None)
def large_pages_boost(a: Analysis, band: Band, much_bytes: float = MUCH_BYTES) -> Answer:
    others = a.of_pages(ours=False)
    large = others[others["resident_bytes"] >= much_bytes]
    rows = require_nonempty(large, "no program with much data was measured")
    return [
        effect_inside_band(gain, *band, what=title)
        for title, gain in zip(rows["title"], rows["gain"], strict=True)
    ], (
        f"Of {number_in_words(len(rows))} third-party programs with {format_size(int(much_bytes))} of data "
        f"and more, huge pages make {count_in_words(int(rows['faster'].sum()))} faster and "
        f"{count_in_words(int(rows['slower'].sum()))} slower, each judged as if tried alone."
    )


@claim("some-applications-suffer", points=None)
def some_suffer(a: Analysis, band: Band) -> Answer:
    """By the program of others that is the likeliest to lose, its interval widened for how many were tried."""
    rows = a.of_pages(ours=False)
    worst = rows.sort_values("high").iloc[0]
    slower = NO_SPEEDUP_INTERVAL / worst["gain"]
    return effect_inside_band(slower, *band, among=len(rows), what=worst["title"]), (
        f"Of {number_in_words(len(rows))} third-party programs {worst['title']} is the likeliest to "
        f"lose. It takes {slower:rounded} times as long on huge pages."
    )


@claim("redis-latency-after-fork", points=None)
def redis_waits_after_a_fork(a: Analysis, band: Band) -> Answer:
    ratio = NO_SPEEDUP_INTERVAL / a.gain("redis-save")
    return effect_inside_band(ratio, *band), (
        f"While Redis saves, its slowest write in a thousand takes {ratio:rounded} times as long with "
        "huge pages."
    )
