"""Which machine a chapter is about, and what may be measured there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tlb.machine import host as hosts
from tlb.machine.host import Host, tlb_entries
from tlb.measure import build, grid, states
from tlb.measure.grid import Profile, Scope
from tlb.measure.measuring_setup import usable_bytes
from tlb.measure.store import Store
from tlb.stats.campaigns import newest
from tlb.system.page_sizes import PAGES
from tlb.system.reasons import Note, Unavailable, if_available
from tlb.system.units import format_size, parse_size

_MEMORY_LIMIT = "half of the memory that is free"


@dataclass
class Subject:
    """The machine of a chapter, as this computer or as published."""

    name: str
    parameters: dict[str, Any]
    data: Store  # data/: what is published, and separately what was measured here
    notes: list[Note] = field(default_factory=list)  # what was lacking
    # by grid: the measurements for which there was no time, and of how many
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def is_this(self) -> bool:
        """Whether it is about this computer."""
        return self.parameters["machine"] == "this"

    @cached_property
    def store(self) -> Store:
        """The rows measured here if it is about this computer, else those published."""
        return self.data.own if self.is_this else self.data

    @cached_property
    def machine(self) -> str:
        """The machine's id, the name of its folder in the store."""
        if self.is_this:
            return hosts.machine_id(self.host)
        return self.store.resolve(self.parameters["machine"], experiment=self.name)

    @cached_property
    def stands_in(self) -> bool:
        """Whether it replaces the reference machine, which lacks this chapter."""
        return self.parameters["machine"] == "reference" and self.machine != self.store.reference()

    @cached_property
    def host(self) -> Host:
        """The machine as inspected now, or as published in the state of this chapter's rows."""
        if self.is_this:
            return hosts.inspect()
        host = Host.model_validate(self.store.read_machine(self.machine))
        if not states.has_several_states(self.store, self.machine):
            return host
        frame = newest(self.store.load(self.machine, self.name))
        if frame.empty:
            return host
        state = str(frame["state"].mode()[0])
        return if_available(states.description_of_state, self.store, self.machine, state) or host

    def described(self, state: str) -> Host:
        """Return the machine as it was in the state of a row. Raises Unavailable("no-data") if it
        was not recorded."""
        if state == hosts.state(self.host):
            return self.host
        return states.description_of_state(self.store, self.machine, state)

    @cached_property
    def profile(self) -> Profile:
        """The profile with this run's overrides. Committed data are shown whole unless
        max_working_set is given."""
        base = grid.load_profile(self.parameters["profile"])
        asked, changes = self.parameters["max_working_set"], dict[str, int]()
        if self.parameters["repeats"]:
            changes["repeats"] = changes["shape_repeats"] = self.parameters["repeats"]
        usable = sys.maxsize
        if self.is_this:
            usable = max(usable_bytes(self.host, kind) for kind in PAGES)
        if asked != "profile":
            most = changes["max_working_set"] = parse_size(asked)
            if most > usable:
                raise Unavailable(
                    "bad-parameter",
                    f"max_working_set {format_size(most)} is more than the {format_size(usable)} "
                    f"that may be measured here, {_MEMORY_LIMIT} or what a pool holds",
                )
        elif not self.is_this:
            changes["max_working_set"] = sys.maxsize
        elif base.max_working_set > usable:
            changes["max_working_set"] = usable
            limit = f"{format_size(usable)}, {_MEMORY_LIMIT} here or what a pool holds."
            self._note(Note(f"The sweep ends at {limit}"))
        return base.model_copy(update=changes)

    @cached_property
    def engine(self) -> str:
        """The engine of points that name none."""
        return build.engine_for(self.parameters["engine"]) if self.is_this else "c"

    @cached_property
    def scope(self) -> Scope:
        """What the chapter's grid may ask for."""
        profile = self.profile if self.is_this else grid.load_profile(self.parameters["profile"])
        return Scope(
            profile,
            self.engine,
            tuple(tlb_entries(self.host)),
            len(self.host.usable_cpus),
            base_page_bytes=self.host.base_page_bytes,
        )

    @property
    def _seconds(self) -> float:
        """The time for measuring."""
        return 60 * self.parameters["minutes"]

    def _note(self, note: Note) -> None:
        """Add a note once; if it may measure, print it to stderr as well."""
        if note not in self.notes:
            self.notes.append(note)
            if self._seconds:
                print(note.text, file=sys.stderr)
