"""Obstacles: properties of a machine that keep it from testing a claim, whatever is measured there.

claims.csv names the obstacles of each claim; `judge` checks them before it runs the claim's
predicate, so that one obstacle leads to one verdict in every chapter.
"""

from __future__ import annotations

from collections.abc import Callable

from tlb.inference.counts import why_not_counted
from tlb.inference.effects import Effect
from tlb.lab.events import SOFTWARE
from tlb.reasons import Unavailable
from tlb.report.analysis import Analysis

# Reasons that no setting, no longer run and no repetition changes: a claim that one of them
# prevents is not testable here.
OBSTACLES = frozenset(
    {
        "bare-metal",
        "splintered",
        "two-dimensions",
        "no-pmu",
        "event-unknown",
        "no-walk-cycle-event",
        "no-nested-walk-event",
        "no-topdown",
        "not-supported",
        "single-node",
        "not-x86",
        "no-kvm",
        "no-la57",
        "code-refused",
        "page-size-unsupported",
        "arch-unsupported",
        "other-arch",
        "one-cpu",
        "no-sibling",
        "no-flush-count",
        "no-five-levels",
        "emulated",
        "reach-in-cache",
    }
)


def _splintered(a: Analysis) -> Unavailable | None:
    """Return the obstacle where the host was found to splinter large pages; an open finding is
    none."""
    found = a.splintering()
    return Unavailable("splintered") if found and found.is_splintered else None


def _two_dimensions(a: Analysis) -> Unavailable | None:
    """Return the obstacle in a guest, unless its page tables are known to be walked alone."""
    if a.host.is_emulated:
        return Unavailable("emulated")
    return None if a.host.has_nested_walks is False else Unavailable("two-dimensions")


def _bare_metal(a: Analysis) -> Unavailable | None:
    """Return the obstacle in any guest."""
    return None if a.host.hypervisor == "none" else Unavailable("bare-metal")


def _no_pmu(a: Analysis) -> Unavailable | None:
    """Return why the rows have no hardware counts, or None if some have."""
    software = {event.quantity for event in SOFTWARE}
    quantities = {
        column.removesuffix("_reason") for column in a.frame if column.endswith("_reason")
    } - software
    columns = [f"{quantity}_per_access" for quantity in quantities]
    if columns and a.frame[columns].notna().to_numpy().any():
        return None
    return Unavailable(why_not_counted(a.frame, "walk", a.host))


# What the column `obstacles` may name.
CHECKS: dict[str, Callable[[Analysis], Unavailable | None]] = {
    "splintered": _splintered,
    "two-dimensions": _two_dimensions,
    "bare-metal": _bare_metal,
    "no-pmu": _no_pmu,
}


def unless_splintered(a: Analysis, effect: Effect, answer: bool) -> Effect:
    """Return the effect of a claim that splintered large pages decide one way only.

    answer: what they cannot show. Where they miss as base pages do, what base pages cost more is a
    lower bound: it can bear a sentence out and cannot refute it. Raises Unavailable("splintered")
    if the effect gives that answer on such a host.
    """
    if effect.decided() is answer and (found := _splintered(a)):
        raise found
    return effect


def obstacle(a: Analysis, codes: str) -> Unavailable | None:
    """Return the first of the space-separated obstacles that this machine has.

    Raises ValueError for a code without a check.
    """
    for code in codes.split():
        if code not in CHECKS:
            raise ValueError(
                f"{code!r} is no obstacle that can be checked; use one of {', '.join(CHECKS)}."
            )
        if found := CHECKS[code](a):
            return found
    return None
