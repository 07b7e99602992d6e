"""What `tlb watch` saw, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tlb.measure.record import Quantity
from tlb.programs.watch_report import Report, active, typical
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable


def document(report: Report) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, prices in ns a far load. A number that
    is missing has its reason."""
    watched, reach, last = report.watched, report.reach, report.watched.samples[-1]
    shares, counts, loads = watched.folios, report.counts, report.loads
    return {
        "pid": watched.target.pid,
        "command": watched.target.command,
        "elapsed_s": watched.elapsed_s,
        "look_s": watched.sampling_s,
        "overhead": watched.cost,
        "overhead_allowed": watched.overhead,
        "within_overhead": watched.within_overhead,
        "ended": watched.has_ended,
        "exit_code": watched.target.status() if watched.has_ended else None,
        "throttled": watched.throttled,
        "thp_disabled": watched.thp_disabled,
        "mapped": last.mapped,
        "table_bytes": last.table_bytes,
        "used": watched.used._asdict(),
        "samples_left_out": len(watched.samples) - len(watched.samples_after_start),
        "active": [_window(report, window_s) for window_s in watched.windows_s],
        "folios": {"reason": shares.code} if isinstance(shares, Unavailable) else shares,
        "not_seen": {page: "not-seen" for page in last.mapped if page not in (BASE, "thp")},
        "entries": reach.entries,
        "entries_source": reach.source,
        "splintered": reach.is_splintered,
        "gain": _or_reason(report.gain),
        "user_share": report.user_share,
        "fault_share": report.fault_share,
        "advice": report.line or None,
        "counts": {"reason": counts} if isinstance(counts, str) else [*map(_quantities, counts)],
        "loads_by_page_bytes": {"reason": loads} if isinstance(loads, str) else dict(loads),
        "sentences": report.sentences(),
    }


def _window(report: Report, window_s: float) -> dict[str, Any]:
    samples = report.watched.of(window_s)
    middle = typical(samples)
    return {
        "window_s": window_s,
        "at_s": [sample.at_s for sample in samples],
        **active(samples).as_dict(),
        "large_least": middle.huge_least,
        "large_most": middle.huge_most,
        "tread": _or_reason(lambda: report.reach.tread(middle)),
        "looks": len(samples),
        "look_s": max(sample.took_s for sample in samples),
    }


def _quantities(turn: Mapping[str, Quantity]) -> dict[str, Any]:
    return {
        name: quantity.value if quantity.reason is None else {"reason": quantity.reason}
        for name, quantity in turn.items()
    }


def _or_reason(make: Callable[[], Any]) -> Any:
    """Return a value as JSON has it, or its reason."""
    try:
        value = make()
    except Unavailable as why:
        return {"reason": why.code}
    if not hasattr(value, "_asdict"):
        return value
    parts = value._asdict().items()
    return {name: part.as_dict() if isinstance(part, Interval) else part for name, part in parts}
