"""What an atlas is built from: bundles and folders of data/, read by the ledger's own rules, each staged as Arrow once.

An input is known by the digest of its files, whether it came packed or not, so what is given twice is read once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from experiments.fleet.atlas_schema import MACHINES, PROFILE, ROWS, SCHEMAS, VERDICTS, moment, row, table_of
from experiments.inference import splinter
from experiments.inference.campaigns import newest
from experiments.lab import columns, kernels, lines, states
from experiments.lab.lines import Stored
from experiments.lab.rows import of_one_engine
from experiments.lab.store import MACHINE, RESERVED, Store
from experiments.machine import host as hosts
from experiments.machine.host import Host
from experiments.system.files import disk_errors, replace
from experiments.words.reasons import Unavailable, if_available

BUNDLES = "*.tlb.zip"
UNKNOWN = "unknown"  # the microarchitecture of a machine that nothing describes
REFUSALS = ("no-bundle", "bundle-unsafe", "bundle-broken", "bundle-foreign", "bundle-impossible")  # of `bundle.checked`
SUMMARY, TABLE = ".json", ".arrow"  # of a staged input: written last, and its rows, a batch a kernel


class Input(NamedTuple):
    """A machine's folder in a store, as data/<machine>/ is one."""

    store: Store
    machine: str

    @property
    def files(self) -> list[Path]:
        folder = self.store.root / self.machine
        return sorted(path for path in folder.glob("*.json*")
                      if path.is_file() and not path.is_symlink() and ".quarantine" not in path.name)

    @property
    def digest(self) -> str:
        """Of the files that a bundle of it holds."""
        whole = hashlib.sha256(self.machine.encode())
        for path in self.files:
            whole.update(f"\n{path.name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()[:16]


class Staged(BaseModel):
    """An input as the manifest knows it. rows: how many, by group of parts. broken: lines that do not prove whole, left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str
    microarchitecture: str
    measured_until: str
    rows: dict[str, int]
    broken: int = 0

    @property
    def batches(self) -> list[str]:
        """The groups whose rows are staged as Arrow."""
        return [group for group in self.rows if table_of(group) == ROWS]


def named(path: Path) -> list[Path]:
    """The inputs that a path names, each a bundle or a machine's folder: itself, or those that lie in it, sorted by name. Raises
    Unavailable("no-bundle") for a path that names none."""
    if path.is_file() or _is_machine(path):
        return [path]
    found = [*path.glob(BUNDLES), *(folder for folder in path.iterdir() if _is_machine(folder))] if path.is_dir() else []
    if not found:
        raise Unavailable("no-bundle", f"{path} is no bundle, no machine's folder, and holds none")
    return sorted(found)


@contextmanager
def inputs(path: Path) -> Iterator[Input]:
    """A bundle, unpacked once it is checked, or a machine's folder. The one place that knows how a machine came here.

    Raises Unavailable, what `bundle.checked` raises."""
    if path.is_dir():
        yield Input(Store(path.parent), path.name)
        return
    from experiments.fleet import bundle

    checked = bundle.checked(path)
    with TemporaryDirectory() as folder:
        own = Path(folder) / checked.machine
        own.mkdir()
        for name, content in checked.files.items():
            (own / name).write_bytes(content)
        yield Input(Store(folder), checked.machine)


def stage(path: Path, known: Iterable[str], folder: Path) -> str | Unavailable:
    """Reads an input into `folder` and gives its digest; one that is `known`, or staged already, is not read again. Of a bundle that is
    refused, why, with its name: of hundreds one has to be found. Raises Unavailable: disk-full, disk-read-only."""
    try:
        return _staged(path, known, folder)
    except Unavailable as why:
        if why.code not in REFUSALS:
            raise
        return why if str(path) in why.detail else Unavailable(why.code, f"{path}: {why.detail}")


def _staged(path: Path, known: Iterable[str], folder: Path) -> str:
    with inputs(path) as given:
        digest = given.digest
        if digest not in known and not (folder / f"{digest}{SUMMARY}").is_file():
            _stage(given, digest, folder)
    return digest


def summary(folder: Path, digest: str) -> tuple[Staged, dict[str, list[dict[str, Any]]]]:
    """Of a staged input: what the manifest says of it, and its rows of the tables that are not `rows`."""
    read = json.loads((folder / f"{digest}{SUMMARY}").read_bytes())
    for line in read["tables"][MACHINES]:
        line["mitigations"] = list(map(tuple, line.get("mitigations", ())))  # pairs, which JSON has as lists
    return Staged.model_validate(read["staged"]), read["tables"]


def staged_rows(folder: Path, digest: str, batch: int) -> pa.Table:
    """The rows of one kernel of a staged input, by the kernel's place in `Staged.batches`."""
    with pa.OSFile(str(folder / f"{digest}{TABLE}")) as file:
        return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(batch)])


def _is_machine(path: Path) -> bool:
    return (path.is_dir() and not path.is_symlink() and bool(MACHINE.fullmatch(path.name)) and path.name not in RESERVED
            and ((path / "machine.json").is_file() or any(path.glob("*.jsonl"))))


def _stage(given: Input, digest: str, folder: Path) -> None:
    by_kernel, broken = _ledger(given)
    every = [stored for rows in by_kernel.values() for stored in rows.values()]
    until = max((stored.record.started_at for stored in every), default="1970-01-01T00:00:00Z")
    newest_first = {"input_until": moment(until), "input": digest}
    latest = if_available(states.latest, given.store, given.machine)
    tables = {MACHINES: [line | newest_first for line in _machines(given, every, latest)],
              PROFILE: [line | newest_first for line in _profile(given)], VERDICTS: [line | newest_first for line in _verdicts(given)]}
    rows = {f"{ROWS}/kernel={kernel}": len(by_kernel[kernel]) for kernel in by_kernel} | {name: len(tables[name]) for name in tables}
    staged = Staged(machine=given.machine, microarchitecture=_slug(latest),
                    measured_until=until, rows={name: count for name, count in rows.items() if count}, broken=broken)
    with disk_errors(folder):
        with (pa.OSFile(str(folder / f"{digest}{TABLE}"), "wb") as file,
              pa.ipc.new_file(file, SCHEMAS[ROWS], options=pa.ipc.IpcWriteOptions(compression="lz4")) as out):
            for stored in by_kernel.values():
                table = pa.Table.from_pylist([row(given.machine, each) for each in stored.values()], schema=SCHEMAS[ROWS])
                out.write_batch(table.combine_chunks().to_batches()[0])
        replace(folder / f"{digest}{SUMMARY}", json.dumps({"staged": staged.model_dump(), "tables": tables}).encode())


def _slug(host: Host | None) -> str:
    """The microarchitecture as ids and paths have it, such as zen-5."""
    return re.sub(r"[^a-z0-9]+", "-", host.microarchitecture.lower()).strip("-") if host else UNKNOWN


def _ledger(given: Input) -> tuple[dict[str, dict[str, Stored]], int]:
    """The rows by kernel and key, as `Store.records` has them, and how many lines are no whole row."""
    by_kernel: dict[str, dict[str, Stored]] = {}
    broken = 0
    for path in (file for file in given.files if file.suffix == ".jsonl"):
        entries, torn = lines.read(path)
        rows: dict[str, Stored] = {}
        broken += bool(torn) + sum(isinstance(stored, ValueError) for stored, _ in entries)
        for stored, _ in entries:
            if isinstance(stored, Stored) and stored.record.kernel == path.stem and (
                    stored.key not in rows or stored.record.counts_more_than(rows[stored.key].record)):
                rows[stored.key] = stored
        if rows:
            by_kernel[path.stem] = rows
    return by_kernel, broken


def _machines(given: Input, every: list[Stored], latest: Host | None) -> Iterator[dict[str, Any]]:
    """A row for each state that there are rows of, and for the one of machine.json. What does not change with a state is known of one
    that nothing describes, too."""
    now = hosts.state(latest) if latest else ""
    by_state: dict[str, list[Stored]] = {now: []} if latest else {}
    for stored in every:
        by_state.setdefault(stored.record.state, []).append(stored)
    for state in sorted(by_state):
        rows = by_state[state]
        host = if_available(states.described, given.store, given.machine, state)
        times = sorted(stored.record.started_at for stored in rows)
        yield {"machine": given.machine, "state": state, "is_described": host is not None,
               **(_lasting(host or latest) if host or latest else {}), **(_settings(host) if host else {}),
               "measured_from": moment(times[0]) if times else None, "measured_until": moment(times[-1]) if times else None,
               **_host_pages(rows, host or latest)}


def _lasting(host: Host) -> dict[str, Any]:
    same = ("cpu_model", "vendor", "family", "model", "stepping", "hypervisor", "arch", "os", "logical_cpus")
    return {name: getattr(host, name) for name in same} | {
        "memory_bytes": host.memory.total_bytes, "has_nested_walks": host.has_nested_walks, "entries_stated": hosts.tlb_entries(host)}


def _settings(host: Host) -> dict[str, Any]:
    same = ("microcode", "kernel_release", "base_page_bytes", "page_table_levels")
    return {name: getattr(host, name) for name in same} | {
        "boot": " ".join(host.boot), "thp": host.thp_setting, "smt": host.noise.smt, "governor": host.noise.governor,
        "turbo": host.noise.turbo, "host_tables": host.kvm.tables if host.kvm else None, "counter_tier": host.pmu.tier,
        "mitigations": sorted(host.mitigations.items())}


def _host_pages(rows: list[Stored], host: Host | None) -> dict[str, str | None]:
    """Whether the host splinters large pages, by the chase's rows in this state (inference/splinter.py); the reason where they do not
    tell."""
    chase = [stored for stored in rows if stored.record.kernel == "page_chase"]
    if not chase or host is None:
        return {"host_pages": None, "host_pages_evidence": "no-data"}
    frame = newest(columns.frame([stored.record for stored in chase], [stored.kernel_digest for stored in chase]))
    backing = splinter.backing(kernels.with_defaults(of_one_engine(frame, (), "c")), host.hypervisor)
    return {"host_pages": backing.verdict, "host_pages_evidence": backing.evidence}


def _profile(given: Input) -> Iterator[dict[str, Any]]:
    from experiments.front.profile import Profile  # which brings all chapters: who asks an atlas does not wait for them

    known = if_available(_document, given, "translation", Profile)
    for quantity in known.quantities if known else ():
        yield {"machine": given.machine, **quantity.model_dump()}


def _verdicts(given: Input) -> Iterator[dict[str, Any]]:
    from experiments.front.judged import Verdicts

    known = if_available(_document, given, "verdicts", Verdicts)
    for chapter, claims in known.chapters.items() if known else ():
        for claim, judged in claims.items():
            yield {"machine": given.machine, "chapter": chapter, "claim": claim, "measures": known.newest_measures(chapter),
                   **judged.model_dump(mode="json", exclude={"reason", "why"})}


def _document(given: Input, name: str, kind: type[BaseModel]) -> Any:
    try:
        return kind.model_validate(given.store.read_document(given.machine, name))
    except ValueError:
        raise Unavailable("no-data", f"{name}.json of {given.machine} is of another version") from None


