"""What a walk of a graph says of loads, misses and walks: rows of `graph_walk` as quantiles, shares and regimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.article.machine_words import data_tlbs
from experiments.chapters.hugepages.analysis import PAGES
from experiments.inference import intervals as stats
from experiments.inference import misses as model
from experiments.inference.intervals import Interval
from experiments.lab.record import PAGE_BYTES
from experiments.machine.host import Host
from experiments.inference.hops import below, merged, quantile, smoothed
from experiments.words.reasons import Unavailable

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
# A hop that takes half as long again as one load from memory did something else beside it: a walk whose own reads went to
# memory, which on every machine known to us takes as long as the load itself. Half of that is the least doubtful line.
PAST_MEMORY = 1.5


def option(frame: pd.DataFrame, name: str, default: float) -> pd.Series:
    """A kernel's own number in each row; `default` where the row was measured without it."""
    return frame[name].fillna(default) if name in frame else pd.Series(default, index=frame.index)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["kernel"] == "graph_walk") & (frame["mode"] == "plain")]


def clocked(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of plain walks that were timed hop by hop."""
    rows = _plain(frame)
    return rows[option(rows, "per_hop", 0) == 1]


def batched(frame: pd.DataFrame, walkers: int | None = 1) -> pd.DataFrame:
    """The rows of plain walks that were timed per batch, of so many walkers; None: of any number."""
    rows = _plain(frame)
    many = option(rows, "walkers", 1)
    return rows[(option(rows, "per_hop", 0) == 0) & (True if walkers is None else many == walkers)].assign(walkers=many)


def kinds(rows: pd.DataFrame) -> list[str]:
    """The page sizes among these rows, from small to large."""
    return [pages for pages in PAGES if (rows["pages"] == pages).any()]


def large_pages(rows: pd.DataFrame) -> str:
    """The large pages to compare base pages with: those that reach the largest size, and of them the largest, whose walks are
    the fewest and shortest. Raises Unavailable("pool-empty")."""
    far = rows.groupby("pages")["working_set_bytes"].max().drop("4k", errors="ignore")
    if far.empty:
        raise Unavailable("pool-empty", "no walk was measured on large pages")
    return max(far.index[far == far.max()], key=lambda one: (PAGE_BYTES[one], one == "2m"))


def _of_processes(rows: pd.DataFrame, asked: Sequence[float]) -> pd.DataFrame:
    parts = [pd.DataFrame({"pages": row["pages"], "working_set_bytes": row["working_set_bytes"], "process": i, "q": asked,
                           "ns": quantile(smoothed(row), asked)}) for i, (_, row) in enumerate(rows.iterrows())]
    empty = pd.DataFrame(columns=["pages", "working_set_bytes", "process", "q", "ns"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def quantiles(frame: pd.DataFrame, asked: Sequence[float] = QUANTILES) -> pd.DataFrame:
    """Quantiles of a hop's time, the clock's cost taken off: pages, working_set_bytes, q, then as `stats.summarise` over processes.

    Raises Unavailable("too-few-points") where no walk was timed hop by hop.
    """
    each = _of_processes(clocked(frame), asked)
    if each.empty:
        raise Unavailable("too-few-points", "no walk was timed hop by hop")
    found = stats.summarise(each, ["pages", "working_set_bytes", "q"], "ns")
    return found.astype({"working_set_bytes": "int64"}).sort_values(
        ["pages", "working_set_bytes", "q"], key=lambda x: x.map(PAGES.index) if x.name == "pages" else x, ignore_index=True)


def tail(frame: pd.DataFrame, pages: str) -> tuple[int, Interval]:
    """The largest size in bytes, and how many times its median its 95th percentile is, each process by itself."""
    rows = clocked(frame)
    rows = rows[rows["pages"] == pages]
    if rows.empty:
        raise Unavailable("too-few-points", f"no walk on {pages} was timed hop by hop")
    size = int(rows["working_set_bytes"].max())
    each = _of_processes(rows[rows["working_set_bytes"] == size], (0.5, 0.95)).pivot(index="process", columns="q", values="ns")
    each = each[each[0.5] > 0]
    if each.empty:
        raise Unavailable("too-few-points", "half of all hops are too short for this clock")
    return size, stats.median_interval(each[0.95] / each[0.5])


# --- means per batch


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """ns per hop of one walker, timed per batch: pages, working_set_bytes, then as `stats.summarise`."""
    return stats.summarise(batched(frame), ["pages", "working_set_bytes"])


def saved(frame: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """The large pages that were compared, and what base pages cost more: working_set_bytes, value, low, high (ns per hop).

    It is no price of translation: where large pages miss too, it is what their walks are cheaper or fewer by. Unavailable.
    """
    found = means(frame)
    if not (found["pages"] == "4k").any():
        raise Unavailable("too-few-points", "no walk on base pages was timed per batch")
    large = large_pages(found)
    sides = [found[found["pages"] == one].set_index("working_set_bytes") for one in ("4k", large)]
    rows = [(size, *stats.interval_of_difference(*(interval(side.loc[size]) for side in sides)))
            for size in sorted(set(sides[0].index) & set(sides[1].index))]
    return large, pd.DataFrame(rows, columns=["working_set_bytes", "value", "low", "high", "coverage"])


def interval(row: pd.Series) -> Interval:
    """A row of `stats.summarise` as an interval."""
    return Interval(*(float(row[name]) for name in ("median", "low", "high", "coverage")))


def by_walkers(frame: pd.DataFrame) -> pd.DataFrame:
    """ns per hop by how many walks take turns in one thread: pages, walkers, vertices, then as `stats.summarise`; gain, the time
    of one walker over this; floor_ns, the same loop over a graph of four vertices.

    Of each page size the largest graph that was walked by several numbers of walkers. Raises Unavailable("too-few-points").
    """
    rows = batched(frame, None)
    several = rows.groupby(["pages", "lines"])["walkers"].nunique()
    most = dict(sorted(several[several > 1].index))  # of each page size the last is the largest
    chosen = rows[rows["lines"] == rows["pages"].map(most)]
    if chosen.empty:
        raise Unavailable("too-few-points", "no graph was walked by several numbers of walkers")
    found = stats.summarise(chosen, ["pages", "walkers"])
    alone = found[found["walkers"] == 1].set_index("pages")["median"]
    found["gain"] = found["pages"].map(alone).astype(float) / found["median"]
    found["vertices"] = found["pages"].map(most)
    floor = option(chosen, "four_vertices_ns_per_access", np.nan).groupby([chosen["pages"], chosen["walkers"]]).median()
    found["floor_ns"] = [float(floor[key]) for key in zip(found["pages"], found["walkers"], strict=True)]
    found["order"] = found["pages"].map(PAGES.index)
    return found.sort_values(["order", "walkers"], ignore_index=True).drop(columns="order").astype({"walkers": int})


class Parallel(NamedTuple):
    """What many walks at once say of a page size: where their gain stops."""

    pages: str
    one_ns: Interval
    best_ns: Interval
    best_walkers: int
    enough: int  # the fewest walkers within a tenth of the best
    gain: float


def parallel(found: pd.DataFrame, pages: str) -> Parallel:
    """Of a frame of `by_walkers`. Raises Unavailable("too-few-points") without one walker to compare with."""
    side = found[(found["pages"] == pages) & found["gain"].notna()].set_index("walkers")
    if 1 not in side.index or len(side) < 2:
        raise Unavailable("too-few-points", f"several walkers on {pages} were not measured beside one")
    best = int(side["median"].idxmin())
    enough = int(side.index[side["median"] <= 1.1 * side["median"].min()].min())
    return Parallel(pages, interval(side.loc[1]), interval(side.loc[best]), best, enough, float(side.loc[best, "gain"]))


def walks_under_way(found: pd.DataFrame) -> tuple[Parallel, Parallel, Interval]:
    """Base pages, large pages, and how many walks the former had under way at once at their best.

    By Little's law as many as a walk takes over what a hop takes then. A walk takes what one walker's hop takes longer on base
    pages than on large ones: less than it truly takes where large pages walk too, and while it waits for a page walker it takes
    longer, so this is a lower bound. Raises Unavailable("too-few-points", "pool-empty").
    """
    base = parallel(found, "4k")
    rest = [one for one in ("1g", "2m", "thp") if (found["pages"] == one).any()]
    if not rest:
        raise Unavailable("pool-empty", "several walkers were not measured on large pages")
    large = parallel(found, rest[0])
    walk = stats.interval_of_difference(base.one_ns, large.one_ns)
    if walk.low <= 0:
        raise Unavailable("unstable", f"base pages cost {walk.value:z.1f} ns more ({walk.low:z.1f} to {walk.high:z.1f})")
    return base, large, stats.interval_of_ratio(walk, base.best_ns)


# --- misses


def capacities(host: Host, entries: Sequence[float], splintered: bool = False) -> dict[str, float]:
    """How many bytes the last TLB level reaches, by page size; what nothing states is left out.

    entries: of each level for 4 KiB pages, measured or stated. Splintered pages are held as pieces of 4 KiB, in the entries of
    those.
    """
    reach: dict[str, float] = {}
    for pages, size in PAGE_BYTES.items():
        if pages == "4k" or splintered:
            found = list(entries[-1:])
        else:
            found = [one.entries for one in data_tlbs(host, {"thp": "2m"}.get(pages, pages))[-1:]]
        if found:
            reach[pages] = found[0] * (PAGE_BYTES["4k"] if splintered else size)
    return reach


def predicted(sizes: Sequence[int], reach: Mapping[str, float]) -> pd.DataFrame:
    """Walks per hop, 1 - C/M, by page size and working set: pages, working_set_bytes, median. reach: of `capacities`."""
    parts = [pd.DataFrame({"pages": pages, "working_set_bytes": sizes, "median": model.miss_probability_random(sizes, covered)})
             for pages, covered in reach.items()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["pages", "working_set_bytes", "median"])


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Walks per hop as counted: pages, working_set_bytes, then as `stats.summarise`; empty where no row has a count."""
    rows = batched(frame)
    if "walk_per_access" not in rows or not rows["walk_per_access"].notna().any():
        return pd.DataFrame(columns=["pages", "working_set_bytes", "median", "low", "high", "n"])
    return stats.summarise(rows[rows["walk_per_access"].notna()], ["pages", "working_set_bytes"], "walk_per_access")


# --- regimes


class Regimes(NamedTuple):
    """Which place answers half of the hops on base pages, by size; the lines between them, ns."""

    cache_ns: float  # the median hop of the smallest graph
    memory_ns: float  # that of a load from memory with as little translation as was to be had
    large: str  # the pages that told it
    cut_ns: tuple[float, float]  # between cache and memory, and between memory and memory with a walk that reads it
    table: pd.DataFrame  # working_set_bytes, p50, p95, regime (cache, memory, memory and walk)

    def sizes(self, regime: str) -> list[int]:
        return [int(size) for size in self.table.loc[self.table["regime"] == regime, "working_set_bytes"]]


REGIMES = ("cache", "memory", "memory and walk")


def regimes(frame: pd.DataFrame) -> Regimes:
    """The regime of each size on base pages, from the distributions alone.

    A load from memory takes what half of the hops on large pages do not exceed, two octaves past the size where that median
    has done half of its rise: most hops miss the caches there, and the walks of large pages are still short. The line between
    cache and memory is the geometric mean of the two; that past memory, PAST_MEMORY. Raises Unavailable: too-few-points,
    pool-empty, no-step where large pages never leave the caches.
    """
    found = quantiles(frame, (0.5, 0.95))
    large = large_pages(found)
    medians = {one: found[(found["pages"] == one) & (found["q"] == 0.5)].set_index("working_set_bytes")["median"]
               for one in ("4k", large)}
    if medians["4k"].empty:
        raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
    control = medians[large]
    cache, most = float(medians["4k"].iloc[0]), float(control.max())
    left = control.index[control > most / 2].min()
    if most < 4 * max(cache, float(control.iloc[0])):
        raise Unavailable("no-step", f"the median hop on {large} takes {most:.1f} ns at the most")
    past = control[control.index >= 4 * left]
    memory = float(past.iloc[0] if len(past) else control.iloc[-1])
    cuts = float(np.sqrt(max(cache, 1.0) * memory)), PAST_MEMORY * memory
    table = found[found["pages"] == "4k"].pivot(index="working_set_bytes", columns="q", values="median").reset_index()
    table = table.rename(columns={0.5: "p50", 0.95: "p95"}).rename_axis(columns=None)
    table["regime"] = [REGIMES[int(np.searchsorted(cuts, ns))] for ns in table["p50"]]
    return Regimes(cache, memory, large, cuts, table)


def shares(frame: pd.DataFrame, pages: str, size_bytes: int, cut_ns: Sequence[float]) -> np.ndarray:
    """The shares of hops below, between and above the cuts, at one size."""
    rows = clocked(frame)
    spread = merged(rows[(rows["pages"] == pages) & (rows["working_set_bytes"] == size_bytes)])
    return np.diff(np.concatenate([[0.0], below(spread, cut_ns), [1.0]]))
