"""Read perf's JSON lines (5.19 and later): a count is believed only if it was counted all the
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlb.lab.events import Event
from tlb.lab.record import Quantity
from tlb.machine import pmu


def parse(text: str, events: Sequence[Event]) -> dict[str, Quantity]:
    """Return a quantity for each event, matched by position because perf alters names.

    Value, event-runtime and pcnt-running are judged in that order: `<not supported>` comes with
    runtime 0 and 100.00 %. {} where the lines do not fit the events.
    """
    rows = [row for row in pmu.rows(text) if "counter-value" in row]
    if len(rows) != len(events):
        return {}
    return {event.quantity: _quantity(row, event) for row, event in zip(rows, events, strict=True)}


def _quantity(row: dict, event: Event) -> Quantity:
    text = str(row["counter-value"])
    if text.startswith("<"):
        return Quantity(
            reason="not-supported" if "supported" in text else "not-counted", event=event.event
        )
    try:
        value, running, runtime = (
            float(text),
            float(row.get("pcnt-running", 0)),
            float(row.get("event-runtime", 0)),
        )
    except (TypeError, ValueError, OverflowError):  # a decimal comma, or no number at all
        return Quantity(reason="perf-failed", event=event.event)
    if not 0 <= running <= 100:  # NaN is not either
        return Quantity(reason="perf-failed", event=event.event)
    if not 0 <= value < 2**64 or not runtime > 0:  # a counter has 64 bits
        return Quantity(reason="not-counted", event=event.event)
    if event.quantity == "task_clock_ns" and str(row.get("unit")) == "msec":
        value *= 1e6  # perf prints the task clock in milliseconds
    # perf shared counters out, and its scaling is a guess about the time that it did not see
    if running < 100:
        return Quantity(reason="multiplexed", event=event.event, running_percent=running)
    return Quantity(value=value, event=event.event, running_percent=running)


def derive(counted: Mapping[str, Quantity], events: Sequence[Event]) -> dict[str, Quantity]:
    """Return sums and differences of counted quantities, or the reason of the first lacking one."""
    result = {}
    for event in events:
        first, sign, second = event.derived or ("", "", "")
        parts, text = [counted.get(first), counted.get(second)], f"derived: {first} {sign} {second}"
        if reason := next(
            ("event-unknown" if q is None else q.reason for q in parts if q is None or q.reason),
            None,
        ):
            result[event.quantity] = Quantity(reason=reason, event=text)
            continue
        value = parts[0].value + (parts[1].value if sign == "+" else -parts[1].value)
        running = min(q.running_percent for q in parts)
        result[event.quantity] = (
            Quantity(value=value, event=text, running_percent=running)
            if value >= 0
            else Quantity(reason="counts-disagree", event=text, running_percent=running)
        )
    return result
