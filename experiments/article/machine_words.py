"""What the chapters say of a machine: numbers to glue, and sentences that its data chose. Functions of frames, no more.

Each function returns name -> float or Markdown text. A sentence exists for every kind of machine: where something could not
be measured, it says what and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from experiments.inference import curves as claims
from experiments.inference import misses as model
from experiments.machine.doctor import describe
from experiments.machine.host import Host
from experiments.machine.tlb import Tlb
from experiments.words.reasons import REASONS, Unavailable, explain
from experiments.words.units import format_size


class Prose(str):
    """A sentence or more, in Markdown, glued as such; a plain str is a phrase for the middle of somebody else's sentence."""


Said = dict[str, float | str]
PAGE = claims.PAGE


def escape_markdown(text: object) -> str:
    """A machine's own words (a CPU's name, a kernel's release) on one line, for a Prose: no markup, HTML or role in them.

    CommonMark lets a backslash stand before any ASCII punctuation, and takes what follows for a letter.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(str(text).split()))


def data_tlbs(host: Host, page: str = "4k") -> list[Tlb]:
    """The TLB levels that translate loads of a page size, as CPUID states them; one a level, empty where it is silent.

    Two parts of one level that both hold 4 KiB pages (Ice Lake: one shares with 2 MiB, one with 1 GiB) are one capacity.
    """
    by_level: dict[int, Tlb] = {}
    for tlb in host.tlb:
        if page in tlb.pages and tlb.kind in ("data", "unified", "load") and tlb.entries:
            if before := by_level.get(tlb.level):
                tlb = tlb.model_copy(update={"entries": before.entries + tlb.entries, "ways": None, "ways_between": None})
            by_level[tlb.level] = tlb
    return [by_level[level] for level in sorted(by_level)]


def cache_bytes(host: Host, level: int) -> int | None:
    """The size of the data cache of a level; None where nothing states it."""
    return next((c.size_bytes for c in host.caches if c.level == level and c.kind != "instruction"), None)


def pages(number: float) -> str:
    """A number of pages as prose wants it: 72, 3,072."""
    return f"{number:,.0f}"


SIMULATED = "simulated-"  # how the id of a machine begins whose rows were computed; no computer's own id does


def is_simulated(machine_id: str) -> bool:
    """Whether the rows of this machine were computed, not measured: its id says so."""
    return machine_id.startswith(SIMULATED)


def machine(host: Host, machine_id: str = "") -> Said:
    """The sentences that introduce a machine; `machine_id`, its name in data/, tells a simulated one."""
    tlb = data_tlbs(host)
    where = {"none": "bare metal", "unknown": "bare metal or a guest, which could not be told"}.get(
        host.hypervisor, f"a virtual machine under {host.hypervisor.upper()}")
    model_name = " ".join(host.cpu_model.split()) or "an unnamed CPU"
    said: Said = {
        "machine": f"{model_name} ({host.microarchitecture}), {len(host.usable_cpus)} CPUs, "
                   f"{format_size(host.memory.total_bytes // 2**30 * 2**30)} of memory, {where}",
        "machine_short": host.microarchitecture if host.microarchitecture != "unknown" else model_name,
        "where": where,
        "kernel_release": host.kernel_release,
        "levels": float(host.page_table_levels or 4),
    }
    if host.hypervisor == "none":
        said["guest_note"] = Prose("It runs on bare metal: a translation is one walk of one page table, and what is measured is the "
                                   "processor's own.")
    else:
        guest = "Whether it is a guest could not be told. If it is, each" if host.hypervisor == "unknown" else "It is a guest. Each"
        said["guest_note"] = Prose(
            f"{guest} step of its page walk yields a guest-physical address that the host must translate in turn, so a "
            "walk here has two dimensions, and the host decides on what page size. Costs past the STLB are higher than the same "
            "processor shows on bare metal, and they are what a tenant of such a machine pays.")
    if tlb:
        parts = [f"{pages(t.entries)} entries at level {t.level}" + _ways(t) for t in tlb]
        said["tlb"] = Prose("CPUID states " + " and ".join(parts) + " for 4 KiB data pages. Times 4 KiB that is a reach of "
                       + " and ".join(format_size(t.entries * PAGE) for t in tlb) + ".")
    else:
        said["tlb"] = Prose("CPUID states no TLB geometry here: " + explain(host.tlb_reason or "no-geometry"))
    reason = host.pmu.reason
    said["counters"] = Prose("Hardware counters answer here, so walks are counted beside being timed." if reason is None else
                        "Walks are timed, not counted: " + explain(reason))
    if is_simulated(machine_id):
        said["machine"], said["machine_short"] = f"simulated: {said['machine']}", f"simulated {said['machine_short']}"
        said["counters"] = Prose("This machine is simulated: these counts were computed, not measured.")
    return said


# Why a page size may have no rows.
_PAGE_REASONS = ("pool-empty", "thp-never", "mthp-off", "page-size-unsupported", "backing-partial", "memory-short")


def about_pages(notes: Iterable[str]) -> str:
    """Of a run's notes those that say why a page size was not to be had, each once, as a list in Markdown; "" for none."""
    known = tuple(REASONS[code].sentence.removesuffix(".") for code in _PAGE_REASONS)
    return "\n".join(f"- {note}" for note in dict.fromkeys(notes) if note.startswith(known))


def say_each(parts: Mapping[str, Callable[[], str]]) -> Said:
    """Each part's sentences, or the reason why they cannot be said: in full once, for again and again it would read badly."""
    said: Said = {}
    told: set[str] = set()
    for name, make in parts.items():
        try:
            said[name] = Prose(make())
        except Unavailable as why:
            said[name] = Prose(str(why) if str(why) not in told else "Nothing can be said of this here, for the reason above.")
            told.add(str(why))
    return said


def machine_table(host: Host) -> pd.DataFrame:
    """Everything the inspection found, a row each."""
    return pd.DataFrame(describe(host), columns=["", "what this machine says"])


def ways_of(tlb: Tlb) -> int | None:
    """The associativity: as stated, or the one in the stated range that makes the number of sets a power of two.

    AMD's Fn8000_0006 codes 12 ways as "8 to 15". Sets are chosen by address bits or an exclusive-or of them, so their number is a
    power of two. 0 is fully associative, None unknown.
    """
    if tlb.ways is not None or tlb.ways_between is None:
        return tlb.ways
    least, most = tlb.ways_between
    fit = [w for w in range(least, most + 1) if tlb.entries % w == 0 and (tlb.entries // w).bit_count() == 1]
    return fit[0] if len(fit) == 1 else None


def _ways(tlb: Tlb) -> str:
    ways = ways_of(tlb)
    if tlb.ways is None and ways is not None and tlb.ways_between:  # inferred, so not to be put into CPUID's mouth
        return f" ({tlb.ways_between[0]} to {tlb.ways_between[1]} ways, so {ways} if its sets are a power of two)"
    return "" if ways is None else " (fully associative)" if ways == 0 else f" ({ways}-way)"


def cliff(frame: pd.DataFrame, host: Host) -> Said:
    """The first chapter's numbers and sentences, from its frame."""
    tlb = data_tlbs(host)
    entries = [t.entries for t in tlb]
    spread, packed, priced = claims.curve(frame, "spread"), claims.curve(frame, "packed"), claims.price(frame)
    ghz = float(frame.loc[frame["core_ghz"] > 0, "core_ghz"].median()) if (frame["core_ghz"] > 0).any() else float("nan")
    priced = priced[priced["median"].notna()]
    if priced.empty:
        raise Unavailable("too-few-points", "no spread point has its packed control")
    cost, first = priced.iloc[-1], spread.iloc[0]
    last, control = (side[side["lines"] == cost["lines"]].iloc[0] for side in (spread, packed))
    size = format_size(int(last["lines"]) * PAGE)
    said: Said = {
        "ghz": ghz,
        "l1_ns": float(packed["median"].iloc[0]),
        "l1_cycles": float(packed["median"].iloc[0]) * ghz,
        "smallest": format_size(int(first["lines"]) * PAGE),
        "smallest_pages": float(first["lines"]),
        "largest": size,
        "largest_pages": float(last["lines"]),
        "spread_first_ns": float(first["median"]),
        "spread_last_ns": float(last["median"]),
        "packed_last_ns": float(control["median"]),
        "table_last": format_size(int(last["lines"]) * 8),
        "price_last_ns": float(cost["median"]),
        "price_last_low_ns": float(cost["low"]),
        "price_last_high_ns": float(cost["high"]),
        "price_last_share": 100 * float(cost["median"]) / float(last["median"]),
        "processes": float(len(frame)),
        "points": float(frame.groupby(["kernel", "layout", "order", "lines", "engine"]).ngroups),
        "repeats": float(spread["n"].median()),
        "unstable_points": float(spread["unstable"].sum() + packed["unstable"].sum()),
        "curve_points": float(len(spread) + len(packed)),
        "coverage": 100 * float(spread["coverage"].median()),
    }
    said["lead"] = Prose(
        f"On this machine a load that finds its translation in the first-level TLB and its data in the first-level cache takes "
        f"{said['l1_ns']:.2f} ns. Spread the same loads over {size}, one line a page, and each takes "
        f"{said['spread_last_ns']:.0f} ns, of which {said['price_last_ns']:z.0f} ns, {said['price_last_share']:z.0f} %, is the price of "
        f"translation: what is left when the same number of lines, packed onto a 64th of the pages, has been paid for.")
    said["stable"] = Prose(_stability(said))
    said["control"] = _control(frame, entries)
    said["sequential"] = _sequential(frame)
    try:
        steps = claims.staircase(frame, entries)
    except Unavailable as why:
        return said | {"steps": Prose(f"The steps cannot be placed on this machine's data: {why}"), "step_shape": Prose(""),
                       "random": Prose("")}
    said |= {
        "hit_ns": steps.stlb_hit_ns, "hit_cycles": steps.stlb_hit_ns * ghz, "walk_ns": steps.walk_ns,
        "walk_cycles": steps.walk_ns * ghz, "first_step": steps.first_step, "second_step": steps.second_step,
        "second_begins": steps.second_begins, "second_ends": steps.second_ends,
    }
    said["steps"] = Prose(
        f"The first step stands at {pages(steps.first_step)} pages; CPUID says {pages(entries[0])}. Past it every access misses the "
        f"first-level TLB, finds its translation in the second, and pays {steps.stlb_hit_ns:.2f} ns, {steps.stlb_hit_ns * ghz:.1f} "
        f"cycles of this core's {ghz:.2f} GHz. The second step has done half of its rise at {pages(steps.second_step)} pages; CPUID "
        f"says {pages(entries[-1])}. From twice to four times CPUID's number translation costs "
        f"{steps.walk_ns:.1f} ns, {steps.walk_ns * ghz:.0f} cycles.")
    said["step_shape"] = Prose(_shape(priced, tlb, steps))
    said["random"] = Prose(_random(frame, entries))
    return said


def _control(frame: pd.DataFrame, entries: Sequence[int]) -> Prose:
    """What the packed control says of the second step: translation alone, or not."""
    verdict = next(v for v in claims.cliff(frame, entries, None) if v.claim == claims.CAPACITY)
    opening = {"holds": "Neither step is about the data.", "fails": "The data have a share in the second step."}
    return Prose(f"{opening.get(verdict.verdict, 'Whether the second step is translation alone cannot be told here.')} "
                 f"{verdict.evidence}")


def _sequential(frame: pd.DataFrame) -> Prose:
    """The price of a sequential visit beside a random one's, at the largest size that both have."""
    prices = [claims.price(frame, order).set_index("lines")["median"].dropna() for order in ("sequential", "cycle")]
    both = sorted(set(prices[0].index) & set(prices[1].index))
    if not both:
        return Prose("No size was measured in both orders here.")
    n = both[-1]
    return Prose(f"At {pages(n)} pages it pays {prices[0][n]:z.1f} ns an access for translation, the random cycle {prices[1][n]:z.1f}.")


def _stability(said: Said) -> str:
    unstable, points = said["unstable_points"], said["curve_points"]
    if unstable == 0:
        return "Every point's spread over its fresh mappings is under 5 %."
    return (f"{unstable:.0f} of the {points:.0f} points of the two curves spread by more than 5 % over their fresh mappings; they are "
            "marked unstable in the data and drawn with their interval, not left out.")


def second_step_fits(priced: pd.DataFrame, tlb: Sequence[Tlb]) -> list[model.StepFit]:
    """The kinds of TLB beside the measured second step, the best first. Raises Unavailable."""
    if len(tlb) < 2:
        raise Unavailable("no-geometry", "CPUID names no two TLB levels here")
    entries = tlb[-1].entries
    near = priced[priced["lines"].between(entries * 2**-0.8, entries * 2**1.03)]
    return model.fit_step(near["lines"], near["median"], entries, ways_of(tlb[-1]))


def second_step_models(priced: pd.DataFrame, tlb: Sequence[Tlb]) -> dict[str, pd.Series]:
    """The best kind, the textbook's fully associative LRU, and the best of the others, as price in ns by lines; empty
    where the points are too few to fit."""
    try:
        fits = second_step_fits(priced, tlb)
    except Unavailable:
        return {}
    textbook = next(fit for fit in fits if fit.kind == "fully associative, LRU")
    shown = list({fit.kind: fit for fit in [fits[0], fits[1], textbook]}.values())
    entries = tlb[-1].entries
    lines = pd.Index(sorted({round(entries * 2 ** (k / 40)) for k in range(-32, 42)}))
    return {fit.kind: pd.Series(fit.predict(lines.to_numpy(), entries, ways_of(tlb[-1])), index=lines) for fit in shown}


_SHAPES = {
    "fully associative, LRU": "A full table that always drops the entry longest unused fits best, as the textbook has it: one page too "
                              "many, and a cycle misses on every visit.",
    "fully associative, random replacement": "A full table that replaces at random fits best. Its misses do not cascade: a page survives "
                                             "until the cycle comes round with a probability that falls with the misses in between.",
    "hashed sets, LRU": "Sets chosen by a hash of the page number fit best. Some sets overflow before the whole is full, some later, "
                        "and the step becomes a slope on both sides of the capacity.",
    "hashed sets, random replacement": "Sets chosen by a hash, with random (or nearly random) replacement inside them, fit best. Sets that "
                                       "overflow early start the slope before the capacity is reached, and random replacement stretches "
                                       "it beyond: a page survives until the cycle comes round with a probability that falls with the "
                                       "misses in between.",
}


def _shape(priced: pd.DataFrame, tlb: Sequence[Tlb], steps: claims.Staircase) -> str:
    try:
        fits = second_step_fits(priced, tlb)
    except Unavailable as why:
        return f"Why the step has its shape cannot be told: {why}"
    best = fits[0]
    textbook = next(fit for fit in fits if fit.kind == "fully associative, LRU")
    width = steps.second_ends / steps.second_begins
    said = (f"A tenth of the rise is done at {pages(steps.second_begins)} pages and nine tenths at {pages(steps.second_ends)}, a factor "
            f"of {width:.2f}. {_SHAPES[best.kind]}")
    if best is not textbook:
        why = "its width from sets and replacement" if best.kind.startswith("hashed") else "its width from replacement"
        said += (f" It leaves {best.residual_ns:.2f} ns unexplained where a fully associative LRU table leaves {textbook.residual_ns:.2f}. "
                 f"So the place of this step comes from capacity, and {why}.")
    said += f" Of the kinds tried, the next best is {fits[1].kind}, with {fits[1].residual_ns:.2f} ns unexplained."
    return said


def random_fit(frame: pd.DataFrame, entries: Sequence[int]) -> tuple[model.RandomFit, pd.DataFrame]:
    """1 - C/M over two levels fitted to the random order up to where the walk itself gets dearer; the fit and its points."""
    if len(entries) < 2:
        raise Unavailable("no-geometry", "CPUID names no two TLB levels here")
    priced = claims.price(frame, "random")
    part = priced[priced["lines"] <= 4 * entries[-1]]
    return model.fit_random_curve(part["lines"], part["median"], entries[0], entries[-1]), part


def random_curve(frame: pd.DataFrame, entries: Sequence[int]) -> pd.Series | None:
    """The fitted random curve, ns by lines, or None where it cannot be fitted."""
    try:
        fit, part = random_fit(frame, entries)
    except Unavailable:
        return None
    lines = sorted({round(part["lines"].min() * 2 ** (k / 8)) for k in range(8 * 40)})
    lines = [n for n in lines if n <= part["lines"].max()]
    return pd.Series(fit.predict(lines), index=lines)


def _random(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    try:
        fit, part = random_fit(frame, entries)
    except Unavailable as why:
        return f"The random order cannot be fitted here: {why}"
    off = (part["median"] - fit.predict(part["lines"])).abs()
    return (
        f"Fitted to the random order up to {pages(part['lines'].max())} pages with CPUID's two capacities given, the model has two free "
        f"numbers, {fit.stlb_cost_ns.value:.2f} ns (95 % interval {fit.stlb_cost_ns.low:.2f} to {fit.stlb_cost_ns.high:.2f}) for a "
        f"first-level miss and {fit.walk_ns.value:.1f} ns ({fit.walk_ns.low:.1f} to {fit.walk_ns.high:.1f}) for a walk, and misses the "
        f"points by {off.median():.2f} ns in the median, {off.max():.2f} at most. Nothing in 1 − C/M asks how the TLB replaces: a draw "
        "that is independent of the past finds its page among the C that are held with probability C/M, whichever those are.")


def side_by_side(frame: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """The published run beside this machine's gather and chase, a row each published size; NaN where not measured."""
    gather = claims.curve(frame, "spread", "page_gather").set_index("lines")["median"]
    chase = claims.curve(frame, "spread").set_index("lines")["median"]
    table = pd.DataFrame({
        "working set": [format_size(int(size)) for size in published["working_set_bytes"]],
        "pages": published["pages"].astype(int),
        "published, ns": published["ns_per_access"].astype(float),
        "published reach": published["reach"],
    })
    table["gather here, ns"] = [float(gather.get(n, float("nan"))) for n in table["pages"]]
    table["chase here, ns"] = [float(chase.get(n, float("nan"))) for n in table["pages"]]
    table["chase / gather"] = table["chase here, ns"] / table["gather here, ns"]
    return table


def overlap(frame: pd.DataFrame) -> Prose:
    """What the gap between the chase and the gather says: how many accesses are in flight."""
    chase = claims.curve(frame, "spread").set_index("lines")["median"]
    gather = claims.curve(frame, "spread", "page_gather").set_index("lines")["median"]
    both = sorted(set(chase.index) & set(gather.index))
    ratio = {n: chase[n] / gather[n] for n in both}
    n, most = both[-1], max(both, key=lambda one: ratio[one])
    return Prose(f"At {pages(n)} pages the chase takes {chase[n]:.0f} ns an access and the gather {gather[n]:.1f}: as much as if "
                 f"{ratio[n]:.0f} accesses were in flight at once. The ratio is largest at {pages(most)} pages, {ratio[most]:.0f}.")
