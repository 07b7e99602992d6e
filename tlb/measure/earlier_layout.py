"""Convert data/own/<machine>/ of earlier versions of this book once: rows that were lines of JSON
become rows of the database, and documents move from beside the rows into their folder."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tlb.measure.record import Point, Record
from tlb.measure.row_database import RowDatabase
from tlb.system.files import disk_errors

_STAYS = re.compile(r"machine|translation\.json|quantities|claims\.json|grids\.json")
KEPT = "json-lines"  # the folder that the files of the earlier version move to
# What the identity of a point left out where it had the default.
_LEFT_OUT = {"stride_pages": 1, "mode": "", "options": ()}


def convert_rows(folder: Path, database: RowDatabase) -> None:
    """Add the rows of `<kernel>.jsonl` to a database, with the experiments that `grids.json` names,
    and move these files aside. Damaged lines are left out, as they were before."""
    lines = [path for path in sorted(folder.glob("*.jsonl")) if "." not in path.stem]
    if not lines or database.path.exists():
        return
    records = [record for path in lines for record in _records(path)]
    grids = folder / "grids.json"
    asked = json.loads(grids.read_bytes()) if grids.is_file() else {}
    for experiment, points in asked.items():
        known = {(kernel, point) for kernel, ids in points.items() for point in ids}
        own = {record.point for record in records if _identity(record.point) in known}
        database.ask(experiment, own)
    database.append(*records)
    with disk_errors(folder):
        (folder / KEPT).mkdir(exist_ok=True)
        for path in [*folder.glob("*.jsonl"), *folder.glob("grids.json")]:
            path.rename(folder / KEPT / path.name)


def move_documents(folder: Path, documents: Path) -> None:
    """Move documents from beside the rows; delete verdicts, which are computed now."""
    moved = [path for path in folder.glob("*.json") if not _STAYS.match(path.name)]
    if not moved:
        return
    with disk_errors(folder):
        documents.mkdir(exist_ok=True)
        for path in moved:
            with suppress(FileNotFoundError):  # another process moves them too
                if path.name == "verdicts.json":
                    path.unlink()
                else:
                    path.rename(documents / path.name)


def _records(path: Path) -> list[Record]:
    """Return the records of the lines that prove whole."""
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            content = json.loads(line)
            digest, record = content.pop("digest"), dict(content["record"])
            if digest != _digest(content):
                continue
            if record.pop("schema_version") == 1:
                record["source"] = content["kernel_digest"]
            found.append(Record.model_validate_json(json.dumps(record)))
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _identity(point: Point) -> tuple[str, str]:
    """Return a point's kernel and the id that grids.json knew it by."""
    fields = point.model_dump()
    kept = {name: value for name, value in fields.items() if _LEFT_OUT.get(name) != value}
    return point.kernel, _digest(kept)


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
