"""`tlb atlas build`: Parquet from bundles and folders of data/, a pure function of the set of inputs.

    atlas/manifest.json                                                   inputs and parts, each by digest; replaced last, in one step
    atlas/rows/kernel=page_chase/microarchitecture=zen-5/<content>.parquet
    atlas/machines/microarchitecture=zen-5/<content>.parquet              and so profile, verdicts

Which parts there are follows from the inputs (atlas_plan), and so do their bytes: it does not matter what came first, or in how many
builds. What an interrupted build has written is named by no manifest: the old atlas stays whole, and the same command reads no input
again that was read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.fleet import atlas_inputs
from experiments.fleet.atlas_inputs import Staged
from experiments.fleet.atlas_plan import WRITER, Planned, plan
from experiments.fleet.atlas_schema import KEPT, ORDER, ROWS, SAME, SCHEMAS, VERSION, table_of
from experiments.system.files import OPEN_FLAGS, disk_errors, lock, replace, sync_folder
from experiments.system.processes import workers
from experiments.words.reasons import Unavailable

MANIFEST = "manifest.json"
STAGE = ".stage"  # what was read of inputs, until the manifest has them
_GROUP = r"(?:rows/kernel=[a-z0-9_-]{1,64}|machines|profile|verdicts)"
_PART = rf"^{_GROUP}/microarchitecture=[a-z0-9-]{{1,64}}/[0-9a-f]{{16}}\.parquet$"


class Part(BaseModel):
    """A file of the atlas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(pattern=_PART)]
    rows: int
    size_bytes: int
    sha256: str

    @property
    def table(self) -> str:
        return table_of(self.path)


class Manifest(BaseModel):
    """manifest.json. inputs: by digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[3] = VERSION
    inputs: dict[str, Staged] = {}
    parts: tuple[Part, ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts if part.table == ROWS)


class Built(NamedTuple):
    """What a build did: the atlas as it is, how many inputs and parts are new in it, and why each input was refused that was."""

    manifest: Manifest
    new_inputs: int
    new_parts: int
    refused: tuple[Unavailable, ...] = ()


def read(atlas: Path) -> Manifest:
    """Raises Unavailable("no-atlas") for a folder that is none, or one of another version."""
    try:
        return Manifest.model_validate_json((atlas / MANIFEST).read_bytes())
    except OSError:
        raise Unavailable("no-atlas", f"{atlas} has no {MANIFEST}") from None
    except ValidationError:
        raise Unavailable("no-atlas", f"{atlas / MANIFEST} is of another version of this project, or broken") from None


def build(atlas: Path, paths: Sequence[Path], anew: bool = False, processes: int | None = None,
          tell: Callable[[str], None] = lambda line: None) -> Built:
    """Adds inputs to an atlas, which is made where there is none; `anew`: it is of these inputs alone. Of many, those that are refused are
    left out, and told.

    Raises Unavailable: no-bundle for a path without inputs, no-atlas for a folder that holds something else, disk-full, disk-read-only, and
    what the first was refused for where all were: then the atlas is as it was.
    """
    given = [path for named in paths for path in atlas_inputs.named(named)]
    with disk_errors(atlas):
        if atlas.is_dir() and any(atlas.iterdir()) and not (atlas / MANIFEST).is_file() and not (atlas / STAGE).is_dir():
            raise Unavailable("no-atlas", f"{atlas} holds something else")
        (atlas / STAGE).mkdir(parents=True, exist_ok=True)
        holder = os.open(atlas / STAGE, os.O_RDONLY | OPEN_FLAGS)
        try:
            lock(holder)
            before = read(atlas) if (atlas / MANIFEST).is_file() else Manifest()
            return _build(atlas, before, given, anew, processes or os.cpu_count() or 1, tell)
        finally:
            os.close(holder)


def _build(atlas: Path, before: Manifest, given: list[Path], anew: bool, processes: int, tell: Callable[[str], None]) -> Built:
    stage = atlas / STAGE
    _remove(atlas, {part.path for part in before.parts})
    there = {part.path: part for part in before.parts if is_whole(atlas, part)}
    planned_before = plan(before.inputs)
    damaged = {digest for planned in planned_before if planned.path not in there for digest in planned.inputs}
    kept = {} if anew else before.inputs
    with workers(processes) if processes > 1 and len(given) > 1 else _Here() as pool:
        read_in = partial(atlas_inputs.stage, known=frozenset(kept.keys() - damaged), folder=stage)
        outcomes = [*pool.map(read_in, given, chunksize=max(1, len(given) // (16 * processes)))]
        digests = {outcome for outcome in outcomes if isinstance(outcome, str)}
        refused = tuple(outcome for outcome in outcomes if isinstance(outcome, Unavailable))
        if not digests:
            raise refused[0]
        staged = frozenset(digest for digest in digests if digest not in kept or digest in damaged)
        tell(f"{len(given)} inputs, of which {len(staged)} are new")
        inputs = dict(sorted({**kept, **{digest: atlas_inputs.summary(stage, digest)[0] for digest in staged}}.items()))
        holders = {(part.group, machine): part.path for part in planned_before if part.path in there for machine in part.machines}
        wanted = plan(inputs)
        jobs = [_job(planned, inputs, staged, holders) for planned in wanted if planned.path not in there]
        made = [*pool.map(partial(_write, atlas), jobs)]
    parts = there | {part.path: part for part in made}
    manifest = Manifest(inputs=inputs, parts=tuple(sorted((parts[planned.path] for planned in wanted), key=lambda part: part.path)))
    with disk_errors(atlas):
        replace(atlas / MANIFEST, json.dumps(manifest.model_dump(), sort_keys=True, separators=(",", ":")).encode() + b"\n")
    for path in stage.iterdir():
        path.unlink()
    return Built(manifest, len(staged), len(made), refused)


class _Here:
    """Stands for a pool of processes where one input is too little for it."""

    @staticmethod
    def map(work: Callable, each: Sequence, chunksize: int = 1) -> list:
        return [work(one) for one in each]

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None: ...


# --- a part's rows


class _Job(NamedTuple):
    """A part to be written. old: the parts that there were before, with those of its machines that each holds. staged: the inputs that
    were read now, with the place of the group's batch among theirs."""

    path: str
    group: str
    old: dict[str, list[str]]
    staged: list[tuple[str, int]]


def _job(planned: Planned, inputs: Mapping[str, Staged], staged: frozenset[str], holders: Mapping[tuple[str, str], str]) -> _Job:
    """Raises Unavailable("atlas-broken") where the part that had some of its rows is gone, and the input is not given again."""
    old: dict[str, list[str]] = defaultdict(list)
    for machine in sorted({inputs[digest].machine for digest in planned.inputs if digest not in staged}):
        if (planned.group, machine) not in holders:
            raise Unavailable("atlas-broken", f"the part with {planned.group} of {machine} is gone or cut off")
        old[holders[planned.group, machine]].append(machine)
    new = [(digest, inputs[digest].batches.index(planned.group) if planned.group in inputs[digest].batches else 0)
           for digest in planned.inputs if digest in staged]
    return _Job(planned.path, planned.group, dict(old), new)


def _write(atlas: Path, job: _Job) -> Part:
    """Writes a part; its bytes follow from its inputs. Raises Unavailable: disk-full, disk-read-only, atlas-broken."""
    target, name = atlas / job.path, table_of(job.group)
    table = _merged(name, [*_old(atlas, job), *_new(atlas / STAGE, job)])
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".tmp")
        try:
            pq.write_table(table, draft, use_dictionary=texts(table.schema), **WRITER)
            with draft.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
        return Part(path=job.path, rows=table.num_rows, size_bytes=target.stat().st_size, sha256=digest)


def texts(schema: pa.Schema) -> list[str]:
    """The columns that repeat: text, but for a row's key."""
    return [field.name for field in schema if field.type == pa.string() and field.name != "key"]


def _old(atlas: Path, job: _Job) -> Iterator[pa.Table]:
    for path, machines in job.old.items():
        try:
            table = pq.read_table(atlas / path, schema=SCHEMAS[table_of(job.group)], partitioning=None)
        except (pa.ArrowInvalid, OSError) as error:
            raise Unavailable("atlas-broken", f"{path}: {error}") from None
        yield table.filter(pc.is_in(table["machine"], pa.array(machines)))


def _new(stage: Path, job: _Job) -> Iterator[pa.Table]:
    for digest, batch in job.staged:
        if table_of(job.group) == ROWS:
            yield atlas_inputs.staged_rows(stage, digest, batch)
        else:
            yield pa.Table.from_pylist(atlas_inputs.summary(stage, digest)[1][job.group], schema=SCHEMAS[job.group])


def _merged(name: str, tables: list[pa.Table]) -> pa.Table:
    """Each row once, in the table's order."""
    table = pa.concat_tables(tables)
    table = table.sort_by([*((column, "ascending") for column in SAME[name]), *KEPT[name]])
    keys = [table[column].combine_chunks() for column in SAME[name]]
    again = [pc.equal(key[1:], key[:-1]) for key in keys]
    first = pa.array([True] * (table.num_rows > 0))
    if table.num_rows > 1:
        same = again[0]
        for equal in again[1:]:
            same = pc.and_(same, equal)
        first = pa.concat_arrays([first, pc.invert(same)])
    return table.filter(first).sort_by([(column, "ascending") for column in ORDER[name]]).combine_chunks()


# --- the folder


def is_whole(atlas: Path, part: Part) -> bool:
    """Whether a part is there, and as long as it was written."""
    try:
        seen = (atlas / part.path).lstat()
    except OSError:
        return False
    return seen.st_size == part.size_bytes and not (atlas / part.path).is_symlink()


def _remove(atlas: Path, named: set[str]) -> None:
    """Parts that the manifest does not name: those of the atlas before the last, and of builds that were interrupted. What the last build
    replaced stays until the next, so that nobody's question loses its files."""
    for path in atlas.glob("*/**/*"):
        if path.is_file() and path.parent.name != STAGE and path.relative_to(atlas).as_posix() not in named:
            path.unlink()

