"""A guest's loads beside a process's own: the rows of experiment `virtualization` as a matrix of page sizes, ratios and tables."""

from __future__ import annotations

import pandas as pd

from experiments.inference import curves as claims
from experiments.inference import intervals as stats
from experiments.inference.hops import option
from experiments.inference.intervals import Interval
from experiments.lab.grid import GUEST_PAGES, HOST_PAGES
from experiments.words.reasons import Unavailable

KERNEL = "guest_chase"
NATIVE = "page_chase"
NAMESPACES = "namespaces"
_NOTHING = float("nan")
_UNKNOWN = Interval(_NOTHING, _NOTHING, _NOTHING, 0.0)


def hardware(pages: str) -> str:
    """The page that a table's entry maps: a transparent huge page is one of 2 MiB."""
    return "2m" if pages == "thp" else pages


def smaller(guest: str, host: str) -> str:
    """The page that a TLB entry can span at most, which leads from the guest's address to the host's."""
    return min(hardware(guest), hardware(host), key=GUEST_PAGES.index)


def cell_name(guest: str, host: str) -> str:
    return f"{guest} on {host}"


def guests(frame: pd.DataFrame, levels: int = 4) -> pd.DataFrame:
    """The rows of guests whose page tables have so many levels."""
    mine = frame[frame["kernel"] == KERNEL]
    return mine[option(mine, "levels", 4) == levels]


def native(frame: pd.DataFrame, pages: str | None = None, mode: str = "") -> pd.DataFrame:
    """The chase of a plain process, or of one in fresh namespaces."""
    chosen = frame[(frame["kernel"] == NATIVE) & (frame["mode"] == mode)]
    return chosen if pages is None else chosen[chosen["pages"] == pages]


def cell(frame: pd.DataFrame, guest: str, host: str) -> pd.DataFrame:
    mine = guests(frame)
    return mine[(mine["mode"] == guest) & (mine["pages"] == host)]


def cells(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """The (guest's page, host's page) that were measured with a line to a page, both from small to large."""
    mine = guests(frame)
    there = set(zip(mine.loc[mine["layout"] == "spread", "mode"], mine.loc[mine["layout"] == "spread", "pages"], strict=True))
    return [(guest, host) for guest in GUEST_PAGES for host in HOST_PAGES if (guest, host) in there]


def native_pages(frame: pd.DataFrame) -> list[str]:
    """The page sizes on which a plain process was measured."""
    there = set(native(frame).loc[native(frame)["layout"] == "spread", "pages"])
    return [pages for pages in HOST_PAGES if pages in there]


def alike(frame: pd.DataFrame, guest: str) -> str | None:
    """The page size on which the same program would run outside: the guest's, of 2 MiB the pool's before the transparent kind."""
    return next((pages for pages in native_pages(frame)[::-1] if hardware(pages) == guest), None)


def interval_at(side: pd.DataFrame | None, lines: int) -> Interval:
    """The row of a summary at a number of lines; an interval of NaN where it was not measured."""
    if side is None or lines not in side.index:
        return _UNKNOWN
    return Interval(*(float(side.loc[lines, name]) for name in ("median", "low", "high", "coverage")))


def over(a: Interval, b: Interval) -> Interval:
    return stats.interval_of_ratio(a, b) if a.value > 0 and b.value > 0 else _UNKNOWN


def matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a guest's page, host's page and number of lines: the spread chase (median, low, high, coverage, n, spread, unstable; ns per
    access, by the guest's clock), its packed control, the price of translation, and the ratio to a process outside.

    over_4k: over the plain process on base pages, which is what a program has that asks for nothing. over_alike: over the plain
    process on the guest's page size (`alike`), the same program moved into a guest: what is left is the second dimension. Each with
    _low and _high; NaN where that side was not measured. Raises Unavailable("too-few-points") without any guest.
    """
    sides = {pages: claims.curve(native(frame, pages), "spread").set_index("lines") for pages in native_pages(frame)}
    rows = []
    for guest, host in cells(frame):
        mine = cell(frame, guest, host)
        spread, packed = (claims.curve(mine, layout, KERNEL).set_index("lines") for layout in ("spread", "packed"))
        same = alike(frame, guest)
        for lines, one in spread.iterrows():
            found, control = interval_at(spread, lines), interval_at(packed, lines)
            price = stats.interval_of_difference(found, control)
            ratios = {f"over_{name}": over(found, interval_at(sides.get(pages), lines)) for name, pages in (("4k", "4k"), ("alike", same))}
            rows.append({
                "guest": guest, "host": host, "lines": int(lines), "median": found.value, "low": found.low, "high": found.high,
                "coverage": found.coverage, "n": int(one["n"]), "spread": one["spread"], "unstable": bool(one["unstable"]),
                "packed": control.value, "price": price.value, "price_low": price.low, "price_high": price.high,
                **{f"{name}{suffix}": value for name, ratio in ratios.items()
                   for suffix, value in zip(("", "_low", "_high"), ratio[:3], strict=True)}})
    if not rows:
        raise Unavailable("too-few-points", "no guest was measured")
    return pd.DataFrame(rows)


def outside(frame: pd.DataFrame) -> pd.DataFrame:
    """`matrix` as the plain process has it: pages, lines, median, low, high, price, price_low, price_high."""
    rows = []
    for pages in native_pages(frame):
        mine = native(frame, pages)
        spread, packed = (claims.curve(mine, layout).set_index("lines") for layout in ("spread", "packed"))
        for lines in spread.index:
            found = interval_at(spread, lines)
            price = stats.interval_of_difference(found, interval_at(packed, lines))
            rows.append((pages, int(lines), *found[:3], *price[:3]))
    return pd.DataFrame(rows, columns=["pages", "lines", "median", "low", "high", "price", "price_low", "price_high"])


def sizes(found: pd.DataFrame) -> list[int]:
    """The numbers of lines that most cells of a `matrix` share, ascending: those of the heat map, not of the steps."""
    count = found.groupby("lines")["median"].size()
    return [int(n) for n in count.index[count == count.max()]]


def at(found: pd.DataFrame, lines: int | None = None) -> pd.DataFrame:
    """The rows of a `matrix` at a number of lines; at the largest that most cells share where none is named."""
    return found[found["lines"] == (sizes(found)[-1] if lines is None else lines)].reset_index(drop=True)
