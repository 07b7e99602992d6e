"""Programs under perf: what is counted of a session of one point."""

from pathlib import Path

from support.fake_perf import workload
from tlb.measure.perf_stat import EventPlan
from tlb.measure.record import CounterReading
from tlb.measure.session import Session

Counters = dict[str, CounterReading]


def counted_run(plan: EventPlan, command: list[str] | None = None, repeat: int = 0) -> Counters:
    """What is counted of a workload's point, by quantity."""
    with Session(command or workload(), Path.cwd(), "4k", plan, repeat, 1) as session:
        _, counters = session.ask("0", 1)
        session.end(1)
    return counters
