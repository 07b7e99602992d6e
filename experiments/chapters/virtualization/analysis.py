"""A guest's loads beside a process's own: rows of guests, plain processes, containers and memory nodes as curves and ratios."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
from scipy.ndimage import median_filter

from experiments.article import analysis
from experiments.chapters.virtualization import references
from experiments.chapters.virtualization.grid import GUEST_PAGES, HOST_PAGES, NODES, STEPS_OF
from experiments.inference import splinter
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import UNKNOWN, Interval, median_interval, summarise
from experiments.lab.namespaces import MODE as NAMESPACES
from experiments.words.pages import BASE, hardware, page_bytes, words
from experiments.words.reasons import Unavailable, required
from experiments.words.units import format_size

Chase = tuple[str, str]  # the guest's page, "" of a plain process; and the host's
GUEST, PROCESS, NODE = "guest_chase", "page_chase", "numa_chase"
OUTSIDE = "no guest"
GUEST_BASE_BYTES = 4096  # the guest of guest_chase is written for x86-64
LEAST_PAIRS = 5  # of a median, fewer have no interval worth the name
CLEAR = 1.25  # so far from a level's end that sets which fill unevenly no longer show
LEAST_BETWEEN = 4  # prices that a level's own price is the median of: two octaves


def cell_name(guest: str, host: str) -> str:
    return f"{guest} on {host}" if guest else f"{OUTSIDE}, {host}"


def pair_words(guest: str, host: str) -> str:
    """The same for a sentence: 4 KiB pages on the host's transparent 2 MiB pages."""
    return f"{format_size(page_bytes(guest, GUEST_BASE_BYTES))} pages on the host's {words(host)}" if guest else f"{words(host)} outside"


class Analysis(analysis.Analysis):
    """The rows of experiment `virtualization`; times are ns per access, by the clock of whoever made them.

    What has guests in it (`cells`, `matrix` and on) is of these rows. Sentences and claims about guests ask `guests` whose to take.
    """

    touched = "first_touch_ns_per_access"  # the column that `touches` is about

    def __setattr__(self, name: str, value: object) -> None:
        """What is assigned stands in a property's place, and what was derived without it is derived anew."""
        given = {**vars(self).get("_given", {}), name: value}
        whose = {key: known for key, known in vars(self).items() if key == "guests"}
        object.__setattr__(self, "__dict__", {**whose, **given, "_given": given})

    @cached_property
    def guests(self) -> Analysis:
        """Whose guests are shown: this machine's, or the reference machine's where this machine has none. Itself where neither has."""
        with suppress(Unavailable):
            if not self.cells:
                reference = self.about.reference()
                theirs = Analysis(reference.kept("virtualization"), reference)
                return theirs if theirs.cells else self
        return self

    # --- chases

    def rows(self, guest: str, host: str, levels: int = 4) -> pd.DataFrame:
        """The rows of a chase, `levels` being of a guest's tables."""
        own = {"kernel": GUEST, "mode": guest, "levels": levels} if guest else {"kernel": PROCESS, "mode": ""}
        return select(self.frame, pages=host, **own)

    def _curves(self, layout: str) -> dict[Chase, Curve]:
        curves = {chase: Curve.of(self.rows(*chase), layout=layout) for chase in product(("", *GUEST_PAGES), HOST_PAGES)}
        return {chase: curve for chase, curve in curves.items() if len(curve)}

    @cached_property
    def spread(self) -> dict[Chase, Curve]:
        """Over one line to each base page: a curve a chase, the plain processes' first, pages from small to large."""
        return self._curves("spread")

    @cached_property
    def packed(self) -> dict[Chase, Curve]:
        """Their controls: as many lines side by side."""
        return self._curves("packed")

    @cached_property
    def price(self) -> dict[Chase, Curve]:
        """What translation costs: spread minus packed."""
        return {chase: self.price_of(self.spread[chase], self.packed[chase]) for chase in self.spread if chase in self.packed}

    @property
    def cells(self) -> list[Chase]:
        """The pairs of page sizes that were measured in a guest."""
        return [chase for chase in self.spread if chase[0]]

    def alike(self, guest: str) -> str | None:
        """The page size on which the same program would run outside: the guest's, of 2 MiB the pool's before the transparent kind."""
        return next((host for host in HOST_PAGES[::-1] if hardware(host) == guest and ("", host) in self.spread), None)

    @cached_property
    def over_alike(self) -> dict[Chase, Curve]:
        """A guest's time over a plain process's on the guest's page size: the same program moved, so the second dimension is left."""
        return {cell: self.spread[cell] / self.spread["", same] for cell in self.cells if (same := self.alike(cell[0]))}

    @cached_property
    def over_base(self) -> dict[Chase, Curve]:
        """A guest's time over a plain process's on base pages, which is what a program has that asks for nothing."""
        return {cell: self.spread[cell] / self.spread["", BASE] for cell in self.cells if ("", BASE) in self.spread}

    @cached_property
    def chases(self) -> pd.DataFrame:
        """A row a chase and number of lines: guest, host, cell (its name), what `summarise` says of the spread chase, and packed, price,
        over_4k and over_alike, each with _low and _high; NaN where that was not measured. Raises Unavailable("too-few-points")."""
        beside = {"packed": self.packed, "price": self.price, "over_4k": self.over_base, "over_alike": self.over_alike}
        tables = []
        for chase, curve in self.spread.items():
            table = curve.table.assign(guest=chase[0], host=chase[1], cell=cell_name(*chase))
            for name, curves in beside.items():
                known = dict(curves.get(chase, ()))
                table[[name, f"{name}_low", f"{name}_high"]] = [known.get(lines, UNKNOWN)[:3] for lines in table["lines"]]
            tables.append(table)
        return pd.concat(required(tables, "nothing was measured"), ignore_index=True)

    @cached_property
    def matrix(self) -> pd.DataFrame:
        """The rows of `chases` that are guests'. Raises Unavailable("too-few-points") without any."""
        required(self.cells, "no guest was measured")
        return self.chases[self.chases["guest"] != ""].reset_index(drop=True)

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of lines that most cells share, ascending: those of the heat map, not of the steps."""
        count = self.matrix.groupby("lines").size()
        return [int(lines) for lines in count.index[count == count.max()]]

    @property
    def far(self) -> pd.DataFrame:
        """The matrix at the largest size that most cells share."""
        return select(self.matrix, lines=self.sizes[-1]).reset_index(drop=True)

    @cached_property
    def references(self) -> pd.DataFrame:
        """`far` with the loads of page-table entries in a walk, four levels on four: formula, simulated (cold), warm (per load), shadow."""
        counts = {"formula": references.at_most, "simulated": references.cold, "shadow": references.of_shadow,
                  "warm": lambda *pair: references.warm(*pair, self.sizes[-1], self.host)}
        pairs = list(zip(self.far["guest"], self.far["host"], strict=True))
        return self.far.assign(**{name: [count(*pair) for pair in pairs] for name, count in counts.items()})

    @property
    def priced(self) -> pd.DataFrame:
        """The rows of `references` that have a price. Raises Unavailable("too-few-points") without any."""
        return required(self.references.dropna(subset="price"), "no guest's chase was measured with its packed control")

    @cached_property
    def depths(self) -> dict[tuple[int, int], int]:
        """The most references of a walk, base pages on base pages, by the levels of the guest's tables and of the host's."""
        return {levels: references.at_most(BASE, BASE, *levels) for levels in product((4, 5), repeat=2)}

    # --- what an entry spans: from the guest's virtual address to the host's physical one, so no more than the smaller of the two pages

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Where the price of translation leaves each TLB level: a row a chase: guest, host, first_low, first_high, second_low,
        second_high (neighbouring numbers of lines), most (lines). NaN where it never leaves it.

        Between the two levels' entries a process on base pages pays for a hit in the second, and by that price the others are told:
        half of it is past the first level, twice of it past the second, from there on in all larger sizes. (A grid of two points an
        octave is too coarse for change points.) Raises Unavailable: no-geometry, too-few-points, no-step.
        """
        first, second = self.two_levels()
        between = self.price["", BASE].between(first * CLEAR, second / CLEAR) if ("", BASE) in self.price else ()
        if len(between) < LEAST_BETWEEN:
            raise Unavailable("too-few-points", "a process on base pages was not measured between the two levels")
        if (hit := float(between.medians.median())) <= 0:
            raise Unavailable("no-step", f"between the two levels a process on base pages pays {hit:z.2f} ns")
        rows = []
        for chase, curve in self.price.items():
            part = curve.between(0, splinter.MOST_LINES).medians
            if len(part) >= 2 * LEAST_BETWEEN:  # those measured at the matrix's sizes alone have no steps to show
                rows.append((*chase, *_left(part, hit / 2), *_left(part, 2 * hit), int(part.index[-1])))
        return pd.DataFrame(rows, columns=["guest", "host", "first_low", "first_high", "second_low", "second_high", "most"])

    @cached_property
    def shares(self) -> dict[Chase, Interval]:
        """What a chase pays between the first level's entries and the second's over what one on base pages throughout pays there, for
        STEPS_OF but the first, and large pages outside. Entries that span large pages are few for all lines and cost nothing there
        (inference/splinter.py). What cannot be compared is left out."""
        outside = [("", host) for host in dict.fromkeys(host for _, host in STEPS_OF) if hardware(host) != BASE]
        shares = {}
        for guest, host in [*outside, *STEPS_OF[1:]]:
            base, large = self.rows(BASE if guest else "", BASE), self.rows(guest, host)
            if base.empty or large.empty or large["lines"].min() > base["lines"].min():
                continue  # what a load costs that misses nothing goes off both
            both = pd.concat([base.assign(pages=BASE), large.assign(pages="2m")]).assign(kernel=PROCESS, stride_pages=1)
            with suppress(Unavailable):
                shares[guest, host] = splinter.judge(both, "none").first.share
        return shares

    # --- what a guest costs beside its loads

    @property
    def in_first_cache(self) -> Interval:
        """The first cell's packed chase of the fewest lines over the plain process's: where nothing is translated twice and nothing
        missed, both run the same instructions on the same lines. Raises Unavailable("too-few-points")."""
        cell = next(iter(self.cells), ("", ""))
        pair = [self.packed.get(chase) for chase in (cell, ("", self.alike(cell[0]) or BASE))]
        ratios = (pair[0] / pair[1]).intervals if all(pair) else []
        return required(ratios, "no packed chase was measured both in a guest and outside")[0]

    @cached_property
    def five_levels(self) -> tuple[int, Interval]:
        """The most lines that a guest of five levels chased on base pages, and its time over one's of four. Raises Unavailable."""
        five = Curve.of(self.rows(BASE, BASE, levels=5), layout="spread")
        ratios = list(five / self.spread[BASE, BASE]) if (BASE, BASE) in self.spread else []
        return required(ratios, "no guest with five levels was measured beside one with four")[-1]

    @property
    def clocks(self) -> pd.Series:
        """The time by the clock outside over that by the guest's, a value a process. Raises Unavailable("too-few-points")."""
        rows = select(self.frame, kernel=GUEST, levels=4)
        ratios = rows.get("outside_ns_per_access", pd.Series(dtype=float)) / rows["ns_per_access"]
        return required(ratios.dropna(), "no guest was timed by two clocks")

    @cached_property
    def touches(self) -> pd.DataFrame:
        """What a line's first touch in the guest costs, ns, a row a cell, at the largest of `sizes`: guest, host and the columns of
        `summarise`. Raises Unavailable("too-few-points")."""
        rows = select(self.frame, kernel=GUEST, levels=4, layout="spread", lines=self.sizes[-1])
        required(rows.get(self.touched, pd.Series(dtype=float)).dropna(), "no first touch was timed in a guest")
        table = summarise(rows, ["mode", "pages", "lines"], self.touched).set_index(["mode", "pages"])
        return table.loc[[cell for cell in self.cells if cell in table.index]].rename_axis(["guest", "host"]).reset_index()

    # --- containers and memory nodes

    @cached_property
    def plain(self) -> pd.DataFrame:
        """The plain process's rows on base pages."""
        return self.rows("", BASE)

    @cached_property
    def contained(self) -> pd.DataFrame:
        """Those of the same process in fresh namespaces."""
        return select(self.frame, kernel=PROCESS, pages=BASE, mode=NAMESPACES)

    @cached_property
    def containers(self) -> pd.DataFrame:
        """The chase in fresh namespaces beside the plain one, a row a layout and number of lines: layout, lines, plain, inside, and
        difference, low, high (inside minus plain). Raises Unavailable("too-few-points")."""
        curves = {layout: [Curve.of(rows, layout=layout) for rows in (self.plain, self.contained)]
                  for layout in ("spread", "packed")}
        rows = [(layout, int(lines), plain.get(lines).value, inside.get(lines).value, *difference[:3])
                for layout, (plain, inside) in curves.items() for lines, difference in inside - plain]
        return pd.DataFrame(required(rows, "no chase was measured in fresh namespaces"),
                            columns=["layout", "lines", "plain", "inside", "difference", "low", "high"])

    @cached_property
    def container_ratio(self) -> Interval:
        """Time in fresh namespaces over that of a plain process, the median over pairs, with its exact interval. A pair walked the same
        permutation in the same repeat, so what the order and an hour of drift do, they do to both; one interval over all sizes has one
        chance to miss, where one a size has as many. Raises Unavailable("too-few-points")."""
        plain, inside = (rows.groupby(["layout", "lines", "repeat"])["ns_per_access"].median() for rows in (self.plain, self.contained))
        pairs = (inside / plain).dropna()
        if len(pairs) < LEAST_PAIRS:
            raise Unavailable("too-few-points", f"{len(pairs)} pairs of a process in namespaces and a plain one")
        return median_interval(pairs)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The chase by where its memory and page tables lie, seen from the CPU: memory, tables, lines, median, low, high, over, over_low,
        over_high (over both near). Empty where no node but one was measured."""
        curves = Curve.by(self.frame, NODES, "mode", kernel=NODE, layout="spread")
        rows = []
        for mode, curve in curves.items():
            over = dict(curve / curves[NODES[0]]) if NODES[0] in curves else {}
            rows += [(*mode.split("-"), int(lines), *here[:3], *over.get(lines, UNKNOWN)[:3]) for lines, here in curve]
        return pd.DataFrame(rows, columns=["memory", "tables", "lines", "median", "low", "high", "over", "over_low", "over_high"])


def _left(price: pd.Series, least: float) -> tuple[float, float]:
    """The numbers of lines between which a price, smoothed by a median of three, comes to `least` for good; NaN where it does not."""
    under = np.flatnonzero(median_filter(price.to_numpy(), size=3, mode="nearest") < least)
    if not len(under) or under[-1] == len(price) - 1:
        return np.nan, np.nan
    return float(price.index[under[-1]]), float(price.index[under[-1] + 1])
