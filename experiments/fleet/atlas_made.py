"""Machines that never were, for `tlb atlas bench`: bundles by which the proof is paid for as by any, and parts of a large atlas.

A bundle is of a machine of data/ whose system was installed on another computer, with times of its own and each line signed anew, so that
nothing is read twice and every rule of a bundle holds. The large atlas is what was built of them, part by part, again and again: other
machines, other keys, other times; every tenth copy is of the machines before it under another Linux. What no question reads is left empty
in it (batches, histograms, counters, own results), for the sake of disk and time.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.fleet import bundle, documents, packing, sealed
from experiments.fleet.atlas_build import Part, texts
from experiments.fleet.atlas_plan import MEAN_ROWS, WRITER
from experiments.fleet.atlas_schema import MACHINES, ORDER, PROFILE, ROWS
from experiments.lab import lines
from experiments.lab.store import Store, data_root
from experiments.machine import host as hosts

EMPTIED = ("batch_ns_per_access", "histogram", "counters", "also")
NOISE = 0.05  # of a perturbed time, as a part of it
APART = 0.1  # of two machines' times, as a part of them
EVERY = 10  # of so many copies one is of the machines before it, under another Linux
_TIMES = ("elapsed_ns", "prepare_ns", "wall_ns")


def packed(folder: Path, machine: str) -> Path:
    """A folder with what a bundle of a machine of data/ holds. Raises Unavailable, as `packing.pack` does."""
    (own := folder / machine).mkdir(parents=True)
    for name, content in packing.pack(Store(data_root()), machine).files.items():
        (own / name).write_bytes(content)
    return own


def made(folder: Path, model: Path, number: int) -> int:
    """Writes the bundle of a machine that never was, which is as `check-bundle` wants it; its bytes unpacked."""
    rng = random.Random(number)
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    machine = ""
    for name in sorted(files):
        if name.endswith(".jsonl"):
            slower = math.exp(abs(rng.gauss(0, APART)))  # never faster, which some core may not be
            files[name] = b"".join(_slower(json.loads(line), slower * math.exp(abs(rng.gauss(0, NOISE))))
                                   for line in files[name].splitlines())
        elif documents.DESCRIPTION.fullmatch(Path(name).stem):
            host = documents.host(name, files[name]).model_copy(update={"installation": f"{number:016x}"})
            machine = hosts.machine_id(host)
            files[name] = documents.written(host.model_dump(mode="json"))
    (folder / f"{machine}{bundle.SUFFIX}").write_bytes(sealed.sealed(machine, files))
    return sum(map(len, files.values()))


def _slower(content: dict[str, Any], factor: float) -> bytes:
    record = content["record"]
    record["ns_per_access"] *= factor
    record["batch_ns_per_access"] = [float(f"{ns * factor:.6g}") for ns in record["batch_ns_per_access"]]  # as kernels print them
    for name in _TIMES:  # whole, as a float where it is one; the process takes one more, for the two that are in it
        record[name] = type(record[name])(math.ceil(record[name] * factor) + (name == "wall_ns"))
    return lines.signed({name: value for name, value in content.items() if name != "digest"})


# --- parts of a large atlas


def renamed(machine: str, copy: int) -> str:
    return f"{machine}-{copy - is_later(copy):05}"


def is_later(copy: int) -> bool:
    """Whether a copy is of the machines of the one before it; a machine has one profile."""
    return copy % EVERY == EVERY - 1


def copied(source: Path, target: Path, copies: int, part: Part) -> list[Part]:
    """The parts that the copies of a part make, each as full as `atlas_plan` has them."""
    table = pq.read_table(source / part.path, partitioning=None)
    for name in set(EMPTIED) & set(table.column_names):
        table = _put(table, name, pa.array([[]] * len(table), table.schema.field(name).type))
    (target / part.path).parent.mkdir(parents=True, exist_ok=True)
    together = max(1, int(MEAN_ROWS) // len(table))
    which = [copy for copy in range(copies) if part.table in (ROWS, MACHINES) or not is_later(copy)]
    return [_together(target, table, which[first : first + together], part) for first in range(0, len(which), together)]


def _together(target: Path, table: pa.Table, copies: list[int], part: Part) -> Part:
    whole = pa.concat_tables(_copy(table, copy, part) for copy in copies).sort_by([(name, "ascending") for name in ORDER[part.table]])
    path = f"{part.path.removesuffix('.parquet')[:-8]}{copies[0]:08x}.parquet"
    pq.write_table(whole, target / path, use_dictionary=texts(table.schema), **WRITER)
    return Part(path=path, rows=len(whole), size_bytes=(target / path).stat().st_size, sha256="")


def _copy(table: pa.Table, copy: int, part: Part) -> pa.Table:
    rng = np.random.default_rng([copy, int(part.sha256[:8], 16)])
    changed = _put(table, "machine", pa.array([renamed(name, copy) for name in table["machine"].to_pylist()]))
    for name in ("ns_per_access",) if part.table == ROWS else ("value", "low", "high") if part.table == PROFILE else ():
        changed = _put(changed, name, pc.multiply(table[name], pa.array(np.exp(rng.normal(0, NOISE, len(table))))))
    if part.table == ROWS:
        changed = _put(changed, "key", _keys(rng, len(table)))
    if is_later(copy) and part.table in (ROWS, MACHINES):
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
