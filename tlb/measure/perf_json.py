"""Read perf's JSON lines (5.19 and later): a count is believed only if it was counted all the
time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from tlb.machine import pmu
from tlb.measure.events import Event
from tlb.measure.record import Quantity


def parse(text: str, events: Sequence[Event]) -> dict[str, Quantity]:
    """Return a quantity for each event, matched by position because perf alters names.

    Value, event-runtime and pcnt-running are judged in that order: `<not supported>` comes with
    runtime 0 and 100.00 %. {} where the lines do not fit the events.
    """
    rows = [row for row in pmu.rows(text) if "counter-value" in row]
    answers = [[row] for row in rows]
    if len(rows) > len(events):
        answers = [list(group) for _, group in groupby(rows, _name_on_any_pmu)]
    if len(answers) != len(events):
        return {}
    return {
        event.quantity: _of_all_pmus([_quantity(row, event) for row in answer])
        for answer, event in zip(answers, events, strict=True)
    }


# An event of one PMU as versions of perf print it: armv8_cortex_a72/cycles/u, cpu_core/cycles:u/.
_ON_PMU = re.compile(r"[\w.-]+/([^/]+)/(\w*)")


def _name_on_any_pmu(row: Mapping) -> str:
    """Return the name of an event without its PMU: "cycles:u"."""
    name = str(row.get("event"))
    found = _ON_PMU.fullmatch(name)
    return f"{found[1]}:{found[2]}".removesuffix(":") if found else name


def _of_all_pmus(answers: Sequence[Quantity]) -> Quantity:
    """Return what counted, of the answers of several PMUs to one event.

    On a computer with several kinds of cores perf 6.5 and later opens an event that names no PMU on
    each (tools/perf/util/parse-events.c), and each counts on its own cores alone. A process that
    ran on two kinds has no whole count.
    """
    counted = [answer for answer in answers if answer.reason in (None, "multiplexed")]
    if len(counted) < 2:
        return (counted or answers)[0]
    running = min(answer.running_percent or 0.0 for answer in counted)
    return Quantity(reason="multiplexed", event=counted[0].event, running_percent=running)


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
            ("no-events" if q is None else q.reason for q in parts if q is None or q.reason), None
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
