"""Obstacles: properties of a machine that keep it from testing a claim, whatever is measured there.

claims.csv names the obstacles of each claim; `judge` checks them before the claim's predicate runs,
so that one obstacle leads to one verdict in every chapter.
"""

from __future__ import annotations

from collections.abc import Callable

from tlb.measure.events import SOFTWARE
from tlb.report.analysis import Analysis
from tlb.stats.curves import why_not_counted
from tlb.stats.effects import Effect
from tlb.system.reasons import Unavailable

# Reasons that no setting, no longer run and no repetition removes.
_CODES = """
    bare-metal splintered two-dimensions no-pmu event-unknown no-events
    no-walk-cycle-event no-nested-walk-event no-topdown not-supported single-node not-x86 no-kvm no-la57 code-refused
    page-size-unsupported arch-unsupported other-arch one-cpu no-sibling no-flush-count
    no-five-levels emulated reach-in-cache
    """
OBSTACLES = frozenset(_CODES.split())


def _splintered(a: Analysis) -> str:
    """The host was found to splinter large pages; an undecided finding is no obstacle."""
    found = a.splintering()
    return "splintered" if found and found.is_splintered else ""


def _two_dimensions(a: Analysis) -> str:
    """It is a guest, unless its page tables are known to be walked alone."""
    if a.host.is_emulated:
        return "emulated"
    return "" if a.host.has_nested_walks is False else "two-dimensions"


def _bare_metal(a: Analysis) -> str:
    return "" if a.host.hypervisor == "none" else "bare-metal"


def _no_pmu(a: Analysis) -> str:
    """No row has hardware counts."""
    reasons = (column for column in a.frame if column.endswith("_reason"))
    quantities = {column.removesuffix("_reason") for column in reasons}
    hardware = quantities - {event.quantity for event in SOFTWARE}
    columns = [f"{quantity}_per_access" for quantity in hardware]
    if columns and a.frame[columns].notna().to_numpy().any():
        return ""
    return why_not_counted(a.frame, "walk", a.host)


def _reach_in_cache(a: Analysis) -> str:
    """A part of the data inside the TLB's reach is inside the caches too, so what it gains is not
    the TLB's alone. Not known without the TLB's entries."""
    reach = max(a.entries, default=0) * a.base_page_bytes
    largest = max((cache.size_bytes for cache in a.host.caches), default=0)
    return "reach-in-cache" if 0 < reach <= largest else ""


# What the column `obstacles` may name: functions that return a reason's code, or "".
CHECKS: dict[str, Callable[[Analysis], str]] = {
    "splintered": _splintered,
    "two-dimensions": _two_dimensions,
    "bare-metal": _bare_metal,
    "no-pmu": _no_pmu,
    "reach-in-cache": _reach_in_cache,
}


def unless_splintered(a: Analysis, effect: Effect, answer: bool) -> Effect:
    """Return the effect of a claim that splintered large pages decide one way only.

    answer: what they cannot show. Where they miss as base pages do, what base pages cost more is a
    lower bound: it can support a sentence and cannot refute it. Raises Unavailable("splintered") if
    the effect gives that answer on such a host.
    """
    if effect.decided() is answer and (code := _splintered(a)):
        raise Unavailable(code)
    return effect


def obstacle(a: Analysis, codes: str) -> Unavailable | None:
    """Return the first of the space-separated obstacles that this machine has.

    Raises ValueError for a code without a check.
    """
    for code in codes.split():
        if code not in CHECKS:
            known = ", ".join(CHECKS)
            raise ValueError(f"{code!r} is no obstacle that can be checked; use one of {known}.")
        if found := CHECKS[code](a):
            return Unavailable(found)
    return None
