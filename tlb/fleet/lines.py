"""Rows in a bundle: one canonical JSON object a line, with its key and its digest."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from tlb.measure import columns
from tlb.measure.record import Record, Slug, point_id

Grids = dict[str, dict[str, set[str]]]  # points' ids by experiment and kernel
GRIDS_SCHEMA = TypeAdapter(
    dict[Slug, dict[Slug, set[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]]]
)
_MEMBERS = {"digest", "key", "record"}


class Line(NamedTuple):
    """A row and its line, without the line's end."""

    key: str
    point: str  # its id
    record: Record
    line: bytes


class Damaged(ValueError):
    """A line whose digest is of another line."""


def written(record: Record) -> bytes:
    """Return a record's line. Raises ValueError for a record that fits no column."""
    columns.check_record(record)
    unknown = set() if record.boot_id else {"boot_id"}  # of a row from before it was kept
    return signed(
        {"key": record.key, "record": record.model_dump(exclude_none=True, exclude=unknown)}
    )


def signed(content: dict[str, Any]) -> bytes:
    """Return a line of key and record, with their digest."""
    return canonical({**content, "digest": _digest(canonical(content))}) + b"\n"


def parse(line: bytes) -> Line:
    """Return a line's row. Raises Damaged, or ValueError for what is no row."""
    try:
        line, content = line.removesuffix(b"\r"), json.loads(line)
        # To the byte: of a member that is there twice, JSON's readers take now the first and now
        # the last.
        if line != canonical(content):
            raise ValueError("the line is not written as a bundle writes it")
        digest, rest = content["digest"], line.partition(b",")[2]  # the digest comes first
        if content.keys() != _MEMBERS:
            raise ValueError("it has other members than a row")
        if digest != _digest(b"{" + rest):
            raise Damaged("the digest is of another line")
        record = Record.model_validate(content["record"])
        columns.check_record(record)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if content["key"] != record.key:
        raise ValueError("the key is of another record")
    return Line(record.key, point_id(record.point), record, line)


known = lru_cache(1 << 14)(parse)  # a bundle is checked before it is read


def canonical(content: Any) -> bytes:
    """Return the JSON that lines are made of. Raises ValueError."""
    return _encoded(content).encode("ascii")


_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def grids_of(rows: list[tuple[Record, list[str]]]) -> Grids:
    """Return the points of rows, by the experiments that asked for them and their kernel."""
    grids: Grids = {}
    for record, experiments in rows:
        for experiment in experiments:
            points = grids.setdefault(experiment, {}).setdefault(record.kernel, set())
            points.add(point_id(record.point))
    return grids
