"""Rows as tables: the columns of a published machine's Parquet file and of the frames that chapters
read, and which rows these take: of the present state and kernels, one engine, one profile, and each
kernel's last campaign.

A row is a flat record: its fields, a column for each of a kernel's own options and
results, `options` with the names of the former, and `counters`, a list of what was counted or why
not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from math import nan
from typing import TYPE_CHECKING, Any

from tlb.measure import build
from tlb.measure.catalogue import KERNEL_DECLARATIONS
from tlb.measure.record import NAME_PATTERN, KernelBuild, KernelEngine, Point, Record
from tlb.system.reasons import LazyModule, Unavailable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
else:
    pd, pa = LazyModule("pandas"), LazyModule("pyarrow")

INT64_MAX = 2**63 - 1  # what a column can hold
EXPERIMENTS_COLUMN = "experiments"  # the chapters whose grid has the row's point, sorted
_POINT = [name for name in Point.model_fields if name != "options"]  # columns of their own
_LISTS = ("options", "also", "counters", "batch_ns_per_access", "histogram")
_DTYPES: dict[str, Any] = {"integer": "int64", "number": "float64", "string": "str"}


@cache
def _types() -> dict[str, tuple[str, bool]]:
    """Return the JSON type of each plain field of a record, and whether it may be None."""
    types = {}
    for name, schema in Record.model_json_schema()["properties"].items():
        if name not in _LISTS:
            kinds = [part["type"] for part in schema.get("anyOf", [schema])]
            types[name] = (next(kind for kind in kinds if kind != "null"), "null" in kinds)
    return types


def check_record(record: Record) -> None:
    """Raise ValueError for what no column can hold."""
    for name, value in vars(record).items():
        if isinstance(value, int) and value > INT64_MAX:
            raise ValueError(f"{name} does not fit 64 bits")
    taken = {*Record.model_fields, EXPERIMENTS_COLUMN}
    own = [option.name for option in record.options] + list(record.also)
    for name in own:
        if name in taken or own.count(name) > 1:
            raise ValueError(f"an option or a result cannot be called {name!r}")
    for quantity in record.counters:
        if f"{quantity}_per_access" in own or f"{quantity}_reason" in own:
            raise ValueError(f"{quantity} has two values")
        if not NAME_PATTERN.fullmatch(quantity) or f"{quantity}_per_access" in taken:
            raise ValueError(f"a counter cannot be called {quantity[:64]!r}")


def flat_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's JSON as one row's columns."""
    options, counters = dict(record.get("options", ())), record.get("counters", {})
    row = {name: value for name, value in record.items() if name not in ("also", "counters")}
    row["options"] = [*options]
    row["counters"] = [{"quantity": name} | counters[name] for name in sorted(counters)]
    row["histogram"] = [tuple(bin_) for bin_ in record.get("histogram", ())]
    return row | options | record.get("also", {})


def record_of(row: Mapping[str, Any]) -> Record:
    """Return the record that a row of columns was made of."""
    fields = {name: row[name] for name in Record.model_fields if row.get(name) is not None}
    own = {
        name: value
        for name, value in row.items()
        if value is not None and name not in Record.model_fields and name != EXPERIMENTS_COLUMN
    }
    fields["also"] = {name: value for name, value in own.items() if name not in row["options"]}
    fields["options"] = {name: int(own[name]) for name in row["options"]}
    fields["histogram"] = [tuple(bin_.values()) for bin_ in fields["histogram"]]
    fields["counters"] = {
        counter["quantity"]: {
            name: value
            for name, value in counter.items()
            if name != "quantity" and value is not None
        }
        for counter in fields["counters"]
    }
    return Record.model_validate(fields)


# ---- Parquet


def arrow_table(rows: Iterable[tuple[Record, list[str]]]) -> pa.Table:
    """Return records, each with the experiments that asked for its point, as a typed table."""
    laid_out = []
    for record, experiments in rows:
        row = flat_row(record.model_dump(mode="json"))
        row["histogram"] = [dict(zip(_BIN, pair, strict=True)) for pair in row["histogram"]]
        laid_out.append(row | {EXPERIMENTS_COLUMN: experiments})
    own = {name for row in laid_out for name in row} - shared_names()
    return pa.Table.from_pylist(laid_out, arrow_schema(sorted(own)))


_BIN = ("least_ns", "hops")


def shared_names() -> set[str]:
    """Return the names of the columns that rows of every kernel have."""
    return {
        *_types(),
        "options",
        "batch_ns_per_access",
        "histogram",
        "counters",
        EXPERIMENTS_COLUMN,
    }


def arrow_schema(own: Iterable[str]) -> pa.Schema:
    """Return the columns of a published file. own: kernels' own options and results."""
    kinds = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
    plain = {name: kinds[kind] for name, (kind, _) in _types().items()}
    counter = pa.struct(
        {
            "quantity": pa.string(),
            "value": pa.float64(),
            "reason": pa.string(),
            "event": pa.string(),
            "running_percent": pa.float64(),
        }
    )
    bins = pa.struct(dict(zip(_BIN, (pa.float64(), pa.int64()), strict=True)))
    return pa.schema(
        [
            *plain.items(),
            ("options", pa.list_(pa.string())),
            ("batch_ns_per_access", pa.list_(pa.float64())),
            ("histogram", pa.list_(bins)),
            ("counters", pa.list_(counter)),
            (EXPERIMENTS_COLUMN, pa.list_(pa.string())),
            *((name, pa.float64()) for name in own),
        ]
    )


def rows_of(given: pa.Table) -> pd.DataFrame:
    """Return the rows of a Parquet table, laid out flat."""
    rows = given.to_pandas()
    for name in ("batch_ns_per_access", EXPERIMENTS_COLUMN):
        rows[name] = [list(values) for values in rows[name]]
    rows["histogram"] = [[tuple(bin_.values()) for bin_ in bins] for bins in rows["histogram"]]
    return rows


# ---- frames


def rows_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows that are laid out flat as chapters read them.

    Columns: Record's fields; of each counter `<quantity>_per_access` (NaN for none) and
    `<quantity>_reason` ("" with a value); a kernel's own options and results (NaN for none).
    """
    # pandas keeps texts in pyarrow where that is installed: frames are the same without.
    pd.options.mode.string_storage = "python"
    columns: dict[str, pd.Series] = {}
    for name, (kind, is_optional) in _types().items():
        default = Record.model_fields[name].default
        given = rows[name] if name in rows else pd.Series(default, index=rows.index)
        if kind != "string" and is_optional:
            kind = "number"  # None is NaN
        elif name in rows and not is_optional and default is not ...:
            given = given.where(given.notna(), default)
        columns[name] = given.astype(_DTYPES[kind])
    for name in ("batch_ns_per_access", "histogram"):
        given = rows[name] if name in rows else pd.Series(nan, index=rows.index)
        lists = [value if isinstance(value, list) else [] for value in given]
        columns[name] = pd.Series(lists, index=rows.index, dtype="object")
    for name in sorted({*rows.columns} - {*Record.model_fields, EXPERIMENTS_COLUMN}):
        if (own := rows[name].astype("float64")).notna().any():
            columns[name] = own
    return pd.DataFrame(columns | _counted(rows)).reset_index(drop=True)


def _counted(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the columns of what was counted."""
    counters = [
        {counter["quantity"]: counter for counter in row} for row in rows.get("counters", [])
    ]
    columns = {}
    for quantity in sorted({name for row in counters for name in row}):
        # Other rows of the frame have a counter that this one's run never asked for.
        asked = [row.get(quantity, {"reason": "no-data"}) for row in counters]
        values = pd.Series([one.get("value") for one in asked], rows.index, dtype="float64")
        reasons = [one.get("reason") or "" for one in asked]
        columns[f"{quantity}_per_access"] = values / rows["accesses"]
        columns[f"{quantity}_reason"] = pd.Series(reasons, rows.index, dtype="str")
    return columns


# --- which rows

# Why a kernel that has rows cannot be built now: those rows are of another one.
_GONE = {"no-compiler", "engine-lacks", "bad-parameter"}


def current_rows(frame: pd.DataFrame, state: str) -> pd.DataFrame:
    """Return the rows of `state` and of what the kernels measure now, in the order of `Store.load`.

    Rows of another setting, Linux or compiler stay stored and are used again when it returns.
    Raises Unavailable where an existing kernel does not build.
    """
    measured = list(zip(frame["kernel"], frame["engine"], strict=True))
    builds = {pair: _build(*pair) for pair in {*measured}}
    now = [builds[pair] for pair in measured]
    is_now = (frame["measures"] == [found and found.measures for found in now]) & (
        frame["compiler"] == [found and found.compiler for found in now]
    )
    return frame[(frame["state"] == state) & is_now].reset_index(drop=True)


def replaced_programs(frame: pd.DataFrame, state: str) -> dict[tuple[str, str], str]:
    """Return the (kernel, engine) pairs of a state that have rows and none in `current_rows`, each
    with the compiler or the libraries that its rows name, and those of now."""
    now = {*_programs(current_rows(frame, state))}
    there = frame[frame["state"] == state].drop_duplicates(["kernel", "engine"], keep="last")
    found = zip(there["kernel"], there["engine"], there["compiler"], strict=True)
    return {
        (kernel, engine): _then_and_now(compiler, _build(kernel, engine))
        for kernel, engine, compiler in found
        if (kernel, engine) not in now
    }


def _then_and_now(compiler: str, now: KernelBuild | None) -> str:
    if now is None:
        return compiler
    is_same = now.compiler == compiler
    return "an earlier version of it" if is_same else f"{compiler} (now {now.compiler})"


def _build(kernel: str, engine: KernelEngine) -> KernelBuild | None:
    """Return what would measure a kernel's rows now, None for a kernel that is gone."""
    try:
        return build.kernel(kernel, engine).build
    except Unavailable as why:
        if why.code not in _GONE:
            raise
        return None


def rows_of_one_engine(
    frame: pd.DataFrame, asked: Collection[tuple[str, str]], engine: str
) -> pd.DataFrame:
    """Return the rows of the requested engines, so that no median mixes two.

    asked: (kernel, engine) pairs. Of a kernel in none of them: the rows of `engine`, else those of
    the other.
    """
    kept = set(asked)
    kernels = {kernel for kernel, _ in asked}
    there = {*_programs(frame)}
    kept |= {
        pair
        for pair in there
        if pair[0] not in kernels and (pair[1] == engine or (pair[0], engine) not in there)
    }
    return frame.loc[[program in kept for program in _programs(frame)]].reset_index(drop=True)


def rows_of_one_profile(
    frame: pd.DataFrame, asked: Collection[tuple[str, int]] = (), *, is_strict: bool = False
) -> pd.DataFrame:
    """Return the rows of each kernel that were timed as long as asked, so that no median mixes
    profiles.

    asked: (kernel, region_ms) pairs. For other kernels, and for those without such rows unless
    `is_strict`: the longest time with at least half as many rows as the most frequent one, because
    a profile may have been broken off.
    """
    if frame.empty:
        return frame
    kept, known = set(asked), {kernel for kernel, _ in asked}
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for kernel, region in zip(frame["kernel"], frame["region_ms"], strict=True):
        counts[kernel][region] += 1
    for kernel, many in counts.items():
        is_asked = any((kernel, region) in kept for region in many)
        if not is_asked and not (is_strict and kernel in known):
            most = max(many.values())
            kept.add((kernel, max(region for region, rows in many.items() if 2 * rows >= most)))
    return frame.loc[
        [region in kept for region in zip(frame["kernel"], frame["region_ms"], strict=True)]
    ].reset_index(drop=True)


def _programs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (kernel, engine) of each row."""
    return list(zip(frame["kernel"], frame["engine"], strict=True))


# --- the last campaign

# What tells two points of a frame apart, but for a kernel's own options, whose columns look like
# those of results.
_SETTING = ("pages", "layout", "order", "lines", "stride_pages", "mode")
KERNEL_COLUMNS = ["kernel", "engine"]
# of the settings of an experiment: one that asks for most of another's points is no campaign of it
_WHOLE_CAMPAIGN = 0.9


def rows_of_last_campaign(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each kernel and engine, the rows of its last campaign: of the newest `measures`
    and one machine state.

    For published rows; of this computer's own the present state is known (`current_rows`). The
    last campaign is the one whose last row is, in the order of appending, so a clock that steps
    back changes nothing. Two kinds of campaigns hide no other of the same `measures`: one with
    fewer than half as many rows as the largest was broken off; one that covers fewer than nine in
    ten of the settings that the widest covers belongs to another experiment.
    """
    frame = frame[frame["measures"] == frame.groupby(KERNEL_COLUMNS)["measures"].transform("max")]
    return _of_last_campaign(frame, KERNEL_COLUMNS, ["state"]).reset_index(drop=True)


def _of_last_campaign(frame: pd.DataFrame, by: list[str], conditions: list[str]) -> pd.DataFrame:
    """Return the rows of each group whose conditions are those of its last campaign that hides
    others."""
    setting = frame.groupby(
        [name for name in _SETTING if name in frame] or by, dropna=False
    ).ngroup()
    campaigns = (
        frame[[*by, *conditions]].assign(setting=setting).groupby([*by, *conditions])["setting"]
    )
    rows, covered = campaigns.transform("size"), campaigns.transform("nunique")

    def most(of: pd.Series) -> pd.Series:
        return of.groupby([frame[name] for name in by]).transform("max")

    is_whole = (2 * rows >= most(rows)) & (covered >= _WHOLE_CAMPAIGN * most(covered))
    last = frame[by].join(frame[is_whole].groupby(by)[conditions].last(), on=by)[conditions]
    return frame[(frame[conditions] == last).all(axis=1)]


# what tells two measuring processes apart
PROCESS_COLUMNS = [
    "kernel",
    "engine",
    "repeat",
    "checksum",
    "started_at",
    "ns_per_access",
    "wall_ns",
]


def processes_per_point(frame: pd.DataFrame) -> pd.Series:
    """Return the number of processes of each point of a chapter's rows."""
    return frame.groupby(point_columns(frame), dropna=False).size()


def is_disturbed_of_few(frame: pd.DataFrame, enough: int) -> pd.Series:
    """Tell which rows are disturbed, of points with fewer mappings than `enough`: no median outvotes
    these."""
    if frame.empty:
        return pd.Series(False, index=frame.index)
    mappings = frame.groupby(point_columns(frame), dropna=False)["repeat"].transform("size")
    return (frame["noisy"] != "") & (mappings < enough)


def without_disturbed_of_few(frame: pd.DataFrame, enough: int) -> pd.DataFrame:
    """Return the rows that `is_disturbed_of_few` does not tell."""
    return frame[~is_disturbed_of_few(frame, enough)].reset_index(drop=True)


def point_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that identify a point of these rows, options of their kernels included."""
    known = {*frame["kernel"]} & {*KERNEL_DECLARATIONS}
    options = {option for kernel in known for option in KERNEL_DECLARATIONS[kernel].options}
    return [name for name in (*_POINT, *sorted(options)) if name in frame]
