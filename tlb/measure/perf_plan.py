"""What perf counts here, and in which run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tlb.measure.events import PROGRAMMABLE, SOFTWARE, Event
from tlb.measure.perf_json import derive
from tlb.measure.record import Quantity


def stat_words(command: Sequence[str], events: Sequence[Event], *more: str) -> list[str]:
    """Return the words of a `perf stat` that prints the counts of events as JSON."""
    listed = ",".join(event.event or "" for event in events)
    return [*command, "stat", "-j", "-e", listed, *more]


@dataclass(frozen=True)
class Plan:
    """The events that answered, what derives from them, and the reason of every other quantity."""

    perf: str | None
    events: tuple[Event, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)  # quantity -> reason code
    derived: tuple[Event, ...] = ()
    # counters that these events may take together, beside cycles and instructions
    programmable: int = PROGRAMMABLE

    def groups(self) -> tuple[tuple[Event, ...], ...]:
        """Return what is counted together, one group a run: events without a programmable counter,
        and at most `programmable` others, so that perf never multiplexes. Loads' events come first;
        both parts of a sum are in one group."""
        always = tuple(event for event in self.events if event.group is None)
        parts = {name for event in self.derived for name in event.derived[::2]}
        rotated: list[tuple[Event, ...]] = []
        for number in sorted({event.group for event in self.events if event.group is not None}):
            group = sorted(
                (event for event in self.events if event.group == number),
                key=lambda event: event.quantity not in parts,
            )
            for first in range(0, len(group), self.programmable):
                some = tuple(group[first : first + self.programmable])
                room = next(
                    (
                        i
                        for i, taken in enumerate(rotated)
                        if len(taken) + len(some) <= self.programmable
                    ),
                    None,
                )
                if room is None:
                    rotated.append(some)
                else:
                    rotated[room] += some
        return tuple(always + group for group in rotated) or (always,)

    @property
    def counts_hardware(self) -> bool:
        return any(event not in SOFTWARE for event in self.events)

    def group(self, repeat: int) -> tuple[Event, ...]:
        """Return the group of a repeat: the groups in turn."""
        groups = self.groups()
        return groups[repeat % len(groups)]

    def quantities(
        self, counted: Mapping[str, Quantity], group: Sequence[Event], reason: str = "perf-failed"
    ) -> dict[str, Quantity]:
        """Return all quantities of a repeat: a count, or why there is none. reason: why nothing was
        counted."""
        own = dict(counted) or {
            event.quantity: Quantity(reason=reason, event=event.event) for event in group
        }
        own |= {
            event.quantity: Quantity(reason="other-repeat", event=event.event)
            for event in self.events
            if event not in group
        }
        return (
            own
            | derive(own, self.derived)
            | {name: Quantity(reason=code) for name, code in self.lacking.items()}
        )

    def in_guest(self) -> Plan:
        """Return the plan counted only while the CPU runs a guest: modifier G (exclude_host of
        perf_event_open(2)) behind each event's u."""
        return replace(
            self,
            events=tuple(
                event if event in SOFTWARE else replace(event, event=f"{event.event}G")
                for event in self.events
            ),
        )


NO_COUNTERS = Plan(None)
