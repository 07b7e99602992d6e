"""One event of a CPU, and how the tables of events make their rows (tlb/measure/events.py says what
each quantity means)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """A quantity with the event that counts it, or the two quantities that it derives from, or the
    reason for neither.

    Events of one `group` are counted in the same run. None: in every run, without a programmable
    counter that others could use.
    """

    quantity: str
    event: str | None
    reason: str | None = None
    source: str = ""
    derived: tuple[str, str, str] | None = None  # ("stlb_hit", "+", "walk")
    group: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The two quantities that this one derives from; () for a counted one."""
        return self.derived[::2] if self.derived else ()


LOAD_GROUP, FETCH_GROUP, WALKER_GROUP = 0, 1, 2  # groups
LINUX_EVENTS_FOLDER = "Linux tools/perf/pmu-events/arch/"


def missing_event(quantity: str, reason: str, source: str) -> Event:
    """Return the row of a quantity that the CPU does not count."""
    return Event(quantity, None, reason, source)


def derived_event(quantity: str, one: str, sign: str, other: str, source: str) -> Event:
    """Return the row of a quantity that is the sum or difference of two others."""
    return Event(quantity, None, source=source, derived=(one, sign, other))


def raw_event_maker(group: int, source: str) -> Callable[..., Event]:
    """Make events of one group by code and umask; "{pmu}" becomes the name of the CPU's PMU."""

    def event(quantity: str, code: int, umask: int, name: str, cmask: int = 0) -> Event:
        terms = [f"event={code:#04x}"]
        terms += [f"umask={umask:#04x}"] if umask else []
        terms += [f"cmask={cmask}"] if cmask else []
        config = f"{{pmu}}/{','.join(terms)}/u"
        return Event(quantity, config, source=f"{source}, {name}", group=group)

    return event
