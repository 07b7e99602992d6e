"""What articles say of code and of what huge pages do for it, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from experiments.code.analysis import Analysis
from tlb.machine.stated_facts import JAVA_FLAGS, JAVA_HUGE_PAGE_FLAGS
from tlb.report.claims import (
    Answer,
    Band,
    Fact,
    PointPredicate,
    claim,
    count_inside_band,
    points_where,
)
from tlb.stats.effects import effect_inside_band
from tlb.system.page_sizes import CACHE_LINE_BYTES
from tlb.system.reasons import Unavailable, require_nonempty
from tlb.system.units import list_in_words


def _text(mib: int) -> PointPredicate:
    """A text of so many MiB, on base pages and on huge ones."""
    return points_where("code_chase", lines=(mib << 20) // CACHE_LINE_BYTES)


@claim("text-on-2-mib-helps", points=_text(100), mib=100)
def large_text_helps(a: Analysis, band: Band, mib: int) -> Answer:
    ratio = a.gain(mib)
    return (
        effect_inside_band(ratio, *band),
        f"A random jump in {mib} MiB of code takes {ratio:rounded} times as long on base pages as on "
        "huge ones.",
    )


claim("hundred-mb-of-code-gains", points=_text(100), mib=100)(large_text_helps)


@claim("defer-only-madvise-exists", points=None)
def defer_only_madvise_exists(a: Analysis, band: Band) -> Answer:
    modes = require_nonempty(a.flags.defrag_modes, "this kernel lists no modes", "no-data")
    return count_inside_band(
        modes.count("defer-only-madvise"), band, f"The kernel lists {list_in_words(modes)}."
    )


@claim("published-java-flags-exist", points=None)
def java_flags_exist(a: Analysis, band: Band) -> Answer:
    listed_flags = a.flags.java_flags
    if listed_flags is None:
        raise Unavailable("no-toolchain", "java")
    found = len(listed_flags)
    text = f"This Java lists {found} of these {len(JAVA_FLAGS)} flags: {list_in_words(JAVA_FLAGS)}."
    shown = f"{found} flags listed, of which the second acts on Windows alone"
    return Fact(bool(band[0] <= found <= band[1]), text, shown)


@claim("java-large-pages-off-by-default", points=None)
def javas_large_pages_are_off(a: Analysis, band: Band) -> Answer:
    on = require_nonempty(
        [a.flags.java_on] if a.flags.java_on is not None else [],
        "Java was not asked what it has on",
        "no-data",
    )[0]
    used = list_in_words(on) if on else "none"
    text = f"By default this Java uses {used} of {list_in_words(JAVA_HUGE_PAGE_FLAGS)}."
    return count_inside_band(len(on), band, text)
