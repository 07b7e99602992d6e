"""A guest's loads beside a process's own: rows of guests, plain processes, containers and memory
nodes as curves and ratios."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from itertools import product

import pandas as pd

from experiments.virtualization.grid import GUEST_PAGES, HOST_PAGES, NUMA_PLACEMENTS
from experiments.virtualization.steps import GUEST_KERNEL, PagePair, StepsAnalysis
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import UNKNOWN, Interval, median_interval, summarise
from tlb.system.page_sizes import BASE, hardware, labels
from tlb.system.reasons import PAGE_REASONS, Unavailable, if_available, required

# Why a machine may have no guest, beside lacking pages.
GUEST_REASONS = PAGE_REASONS | {
    "no-kvm",
    "kvm-permission",
    "kvm-refused",
    "guest-crashed",
    "guest-emulated",
    "not-x86",
    "engine-lacks",
    "kernel-hung",
}
_OF_GUEST = {"4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB"}  # whose pages have no other kind
GUEST_BASE_BYTES = 4096  # the guest of guest_chase is written for x86-64, as is its host
SIZES = labels(GUEST_BASE_BYTES)


def cell_name(guest: str, host: str) -> str:
    """Return a pair as figures call it: 2 MiB on 4 KiB."""
    return f"{_OF_GUEST[guest]} on {SIZES[host]}" if guest else f"no guest, {SIZES[host]}"


def pair_words(guest: str, host: str) -> str:
    """Return a pair as a sentence calls it: 4 KiB pages on the host's 2 MiB (THP) pages."""
    whose = f"{_OF_GUEST[guest]} pages on the host's " if guest else ""
    return f"{whose}{SIZES[host]} pages"


class Analysis(StepsAnalysis):
    """The rows of experiment `virtualization`; times are ns per access, by the clock of whoever
    made them. What was not measured raises Unavailable.

    What has guests in it (`matrix` and on) is about the guests that the page shows, which may be
    those of the reference machine: ask `guests` for them.

    The page defines, about `guests`: spread, packed, ratios and touches; about this machine: plain
    and contained.
    """

    @cached_property
    def guests(self) -> Analysis:
        """Whose guests are shown: this machine's, or the reference machine's where this machine has
        none. Itself where neither has."""
        with suppress(Unavailable):
            if not self.cells:
                reference = self.about.on("reference")
                # One page defines what both have.
                theirs = Analysis(reference.kept("virtualization"), reference, self._names)
                return theirs if theirs.cells else self
        return self

    # --- chases

    def curves(self, layout: str) -> dict[PagePair, Curve]:
        """Return a curve for each chase that was measured, the plain processes' first, pages from
        small to large."""
        curves = {
            chase: Curve.of(self.rows(*chase), layout=layout)
            for chase in product(("", *GUEST_PAGES), HOST_PAGES)
        }
        return {chase: curve for chase, curve in curves.items() if len(curve)}

    @cached_property
    def cells(self) -> list[PagePair]:
        """The pairs of page sizes that were measured in a guest of this machine."""
        pairs = product(GUEST_PAGES, HOST_PAGES)
        return [pair for pair in pairs if len(select(self.rows(*pair), layout="spread"))]

    def alike(self, guest: str) -> str | None:
        """The page size on which the same program would run outside: the guest's, of 2 MiB the
        pool's before the transparent kind."""
        for host in HOST_PAGES[::-1]:
            if hardware(host) == guest and ("", host) in self.spread:
                return host
        return None

    @property
    def over_alike(self) -> dict[PagePair, Curve]:
        """The page's `ratios`, if the guests shown are this machine's own; else none."""
        return self.ratios if self.guests is self else {}

    @cached_property
    def chases(self) -> pd.DataFrame:
        """A row a chase and number of lines: guest, host, cell (its name), what `summarise` gives
        of the spread chase, and over_alike with _low and _high; NaN where that was not measured."""
        tables = []
        for chase, curve in self.spread.items():
            table = curve.table.assign(guest=chase[0], host=chase[1], cell=cell_name(*chase))
            known = dict(self.ratios.get(chase, ()))
            table[["over_alike", "over_alike_low", "over_alike_high"]] = [
                known.get(lines, UNKNOWN).value_and_bounds for lines in table["lines"]
            ]
            tables.append(table)
        return pd.concat(required(tables, "nothing was measured"), ignore_index=True)

    @cached_property
    def matrix(self) -> pd.DataFrame:
        required(self.cells, "no guest was measured")
        return self.chases[self.chases["guest"] != ""].reset_index(drop=True)

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of lines that most cells share, ascending; not those of the steps."""
        count = self.matrix.groupby("lines").size()
        return [int(lines) for lines in count.index[count == count.max()]]

    @property
    def far(self) -> pd.DataFrame:
        return select(self.matrix, lines=self.sizes[-1]).reset_index(drop=True)

    def ratio_of(self, row: pd.Series) -> Interval:
        """Return the time of a row of `matrix` over that of a plain process on the guest's page
        size; UNKNOWN without one."""
        ratios = self.ratios.get((row["guest"], row["host"]))
        return UNKNOWN if ratios is None else ratios.get(row["lines"])

    @property
    def missing(self) -> list[str]:
        """The pairs of page sizes that were not measured, in words; a guest's page that has no pair
        at all is named once."""
        missing: list[str] = []
        for guest in GUEST_PAGES:
            pairs = [(guest, host) for host in HOST_PAGES if (guest, host) not in self.cells]
            if len(pairs) == len(HOST_PAGES):
                missing.append(f"guests with {_OF_GUEST[guest]} pages")
            else:
                missing += [pair_words(*pair) for pair in pairs]
        return missing

    @property
    def reasons(self) -> list[str]:
        """Why this run has no guest, or none on some pages; each once."""
        return list(dict.fromkeys(note.text for note in self.notes if note.code in GUEST_REASONS))

    # --- what a guest costs beside its loads

    @property
    def in_first_cache(self) -> Interval:
        """The first cell's packed chase of the fewest lines over the plain process's: where nothing
        is translated twice and nothing missed, both run the same instructions on the same lines."""
        cell = next(iter(self.cells), ("", ""))
        pair = [self.packed.get(chase) for chase in (cell, ("", self.alike(cell[0]) or BASE))]
        ratios = (pair[0] / pair[1]).intervals if all(pair) else []
        return required(ratios, "no packed chase was measured both in a guest and outside")[0]

    @property
    def clocks(self) -> pd.Series:
        """The time by the clock outside over that by the guest's, a value a process."""
        rows = select(self.frame, kernel=GUEST_KERNEL, levels=4)
        ratios = rows.get("outside_ns_per_access", pd.Series(dtype=float)) / rows["ns_per_access"]
        return required(ratios.dropna(), "no guest was timed by two clocks")

    def summary_at_largest(self, column: str, less: str) -> pd.DataFrame:
        """Return by how much a column of the guests' rows exceeds another at the largest of `sizes`,
        a row a cell: guest, host and the columns of `summarise`; empty where none has both."""
        sizes = if_available(lambda: self.sizes) or [0]
        rows = select(self.frame, kernel=GUEST_KERNEL, levels=4, layout="spread", lines=sizes[-1])
        if column not in rows or rows[column].isna().all():
            return pd.DataFrame(columns=["guest", "host", "lines", "median", "low", "high"])
        rows = rows.assign(excess=rows[column] - rows[less])
        table = summarise(rows, ["mode", "pages", "lines"], "excess").set_index(["mode", "pages"])
        table = table.loc[[cell for cell in self.cells if cell in table.index]]
        return table.rename_axis(["guest", "host"]).reset_index()

    # --- containers, and other memory nodes

    @cached_property
    def container_ratio(self) -> Interval:
        """Time in fresh namespaces over that of a plain process: the median over points inside each
        repeat, then over repeats, since points of a mapping are no independent draws. A pair walked
        the same permutation in the same repeat, so what the order and an hour of drift do, they do
        to both."""
        plain, inside = (
            rows.pivot_table(
                index="repeat",
                columns=["layout", "lines"],
                values="ns_per_access",
                aggfunc="median",
            )
            for rows in (self.plain, self.contained)
        )
        pairs = (inside / plain).dropna(axis="columns", how="all").dropna()
        return median_interval(
            required(pairs, "no repeat measured all points in namespaces and outside").median(
                axis=1
            )
        )

    @property
    def far_nodes(self) -> pd.DataFrame:
        """The rows of `nodes` at the largest size with something remote, beside both near; empty
        where there are none."""
        far = self.nodes.dropna(subset="over")
        far = far[(far[["memory", "tables"]] != "local").any(axis=1)]
        return far[far["lines"] == far["lines"].max()]

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The chase by where its memory and page tables lie, seen from the CPU: memory, tables,
        lines, median, low, high, over, over_low, over_high (over both near). Empty where no node
        but one was measured."""
        curves = Curve.by(self.frame, NUMA_PLACEMENTS, "mode", kernel="numa_chase", layout="spread")
        rows = []
        for mode, curve in curves.items():
            over = dict(curve / curves[NUMA_PLACEMENTS[0]]) if NUMA_PLACEMENTS[0] in curves else {}
            rows += [
                (
                    *mode.split("-"),
                    int(lines),
                    *here.value_and_bounds,
                    *over.get(lines, UNKNOWN).value_and_bounds,
                )
                for lines, here in curve
            ]
        columns = ["memory", "tables", "lines", "median", "low", "high"]
        return pd.DataFrame(rows, columns=[*columns, "over", "over_low", "over_high"])
