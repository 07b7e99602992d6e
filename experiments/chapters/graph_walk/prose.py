"""The sentences of the chapter about the graph, chosen by the rows of experiment `graph_walk`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from scipy.signal import find_peaks

from experiments.article.machine_words import Prose, Said, about_pages, say_each
from experiments.chapters.hugepages.prose import NAMES
from experiments.chapters.your_machine.address import listed
from experiments.inference import counts
from experiments.inference import hops as walks
from experiments.inference import intervals as stats
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_size

# Whose core is in it, by the names of data/literature/microarchitectures.csv (Linux, arch/x86/include/asm/intel-family.h).
_CORES = {"Alder Lake": "Golden Cove", "Sapphire Rapids": "Golden Cove", "Skylake server": "Skylake client",
          "Cascade Lake": "Skylake client", "Cooper Lake": "Skylake client"}
PROMINENT = 0.08  # of the highest mode: less is a ripple of the steps of the clock
MODE_NS = 400  # points at which a density is looked at


def page_walkers(microarchitecture: str, cores: pd.DataFrame) -> float | None:
    """How many page walkers a core is said to have, by the literature's frame `microarchitectures`; None where nobody says."""
    known = cores[(cores["structure"] == "page_walker") & (cores["quantity"] == "count")].set_index("microarchitecture")["value_low"]
    return known.get(_CORES.get(microarchitecture, microarchitecture))


def say(frame: pd.DataFrame, host: Host, entries: Sequence[int], cores: pd.DataFrame, notes: Sequence[str] = ()) -> Said:
    """Every sentence of the chapter that hangs on the data; each that cannot be said gives its reason in its place.

    cores: the literature's frame `microarchitectures`. notes: why this run could not measure something; those about page sizes
    stand behind the lead.
    """
    parts = {"lead": lambda: lead(frame), "clock": lambda: clock(frame), "regimes": lambda: regimes(frame, entries),
             "modes": lambda: modes(frame), "walkers_said": lambda: walkers(frame, host, cores)}
    said = {"misses_are": misses_are(frame, host, entries)} | say_each(parts)
    missing = [NAMES[one] for one in ("4k", "thp", "2m", "1g") if one not in walks.kinds(frame)]
    if missing:
        why = about_pages(notes)
        said["lead"] = Prose(f"{said['lead']}\n\nNo walk lies on {listed(missing)}." + (f"\n\n{why}" if why else ""))
    return said


def lead(frame: pd.DataFrame) -> str:
    """Median and 95th percentile at the largest size that base and large pages share, and at the smallest. Raises Unavailable."""
    found = walks.quantiles(frame, (0.5, 0.95))
    sides = {pages: part.pivot(index="working_set_bytes", columns="q", values="median") for pages, part in found.groupby("pages")}
    if "4k" not in sides:
        raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
    base = sides["4k"]
    least, most = int(base.index[0]), int(base.index[-1])
    said = (f"In a graph of {format_size(least)} half of all hops take {base.loc[least, 0.5]:.0f} ns or less, and one in twenty more than "
            f"{base.loc[least, 0.95]:.0f}; in one of {format_size(most)}, on base pages, {base.loc[most, 0.5]:.0f} and "
            f"{base.loc[most, 0.95]:.0f}.")
    large = [pages for pages in walks.kinds(found) if pages != "4k" and most in sides[pages].index]
    if large:
        told = [f"{sides[one].loc[most, 0.5]:.0f} and {sides[one].loc[most, 0.95]:.0f} ns on {NAMES[one]}" for one in large]
        said += f" The same walk takes {listed(told)}."
    return said


def clock(frame: pd.DataFrame) -> str:
    """What the clock costs, how it steps, and what it does to the smallest and the largest graph on base pages."""
    rows, found = walks.clocked(frame), walks.means(frame)
    if rows.empty:
        raise Unavailable("too-few-points", "no walk was timed hop by hop")
    cost, step = float(rows["clock_ns"].median()), float(rows["clock_step_ns"].median())
    said = f"Two serialised readings around nothing differ by {cost:.1f} ns here, and the counter advances {step:.2g} ns at once."
    plain = found[found["pages"] == "4k"].set_index("working_set_bytes")["median"]
    timed = rows[rows["pages"] == "4k"].groupby("working_set_bytes")[["mean_ns", "ns_per_access"]].median()
    both = sorted(set(plain.index) & set(timed.index))
    if not both:
        return said
    least, most = both[0], both[-1]
    said += (f" A hop in {format_size(least)} takes {plain[least]:.1f} ns per batch; the clock costs {cost / plain[least]:.1f} times that. "
             f"Timed one by one, readings and counting included, it takes {timed.loc[least, 'ns_per_access']:.0f}."
             if cost > plain[least] else
             f" A hop in {format_size(least)} takes {plain[least]:.1f} ns per batch and {timed.loc[least, 'ns_per_access']:.0f} with a "
             "reading before and after it.")
    if most > least:
        said += (f" In {format_size(most)} the mean is {plain[most]:.0f} ns per batch and {timed.loc[most, 'mean_ns']:.0f} from single "
                 "readings, less the clock's own cost.")
    if step > 2:
        said += " So a reading tells a hop to a step and no better; the figures spread each reading evenly over its step."
    return said


def regimes(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    """Where on base pages the median hop leaves the caches, and where it pays for a walk that reads memory."""
    found = walks.regimes(frame)
    sizes = {name: found.sizes(name) for name in walks.REGIMES}
    told = [f"a cache up to {format_size(sizes['cache'][-1])}"] if sizes["cache"] else []
    if sizes["memory"]:
        told.append(f"memory from {format_size(sizes['memory'][0])} on")
    if sizes["memory and walk"]:
        told.append(f"memory, and a walk that reads memory too, from {format_size(sizes['memory and walk'][0])} on")
    said = (f"On base pages half of the hops are answered by {listed(told)}. The lines between: a load from memory takes "
            f"{found.memory_ns:.0f} ns ({NAMES[found.large]}, two octaves past the caches), a hop that takes half as long again did "
            f"something beside it.")
    if not sizes["memory and walk"]:
        said += " The sweep ends before the median hop pays for such a walk."
    slow = found.table[found.table["p95"] > found.cut_ns[1]]
    if len(slow):
        said += f" One hop in twenty pays that much from {format_size(int(slow['working_set_bytes'].iloc[0]))} on."
    if entries:
        said += f" The last TLB level reaches {format_size(entries[-1] * 4096)} of base pages by CPUID."
    return said


def modes(frame: pd.DataFrame) -> str:
    """The modes of the distribution at the largest size on base pages, and the share of hops in each regime."""
    rows = walks.clocked(frame)
    rows = rows[rows["pages"] == "4k"]
    if rows.empty:
        raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
    size = int(rows["working_set_bytes"].max())
    spread = walks.merged(rows[rows["working_set_bytes"] == size])
    step = float(rows["clock_step_ns"].median())
    peaks = peaks_of(spread, step)
    said = (f"At {format_size(size)} the distribution has its {'mode' if len(peaks) == 1 else 'modes'} at "
            f"{listed(f'{max(one, 0):.0f}' for one in peaks)} ns.")
    found = walks.regimes(frame)
    parts = walks.shares(frame, "4k", size, found.cut_ns)
    cache, memory, walk = (f"{100 * part:.0f} %" for part in parts)
    return (f"{said} {cache} of the hops take less than {found.cut_ns[0]:.0f} ns, a cache's time; {memory} up to {found.cut_ns[1]:.0f} ns, "
            f"that of a load from memory; {walk} longer, that of a load whose walk went to memory too.")


def peaks_of(spread: pd.DataFrame, step_ns: float) -> list[float]:
    """Where a frame of `walks.smoothed` has its modes, ns: maxima of the density over two steps that stand out."""
    width = max(2 * step_ns, float(walks.quantile(spread, 0.999)) / MODE_NS)
    least = float(spread["low_ns"].min()) - width
    places = pd.Series([least + width / 4 * i for i in range(int((float(walks.quantile(spread, 0.999)) - least) / (width / 4)) + 8)])
    density = walks.below(spread, places + width / 2) - walks.below(spread, places - width / 2)
    tops, _ = find_peaks(density, prominence=PROMINENT * density.max())
    return [float(places[i]) for i in tops]


def misses_are(frame: pd.DataFrame, host: Host, entries: Sequence[int]) -> str:
    """A phrase for the caption: counted, and predicted beside it, or predicted alone and why."""
    if not walks.counted(frame).empty:
        return "as this CPU counts them and as 1 − C/M predicts" if entries else "as this CPU counts them"
    why = explain(counts.why_not_counted(walks.batched(frame), "walk", host)).split(". ")[0]
    if not entries:
        return f"neither counted ({_small(why)}) nor to be predicted, since CPUID names no TLB level here"
    return f"as 1 − C/M predicts from the entries that CPUID states ({_small(why)}, so they are not counted)"


def _small(sentence: str) -> str:
    return sentence.rstrip(".") if sentence[:2].isupper() else sentence[0].lower() + sentence[1:].rstrip(".")


def walkers(frame: pd.DataFrame, host: Host, cores: pd.DataFrame) -> str:
    """Where the gain of several walks ends, by page size, and how many page walks that means under way at once."""
    found = walks.by_walkers(frame)
    told = []
    for pages in walks.kinds(found):
        one = walks.parallel(found, pages)
        told.append(f"{one.one_ns.value:.0f} ns with one walker and {one.best_ns.value:.1f} with {one.best_walkers} on {NAMES[pages]}, "
                    f"{one.gain:.1f} times as many hops (from {one.enough} walkers on within a tenth of that)")
    said = f"In {format_size(int(found['vertices'].max()) * 64)} a hop takes {listed(told)}."
    try:
        base, large, walks_there = walks.walks_under_way(found)
    except Unavailable as why:
        return f"{said} How many page walks were under way cannot be told. {why}"
    said += (f" What base pages cost more, {base.one_ns.value - large.one_ns.value:.0f} ns of walking a hop, over the time of a hop at its "
             f"best: at least {walks_there.value:.1f} page walks were under way at once on base pages ({walks_there.low:.1f} to "
             f"{walks_there.high:.1f}).")
    stated = page_walkers(host.microarchitecture, cores)
    if stated is None:
        return f"{said} How many page walkers this core has, nobody says."
    verdict = walkers_verdict(walks_there, stated)
    return said + f" {host.microarchitecture} is said to have {stated:.0f} page walkers: " + {
        True: "the measurement agrees.", False: "more were under way than that.",
        None: "the measurement neither needs as many nor rules them out."}[verdict]


AGREES = 0.25  # a whole number of walkers, from times with a few percent of noise and a walk's time that is a lower bound


def walkers_verdict(found: stats.Interval, stated: float) -> bool | None:
    """Whether so many page walkers are what was found; None where fewer were seen busy, since something else may end the gain."""
    if found.low > stated * (1 + AGREES):
        return False
    return True if found.low >= stated * (1 - AGREES) and found.high <= stated * (1 + AGREES) else None
