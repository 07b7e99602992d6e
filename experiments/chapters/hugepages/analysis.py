"""What page sizes buy and cost: from the rows of experiment `hugepages` to curves, speedups and tables."""

from __future__ import annotations

import pandas as pd

from experiments.inference import curves as claims
from experiments.inference import intervals as stats
from experiments.inference import splinter
from experiments.inference.curves import PAGE
from experiments.lab.record import PAGE_BYTES
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

PAGES = tuple(PAGE_BYTES)
_TOUCH = "random_touch"


def kinds(frame: pd.DataFrame, kernel: str = "page_chase") -> list[str]:
    """The page sizes that were measured, from small to large."""
    there = set(frame.loc[frame["kernel"] == kernel, "pages"])
    return [pages for pages in PAGES if pages in there]


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """`claims.curve` of the spread chase for each page size: column pages, then as `stats.summarise`. Raises Unavailable without any."""
    found = [claims.curve(frame[frame["pages"] == pages], "spread").assign(pages=pages) for pages in kinds(frame)]
    if not found:
        raise Unavailable("too-few-points", "no chase was measured")
    return pd.concat(found, ignore_index=True)


def prices(frame: pd.DataFrame) -> pd.DataFrame:
    """`claims.price` for each page size: column pages, then lines, median, low, high (ns per access). Raises Unavailable without any."""
    found = [claims.price(frame[frame["pages"] == pages]).assign(pages=pages) for pages in kinds(frame)]
    priced = [one[one["median"].notna()] for one in found]
    if not any(map(len, priced)):
        raise Unavailable("too-few-points", "no chase was measured with its packed control")
    return pd.concat(priced, ignore_index=True)


def speedup(frame: pd.DataFrame, pages: str, over: str = "4k") -> pd.DataFrame:
    """How many times faster the spread chase is on `pages` than on `over`: lines, value, low, high, for the lines that both have."""
    sides = [claims.curve(frame[frame["pages"] == one], "spread").set_index("lines") for one in (over, pages)]
    rows = []
    for lines in sorted(set(sides[0].index) & set(sides[1].index)):
        slow, fast = (stats.Interval(*(float(side.loc[lines, name]) for name in ("median", "low", "high", "coverage"))) for side in sides)
        rows.append((lines, *stats.interval_of_ratio(slow, fast)))
    return pd.DataFrame(rows, columns=["lines", "value", "low", "high", "coverage"])


def typical(found: pd.DataFrame) -> stats.Interval:
    """The speedup over a range of sizes where one number should hold for all: the median over sizes of a frame of `speedup`, with its
    exact interval, since each size was measured by itself. Fewer than five sizes have no interval of their own worth the name:
    then the bounds are the medians of theirs."""
    value, low, high = (float(found[name].median()) for name in ("value", "low", "high"))
    return stats.median_interval(found["value"]) if len(found) >= 5 else stats.Interval(value, low, high, float(found["coverage"].min()))


def best_large(frame: pd.DataFrame, kernel: str = "page_chase") -> str:
    """Which large pages a kernel was measured on. Raises Unavailable("pool-empty")."""
    return splinter.large_pages(frame[frame["kernel"] == kernel])


def side_by_side(frame: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """The published speedups (columns working_set_bytes, ns_per_access_4k, _2m, speedup_ratio) beside this machine's chase, a row
    each published size; NaN where it was not measured."""
    ours = {pages: claims.curve(frame[frame["pages"] == pages], "spread").set_index("lines")["median"] for pages in kinds(frame)}
    table = pd.DataFrame({"working set": [format_size(int(size)) for size in published["working_set_bytes"]]})
    for name, column in (("published 4k, ns", "ns_per_access_4k"), ("published 2m, ns", "ns_per_access_2m"),
                         ("published speedup", "speedup_ratio")):
        table[name] = published[column].astype(float).to_numpy()
    lines = published["working_set_bytes"] // PAGE
    nothing = float("nan")
    for pages, medians in ours.items():
        table[f"{pages} here, ns"] = [float(medians.get(n, nothing)) for n in lines]
    for pages in (one for one in ours if one != "4k" and "4k" in ours):
        table[f"{pages} speedup"] = table["4k here, ns"] / table[f"{pages} here, ns"]
    return table


# --- random touches ---


def touches(frame: pd.DataFrame, spare_draws: int = 0) -> pd.DataFrame:
    """A row a page size and array: pages, array_bytes, median, low, high, n, generator_ns (ns per read; the last is the median
    cost of drawing alone, part of each read). spare_draws: of the loop that throws so many draws away before each read."""
    thrown = frame["spare_draws"].fillna(0) if "spare_draws" in frame else 0
    rows = frame[(frame["kernel"] == _TOUCH) & (thrown == spare_draws)]
    if rows.empty:
        return pd.DataFrame(columns=["pages", "array_bytes", "median", "low", "high", "n", "generator_ns"])
    found = stats.summarise(rows, ["pages", "bytes"])
    drawn = rows.groupby(["pages", "bytes"])["generator_ns_per_access"].median()
    found["generator_ns"] = [float(drawn[key]) for key in zip(found["pages"], found["bytes"], strict=True)]
    found = found.sort_values(["pages", "bytes"], key=lambda x: x.map(PAGES.index) if x.name == "pages" else x, ignore_index=True)
    return found.rename(columns={"bytes": "array_bytes"}).astype({"array_bytes": "int64"})


def published_times(published: pd.DataFrame) -> pd.DataFrame:
    """The published times without those that were taken under a profiler."""
    return published[(published["quantity"] == "time") & published["where"].str.startswith("first table")]


def reads_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """The loop in C with and without a spare draw before each read: pages, array_bytes, median, median_spare."""
    plain, spare = touches(frame), touches(frame, 1)
    keys = ["pages", "array_bytes"]
    return plain[[*keys, "median"]].merge(spare[[*keys, "median"]], on=keys, suffixes=("", "_spare"))


def touch_table(frame: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """ns per read by array size: here on each page size, the draw alone, and the published figures beside them."""
    ours = touches(frame)
    theirs = published_times(published).pivot(index="array_bytes", columns="pages", values="score")
    sizes = sorted(set(ours["array_bytes"]) | set(theirs.index))
    table = pd.DataFrame({"array, bytes": [f"{size:,}" for size in sizes]})
    for pages in dict.fromkeys(ours["pages"]) if len(ours) else ():
        medians = ours[ours["pages"] == pages].set_index("array_bytes")["median"]
        table[f"{pages} here, ns"] = [float(medians.get(size, float("nan"))) for size in sizes]
    if len(ours):
        table["draw alone, ns"] = float(ours["generator_ns"].median())
    for pages in (one for one in PAGES if one in theirs):
        table[f"{pages} published, ns"] = [float(theirs[pages].get(size, float("nan"))) for size in sizes]
    return table


def touch_counts(frame: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Misses per read of the largest published array: walks as counted here (NaN where nothing counts), and JMH's dTLB-load-misses."""
    rows = frame[frame["kernel"] == _TOUCH]
    theirs = published[published["quantity"] == "dTLB-load-misses"].set_index("pages")
    size = int(theirs["array_bytes"].iloc[0])
    here = rows[rows["bytes"] == size] if len(rows) else rows
    kinds_of = [pages for pages in PAGES if pages in set(here["pages"]) | set(theirs.index)]
    nothing = float("nan")
    counted = here.groupby("pages")["walk_per_access"].median() if "walk_per_access" in here else pd.Series(dtype=float)
    return pd.DataFrame({
        "pages": kinds_of, "walks per read here": [float(counted.get(pages, nothing)) for pages in kinds_of],
        "published dTLB-load-misses per read": [float(theirs["score"].get(pages, nothing)) for pages in kinds_of],
        "relation": [str(theirs["relation"].get(pages, "")) for pages in kinds_of]})


# --- faulting in ---


def prefaults(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a page size, mode and number of threads: median, low, high (ns per 4 KiB made ready), gb_per_s (10^9 bytes),
    free_ns (ns per 4 KiB given back), one_byte_bytes (resident for one byte touched)."""
    rows = frame[frame["kernel"] == "prefault"]
    columns = ["pages", "mode", "threads", "median", "low", "high", "n", "gb_per_s", "free_ns", "one_byte_bytes"]
    if rows.empty:
        return pd.DataFrame(columns=columns)
    keys = ["pages", "mode", "threads"]
    found = stats.summarise(rows, keys)
    others = rows.groupby(keys)[["free_ns_per_access", "one_byte_resident_bytes"]].median().reset_index()
    found = found.merge(others, on=keys).rename(columns={"free_ns_per_access": "free_ns", "one_byte_resident_bytes": "one_byte_bytes"})
    found["gb_per_s"] = PAGE / found["median"]
    found["order"] = found["pages"].map(PAGES.index)
    return found.sort_values(["order", "mode", "threads"])[columns].astype({"threads": int}).reset_index(drop=True)


def prefault_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Rates by page size and way, and what one byte costs."""
    found = prefaults(frame)
    return pd.DataFrame({
        "pages": found["pages"], "way": found["mode"], "threads": found["threads"], "ns per 4 KiB": found["median"].astype(float),
        "GB/s": found["gb_per_s"].astype(float), "freeing, ns per 4 KiB": found["free_ns"].astype(float),
        "resident for one byte": [format_size(int(size)) for size in found["one_byte_bytes"]]})
