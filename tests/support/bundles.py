"""A small machine that never was, and bundles of it: whole ones, and ones in which something was
changed and all digests made right."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from support.campaigns import content_of, put, sign
from support.common import make_record
from support.synthetic import Stated
from tlb.fleet import check, pack
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.plan import seed_of
from tlb.measure.record import Point, Record
from tlb.measure.store import Store

HOST = Stated(changes={"cpu_model": "Intel Xeon 9000", "installation": "0123456789abcdef"}).host()
MACHINE, STATE = hosts.machine_id(HOST), hosts.state(HOST)
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
        "seed": seed_of(point, repeat),
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


def filled(
    store: Store, host: Host = HOST, rows: list[Record] | None = None, machine: str = ""
) -> str:
    """A store with this machine in it; its name."""
    name = machine or hosts.machine_id(host)
    store.write_machine(name, host.model_dump(mode="json"))
    store.write_document(name, "flushes", FLUSHES)
    put(store, name, EXPERIMENT, *(rows if rows is not None else ROWS))
    return name


@cache
def _packed() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        return pack.pack(store, filled(store)).bundle.files


def files(**changes: bytes) -> dict[str, bytes]:
    """The files of a good bundle, some of them others: `page_chase__jsonl=b"..."`."""
    return _packed() | {name.replace("__", "."): content for name, content in changes.items()}


def good() -> bytes:
    return check.sealed(MACHINE, files())


def changed(name: str, change: Any) -> bytes:
    """A bundle in which a document was changed: `change` takes it and gives another, or changes
    it."""
    content = json.loads(files()[name])
    return check.sealed(MACHINE, files() | {name: written(change(content) or content)})


def written(content: Any) -> bytes:
    """As the store does, but it minds neither NaN nor what else json writes."""
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def resigned(change: Any, number: int = 0, rekey: bool = True) -> bytes:
    """A bundle in which one row was changed, and its key and digest with it, as far as there is a
    key for it."""
    kept = files()["page_chase.jsonl"].splitlines(keepends=True)
    content = content_of(kept[number])
    content["record"] = change(content["record"]) or content["record"]
    if rekey:
        try:
            record = Record.model_validate_json(json.dumps(content["record"]))
            content["key"] = record.key
        except ValueError:
            pass
    kept[number] = sign(content)
    return check.sealed(MACHINE, files() | {"page_chase.jsonl": b"".join(kept)})
