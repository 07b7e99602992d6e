"""`tlb atlas bench`: how fast an atlas is built from bundles, how long each question takes over many rows, what a fleet would take by that.

The bundles and the rows are of machines that never were (fleet.atlas_made), some of whose columns are empty in the large atlas: the rate
and the bytes of a row are those of whole rows. Nothing is asserted: times vary. What was measured can be kept as the table that the page
about atlases shows (data/atlas.csv).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.fleet import atlas_ask, atlas_build, atlas_made
from experiments.fleet.atlas_build import MANIFEST, Manifest
from experiments.fleet.atlas_inputs import Staged
from experiments.fleet.atlas_plan import MEAN_ROWS
from experiments.fleet.atlas_questions import QUESTIONS
from experiments.fleet.atlas_schema import ROWS, VERDICTS
from experiments.lab.store import Store, data_root
from experiments.machine import host as hosts
from experiments.system import procfs
from experiments.system.files import ROOT, disk_errors, replace
from experiments.system.processes import workers
from experiments.words.prose import count
from experiments.words.reasons import Unavailable

ROW_BYTES = 60  # of a row of the large atlas, at most, by what data/ has: what the disk is looked at for beforehand
FLEET = 100_000  # machines of the plan
DAY = 1_000  # machines that a day brings to it
TABLE = ROOT / "data" / "atlas.csv"


class Asked(NamedTuple):
    """A question to the large atlas, in a process of its own. peak_bytes: of the whole process; read_bytes: of the disk or its cache."""

    rows: int
    opening_s: float
    asking_s: float
    peak_bytes: int
    read_bytes: int

    @property
    def seconds(self) -> float:
        return self.opening_s + self.asking_s


class Built(NamedTuple):
    """What a build took. bytes: of the bundles, packed and unpacked; of the parts with rows; of the manifest's inputs. more_s: of a build
    that adds one machine, and how many parts it wrote."""

    bundles: int
    packed_bytes: int
    unpacked_bytes: int
    rows: int
    seconds: float
    processes: int
    parts: int
    row_part_bytes: int
    input_bytes: int
    more_s: float
    more_parts: int

    @property
    def core_s(self) -> float:
        """Of a core, for a machine."""
        return self.seconds * self.processes / self.bundles


class Large(NamedTuple):
    """The atlas that was asked."""

    rows: int
    machines: int
    parts: int
    bytes: int
    seconds: float
    asked: dict[str, Asked]


def bench(folder: Path, rows: int, bundles: int, is_kept: bool = False) -> Iterator[str | pd.DataFrame]:
    """is_kept: the page's table is written. Raises Unavailable: bad-parameter, disk-full, no-atlas for a folder that is there."""
    if rows < 1 or bundles < 1:
        raise Unavailable("bad-parameter", "a bench takes a row and a bundle at least")
    if folder.exists():
        raise Unavailable("no-atlas", f"{folder} is there already, and a bench removes what it made: name another one")
    with disk_errors(folder):
        folder.mkdir(parents=True)
    try:
        built = _built(folder, bundles)
        yield (f"{count(bundles)} bundles of {built.packed_bytes / bundles / 1e6:.1f} MB ({built.unpacked_bytes / bundles / 1e6:.1f} MB "
               f"unpacked), checked and built by {built.processes} processes")
        yield pd.DataFrame([{
            "rows": count(built.rows), "s": f"{built.seconds:.0f}", "rows/s": count(built.rows / built.seconds), "parts": built.parts,
            "B/row": f"{built.row_part_bytes / built.rows:.0f}", "one more, s": f"{built.more_s:.1f}", "of it parts": built.more_parts}])
        large = _large(folder, rows)
        yield (f"{count(large.rows)} rows of {count(large.machines)} machines in {count(large.parts)} parts, {large.bytes / 1e9:.1f} GB, "
               f"written at {count(large.rows / large.seconds)} rows/s; each question in a process of its own, with {atlas_ask.MEMORY} and "
               f"{atlas_ask.THREADS} threads for DuckDB")
        yield pd.DataFrame([{
            "question": name, "rows": count(asked.rows), "open, s": f"{asked.opening_s:.2f}", "ask, s": f"{asked.asking_s:.2f}",
            "peak, MiB": count(asked.peak_bytes / 2**20), "read, MB": f"{asked.read_bytes / 1e6:.1f}"}
            for name, asked in large.asked.items()])
        yield f"By these, {count(FLEET)} machines take"
        told = planned(built, large, hosts.machine_id(hosts.inspect()))
        if is_kept:
            with disk_errors(TABLE):
                replace(TABLE, told.to_csv(index=False, lineterminator="\n").encode("ascii"))
        yield told
    finally:
        shutil.rmtree(folder)


def _built(folder: Path, bundles: int) -> Built:
    """Builds folder/atlas from bundles, and from one more."""
    (given := folder / "bundles").mkdir()
    (more := folder / "more").mkdir()
    with workers() as pool:
        models = list(pool.map(partial(atlas_made.packed, folder / "models"), Store(data_root()).machines()))
        unpacked = sum(pool.map(partial(atlas_made.made, given), islice(cycle(models), bundles), range(bundles)))
    packed = sum(path.stat().st_size for path in given.iterdir())
    atlas_made.made(more, models[0], bundles)
    (built, seconds), (added, more_s) = _timed(folder, given), _timed(folder, more)
    manifest = built.manifest
    of_rows = sum(part.size_bytes for part in manifest.parts if part.table == ROWS)
    inputs = len(json.dumps(manifest.model_dump()["inputs"], separators=(",", ":")))
    return Built(bundles, packed, unpacked, manifest.rows, seconds, os.cpu_count() or 1, len(manifest.parts), of_rows, inputs, more_s,
                 added.new_parts)


def _timed(folder: Path, given: Path) -> tuple[atlas_build.Built, float]:
    start = time.perf_counter()
    built = atlas_build.build(folder / "atlas", [given])
    seconds = time.perf_counter() - start
    shutil.rmtree(given)
    return built, seconds


def _large(folder: Path, rows: int) -> Large:
    """Copies folder/atlas, with the machines of data/ for their verdicts, until there are so many rows, and asks each question."""
    before = atlas_build.build(folder / "atlas", [data_root()]).manifest
    copies = math.ceil(rows / before.rows)
    if shutil.disk_usage(folder).free < 1.2 * ROW_BYTES * rows:
        raise Unavailable("disk-full", f"{folder}: {count(rows)} rows take {ROW_BYTES * rows / 1e9:.0f} GB")
    start = time.perf_counter()
    with workers() as pool:
        # Verdicts are worked out as a bundle comes into data/, so that of an atlas of bundles alone nobody would be asked.
        more = len(before.inputs) // len(Store(data_root()).machines())
        times = [copies * (more if part.table == VERDICTS else 1) for part in before.parts]
        copied = partial(atlas_made.copied, folder / "atlas", folder / "large")
        parts = [part for made in pool.map(copied, times, before.parts) for part in made]
    inputs = {f"{n:016x}": Staged(machine=atlas_made.renamed(staged.machine, copy), microarchitecture=staged.microarchitecture,
                                  measured_until=staged.measured_until, rows={})
              for n, (staged, copy) in enumerate((staged, copy) for staged in before.inputs.values() for copy in range(copies))}
    large = Manifest(inputs=inputs, parts=tuple(sorted(parts, key=lambda part: part.path)))
    (folder / "large" / MANIFEST).write_text(json.dumps(large.model_dump()))
    seconds = time.perf_counter() - start
    asked = {}
    for name in QUESTIONS:
        with workers(1) as alone:
            asked[name] = alone.submit(_asked, folder / "large", QUESTIONS[name].sql).result()
    return Large(large.rows, len({staged.machine for staged in inputs.values()}), len(parts), sum(part.size_bytes for part in parts),
                 seconds, asked)


def _asked(atlas: Path, sql: str) -> Asked:
    before, start = int(_of_this("io")["rchar"]), time.perf_counter()
    with atlas_ask.opened(atlas) as connection:
        opened = time.perf_counter()
        rows = len(list(atlas_ask.ask(connection, sql)))
        asked = time.perf_counter()
    peak = procfs.kib(_of_this("status")["VmHWM"])  # not getrusage's, which begins at the parent's
    assert peak
    return Asked(rows, opened - start, asked - opened, peak, int(_of_this("io")["rchar"]) - before)


def _of_this(file: str) -> dict[str, str]:
    return procfs.fields(procfs.text(Path("/proc/self", file)))


# --- the plan


def planned(built: Built, large: Large, machine: str) -> pd.DataFrame:
    """What FLEET machines take, by what was measured of fewer: in proportion to rows what is of rows, and to machines what is of machines.
    machine: which measured."""
    rows = FLEET * built.rows / built.bundles
    more_rows, more_machines = rows / large.rows, FLEET / large.machines
    about_rows = {name: asked for name, asked in large.asked.items() if "FROM rows" in QUESTIONS[name].sql}
    beside = {name: asked for name, asked in large.asked.items() if name not in about_rows}
    slowest = max(about_rows, key=lambda name: about_rows[name].seconds)
    widest, heaviest = (max(some, key=lambda name: some[name].read_bytes) for some in (about_rows, beside))
    row_bytes = built.row_part_bytes / built.rows
    input_bytes, packed_bytes = built.input_bytes / built.bundles, built.packed_bytes / built.bundles
    return pd.DataFrame([
        ("measured", f"{datetime.now(UTC):%Y-%m-%d}, {machine}, {built.processes} cores", ""),
        ("bundles", f"{packed_bytes / 1e6:.1f} MB each, {built.unpacked_bytes / built.bundles / 1e6:.0f} MB unpacked",
         f"{FLEET * packed_bytes / 1e9:.0f} GB"),
        ("rows", f"{count(built.rows / built.bundles)} a machine, {count(built.bundles)} machines", f"{rows / 1e9:.1f} billion"),
        ("checking, reading and writing them, once", f"{count(built.rows / built.seconds / built.processes)} rows/s of a core",
         f"{count(FLEET * built.core_s / 3600)} core hours"),
        (f"the same of {count(DAY)} new machines", f"{built.core_s:.1f} core seconds a machine",
         f"{DAY * built.core_s / 3600:.1f} core hours"),
        ("Parquet of rows", f"{row_bytes:.0f} B a row", f"{rows * row_bytes / 1e9:.0f} GB"),
        ("its parts", f"{count(MEAN_ROWS)} rows, {MEAN_ROWS * row_bytes / 1e6:.0f} MB", count(rows / MEAN_ROWS)),
        ("inputs in the manifest", f"{input_bytes:.0f} B a machine", f"{FLEET * input_bytes / 1e6:.0f} MB"),
        (f"the slowest question, `{slowest}`", f"{about_rows[slowest].seconds:.1f} s over {large.rows / 1e6:.0f} million rows",
         f"{about_rows[slowest].seconds * more_rows:.0f} s"),
        ("the most memory of a question", f"{count(max(asked.peak_bytes for asked in large.asked.values()) / 2**20)} MiB", ""),
        (f"read by a question about rows, at most (`{widest}`)", f"{about_rows[widest].read_bytes / 1e6:.0f} MB",
         f"{about_rows[widest].read_bytes * more_rows / 1e9:.1f} GB"),
        (f"read by one about the other tables, at most (`{heaviest}`)",
         f"{beside[heaviest].read_bytes / 1e6:.1f} MB of {count(large.machines)} machines",
         f"{beside[heaviest].read_bytes * more_machines / 1e6:.0f} MB")], columns=["what", "measured", f"{count(FLEET)} machines"])
