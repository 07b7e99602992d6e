"""The sections of the chapter about page sizes that a machine may have no data for: each shows its figure, or why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from experiments.article import chapter as chapters
from experiments.article import charts as figures
from experiments.article.machine_words import Prose, Said
from experiments.article.render import Figure, Html, data_table, lacking_note
from experiments.chapters.hugepages import analysis as huge
from experiments.chapters.hugepages import calculator
from experiments.chapters.hugepages import figures as huge_figures
from experiments.chapters.hugepages.languages import jmh, runtime_words, runtimes, toolchains
from experiments.inference import curves as claims
from experiments.inference import splinter
from experiments.inference.geometry import Geometry
from experiments.words.reasons import Unavailable

Document = TypeVar("Document", bound=BaseModel)


class Section(NamedTuple):
    """A table, or the note in its place, and sentences to glue."""

    table: Html
    said: Said


def show(name: str, make: Callable[[], Figure]) -> None:
    """Glue the figure, or in its place why there is none."""
    try:
        figures.show(make())
    except Unavailable as why:
        figures.show_lacking(name, why.code, why.detail)


def show_splinter(frame: pd.DataFrame, entries: Sequence[int]) -> None:
    """The curves that the verdict on splintering is read off."""
    show("splinter", lambda: huge_figures.splinter(huge.prices(frame), splinter.large_pages(frame), entries))


def _read(kind: type[Document], chapter: chapters.Chapter, name: str) -> Document:
    """A document of data/. Raises Unavailable, no-data for one that an older version wrote."""
    try:
        return kind.model_validate(chapter.document(name))
    except ValidationError:
        raise Unavailable("no-data", f"{name}.json is of another version") from None


def jvm(chapter: chapters.Chapter, frame: pd.DataFrame, published: pd.DataFrame) -> Section:
    """JMH's scores here and published, and how they compare with random_touch."""
    try:
        found = _read(jmh.Jmh, chapter, "jmh")
        apart = jmh.against(found, huge.touches(frame))
        said = [*jmh.sentences(found), *_compared(apart, huge.reads_apart(frame))]
    except Unavailable as why:
        return Section(lacking_note(str(why)), {"jvm_said": Prose("")})
    table = jmh.table(found, published)
    table["array_bytes"] = [f"{size:,}" for size in table["array_bytes"]]
    names = {name: re.sub(r"^(here|published)_(\w+)_ns$", r"\2 \1, ns", name) for name in table.columns} | {"array_bytes": "array, bytes"}
    return Section(data_table(table.rename(columns=names), decimals=2), {"jvm_said": Prose(" ".join(said))})


# JMH and a loop in C agree on a read that both make; what they differ by is what each puts around it.
AGREE = 0.10


def _compared(apart: pd.DataFrame, spare: pd.DataFrame) -> list[str]:
    """How JMH's time for a read compares with the kernel's; where they differ, whether a longer loop in C explains it.

    apart: `jmh.against`. spare: `huge.reads_apart`, the loop in C with as much work again before each read.
    """
    if apart.empty:
        return ["No size was read on the same pages by both, so nothing compares the JVM with C here."]
    ratio, off = apart["ratio"], int(((apart["ratio"] - 1).abs() > AGREE).sum())
    said = [f"JMH's time over that of the loop in C is {ratio.min():.2f} to {ratio.max():.2f}, {ratio.median():.2f} in the median over "
            f"{len(apart)} pairs of size and pages."]
    if not off:
        return [*said, "They agree to 10 %."]
    near = apart.loc[apart["array_bytes"].idxmin()]
    said.append(f"They differ by more than 10 % in {off} of them. In {int(near['array_bytes']):,} bytes, where every load hits, JMH takes "
                f"{near['jmh_ns']:.2f} ns and the loop in C {near['ours_ns']:.2f}: the JVM does more around each read.")
    both = apart.merge(spare, on=["pages", "array_bytes"])
    if both.empty:
        return said
    again = both["jmh_ns"] / both["median_spare"]
    small = both.loc[both["array_bytes"].idxmin()]
    near = int(((again - 1).abs() <= AGREE).sum())
    said.append(f"That it does more also makes each miss dearer, because fewer reads fit into the core's window at once. The test: let the "
                f"loop in C throw one more draw away before each read. In {int(small['array_bytes']):,} bytes it then takes "
                f"{small['median_spare']:.2f} ns. JMH's times are {again.median():.2f} of its in the median ({again.min():.2f} to "
                f"{again.max():.2f}), and {near} of the {len(both)} pairs agree to 10 %. "
                + ("So the work around the read is most of the difference." if abs(again.median() - 1) <= AGREE else
                   "So the work around the read is a part of the difference and not all."))
    return said


def runtimes_section(chapter: chapters.Chapter) -> Section:
    """What each language's program got, plain and by the recipe."""
    try:
        found = _read(runtimes.Runtimes, chapter, "runtimes")
    except Unavailable as why:
        return Section(lacking_note(str(why)), {"runtimes_said": Prose("")})
    said = "\n".join(f"- {sentence}" for sentence in runtime_words.sentences(found))
    table = runtime_words.table(found).rename(columns={
        "on_huge_pages_percent": "on huge pages, %", "elsewhere_huge_bytes": "huge elsewhere, bytes", "ns_per_access": "ns per read",
        "speedup": "huge over plain"})
    return Section(data_table(table, decimals=2), {"runtimes_said": Prose(said)})


def recipes() -> str:
    """The marked lines of each program, under its language."""
    return "\n\n".join(f"--- {toolchains.TOOLS[language].title}\n{lines}" for language, lines in toolchains.recipes().items())


def calculator_section(chapter: chapters.Chapter, frame: pd.DataFrame) -> Said:
    """Glues the calculator; gives the sentence that says whose entries it counts with."""
    said: Said = {"calculator_said": Prose("")}

    def make() -> Figure:
        tlb, source = _tlb(chapter, frame)
        try:
            found = splinter.judge(frame, chapter.host.hypervisor)
            splintered = found.verdict == "splintered by the host"
        except Unavailable:
            splintered = False
        rows = calculator.model(frame, tlb, splintered)
        spans = "an entry spans 4 KiB, since the host splinters larger pages" if splintered else "an entry spans the page"
        said["calculator_said"] = Prose(
            f"It counts with {tlb.first:,.0f} and {tlb.last:,.0f} entries ({source}), {tlb.hit_ns:.2f} ns for a hit in the second level, "
            f"and takes it that {spans}. It holds for independent draws, one line to each 4 KiB, and for no size that was not measured.")
        return calculator.figure(rows)

    show("calculator", make)
    return said


def _tlb(chapter: chapters.Chapter, frame: pd.DataFrame) -> tuple[calculator.Tlb, str]:
    """Entries as measured, else as CPUID states them. The hit's price is that of base pages between the two levels."""
    try:
        _, found = chapter.geometry()
        entries, source = _measured(found), "as measured in the chapter about your machine"
    except Unavailable:
        entries, source = [float(n) for n in chapter.tlb_entries()], "by CPUID"
    if len(entries) < 2:
        raise Unavailable("no-geometry", "two levels of the TLB have to be known")
    priced = claims.price(frame[frame["pages"] == "4k"])
    return calculator.Tlb(entries[0], entries[-1], claims.mean_price(priced, 1.3 * entries[0], 0.6 * entries[-1])), source


def _measured(found: Geometry) -> list[float]:
    if len(found.levels) < 2:
        raise Unavailable("no-step", "one level alone was measured")
    return [one.entries.value for one in found.levels]
