"""Records as the columns of a frame, and the records that no frame can show."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from tlb.lab import kernels
from tlb.lab.record import NAME, Quantity, Record
from tlb.system.optional import Lazy

pd = Lazy("pandas")

INT64_MAX = 2**63 - 1  # what a column can hold
_JSON_DTYPES = {"integer": "int64", "number": "float64", "string": "str", "array": "object"}
_DTYPES = {
    # A field that may be None has two types: it is a number, and None is NaN in its column.
    name: _JSON_DTYPES[schema.get("type", "number")]
    for name, schema in Record.model_json_schema()["properties"].items()
    if name not in ("counters", "options", "also")
}
_TAKEN = {*Record.model_fields, "kernel_digest", "timed"}
# For a counter that other rows of the frame have and this one's run never asked for.
_NOT_ASKED = Quantity(reason="no-data")


def check(record: Record, kernel_digest: str) -> None:
    """Raise ValueError for what a frame cannot show."""
    if not NAME.fullmatch(kernel_digest):
        raise ValueError(f"a kernel's digest cannot be {kernel_digest[:64]!r}")
    for name, value in vars(record).items():
        if isinstance(value, int) and value > INT64_MAX:
            raise ValueError(f"{name} does not fit 64 bits")
    own = [option.name for option in record.options] + list(record.also)
    for name in own:
        if name in _TAKEN or own.count(name) > 1:
            raise ValueError(f"an option or a result cannot be called {name!r}")
    for quantity in record.counters:
        if f"{quantity}_per_access" in own or f"{quantity}_reason" in own:
            raise ValueError(f"{quantity} has two values")
        if not NAME.fullmatch(quantity) or f"{quantity}_per_access" in Record.model_fields:
            raise ValueError(f"a counter cannot be called {quantity[:64]!r}")


def frame(records: Sequence[Record], kernel_digests: Sequence[str]) -> pd.DataFrame:
    """Return one row a record.

    Columns: Record's fields; of each counter `<quantity>_per_access` (NaN for none) and
    `<quantity>_reason` ("" with a value); a kernel's own options and results (NaN for none);
    kernel_digest; timed, the digested functions, "" for a whole kernel and for version 1.
    """
    # pandas keeps texts in pyarrow where that is installed, as `make fleet` does: frames are the
    # same without.
    pd.options.mode.string_storage = "python"
    columns = {
        name: pd.Series([getattr(record, name) for record in records], dtype=dtype)
        for name, dtype in _DTYPES.items()
    }
    columns["kernel_digest"] = pd.Series(list(kernel_digests), dtype="str")
    columns["timed"] = pd.Series([_timed(record) for record in records], dtype="str")
    own = [dict(record.options) | record.also for record in records]
    for name in sorted({name for values in own for name in values}):
        columns[name] = pd.Series([values.get(name, nan) for values in own], dtype="float64")
    for quantity in sorted({quantity for record in records for quantity in record.counters}):
        counted = [record.counters.get(quantity, _NOT_ASKED) for record in records]
        values = [
            nan if q.value is None else q.value / record.accesses
            for q, record in zip(counted, records, strict=True)
        ]
        columns[f"{quantity}_per_access"] = pd.Series(values, dtype="float64")
        columns[f"{quantity}_reason"] = pd.Series([q.reason or "" for q in counted], dtype="str")
    return pd.DataFrame(columns)


def _timed(record: Record) -> str:
    declared = kernels.CATALOGUE.get(record.kernel) if record.schema_version > 1 else None
    return " ".join(declared.timed(record)) if declared else ""
