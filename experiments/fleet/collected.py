"""Where a fleet's rows are collected: a store like any other, whose lines came from elsewhere and are each there once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from experiments.fleet.parcel import Opened, Sender, Task, counted, program
from experiments.lab import lines, states
from experiments.lab.record import Point, Record
from experiments.lab.store import Store
from experiments.system.files import OPEN_FLAGS, disk_errors, lock
from experiments.words.reasons import Unavailable

LOCK = ".fleet.lock"


@contextmanager
def collecting(folder: Path) -> Iterator[Collected]:
    """The store of a folder, for this client alone. Raises Unavailable: fleet-already, disk-full, disk-read-only."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    try:
        try:
            lock(held, wait=False)
        except BlockingIOError:
            raise Unavailable("fleet-already", str(folder)) from None
        yield Collected(Store(folder))
    finally:
        os.close(held)


class Collected:
    """What is there of each computer, by the keys of its rows; `add` is on disk when it returns."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._there: dict[tuple[str, str], dict[str, Record]] = {}
        self._identities: dict[str, dict[str, tuple[int, str]]] = {}  # that a machine named, by program

    def have(self, machine: str, kernel: str) -> dict[str, int]:
        """How many quantities each row counted, by key."""
        return {key: counted(record) for key, record in self._rows(machine, kernel).items()}

    def describe(self, sender: Sender, grids: Mapping[str, Collection[Point]]) -> None:
        """Writes who it is, and what is asked of it."""
        states.describe(self.store, sender.machine, sender.host)
        for name, points in grids.items():
            self.store.ask(sender.machine, name, points)

    def add(self, opened: Opened) -> int:
        """Appends the rows that are not there yet; how many. A row of a key that is there counts where it counted more."""
        machine, added = opened.sender.machine, 0
        self._identities.setdefault(machine, {}).update(opened.sender.identities)
        for row in opened.rows:
            there = self._rows(machine, row.record.kernel)
            if row.key in there and not row.record.counts_more_than(there[row.key]):
                continue
            self.store.append(machine, row.record, row.kernel_digest)
            there[row.key] = row.record
            added += 1
        return added

    def left(self, sender: Sender, grids: Mapping[str, Iterable[Point]], rounds: Iterable[tuple[str, int, int]],
             lacking: Collection[Point]) -> int:
        """How many processes of the rounds there are no rows of, of points that are not lacking."""
        repeats = {kernel: number for kernel, number, _ in rounds}
        points = {point for asked in grids.values() for point in asked if point not in lacking}
        rows = [row for kernel in repeats for row in self._rows(sender.machine, kernel).items()]
        there = {(record.point, record.repeat) for key, record in rows if record.state == sender.state and (
            record.repeat < repeats[record.kernel] and self._is_of_now(sender.machine, key, record))}
        return sum(repeats[point.kernel] for point in points) - sum(point in points for point, _ in there)

    def _is_of_now(self, machine: str, key: str, record: Record) -> bool:
        """Whether the machine's present kernel measured the row; True where the machine has not yet named its kernels."""
        now = self._identities.get(machine, {}).get(program(record.point))
        return now is None or record.measures == now[0] and lines.key_of(record, now[1]) == key

    def _rows(self, machine: str, kernel: str) -> dict[str, Record]:
        known = self._there.get((machine, kernel))
        if known is None:
            known = self._there[machine, kernel] = self.store.records(machine, [kernel])
        return known

    def task(self, machine: str, grids: Mapping[str, Collection[Point]], kernel: str, repeats: int, most: int, seconds: float) -> Task:
        """What to ask of a computer about one kernel."""
        own = {name: tuple(point for point in points if point.kernel == kernel) for name, points in grids.items()}
        return Task(grids={name: points for name, points in own.items() if points}, repeats=repeats, most=most, seconds=seconds,
                    have=self.have(machine, kernel))
