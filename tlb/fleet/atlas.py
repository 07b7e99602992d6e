"""`tlb atlas build`: Parquet of many machines, from bundles and folders of data/.

`rows` are the ledger's, flat as analyses read them; `machines` describes a computer in each state
that it has rows of; `profile` is its translation.json, a quantity a row, and
`verdicts`, a claim a row, follow from the rows of a machine in a folder. NULL means not stated or not measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tlb.fleet import accept, archive, check
from tlb.fleet.ask import VERSION, VERSION_FILE
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import columns, kernels, states
from tlb.measure.last_campaign import last_campaign
from tlb.measure.record import point_id
from tlb.measure.row_selection import rows_of_one_engine
from tlb.measure.store import Store
from tlb.report import discovery, parameters
from tlb.report.chapter import Chapter
from tlb.stats import splinter
from tlb.system.files import new_folder
from tlb.system.reasons import Unavailable, if_available

profile = discovery.load("overview.profile")
machine_verdicts = discovery.load("overview.machine_verdicts")

PART_ROWS = 1 << 20  # rows of a kernel that are sorted together, in memory
GROUP_ROWS = 1 << 14  # of a row group, the least that a reader skips
# What questions select first, so that other row groups of a part are skipped by their bounds.
ORDER = ["mode", "layout", "pages", "order", "lines", "machine", "state", "key"]
_BOUNDS = [(end, pa.float64()) for end in ("value", "low", "high", "least", "most")]
_TYPES = {"is_latest": pa.bool_(), "effects": pa.list_(pa.struct(_BOUNDS))}
for _name in ("base_page_bytes", "memory_bytes", "logical_cpus", "modes", "measures"):
    _TYPES[_name] = pa.int64()
for _name in ("value", "low", "high", "coverage"):
    _TYPES[_name] = pa.float64()
_COLUMNS = {
    "machines": "state is_latest cpu_model hypervisor logical_cpus memory_bytes kernel_release "
    "base_page_bytes description measured_from measured_until host_pages host_pages_evidence",
    "profile": "name part words unit value low high coverage modes reason detail",
    "verdicts": "chapter claim verdict evidence effects measures",
}
SCHEMAS = {
    table: pa.schema(
        (name, _TYPES.get(name, pa.string()))
        for name in ("machine", "microarchitecture", *names.split())
    )
    for table, names in _COLUMNS.items()
}
Tables = dict[str, pa.Table]  # by name; those of rows by "kernel=..."


class Built(NamedTuple):
    """Numbers of rows and machines; refused: why each refused input was."""

    rows: int
    machines: int
    refused: list[Unavailable]


def build(atlas: Path, paths: Sequence[Path]) -> Built:
    """Replace an atlas by one of these bundles and machines' folders, without those that are
    refused.

    Raises Unavailable: no-bundle for a path without inputs, no-atlas for a folder that holds
    something else, disk-full, disk-read-only, and the first refusal if all inputs are refused;
    then the atlas is as it was.
    """
    given = [path for named in paths for path in inputs(named)]
    with new_folder(atlas) as made:
        if atlas.exists() and any(atlas.iterdir()) and not (atlas / VERSION_FILE).is_file():
            raise Unavailable("no-atlas", f"{atlas} holds something else")
        made.mkdir()
        built = _write(made, given)
        if not built.machines:
            raise built.refused[0]
    return built


def inputs(path: Path) -> list[Path]:
    """Return the bundle or the machine's folder that a path names, or those in it. Raises
    Unavailable("no-bundle")."""
    if path.is_file() or path.name in Store(path.parent).machines():
        return [path]
    found = [path / machine for machine in Store(path).machines()]
    found += path.glob(f"*{check.SUFFIX}")
    if not found:
        raise Unavailable("no-bundle", f"{path} is no bundle, no machine's folder, and holds none")
    return sorted(found)


def _write(folder: Path, paths: Sequence[Path]) -> Built:
    waiting = {name: [schema.empty_table()] for name, schema in SCHEMAS.items()}
    machines, refused, rows = set[str](), list[Unavailable](), 0
    for path in paths:
        try:
            machine, tables = _read(path)
            if machine in machines:
                raise Unavailable("bundle-known", f"{machine} is there from another input")
        except Unavailable as why:
            refused.append(Unavailable(why.code, f"{path}: {why.detail}"))
            continue
        machines.add(machine)
        for name, table in tables.items():
            waiting.setdefault(name, []).append(table)
            if name not in SCHEMAS:
                rows += len(table)
                if sum(map(len, waiting[name])) >= PART_ROWS:
                    put(folder, name, waiting.pop(name))
    for name, rest in waiting.items():
        put(folder, name, rest)
    return Built(rows, len(machines), refused)


def put(folder: Path, name: str, tables: list[pa.Table]) -> None:
    """Write a table, or the next part of one kernel's rows."""
    (folder / VERSION_FILE).write_text(VERSION, "ascii")
    table, path = pa.concat_tables(tables, promote_options="default"), folder / f"{name}.parquet"
    if name not in SCHEMAS:
        (group := folder / "rows" / name).mkdir(parents=True, exist_ok=True)
        table = table.sort_by([(column, "ascending") for column in ORDER])
        path = group / f"{len([*group.iterdir()])}.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)


def _read(path: Path) -> tuple[str, Tables]:
    """Return a machine and its tables."""
    if path.is_dir():
        store = Store(path.parent)
        tables = _tables(store, path.name)
        tables["verdicts"] = _verdicts(store, path.name)
        return path.name, tables
    bundle = check.opened(archive.read(path))
    with TemporaryDirectory() as folder:
        store = accept.staged(Path(folder), bundle.machine)
        accept.add(store, bundle)
        return bundle.machine, _tables(store, bundle.machine)


def _tables(store: Store, machine: str) -> Tables:
    latest = if_available(states.latest_description, store, machine)
    where = _where(machine, latest)
    tables, frames = {}, [pd.DataFrame({"state": []})]
    for kernel in store.kernels(machine):
        if not (records := [*store.records(machine, [kernel]).values()]):
            continue
        laid_out = [columns.flat_row(record.model_dump(mode="json")) for record in records]
        frame = columns.rows_frame(pd.DataFrame(laid_out)).assign(
            key=[record.key for record in records],
            point=[point_id(record.point) for record in records],
            histogram=[json.dumps(record.histogram) for record in records],
            **where,
        )
        frames.append(frame)
        table = pa.Table.from_pandas(frame.drop(columns="kernel"), preserve_index=False)
        tables[f"kernel={kernel}"] = table.replace_schema_metadata()
    frame = pd.concat(frames[1:] or frames, ignore_index=True)
    described = {
        "machines": _machines(store, machine, frame, latest),
        "profile": _profile(store, machine),
    }
    for name, each in described.items():
        tables[name] = pa.Table.from_pylist([where | row for row in each], schema=SCHEMAS[name])
    return tables


def _where(machine: str, latest: Host | None) -> dict[str, str]:
    name = re.sub(r"[^a-z0-9]+", "-", latest.microarchitecture.lower()) if latest else "unknown"
    return {"machine": machine, "microarchitecture": name}


def _machines(
    store: Store, machine: str, rows: pd.DataFrame, latest: Host | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each state that there are rows of, and for that of machine.json. Facts that
    no state changes are those of the latest description."""
    every = {*rows["state"]} | ({hosts.state(latest)} if latest else set())
    last = rows.loc[rows["started_at"].sort_values().index[-1], "state"] if len(rows) else None
    for state in sorted(every):
        own = rows[rows["state"] == state]
        host = if_available(states.description_of_state, store, machine, state)
        row = {"state": state, "is_latest": state == last or len(every) == 1}
        row |= _host_pages(own, host or latest)
        if known := host or latest:
            row |= {n: getattr(known, n) for n in ("cpu_model", "hypervisor", "logical_cpus")}
            row["memory_bytes"] = known.memory.total_bytes
        if host:
            row |= {n: getattr(host, n) for n in ("kernel_release", "base_page_bytes")}
            row["description"] = host.model_dump_json()
        if len(own):
            began = own["started_at"]
            row |= {"measured_from": began.min(), "measured_until": began.max()}
        yield row


def _host_pages(rows: pd.DataFrame, host: Host | None) -> dict[str, str | None]:
    """Return whether the host splinters large pages, by the chase's rows in this state
    (stats/splinter.py), or why that is unknown."""
    chase = rows[rows["kernel"] == "page_chase"] if len(rows) else rows
    if not len(chase) or host is None:
        return {"host_pages": None, "host_pages_evidence": "no-data"}
    chase = kernels.with_defaults(rows_of_one_engine(last_campaign(chase), (), "c"))
    backing = splinter.backing(chase, host.hypervisor)
    return {"host_pages": backing.verdict, "host_pages_evidence": backing.evidence}


def _profile(store: Store, machine: str) -> list[dict[str, Any]]:
    document = if_available(profile.read, store, machine)
    return [quantity.model_dump() for quantity in document.quantities] if document else []


def _verdicts(store: Store, machine: str) -> pa.Table:
    """Return the verdicts on all claims, which takes seconds."""
    given = parameters.check("scorecard", {"machine": machine, "minutes": 0.0})
    verdicts = machine_verdicts.judge_claims(Chapter("scorecard", given, store))
    where, rows = _where(machine, if_available(states.latest_description, store, machine)), []
    for chapter, claims in verdicts.chapters.items():
        measures = verdicts.newest_measures(chapter)
        for claim, verdict in claims.items():
            row = {"chapter": chapter, "claim": claim, "measures": measures}
            rows.append(where | asdict(verdict) | row)
    return pa.Table.from_pylist(rows, schema=SCHEMAS["verdicts"])
