"""Jumps from page to page: what the front end predicts, and the TLB for instructions behind it."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from experiments.code.grid import (
    CODE_LINES_PER_EXECUTED_LINE,
    CODE_SIZES_MIB,
    HUGE_CODE_PAGE_KIND,
    JUMP_KINDS,
    MAX_CODE_LINES,
)
from tlb.machine import stated_facts
from tlb.measure import granted_pages
from tlb.measure.granted_pages import (
    EXIT_STATUS_REQUEST_REFUSED,
    ArrayPageBacking,
    MemoryRequest,
    MemoryRequestsDocument,
)
from tlb.report import analysis, quantities
from tlb.report.quantities import QuantityDeclaration
from tlb.stats.curves import HALF_OCTAVE_TOLERANCE, Curve, counter_curve, select_rows
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty

LEAST_LOSS_NS = 1.0  # a few cycles: an unpredicted jump waits at least until it is decoded


class Quantities(quantities.Quantities):
    """Times are of a jump to a line of code. What its own page adds is spread minus packed."""

    last_entries = QuantityDeclaration(
        "pages that the last level of the iTLB holds, as stated", "pages", source="CPUID"
    )
    predicted_pages = QuantityDeclaration(
        "most pages whose direct jumps are predicted", "pages", is_found=True
    )
    direct_packed_ns = QuantityDeclaration(
        "a direct jump among as many lines, side by side", "ns", 1
    )
    direct_own_page_ns = QuantityDeclaration(
        "a direct jump among as many lines, each on its own page", "ns", 1
    )
    direct_inside_ns = QuantityDeclaration(
        "what a page adds to a direct jump where the pages fill the iTLB", "ns", 1
    )
    random_inside_ns = QuantityDeclaration(
        "what a page adds to a random jump where the pages fill the iTLB", "ns", 1
    )
    direct_page_ns = QuantityDeclaration(
        "what it adds at the most pages that are predicted", "ns", 1
    )
    learned_page_ns = QuantityDeclaration(
        "what it adds there to an indirect jump that repeats", "ns", 1
    )
    random_page_ns = QuantityDeclaration("what it adds there to a random jump", "ns")
    forgotten_pages = QuantityDeclaration(
        "pages at which direct jumps have slowed", "pages", is_found=True
    )
    forgotten_ns = QuantityDeclaration("what a page adds to a direct jump at as many pages", "ns")
    far_pages = QuantityDeclaration("most pages that were jumped to", "pages")
    far_direct_ns = QuantityDeclaration("what a page adds to a direct jump at the most pages", "ns")
    far_random_ns = QuantityDeclaration("what a page adds to a random jump at the most pages", "ns")
    walk_ns = QuantityDeclaration("an instruction page walk, at least", "ns")
    direct_walks = QuantityDeclaration(
        "page walks of a direct jump to the most pages, counted", "", 2
    )
    random_walks = QuantityDeclaration(
        "page walks of a random jump to the most pages, counted", "", 2
    )
    text_bytes = QuantityDeclaration("largest code", "bytes")
    gain_100_mib = QuantityDeclaration(
        "gain by 2 MiB pages in 100 MiB of code", "times", 2, pages="thp"
    )
    gain_far = QuantityDeclaration(
        "gain by 2 MiB pages in the largest code", "times", 1, pages="thp"
    )
    hot_share = QuantityDeclaration(
        "part of the largest code that is hot", "share", is_counted=True
    )
    hot_ns = QuantityDeclaration("a jump among hot lines in every page", "ns")
    hot_huge_ns = QuantityDeclaration("a jump among them on huge pages", "ns", pages="thp")
    hot_packed_ns = QuantityDeclaration("a jump among as many hot lines side by side", "ns")
    hot_both_ns = QuantityDeclaration("a jump among those on huge pages", "ns", pages="thp")
    half_share = QuantityDeclaration(
        "largest part of it that was placed side by side", "share", is_counted=True
    )
    half_huge_ns = QuantityDeclaration(
        "a jump if that part is scattered, on huge pages", "ns", pages="thp"
    )
    half_packed_ns = QuantityDeclaration("a jump if it lies side by side", "ns")
    half_both_ns = QuantityDeclaration(
        "a jump if it lies side by side, on huge pages", "ns", pages="thp"
    )
    file_huge_share = QuantityDeclaration(
        "code of a mapped file that is on huge pages", "share", is_counted=True, pages="thp"
    )
    advised_huge_share = QuantityDeclaration(
        "code copied to advised memory that is on huge pages", "share", is_counted=True, pages="thp"
    )


CODE_PAGE_KINDS = (BASE_PAGES, HUGE_CODE_PAGE_KIND)


class Analysis(analysis.Analysis):
    """The rows of `code_chase`: ns a jump. Curves run over lines of code, one to a page but for the
    packed ones. What was not measured is empty; methods raise Unavailable."""

    documents = ("flags", "ways")

    spread = cached_property(lambda a: a.by_kind("spread"))
    packed = cached_property(lambda a: a.by_kind("packed"))
    texts = cached_property(lambda a: a.times_by_size())
    hot = cached_property(lambda a: a.times_by_hot_share())

    def jumps(self, layout: str, kind: str, pages: str = BASE_PAGES) -> Curve:
        """ns a jump of a kind in a layout, by lines of code."""
        mode, order = JUMP_KINDS[kind]
        rows = select_rows(
            self.frame,
            kernel="code_chase",
            mode=mode,
            order=order,
            layout=layout,
            pages=pages,
            every=1,
        )
        return Curve.of(rows[rows["lines"] <= MAX_CODE_LINES])  # the texts have more

    def by_kind(self, layout: str) -> dict[str, Curve]:
        return {kind: curve for kind in JUMP_KINDS if len(curve := self.jumps(layout, kind))}

    def near(self, pages: int, kind: str) -> tuple[Interval, Interval, Interval]:
        """Return ns a jump of a kind to about so many lines, spread and packed, and the difference."""
        curves = (of.get(kind, Curve.of(self.frame[:0])) for of in (self.spread, self.packed))
        spread, packed = (curve.at(pages, HALF_OCTAVE_TOLERANCE) for curve in curves)
        return spread, packed, spread - packed

    @property
    def predictor_end(self) -> tuple[int, int]:
        """The numbers of direct jumps before and after the steepest rise of the packed control,
        which no TLB explains: so many the branch predictor still knows, and no longer. Raises
        Unavailable("too-few-points"), also where they lie too far apart to say, or none is slow."""
        packed = self.packed.get("direct", Curve.of(self.frame[:0]))
        medians = require_nonempty(packed, "no direct jumps were measured side by side").medians
        rises = require_nonempty(
            (medians / medians.shift()).dropna(), "one number of jumps has no rise"
        )
        after = medians.index.get_loc(rises.idxmax())
        if medians.iloc[after] - medians.iloc[after - 1] < LEAST_LOSS_NS:
            raise Unavailable("too-few-points", "among the most direct jumps none is slow yet")
        known, forgotten = int(medians.index[after - 1]), int(medians.index[after])
        if forgotten > 2 * known:
            why = f"the grid has no number of jumps between {known:,} and {forgotten:,}"
            raise Unavailable("too-few-points", why)
        return known, forgotten

    def farthest(self, kind: str) -> tuple[int, Interval, Interval]:
        """Return the most pages, and ns a jump of a kind to as many lines, spread and packed."""
        spread, packed = (
            require_nonempty(curves.get(kind, ()), "no such jumps were measured")
            for curves in (self.spread, self.packed)
        )
        pages = min(spread.xs[-1], packed.xs[-1])
        return pages, spread.at(pages), packed.at(pages)

    # --- the TLB of instructions

    @property
    def stated(self) -> list[int]:
        """Its entries for base pages by level, as CPUID states them, ascending; empty where it is
        silent."""
        by_level: dict[int, int] = {}
        for tlb in self.host.tlb:
            if BASE_PAGES in tlb.pages and tlb.kind in ("instruction", "unified"):
                by_level[tlb.level] = by_level.get(tlb.level, 0) + tlb.entries
        return [by_level[level] for level in sorted(by_level)]

    @property
    def known_stated(self) -> list[int]:
        """`stated`, of one level at least. Raises Unavailable("no-geometry")."""
        return require_nonempty(
            self.stated, "no entries for instructions are stated", "no-geometry"
        )

    def walks_counted(self, kind: str) -> Curve:
        """Page walks for instructions of the spread jumps of a kind, per jump. Raises Unavailable
        where none were counted."""
        mode, order = JUMP_KINDS[kind]
        rows = select_rows(self.frame, mode=mode, order=order, layout="spread", pages=BASE_PAGES)
        return require_nonempty(
            counter_curve(rows, "itlb_walk"),
            "no walks for instructions were counted here",
            self.host.pmu.reason or "no-data",
        )

    # --- large texts

    def times_by_size(self) -> pd.DataFrame:
        """Return a row a MiB of code that is all jumped to: mib; base and large, ns a jump, each an
        Interval, UNKNOWN_INTERVAL where not measured."""
        rows = [
            (mib, self._text(BASE_PAGES, lines), self._text(HUGE_CODE_PAGE_KIND, lines))
            for mib in CODE_SIZES_MIB
            if (lines := (mib << 20) // CACHE_LINE_BYTES)
        ]
        found = [row for row in rows if row[1].is_known]
        return pd.DataFrame(found, columns=["mib", "base", "large"])

    def times_by_hot_share(self) -> pd.DataFrame:
        """Return a row a share of the largest text that is hot: share; mib, of the text; spread, a
        jump where the hot lines lie in every page, large, the same on large pages, packed, where the
        same number of hot lines lie side by side, and both, these on large pages; ns, each an Interval,
        UNKNOWN_INTERVAL where not measured."""
        columns = ["share", "mib", "spread", "large", "packed", "both"]
        most = int(self.texts["mib"].max()) if len(self.texts) else 0
        lines = (most << 20) // CACHE_LINE_BYTES
        rows = []
        for every in (1, *CODE_LINES_PER_EXECUTED_LINE):
            base, large = (self._text(pages, lines, every) for pages in CODE_PAGE_KINDS)
            packed, both = (self._text(pages, lines // every) for pages in CODE_PAGE_KINDS)
            if every == 1:  # all of it is side by side
                packed = both = UNKNOWN_INTERVAL
            if base.is_known:
                rows.append((1 / every, most, base, large, packed, both))
        return pd.DataFrame(rows, columns=columns)

    def _text(self, pages: str, lines: int, every: int = 1) -> Interval:
        """A random jump in so many lines of code, side by side, of which one in so many is hot;
        UNKNOWN_INTERVAL where not measured."""
        curve = Curve.of(
            self.frame,
            kernel="code_chase",
            layout="packed",
            order="random",
            pages=pages,
            lines=lines,
            every=every,
        )
        return curve.last if len(curve) else UNKNOWN_INTERVAL

    def gain(self, mib: int) -> Interval:
        """How many times as long a jump takes on base pages as on large ones, in a text of so many
        MiB."""
        rows = self.texts[self.texts["mib"] == mib].itertuples(index=False)
        both = [row.base / row.large for row in rows if row.base.is_known and row.large.is_known]
        return require_nonempty(both, f"no text of {mib} MiB was measured on both")[0]

    @property
    def least_hot(self) -> pd.Series:
        """The row of `hot` with the smallest share."""
        return self._partly_hot[-1]

    @property
    def most_hot(self) -> pd.Series:
        """The row with the largest share of which the hot lines lie side by side too."""
        return self._partly_hot[0]

    def part_words(self) -> str:
        """Return the part of `most_hot`, as "50% of 200 MiB"; "" if none was measured."""
        part = none_if_unavailable(lambda: self.most_hot)
        if part is None:
            return ""
        return f"{part['share']:.0%} of {int(self.texts['mib'].max())} MiB"

    @property
    def _partly_hot(self) -> list[pd.Series]:
        rows = [row for _, row in self.hot.iterrows() if row["packed"].is_known]
        return require_nonempty(rows, "no text was measured of which a part is hot")

    @cached_property
    def ways(self) -> CodeLoadingSurvey:
        """What code lies on, by the way in which it was made executable."""
        return self.document("texts", make_code_loading_document, CodeLoadingSurvey)

    @cached_property
    def flags(self) -> stated_facts.JavaFlagsDocument:
        """What this computer's kernel and Java list."""
        return self.document("flags", stated_facts.make_flags, stated_facts.JavaFlagsDocument)


# --- code in each of the ways that Linux has of making it executable, and whether it lies on large
# pages: written by one process, read by another

TEXT_BYTES = 8 << 20  # four large pages: what one way gets does not vary with the size
_NO_CODE, _NO_JOINING = 4, 5  # exit statuses of kernels/runtimes/text.py

# In the order of a reader's questions; kernels/runtimes/text.py has the calls, and a test holds the
# two together.
CODE_LOADING_METHODS = {
    "file": MemoryRequest("a file on this disk, mapped as a loader maps it", "a mapped file"),
    "file-collapsed": MemoryRequest(
        "the same, madvise(MADV_COLLAPSE)", "a mapped file that was collapsed on request"
    ),
    "anonymous": MemoryRequest("copied to memory that asks for nothing, mprotect", "a plain copy"),
    "advised": MemoryRequest(
        "copied to memory advised with MADV_HUGEPAGE, mprotect",
        "a copy in advised memory",
        "thp-never",
    ),
    "memfd": MemoryRequest("copied to a memfd, mapped", "a copy in a memfd"),
    "memfd-collapsed": MemoryRequest(
        "the same, madvise(MADV_COLLAPSE)", "one in a memfd that was collapsed on request"
    ),
    "memfd-pool": MemoryRequest(
        "copied to a memfd from the pool, mapped", "one in the pool", "pool-empty"
    ),
}
_Name = Annotated[str, Field(pattern="^(" + "|".join(CODE_LOADING_METHODS) + ")$")]


class LoadedCode(ArrayPageBacking, frozen=True):
    """What one way gave."""

    way: _Name


class CodeLoadingSurvey(MemoryRequestsDocument, frozen=True):
    """The document `texts`."""

    all = CODE_LOADING_METHODS
    what = "code as"
    got: list[LoadedCode]
    lacking: dict[_Name, str]


def make_code_loading_document(profile: str) -> dict[str, Any]:
    """The document `texts` of data/, whatever the profile. Raises Unavailable: not-linux,
    page-size-unsupported."""
    return CodeLoadingSurvey(
        **granted_pages.ways_fields(granted_pages.inspect_for_ways()),
        **granted_pages.try_each_way(CODE_LOADING_METHODS, load_code),
    ).model_dump(mode="json")


def load_code(way: str) -> LoadedCode:
    """Make code executable in one way and read what it lies on. Raises Unavailable, as
    `measure.granted_pages.run_way` does."""
    refused = {
        EXIT_STATUS_REQUEST_REFUSED: CODE_LOADING_METHODS[way].refused,
        _NO_CODE: "not-permitted",
        _NO_JOINING: "linux-lacks",
    }
    told, had = granted_pages.run_way("text.py", way, TEXT_BYTES, refused)
    return LoadedCode(
        way=way,
        array_bytes=told.array_bytes,
        resident_bytes=had.resident_bytes,
        huge_bytes=had.huge_bytes,
        rest_huge_bytes=had.rest_huge_bytes,
    )
