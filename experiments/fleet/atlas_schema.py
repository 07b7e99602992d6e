"""The atlas as tables: their columns, typed and with units, and how a record becomes a row and a row the record again.

`rows` are the ledger's, one a process; `machines` is what a computer was in each state that it has rows of; `profile` is its
translation.json, a quantity a row; `verdicts` its verdicts.json, a claim a row, with the newest version of its chapter's kernels that
measured it. What is NULL in a column was not stated; a number that
could not be measured has its reason's code beside it. Whoever reads Parquet from elsewhere finds each column's unit in its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from experiments.lab.lines import Stored
from experiments.lab.record import Record

VERSION = 3  # grows where a column, its meaning or the layout of the folder changes
ROWS, MACHINES, PROFILE, VERDICTS = "rows", "machines", "profile", "verdicts"

_TEXT, _REAL, _WHOLE, _FLAG, _TIME = pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.timestamp("s")
_QUANTITY = pa.struct([("value", _REAL), ("reason", _TEXT), ("event", _TEXT), ("running_percent", _REAL)])
_BOUNDS = pa.list_(pa.struct([(end, _REAL) for end in ("value", "low", "high", "least", "most")]))
# Of a name's end, or of all of it: what its number counts. Names say their unit; the metadata says it to a program.
_UNITS = {"ns_per_access": "ns/access", "_ns": "ns", "_ms": "ms", "_bytes": "B", "_ghz": "GHz", "_percent": "%", "started_at": "UTC",
          "_until": "UTC", "measured_from": "UTC", "stride_pages": "base pages", "lines": "cache lines", "highest_khz": "kHz"}
_OWN_TYPES = {"options": pa.map_(_TEXT, _WHOLE), "also": pa.map_(_TEXT, _REAL), "batch_ns_per_access": pa.list_(_REAL),
              "histogram": pa.list_(pa.struct([("least_ns", _REAL), ("hops", _WHOLE)])), "counters": pa.map_(_TEXT, _QUANTITY),
              "started_at": _TIME, "page_table_bytes": _WHOLE, "steal_ms": _REAL, "schema_version": _WHOLE,
              "position": _WHOLE, "mapping_bytes": _WHOLE, "cpu_ns": _REAL, "fifo": _WHOLE}
_OF_PYTHON = {int: _WHOLE, float: _REAL}


def _field(name: str, kind: pa.DataType) -> pa.Field:
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    return pa.field(name, kind, metadata={"unit": unit} if unit else None)


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([_field(name, kind) for name, kind in kinds.items()])


def _kind(name: str) -> pa.DataType:
    """Of a field of Record: what is neither a list nor may be None is a number, or text."""
    return _OWN_TYPES.get(name) or _OF_PYTHON.get(Record.model_fields[name].annotation, _TEXT)


# Of each table, without kernel and microarchitecture: these are in the path of a part.
SCHEMAS = {
    ROWS: _schema(machine=_TEXT, key=_TEXT, point=_TEXT, kernel_digest=_TEXT, counted=_WHOLE,
                  **{name: _kind(name) for name in Record.model_fields if name != "kernel"}),
    MACHINES: _schema(
        machine=_TEXT, state=_TEXT, is_described=_FLAG, cpu_model=_TEXT, vendor=_TEXT, family=_WHOLE, model=_WHOLE,
        stepping=_WHOLE, microcode=_TEXT, hypervisor=_TEXT, arch=_TEXT, os=_TEXT, kernel_release=_TEXT, boot=_TEXT, logical_cpus=_WHOLE,
        memory_bytes=_WHOLE, base_page_bytes=_WHOLE, page_table_levels=_WHOLE, thp=_TEXT, smt=_TEXT, governor=_TEXT, turbo=_FLAG,
        has_nested_walks=_FLAG, host_tables=_TEXT, counter_tier=_TEXT, entries_stated=pa.list_(_WHOLE), mitigations=pa.map_(_TEXT, _TEXT),
        measured_from=_TIME, measured_until=_TIME, host_pages=_TEXT, host_pages_evidence=_TEXT, input_until=_TIME, input=_TEXT),
    PROFILE: _schema(machine=_TEXT, name=_TEXT, part=_TEXT, words=_TEXT, unit=_TEXT, value=_REAL, low=_REAL, high=_REAL, coverage=_REAL,
                     modes=_WHOLE, reason=_TEXT, detail=_TEXT, input_until=_TIME, input=_TEXT),
    VERDICTS: _schema(machine=_TEXT, chapter=_TEXT, claim=_TEXT, verdict=_TEXT, evidence=_TEXT, effects=_BOUNDS, measures=_WHOLE,
                      input_until=_TIME, input=_TEXT),
}
# What makes two rows of a table the same, and then which of several is kept: the first by these. That is all a merge knows, so it gives
# the same whatever came first. Of two rows with one key the one that counted more, as `Store.records` has it.
SAME = {ROWS: ["machine", "key"], MACHINES: ["machine", "state"], PROFILE: ["machine", "name"], VERDICTS: ["machine", "chapter", "claim"]}
_NEWEST = [("input_until", "descending"), ("input", "ascending")]
KEPT = {ROWS: [("counted", "descending"), *((name, "ascending") for name in ("started_at", "wall_ns", "elapsed_ns", "checksum"))],
        MACHINES: [("is_described", "descending"), ("measured_until", "descending"), *_NEWEST], PROFILE: _NEWEST, VERDICTS: _NEWEST}
# In what order rows lie: what questions pick first, so that the rest of a file is skipped by its row groups' bounds.
ORDER = {ROWS: ["mode", "layout", "pages", "order", "lines", "machine", "state", "key"], MACHINES: ["machine", "state"],
         PROFILE: ["name", "machine"], VERDICTS: ["chapter", "claim", "machine"]}


def table_of(name: str) -> str:
    """The table that a group of parts is of: `rows/kernel=page_chase` is of `rows`."""
    return name.partition("/")[0]


def row(machine: str, stored: Stored) -> dict[str, Any]:
    """A line of the ledger as a row of `rows`."""
    record = stored.record
    fields = record.model_dump(exclude={"kernel", "started_at", "counters", "options", "also"})
    return fields | {
        "machine": machine, "key": stored.key, "point": stored.point, "kernel_digest": stored.kernel_digest,
        "counted": sum(quantity.value is not None for quantity in record.counters.values()),
        "started_at": moment(record.started_at), "options": [tuple(option) for option in record.options],
        "also": sorted(record.also.items()), "histogram": [each._asdict() for each in record.histogram],
        "counters": [(name, record.counters[name].model_dump()) for name in sorted(record.counters)]}


def moment(stated: str) -> int:
    """Seconds of UTC since 1970 of a record's `started_at`."""
    return int(datetime.fromisoformat(stated).timestamp())


def records(kernel: str, table: pa.Table) -> Iterator[Record]:
    """The records of a part of `rows`, as they were in the ledger: for a test, and for whoever wants them again."""
    for fields in table.select([name for name in Record.model_fields if name != "kernel"]).to_pylist(maps_as_pydicts="strict"):
        started = fields.pop("started_at")
        histogram = [(each["least_ns"], each["hops"]) for each in fields.pop("histogram")]
        yield Record.model_validate({**fields, "kernel": kernel, "started_at": f"{started:%Y-%m-%dT%H:%M:%SZ}", "histogram": histogram})
