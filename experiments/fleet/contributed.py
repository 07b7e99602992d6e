"""What data/ knows of a bundle, and how one comes into it: the one way in for another computer's rows.

A row is never rewritten: of a machine that is there already those of new keys are added. What can be worked out from rows (data card,
profile, verdicts) is, so that nothing a stranger wrote is shown but numbers and words of models.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.article import card, parameters
from experiments.article.chapter import Chapter
from experiments.fleet import documents, plausible
from experiments.fleet.packing import staged
from experiments.fleet.sealed import CARD, Bundle
from experiments.front import profile
from experiments.lab import build
from experiments.lab.lines import Stored
from experiments.lab.record import Record
from experiments.lab.store import GRIDS, Store
from experiments.machine import host as hosts
from experiments.machine.host import Host
from experiments.system.files import OPEN_FLAGS, disk_errors, lock, put_folder, sync_folder, unfinished
from experiments.words.reasons import Unavailable, if_available

VERDICTS = "verdicts.json"


class Added(NamedTuple):
    """folder: of the machine in data/. rows: new ones; known: how many of the bundle's were there, or have the key of one that is."""

    folder: Path
    rows: int
    known: int


def review(data: Store, bundle: Bundle) -> None:
    """Whether a bundle agrees with what data/ has of this machine and of others. Raises Unavailable: bundle-known for rows of another
    machine, and where there is none that is new; bundle-impossible for another computer of the same name, and for lines that were visited
    in another order than on all machines."""
    published = if_available(lambda: Host.model_validate(data.read_machine(bundle.machine))) if bundle.machine in data.machines() else None
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        raise Unavailable("bundle-impossible", f"{bundle.machine} in data/ is another computer: {published.cpu_model}")
    for machine in data.machines():
        if machine != bundle.machine:
            _compare(data, machine, bundle)
    if not any(_new(data, bundle).values()):
        raise Unavailable("bundle-known", f"no row of {bundle.machine} is new")


def _compare(data: Store, machine: str, bundle: Bundle) -> None:
    """With another machine's rows."""
    whole = data.whole(machine)
    states = {row.record.state for rows in whole.values() for row, _ in rows}
    for kernel in bundle.kernels:
        theirs = [row.record for row, _ in whole.get(kernel, ())]
        processes = {plausible.process(record) for record in theirs}
        visited = {plausible.visits(record): record.checksum for record in theirs}
        for row, _ in bundle.rows(kernel):
            if plausible.process(row.record) in processes:
                raise Unavailable("bundle-known", f"a row of {kernel} was measured on {machine}, at {row.record.started_at}")
            if visited.get(plausible.visits(row.record), row.record.checksum) != row.record.checksum:
                raise Unavailable("bundle-impossible", f"a row of {kernel} has another checksum than the same lines on {machine}")
    if foreign := sorted(states & bundle.undescribed.keys()):
        raise Unavailable("bundle-impossible", f"rows of the state {foreign[0]}, which is one of {machine}")


def _kernels(data: Store, machine: str) -> set[str]:
    return {kernel for experiment in data.experiments(machine) for kernel in data.kernels(machine, experiment)}


def _new(data: Store, bundle: Bundle) -> dict[str, list[bytes]]:
    """The lines that data/ lacks, by kernel: of new keys, or with what could not be counted before."""
    new: dict[str, list[bytes]] = {}
    for kernel in bundle.kernels:
        there = data.records(bundle.machine, [kernel]) if bundle.machine in data.machines() else {}
        new[kernel] = [line for row, line in bundle.rows(kernel) if _is_new(row, there)]
    return new


def _is_new(row: Stored, there: dict[str, Record]) -> bool:
    return row.key not in there or row.record.counts_more_than(there[row.key])


def add(data: Store, bundle: Bundle) -> Added:
    """Take an accepted bundle into data/<machine>/, whole or not at all. Raises Unavailable: as `review` does, disk-full,
    disk-read-only."""
    target, aside = data.root / bundle.machine, data.root / f".{bundle.machine}.old"
    with disk_errors(target):
        data.root.mkdir(parents=True, exist_ok=True)
        root = os.open(data.root, os.O_RDONLY | OPEN_FLAGS)
        try:
            lock(root)  # of two who add one after the other does
            unfinished(target, aside)
            for left in data.root.glob(f".{bundle.machine}.new-*"):  # by a kill
                shutil.rmtree(left)
            review(data, bundle)
            new = _new(data, bundle)
            files = _merged(data, bundle, new)
            with tempfile.TemporaryDirectory(dir=data.root, prefix=f".{bundle.machine}.new-") as folder:
                made = _made(Path(folder), bundle, files)
                put_folder(made, target, aside)
        finally:
            os.close(root)
    rows = sum(map(len, new.values()))
    return Added(target, rows, sum(bundle.files[f"{kernel}.jsonl"].count(b"\n") for kernel in bundle.kernels) - rows)


def _merged(data: Store, bundle: Bundle, new: dict[str, list[bytes]]) -> dict[str, bytes]:
    """The files of the machine's folder but for what is derived. Documents and the description are those of whose rows are newer."""
    folder = data.root / bundle.machine
    there = {path.name: path.read_bytes() for path in folder.glob("*.json*") if path.is_file() and path.name != VERDICTS} if (
        bundle.machine in data.machines()) else {}
    ours = {name: content for name, content in bundle.files.items() if not name.endswith(".jsonl") and name not in (CARD, f"{GRIDS}.json")}
    is_newer = _last(record for record in bundle.records()) >= _last(
        record for kernel in _kernels(data, bundle.machine) for record in data.records(bundle.machine, [kernel]).values())
    files = there | ours if is_newer else ours | there
    for content in (side["machine.json"] for side in (there, ours) if "machine.json" in side):
        host = Host.model_validate_json(content)
        if hosts.state(host) != hosts.state(Host.model_validate_json(files["machine.json"])):
            files.setdefault(f"machine-{hosts.state(host)}.json", documents.written(host.model_dump(mode="json")))
    for kernel, lines in new.items():
        files[f"{kernel}.jsonl"] = there.get(f"{kernel}.jsonl", b"") + b"".join(line + b"\n" for line in lines)
    files[f"{GRIDS}.json"] = _asked(data.read_document(bundle.machine, GRIDS) if there else {}, bundle)
    return files


def _asked(before: dict[str, dict[str, list[str]]], bundle: Bundle) -> bytes:
    """grids.json with the points of both."""
    grids = {name: {kernel: set(points) for kernel, points in grid.items()} for name, grid in bundle.grids.items()}
    for name, grid in before.items():
        for kernel, points in grid.items():
            grids.setdefault(name, {}).setdefault(kernel, set()).update(points)
    return documents.written({name: {kernel: sorted(points) for kernel, points in grid.items()} for name, grid in grids.items()})


def _last(records: Iterator[Record]) -> str:
    return max((record.started_at for record in records), default="")


def _made(root: Path, bundle: Bundle, files: dict[str, bytes]) -> Path:
    """The folder as it will lie in data/, on disk, with a data card and a profile of its own."""
    files = {name: content for name, content in files.items() if name != f"{profile.NAME}.json"}
    store, folder = staged(root, bundle.machine, files), root / bundle.machine
    chapter = Chapter(profile.PAGE, parameters.check(profile.PAGE, {"machine": bundle.machine, "minutes": 0.0}), store)
    profile.write(store, profile.of_chapter(chapter))
    card.write(store, bundle.machine, Host.model_validate(store.read_machine(bundle.machine)))
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)
    return folder


# --- what a reviewer wants to know


class Told(NamedTuple):
    """Of one kernel's rows: how many, how many of them something disturbed, how many were counted, and what measured them: this
    checkout's sources, as the rows say, other code that published rows are of, or unknown code."""

    kernel: str
    rows: int
    noisy: int
    counted: int
    first: str
    last: str
    source: str


def table(data: Store, bundle: Bundle) -> list[Told]:
    """A line a kernel."""
    published = {(kernel, row.kernel_digest) for machine in data.machines() for kernel, rows in data.whole(machine).items()
                 for row, _ in rows}
    return [_told(kernel, [row for row, _ in bundle.rows(kernel)], published) for kernel in bundle.kernels]


def _told(kernel: str, rows: list[Stored], published: set[tuple[str, str]]) -> Told:
    sources: Counter[str] = Counter()
    for (engine, source, digest), number in Counter((row.record.engine, row.record.source, row.kernel_digest) for row in rows).items():
        known = "published" if (kernel, digest) in published else "unknown"
        sources["this checkout" if source == build.source_digest(kernel, engine) else known] += number
    began = sorted(row.record.started_at for row in rows)
    noisy, counted = sum(bool(row.record.noisy) for row in rows), sum(_is_counted(row.record) for row in rows)
    return Told(kernel, len(rows), noisy, counted, began[0], began[-1], ", ".join(f"{name} {n}" for name, n in sorted(sources.items())))


def _is_counted(record: Record) -> bool:
    walk = record.counters.get("walk")
    return walk is not None and walk.value is not None


def remarks(bundle: Bundle) -> list[str]:
    """What does not speak against a bundle and is to be known of it, in sentences."""
    rows = sorted((record.started_at, record.wall_ns) for record in bundle.records())
    told = []
    for state, number in bundle.undescribed.items():
        told.append(f"Nothing says what the computer was in the state {state}, of which {number:,} rows are.")
    back = sum(earlier.started_at > later.started_at for kernel in bundle.kernels for earlier, later in _neighbours(bundle, kernel))
    if back:
        told.append(f"{back:,} rows began before the one that stands before them: a clock was set back, or bundles were added out of turn.")
    short = sum(record.elapsed_ns < record.region_ms * 1e6 / 2 for record in bundle.records())
    if short:
        told.append(f"{short:,} of {len(rows):,} rows were timed for less than half of what was asked, as large and single passes are.")
    return told


def _neighbours(bundle: Bundle, kernel: str) -> Iterator[tuple[Record, Record]]:
    before = None
    for row, _ in bundle.rows(kernel):
        if before is not None:
            yield before, row.record
        before = row.record
