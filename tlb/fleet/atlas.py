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
from tlb.fleet import archive, check
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
PART_ROWS, GROUP_ROWS = (
    1 << 20,
    1 << 14,
)  # of a part of `rows`, which is sorted; of a row group, the least that a reader skips
FEW = 12  # inputs, for which no processes are started
# What questions pick first, so that the rest of a part is skipped by its row groups' bounds.
ORDER = ["mode", "layout", "pages", "order", "lines", "machine", "state", "key"]
_WHERE = [("machine", pa.string()), ("microarchitecture", pa.string())]
_BOUNDS = pa.list_(
    pa.struct([(end, pa.float64()) for end in ("value", "low", "high", "least", "most")])
)
_TYPES = {"is_latest": pa.bool_(), "effects": _BOUNDS} | {
    name: pa.int64() for name in ("base_page_bytes", "memory_bytes", "logical_cpus", "modes", "measures")
} | {name: pa.float64() for name in ("value", "low", "high", "coverage")}  # fmt: skip
_COLUMNS = {
    "machines": "state is_latest cpu_model hypervisor logical_cpus memory_bytes kernel_release base_page_bytes description measured_from "
                "measured_until host_pages host_pages_evidence",
    "profile": "name part words unit value low high coverage modes reason detail",
    "verdicts": "chapter claim verdict evidence effects measures",
}  # fmt: skip
SCHEMAS = {
    table: pa.schema([*_WHERE, *((name, _TYPES.get(name, pa.string())) for name in names.split())])
    for table, names in _COLUMNS.items()
}
Tables = dict[str, pa.Table]  # by name; those of rows by "kernel=..."


class Built(NamedTuple):
    """rows, machines, broken lines that were left out: how many; refused: why each input was left
    out that was."""

    rows: int
    machines: int
    broken: int
    refused: list[Unavailable]


def build(atlas: Path, paths: Sequence[Path]) -> Built:
    """Make an atlas of bundles and machines' folders, in the place of the one that was there.
    Inputs that are refused are left out.

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
    """Return the bundle or the machine's folder that a path names, or those that lie in it. Raises
    Unavailable("no-bundle")."""
    if path.is_file() or _is_machine(path):
        return [path]
    found = (
        [*path.glob(f"*{check.SUFFIX}"), *filter(_is_machine, path.iterdir())]
        if path.is_dir()
        else []
    )
    if not found:
        raise Unavailable("no-bundle", f"{path} is no bundle, no machine's folder, and holds none")
    return sorted(found)


def _is_machine(path: Path) -> bool:
    is_one = (
        path.is_dir()
        and not path.is_symlink()
        and MACHINE.fullmatch(path.name)
        and path.name not in RESERVED
    )
    return bool(is_one) and ((path / "machine.json").is_file() or any(path.glob("*.jsonl")))


def _write(folder: Path, read: Iterator[tuple[str, Tables, int] | Unavailable]) -> Built:
    waiting = {name: [schema.empty_table()] for name, schema in SCHEMAS.items()}
    machines, refused, rows, broken = set[str](), list[Unavailable](), 0, 0
    for found in read:
        if isinstance(found, Unavailable) or found[0] in machines:
            refused.append(
                found
                if isinstance(found, Unavailable)
                else Unavailable("bundle-known", f"{found[0]} from another input")
            )
            continue
        machines.add(found[0])
        broken += found[2]
        for name, table in found[1].items():
            waiting.setdefault(name, []).append(table)
            rows += len(table) if name not in SCHEMAS else 0
            if name not in SCHEMAS and sum(map(len, waiting[name])) >= PART_ROWS:
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
        table, path = (
            table.sort_by([(column, "ascending") for column in ORDER]),
            group / f"{len([*group.iterdir()])}.parquet",
        )
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)


def seal(folder: Path) -> None:
    """Write the manifest: the parts by size."""
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*.parquet"))
    }
    (folder / MANIFEST).write_text(
        json.dumps({"version": VERSION, "parts": sizes}), encoding="ascii"
    )


# --- an input


def _read(path: Path) -> tuple[str, Tables, int] | Unavailable:
    """Return a machine, its tables, and how many lines are broken; or why it is refused, with its
    name: of hundreds one has to be found."""
    try:
        if path.is_dir():
            return path.name, *_tables(Store(path.parent), path.name)
        bundle = check.opened(archive.read(path))
        with TemporaryDirectory() as folder:
            (Path(folder) / bundle.machine).mkdir()
            for name, content in bundle.files.items():
                (Path(folder) / bundle.machine / name).write_bytes(content)
            return bundle.machine, *_tables(Store(folder), bundle.machine)
    except Unavailable as why:
        return Unavailable(why.code, f"{path}: {why.detail}")


def _tables(store: Store, machine: str) -> tuple[Tables, int]:
    latest = if_available(states.latest, store, machine)
    where = {
        "machine": machine,
        "microarchitecture": re.sub(r"[^a-z0-9]+", "-", latest.microarchitecture.lower())
        if latest
        else "unknown",
    }
    tables, frames = {}, []
    for kernel, rows in store.whole(machine).items():
        kept: dict[str, Stored] = {}
        for row, _ in rows:
            if row.record.kernel == kernel and (
                row.key not in kept or row.record.counts_more_than(kept[row.key].record)
            ):
                kept[row.key] = row
        frame = columns.frame(
            [row.record for row in kept.values()], [row.kernel_digest for row in kept.values()]
        )
        histograms = [json.dumps(row.record.histogram) for row in kept.values()]
        frames.append(
            frame.assign(
                key=[*kept],
                point=[row.point for row in kept.values()],
                histogram=histograms,
                **where,
            )
        )
        tables[f"kernel={kernel}"] = pa.Table.from_pandas(
            frames[-1].drop(columns="kernel"), preserve_index=False
        ).replace_schema_metadata()
    described = _machines(
        store,
        machine,
        pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"state": []}),
        latest,
    )
    for name, each in (
        ("machines", described),
        ("profile", _profile(store, machine)),
        ("verdicts", _verdicts(store, machine)),
    ):
        tables[name] = pa.Table.from_pylist([where | row for row in each], schema=SCHEMAS[name])
    return tables, sum(store.broken(machine).values())


def _machines(
    store: Store, machine: str, rows: pd.DataFrame, latest: Host | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each state that there are rows of, and for that of machine.json. What no
    state changes is known of all."""
    states_of = {*rows["state"]} | ({hosts.state(latest)} if latest else set())
    last = rows.loc[rows["started_at"].sort_values().index[-1], "state"] if len(rows) else None
    for state in sorted(states_of):
        own, host = (
            rows[rows["state"] == state],
            if_available(states.described, store, machine, state),
        )
        row: dict[str, Any] = {
            "state": state,
            "is_latest": state == last or len(states_of) == 1,
            **_host_pages(own, host or latest),
        }
        if known := host or latest:
            row |= {
                name: getattr(known, name) for name in ("cpu_model", "hypervisor", "logical_cpus")
            }
            row["memory_bytes"] = known.memory.total_bytes
        if host:
            row |= {
                "kernel_release": host.kernel_release,
                "base_page_bytes": host.base_page_bytes,
                "description": host.model_dump_json(),
            }
        if len(own):
            row |= {
                "measured_from": own["started_at"].min(),
                "measured_until": own["started_at"].max(),
            }
        yield row


def _host_pages(rows: pd.DataFrame, host: Host | None) -> dict[str, str | None]:
    """Say whether the host splinters large pages, by the chase's rows in this state
    (inference/splinter.py), or why that is unknown."""
    chase = rows[rows["kernel"] == "page_chase"] if len(rows) else rows
    if not len(chase) or host is None:
        return {"host_pages": None, "host_pages_evidence": "no-data"}
    backing = splinter.backing(
        kernels.with_defaults(of_one_engine(newest(chase), (), "c")), host.hypervisor
    )
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
        for claim, verdict in claims.items():
            yield verdict.model_dump(mode="json") | {
                "chapter": chapter,
                "claim": claim,
                "measures": verdicts.newest_measures(chapter),
            }
