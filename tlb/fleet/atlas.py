"""`tlb atlas build`: Parquet of many machines, from bundles and folders of data/.

`rows` are the ledger's, flat as analyses read them; `machines` is what a computer was in each state
that it has rows of; `profile` and `verdicts` are its translation.json and verdicts.json, a quantity
and a claim a row. NULL was not stated or not measured.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tlb import discovery
from tlb.fleet import archive, check, pack
from tlb.inference import splinter
from tlb.inference.campaigns import newest
from tlb.lab import columns, kernels, states
from tlb.lab.lines import Stored
from tlb.lab.rows import of_one_engine
from tlb.lab.store import MACHINE, RESERVED, Store
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.reasons import Unavailable, if_available
from tlb.system.files import disk_errors, put_folder, unfinished
from tlb.system.processes import workers

profile, judged = discovery.load("overview.profile"), discovery.load("overview.judged")

VERSION, MANIFEST = 4, "manifest.json"
PART_ROWS = 1 << 20  # of a part of `rows`, which is sorted
GROUP_ROWS = 1 << 14  # of a row group, the least that a reader skips
FEW = 12  # inputs, for which no processes are started
# What questions pick first, so that the rest of a part is skipped by its row groups' bounds.
ORDER = ["mode", "layout", "pages", "order", "lines", "machine", "state", "key"]
_BOUNDS = [(end, pa.float64()) for end in ("value", "low", "high", "least", "most")]
_INTEGERS = ("base_page_bytes", "memory_bytes", "logical_cpus", "modes", "measures")
_TYPES = {"is_latest": pa.bool_(), "effects": pa.list_(pa.struct(_BOUNDS))}
_TYPES |= dict.fromkeys(_INTEGERS, pa.int64())
_TYPES |= dict.fromkeys(("value", "low", "high", "coverage"), pa.float64())
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
    """How many rows and machines it has, and broken lines it lacks; refused: why each input was
    left out that was."""

    rows: int
    machines: int
    broken: int
    refused: list[Unavailable]


def build(atlas: Path, paths: Sequence[Path]) -> Built:
    """Make an atlas of bundles and machines' folders, in the place of the one that was there, and
    leave out inputs that are refused.

    Raises Unavailable: no-bundle for a path without inputs, no-atlas for a folder that holds
    something else, disk-full, disk-read-only, and what the first input was refused for if all were;
    then the atlas is as it was.
    """
    given = [path for named in paths for path in inputs(named)]
    new, aside = (atlas.with_name(f".{atlas.name}.{word}") for word in ("new", "old"))
    with disk_errors(atlas), workers() if len(given) > FEW else nullcontext() as pool:
        if atlas.exists() and any(atlas.iterdir()) and not (atlas / MANIFEST).is_file():
            raise Unavailable("no-atlas", f"{atlas} holds something else")
        unfinished(atlas, aside)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            built = _write(new, (pool.map if pool else map)(_read, given))
            if not built.machines:
                raise built.refused[0]
            put_folder(new, atlas, aside)
            return built
        finally:
            shutil.rmtree(new, ignore_errors=True)


def inputs(path: Path) -> list[Path]:
    """Return the bundle or the machine's folder that a path names, or those in it. Raises
    Unavailable("no-bundle")."""
    if path.is_file() or _is_machine(path):
        return [path]
    inside = [*path.iterdir()] if path.is_dir() else []
    found = [each for each in inside if each.name.endswith(check.SUFFIX) or _is_machine(each)]
    if not found:
        raise Unavailable("no-bundle", f"{path} is no bundle, no machine's folder, and holds none")
    return sorted(found)


def _is_machine(path: Path) -> bool:
    if path.is_symlink() or path.name in RESERVED or not MACHINE.fullmatch(path.name):
        return False
    return (path / "machine.json").is_file() or any(path.glob("*.jsonl"))


def _write(folder: Path, read: Iterator[tuple[str, Tables, int] | Unavailable]) -> Built:
    waiting = {name: [schema.empty_table()] for name, schema in SCHEMAS.items()}
    machines, refused, rows, broken = set[str](), list[Unavailable](), 0, 0
    for found in read:
        if isinstance(found, Unavailable):
            refused.append(found)
            continue
        machine, tables, lost = found
        if machine in machines:
            refused.append(Unavailable("bundle-known", f"{machine} from another input"))
            continue
        machines.add(machine)
        broken += lost
        for name, table in tables.items():
            waiting.setdefault(name, []).append(table)
            if name not in SCHEMAS:
                rows += len(table)
                if sum(map(len, waiting[name])) >= PART_ROWS:
                    put(folder, name, waiting.pop(name))
    for name, tables in waiting.items():
        put(folder, name, tables)
    seal(folder)
    return Built(rows, len(machines), broken, refused)


def put(folder: Path, name: str, tables: list[pa.Table]) -> None:
    """Write a table, or the next part of one kernel's rows."""
    table, path = pa.concat_tables(tables, promote_options="default"), folder / f"{name}.parquet"
    if name not in SCHEMAS:
        (group := folder / "rows" / name).mkdir(parents=True, exist_ok=True)
        table = table.sort_by([(column, "ascending") for column in ORDER])
        path = group / f"{len([*group.iterdir()])}.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)


def seal(folder: Path) -> None:
    """Write the manifest: the parts with their sizes."""
    parts = sorted(folder.rglob("*.parquet"))
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in parts}
    manifest = json.dumps({"version": VERSION, "parts": sizes})
    (folder / MANIFEST).write_text(manifest, encoding="ascii")


def _read(path: Path) -> tuple[str, Tables, int] | Unavailable:
    """Return a machine, its tables, and the number of broken lines; or why it is refused, with its
    path."""
    try:
        if path.is_dir():
            return path.name, *_tables(Store(path.parent), path.name)
        bundle = check.opened(archive.read(path))
        with TemporaryDirectory() as folder:
            store = pack.staged(Path(folder), bundle.machine, bundle.files)
            return bundle.machine, *_tables(store, bundle.machine)
    except Unavailable as why:
        return Unavailable(why.code, f"{path}: {why.detail}")


def _tables(store: Store, machine: str) -> tuple[Tables, int]:
    latest = if_available(states.latest, store, machine)
    name = re.sub(r"[^a-z0-9]+", "-", latest.microarchitecture.lower()) if latest else "unknown"
    where = {"machine": machine, "microarchitecture": name}
    tables, frames = {}, [pd.DataFrame({"state": []})]
    for kernel, rows in store.whole(machine).items():
        kept: dict[str, Stored] = {}
        for row, _ in rows:
            if row.record.kernel != kernel:
                continue
            known = kept.setdefault(row.key, row)
            if row.record.counts_more_than(known.record):
                kept[row.key] = row
        records = [row.record for row in kept.values()]
        frame = columns.frame(records, [row.kernel_digest for row in kept.values()]).assign(
            key=[*kept],
            point=[row.point for row in kept.values()],
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
        "verdicts": _verdicts(store, machine),
    }
    for name, each in described.items():
        tables[name] = pa.Table.from_pylist([where | row for row in each], schema=SCHEMAS[name])
    return tables, sum(store.broken(machine).values())


def _machines(
    store: Store, machine: str, rows: pd.DataFrame, latest: Host | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each state that there are rows of, and for that of machine.json. Facts that
    no state changes are those of the latest description."""
    every = {*rows["state"]} | ({hosts.state(latest)} if latest else set())
    last = rows.loc[rows["started_at"].sort_values().index[-1], "state"] if len(rows) else None
    for state in sorted(every):
        own, host = (
            rows[rows["state"] == state],
            if_available(states.described, store, machine, state),
        )
        row = {"state": state, "is_latest": state == last or len(every) == 1}
        row |= _host_pages(own, host or latest)
        if known := host or latest:
            row |= {
                name: getattr(known, name) for name in ("cpu_model", "hypervisor", "logical_cpus")
            }
            row["memory_bytes"] = known.memory.total_bytes
        if host:
            row |= {name: getattr(host, name) for name in ("kernel_release", "base_page_bytes")}
            row["description"] = host.model_dump_json()
        if len(own):
            began = own["started_at"]
            row |= {"measured_from": began.min(), "measured_until": began.max()}
        yield row


def _host_pages(rows: pd.DataFrame, host: Host | None) -> dict[str, str | None]:
    """Return whether the host splinters large pages, by the chase's rows in this state
    (inference/splinter.py), or why that is unknown."""
    chase = rows[rows["kernel"] == "page_chase"] if len(rows) else rows
    if not len(chase) or host is None:
        return {"host_pages": None, "host_pages_evidence": "no-data"}
    chase = kernels.with_defaults(of_one_engine(newest(chase), (), "c"))
    backing = splinter.backing(chase, host.hypervisor)
    return {"host_pages": backing.verdict, "host_pages_evidence": backing.evidence}


def _document(store: Store, machine: str, name: str, kind: Any) -> Any:
    """Return a document, None for one that is lacking or of another version."""
    try:
        return kind.model_validate(store.read_document(machine, name))
    except (ValueError, Unavailable):
        return None


def _profile(store: Store, machine: str) -> list[dict[str, Any]]:
    document = _document(store, machine, profile.NAME, profile.Profile)
    return [quantity.model_dump() for quantity in document.quantities] if document else []


def _verdicts(store: Store, machine: str) -> Iterator[dict[str, Any]]:
    verdicts = _document(store, machine, "verdicts", judged.Verdicts)
    for chapter, claims in verdicts.chapters.items() if verdicts else ():
        measures = verdicts.newest_measures(chapter)
        for claim, verdict in claims.items():
            row = {"chapter": chapter, "claim": claim, "measures": measures}
            yield verdict.model_dump(mode="json") | row
