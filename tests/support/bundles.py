"""A small machine that never was, and bundles of it: whole ones, and ones in which something was
changed."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from support.campaigns import put
from support.common import make_record
from support.synthetic import Stated
from tlb.fleet import bundle
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.plan import order_seed
from tlb.measure.record import Point, Record
from tlb.measure.store import Store

HOST = Stated(changes={"cpu_model": "Intel Xeon 9000", "installation": "0123456789abcdef"}).host()
MACHINE, STATE = hosts.machine_id(HOST), hosts.state_digest(HOST)
EXPERIMENT = "stlb_cliff"
FLUSHES = {
    "schema_version": 1,
    "state": STATE,
    "pti": False,
    "broadcasts": False,
    "defers": None,
    "means": ["cc"],
}


def row(lines_count: int = 64, layout: str = "spread", repeat: int = 0, **changes: Any) -> Record:
    """A row that its kernel could have printed on HOST."""
    point = Point(
        kernel="page_chase", lines=lines_count, layout=layout, pages=changes.pop("pages", "4k")
    )
    began = f"2025-01-31T12:{lines_count % 60:02d}:{30 * (layout == 'packed') + repeat:02d}Z"
    fields = {
        "seed": order_seed(point, repeat),
        "state": STATE,
        "page_table_bytes": 4096 * 8,
        "batch_ns_per_access": [6.4, 6.5, 6.6],
        "elapsed_ns": 6.5e7,
        "started_at": began,
        "wall_ns": 1.2e8 + lines_count + repeat,
        "checksum": f"{lines_count:08x}{repeat:08x}",
        "cpu": 0,
    }
    return make_record(
        **point.model_dump(exclude={"options"}), **{"repeat": repeat, **fields, **changes}
    )


ROWS = [row(lines_count, layout) for lines_count in (64, 128) for layout in ("spread", "packed")]


def filled(store: Store, host: Host = HOST, rows: list[Record] | None = None) -> str:
    """Put this machine into a store; return its name."""
    name = hosts.machine_id(host)
    store.write_machine(name, host.model_dump(mode="json"))
    store.write_document(name, "flushes", FLUSHES | {"state": hosts.state_digest(host)})
    put(store, name, EXPERIMENT, *(rows if rows is not None else ROWS))
    return name


def made(store: Store, name: str) -> bytes:
    return bundle.pack(bundle.collect(store, name))


@cache
def good() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        return made(store, filled(store))


def files() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(good())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes] | list[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    """A zip of these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return file.getvalue()


def changed(name: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A bundle in which a document was changed in place, or replaced by what `change` returns."""
    content = json.loads(files()[name])
    text = json.dumps(change(content) or content, indent=2, sort_keys=True)
    return packed(files() | {name: f"{text}\n".encode()})


def with_rows(table: pa.Table) -> bytes:
    """A bundle with these rows."""
    file = io.BytesIO()
    parquet.write_table(table, file)
    return packed(files() | {bundle.ROWS_FILE_NAME: file.getvalue()})


def rows_table() -> pa.Table:
    return parquet.read_table(io.BytesIO(files()[bundle.ROWS_FILE_NAME]))


def with_values(**values: Any) -> bytes:
    """A bundle whose first row has other values in these columns, of the columns' types."""
    table = rows_table()
    for name, value in values.items():
        place, column = table.schema.get_field_index(name), table[name].to_pylist()
        kind = table.schema.field(name).type
        table = table.set_column(place, name, pa.array([value, *column[1:]], kind))
    return with_rows(table)
