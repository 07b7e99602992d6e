"""`tlb atlas bench`: how fast an atlas is built from machines in the ledger's format, and how long each question takes over many rows.

The machines are those of data/ under other names, their times perturbed and each line signed anew, so that nothing is read twice. The large
atlas is what was built of them, part by part, again and again: other machines, other keys, other times; every tenth copy is of the machines
before it under another Linux. What no question reads is left empty in it (batches, histograms, counters, own results), for the sake of disk
and time: the first table says what a whole row takes. Nothing is asserted: times vary.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.fleet import atlas_ask, atlas_build
from experiments.fleet.atlas_build import MANIFEST, Manifest, Part, texts
from experiments.fleet.atlas_inputs import Staged
from experiments.fleet.atlas_plan import MOST_ROWS, WRITER
from experiments.fleet.atlas_questions import QUESTIONS
from experiments.fleet.atlas_schema import MACHINES, ORDER, PROFILE, ROWS
from experiments.lab import lines
from experiments.lab.store import Store, data_root
from experiments.system.files import disk_errors
from experiments.words.prose import count
from experiments.words.reasons import Unavailable

EMPTIED = ("batch_ns_per_access", "histogram", "counters", "also")
ROW_BYTES = 60  # of a row without these, at most, by what data/ has: what the disk is looked at for beforehand
FLEET = 100_000  # machines of the plan
NOISE = 0.05  # of a perturbed time, as a part of it
EVERY = 10  # of so many copies one is of the machines before it, under another Linux


def bench(folder: Path, rows: int, bundles: int) -> Iterator[str | pd.DataFrame]:
    """Raises Unavailable: bad-parameter, disk-full, no-atlas for a folder that is there."""
    if rows < 1 or bundles < 1:
        raise Unavailable("bad-parameter", "a bench takes a row and a bundle at least")
    if folder.exists():
        raise Unavailable("no-atlas", f"{folder} is there already, and a bench removes what it made: name another one")
    with disk_errors(folder):
        folder.mkdir(parents=True)
    try:
        yield from _bench(folder, rows, bundles)
    finally:
        shutil.rmtree(folder)


def _bench(folder: Path, rows: int, bundles: int) -> Iterator[str | pd.DataFrame]:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        known = Store(data_root()).machines()
        each = [(known[n % len(known)], f"{known[n % len(known)].rpartition('-')[0]}-{n:08x}") for n in range(bundles)]
        list(pool.map(partial(_machine, folder / "data"), each))
    bytes_read = sum(path.stat().st_size for path in (folder / "data").glob("*/*"))
    start = time.perf_counter()
    manifest = atlas_build.build(folder / "atlas", [folder / "data"]).manifest
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    _machine(folder / "more", (known[0], f"{known[0].rpartition('-')[0]}-ffffffff"))
    made = time.perf_counter()
    added = atlas_build.build(folder / "atlas", [folder / "more"])
    yield f"{count(bundles)} machines of {bytes_read / bundles / 1e6:.1f} MB, built by {os.cpu_count()} processes"
    of_rows, beside = (sum(part.size_bytes for part in manifest.parts if (part.table == ROWS) is whether) for whether in (True, False))
    yield pd.DataFrame([{
        "rows": count(manifest.rows), "s": f"{seconds:.0f}", "rows/s": count(manifest.rows / seconds),
        "parts": len(manifest.parts), "B/row": f"{of_rows / manifest.rows:.0f}",
        "MB beside rows": f"{beside / 1e6:.1f}", "manifest, MB": f"{(folder / 'atlas' / MANIFEST).stat().st_size / 1e6:.2f}",
        "one more, s": f"{time.perf_counter() - made:.1f}", "of it parts": added.new_parts}])
    yield f"By these, {count(FLEET)} machines take"
    inputs = len(json.dumps(manifest.model_dump()["inputs"], separators=(",", ":")))
    yield planned(manifest.rows / seconds / (os.cpu_count() or 1), of_rows / manifest.rows, beside / bundles, inputs / bundles,
                  manifest.rows / bundles)
    shutil.rmtree(folder / "data")
    yield from _large(folder, rows)


def _large(folder: Path, rows: int) -> Iterator[str | pd.DataFrame]:
    before = atlas_build.read(folder / "atlas")
    copies = math.ceil(rows / before.rows)
    if shutil.disk_usage(folder).free < 1.2 * ROW_BYTES * rows:
        raise Unavailable("disk-full", f"{folder}: {count(rows)} rows take {ROW_BYTES * rows / 1e9:.0f} GB")
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        parts = [part for made in pool.map(partial(_copied, folder / "atlas", folder / "large", copies), before.parts) for part in made]
    inputs = {f"{n:016x}": Staged(machine=_renamed(staged.machine, copy), microarchitecture=staged.microarchitecture,
                                  measured_until=staged.measured_until, rows={})
              for n, (staged, copy) in enumerate((staged, copy) for staged in before.inputs.values() for copy in range(copies))}
    large = Manifest(inputs=inputs, parts=tuple(sorted(parts, key=lambda part: part.path)))
    (folder / "large" / MANIFEST).write_text(json.dumps(large.model_dump()))
    seconds = time.perf_counter() - start
    size = sum(part.size_bytes for part in parts)
    machines = len({staged.machine for staged in inputs.values()})
    yield (f"{count(large.rows)} rows of {count(machines)} machines in {count(len(parts))} parts, "
           f"{size / 1e9:.1f} GB, written at {count(large.rows / seconds)} rows/s; each question in a process of its own, with "
           f"{atlas_ask.MEMORY} and {atlas_ask.THREADS} threads for DuckDB")
    told = []
    for name in QUESTIONS:
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            told.append({"question": name} | alone.submit(_asked, folder / "large", QUESTIONS[name].sql).result())
    yield pd.DataFrame(told)


def _asked(atlas: Path, sql: str) -> dict[str, Any]:
    """Seconds to open and to ask, the most memory that the whole process took, what it read of the disk or its cache."""
    before, start = _bytes_read(), time.perf_counter()
    with atlas_ask.opened(atlas) as connection:
        opened = time.perf_counter()
        rows = len(list(atlas_ask.ask(connection, sql)))
        asked = time.perf_counter()
    peak = int(_field("status", "VmHWM:")) / 1024  # not getrusage's, which begins at the parent's
    return {"rows": count(rows), "open, s": f"{opened - start:.2f}", "ask, s": f"{asked - opened:.2f}", "peak, MiB": count(peak),
            "read, MB": f"{(_bytes_read() - before) / 1e6:.1f}"}


def _bytes_read() -> int:
    return int(_field("io", "rchar:"))


def _field(file: str, name: str) -> str:
    return next(line.split()[1] for line in Path("/proc/self", file).read_text("ascii").splitlines() if line.startswith(name))


def planned(rate: float, row_bytes: float, beside_bytes: float, machine_bytes: float, machine_rows: float) -> pd.DataFrame:
    """What FLEET machines take, by what was measured of fewer. rate: rows/s of one core; row_bytes: of Parquet a row; beside_bytes: of the
    other tables, and machine_bytes: of the manifest, a machine."""
    rows = FLEET * machine_rows
    return pd.DataFrame([{
        "machines": count(FLEET), "rows": f"{rows:.1e}", "core hours, once": count(rows / rate / 3600),
        "core s, a machine": f"{machine_rows / rate:.1f}", "rows, GB": count(rows * row_bytes / 1e9),
        "beside rows, GB": f"{FLEET * beside_bytes / 1e9:.1f}", "manifest, MB": count(FLEET * machine_bytes / 1e6),
        "parts": count(1.4 * rows / MOST_ROWS)}])  # halving leaves them 70 % full


# --- machines that never were


def _machine(folder: Path, names: tuple[str, str]) -> None:
    """A machine of data/ under another name, all times by one factor and noise faster or slower."""
    known, name = names
    rng = random.Random(name)
    factor = math.exp(rng.gauss(0, 0.1))
    (folder / name).mkdir(parents=True)
    for path in (data_root() / known).iterdir():
        if path.suffix == ".jsonl":
            with (folder / name / path.name).open("wb") as file:
                for line in path.read_bytes().splitlines():
                    file.write(lines.signed(_perturbed(json.loads(line), factor * math.exp(rng.gauss(0, NOISE)))))
        elif path.stem in ("machine", "translation", "verdicts"):
            shutil.copy(path, folder / name)


def _perturbed(content: dict[str, Any], factor: float) -> dict[str, Any]:
    record = content["record"]
    record["ns_per_access"] *= factor
    record["batch_ns_per_access"] = [float(f"{ns * factor:.6g}") for ns in record["batch_ns_per_access"]]  # as kernels print them
    return {name: value for name, value in content.items() if name != "digest"}


def _renamed(machine: str, copy: int) -> str:
    return f"{machine}-{copy - _is_later(copy):05}"


def _copied(source: Path, target: Path, copies: int, part: Part) -> list[Part]:
    """The parts that the copies of a part make, each as full as `atlas_plan` has them."""
    table = pq.read_table(source / part.path, partitioning=None)
    for name in set(EMPTIED) & set(table.column_names):
        table = _put(table, name, pa.array([[]] * len(table), table.schema.field(name).type))
    (target / part.path).parent.mkdir(parents=True, exist_ok=True)
    together = max(1, int(0.7 * MOST_ROWS) // len(table))
    which = [copy for copy in range(copies) if part.table in (ROWS, MACHINES) or not _is_later(copy)]
    return [_together(target, table, which[first : first + together], part) for first in range(0, len(which), together)]


def _together(target: Path, table: pa.Table, copies: list[int], part: Part) -> Part:
    made = pa.concat_tables(_copy(table, copy, part) for copy in copies).sort_by([(name, "ascending") for name in ORDER[part.table]])
    path = f"{part.path.removesuffix('.parquet')[:-8]}{copies[0]:08x}.parquet"
    pq.write_table(made, target / path, use_dictionary=texts(table.schema), **WRITER)
    return Part(path=path, rows=len(made), size_bytes=(target / path).stat().st_size, sha256="")


def _is_later(copy: int) -> bool:
    """Whether a copy is of the machines of the one before it; a machine has one profile."""
    return copy % EVERY == EVERY - 1


def _copy(table: pa.Table, copy: int, part: Part) -> pa.Table:
    rng = np.random.default_rng([copy, int(part.sha256[:8], 16)])
    changed = _put(table, "machine", pa.array([_renamed(name, copy) for name in table["machine"].to_pylist()]))
    for name in ("ns_per_access",) if part.table == ROWS else ("value", "low", "high") if part.table == PROFILE else ():
        changed = _put(changed, name, pc.multiply(table[name], pa.array(np.exp(rng.normal(0, NOISE, len(table))))))
    if part.table == ROWS:
        changed = _put(changed, "key", _keys(rng, len(table)))
    if _is_later(copy) and part.table in (ROWS, MACHINES):
        changed = _put(changed, "state", pc.utf8_reverse(table["state"]))
        for name in {"started_at", "measured_from", "measured_until"} & set(table.column_names):
            changed = _put(changed, name, pc.add(table[name], pa.scalar(86_400, pa.duration("s"))))
        if part.table == MACHINES:
            changed = _put(changed, "kernel_release", pc.binary_join_element_wise(table["kernel_release"], "next", "-"))
    return changed


def _put(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)


def _keys(rng: np.random.Generator, number: int) -> pa.Array:
    """As many keys of 16 hex digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, 16 * number, np.uint8)]
    offsets = np.arange(0, 16 * (number + 1), 16, dtype=np.int32)
    return pa.StringArray.from_buffers(number, pa.py_buffer(offsets), pa.py_buffer(digits))
