"""The sentences of the chapter about walks, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.walk_anatomy.analysis import APART, AT_RANDOM, EVENLY, Analysis
from experiments.chapters.walk_anatomy.grid import A_LINE, COLLIDING, PADDED
from experiments.inference import replacement
from experiments.inference.curves import select
from experiments.inference.intervals import Interval
from experiments.inference.replacement import WORDS, Policy, Visits
from experiments.inference.sets import WORDS as SET_WORDS
from experiments.words.prose import Prose, choose, count, listed
from experiments.words.reasons import required

__all__ = ["set_up", "lead", "lowest_said", "upper_said", "guest_said", "judged_said", "replaced_said", "first_replaced_said",
           "collisions_said", "sets_said", "siblings_said", "places_said", "change", "run_this"]

LEVEL_WORDS = {1: "lowest", 2: "second", 3: "third"}
A_STRUCTURE = 0.15  # of the TLB's last level: published paging-structure caches are smaller than that, with 64 entries and fewer
SAME = 0.1  # of a prediction: nearer than the spread between two mappings


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def brief(a: Analysis) -> Prose:
    """What the shortest and the longest walks cost, and which level's tables make the difference."""
    first, last = a.first_ns, a.last_ns
    said = (f"A miss of the TLB costs {first.value:.1f} ns here while its walks go through few tables, and {last.value:.1f} through many, "
            "though the entries that they read take as much room in the caches. ")
    if not a.caches:
        return Prose(said + "No level's tables make a step, so its caches of upper entries end later than these sweeps do, or it keeps no "
                            "such entry.")
    steps = listed(f"{count(cache.entries.value)} tables of the {LEVEL_WORDS[cache.level]} level" for cache in a.caches)
    if a.host.hypervisor != "none":
        return Prose(f"{said}Most of the rise comes past {steps}.")
    return Prose(f"{said}The walker keeps upper entries: it begins to read more past {steps}.")


def lowest_said(a: Analysis) -> Prose:
    """Where the sweep of the lowest tables rises, beside the TLB's own entries."""
    curve = required(a.prices.get(1, ()), "no tables of the lowest level were swept")
    said = (f"With {A_LINE**2} pages to a table a miss costs {curve.intervals[0].value:.1f} ns; with a table for each page, "
            f"{curve.last.value:.1f}. ")
    cache = next((cache for cache in a.caches if cache.level == 1), None)
    if cache is None:
        return Prose(said + "That is no step: what leads to them is kept in a larger place than this sweep fills, or nowhere.")
    said += f"The rise fits a cache that holds {count(cache.entries.value)} of them. "
    if a.stated_entries:
        said += _whose(cache.entries * (1 / a.stated_entries[-1]), a.host.vendor == "AuthenticAMD", count(a.stated_entries[-1]))
    return Prose(f"{said}\n\n{_share_said(a)}")


def _whose(share: Interval, is_amd: bool, last: str) -> str:
    """Which structure may hold so many entries. share: of the TLB's last level, which has `last`."""
    if share.low > 1:
        return f"That is more than the TLB's last level has, {last}: a structure of its own."
    if share.high <= A_STRUCTURE:
        return "That is the size of a structure of its own, far smaller than the TLB's last level."
    if is_amd:
        return ("On AMD's Zen, as documented for Zen 2, the last level of the data TLB holds page-directory entries beside those of pages "
                f"{{cite:p}}`wikichip_zen2`: the two share its {last} entries here, so neither has all of them and the rise is gradual.")
    return f"The TLB's last level has {last}; where it keeps upper entries beside those of pages, they share it."


def _share_said(a: Analysis) -> str:
    """How far the share of visits that miss is known along the sweep."""
    if a.is_counted:
        return "The walks were counted at each point."
    if (missed := a.missed.value) >= 1:
        return "All visits miss with the fewest tables, and no more can with many."
    return (f"Of the visits {missed:.0%} miss with the fewest tables; at the other points that was not counted. If all of them miss where "
            f"the tables are most, a miss costs {1 - missed:.0%} less there than is shown.")


def upper_said(a: Analysis) -> Prose:
    """What the sweeps of the upper levels show."""
    upper = {level: curve for level, curve in a.prices.items() if level > 1}
    required(upper, "no upper tables were swept")
    caches = {cache.level: cache for cache in a.caches}
    said = []
    for level, curve in upper.items():
        if cache := caches.get(level):
            said.append(f"Tables of the {LEVEL_WORDS[level]} level cost more from {count(cache.entries.value)} on: "
                        f"{curve.last.value:.1f} ns a miss in place of {curve.intervals[0].value:.1f}.")
        else:
            said.append(f"Those of the {LEVEL_WORDS[level]} make no step up to {count(curve.xs[-1])}.")
    return Prose(" ".join(said))


def guest_said(a: Analysis) -> Prose:
    """What the steps may be in a guest."""
    if a.host.hypervisor == "none":
        return Prose("No hypervisor is in between, so what a step adds is a read of one more entry, from the cache that holds it.")
    return Prose("This computer is a guest. Where its tables lie is translated in turn, so a table more is also a page more for the host's "
                 "part of the walk: a step may be the end of a cache of the guest's entries or of a nested TLB, and its height holds both.")


def judged_said(a: Analysis) -> Prose:
    """How far the held-out points are from what the sweeps predict."""
    rows = required(a.judged, "nothing was held out, or no cache was found")
    worst = rows.loc[(rows["ratio"] - 1).abs().idxmax()]
    said = (f"Between the sweeps, {len(rows)} numbers of tables were held out. The farthest prediction is {worst['predicted']:.1f} ns, "
            f"where {worst['median']:.1f} were measured")
    return Prose(said + (", so caches of these sizes explain walks that they were not fitted to." if abs(worst["ratio"] - 1) <= SAME else
                         ": caches of these sizes alone do not explain them."))


def _at(a: Analysis, level: int, places: str) -> Interval:
    return Interval.of(required(select(a.collisions, level=level, places=places), "these pages were not set apart").iloc[0])


def collisions_said(a: Analysis) -> Prose:
    """What exact distances cost more than random places at the same distance."""
    level = int(required(a.collisions, "no pages were set apart")["level"].max())
    exact, random, near = _at(a, level, EVENLY), _at(a, level, AT_RANDOM), _at(a, 1, EVENLY)
    said = (f"{COLLIDING} pages side by side take {near.value:.1f} ns a visit. Exactly {APART[level]} apart they take {exact.value:.1f}, "
            f"and at random places within such distances {random.value:.1f}. ")
    return Prose(said + choose(exact / random, {
        "above": "So the distance is not what costs: a power of two puts all pages in few sets of the TLB, and they put each other out.",
        "open": "So this TLB has no sets that a power of two would fill.",
        "below": "So the random places are the dear ones here."}, slack=SAME))


def replaced_said(a: Analysis) -> Prose:
    """Which policies the misses of the last level fit."""
    return _replaced(a.policies, a.misses, "the last level")


def first_replaced_said(a: Analysis) -> Prose:
    """Which policies the misses of the first level fit."""
    return _replaced(a.first_policies, a.first_misses, "the first level")


def _replaced(policies: list[Policy], misses: dict[Visits, Interval], level: str) -> Prose:
    required(policies, "no drawn visits were measured, or the TLB's entries are not known")
    cycle = next(((visits, share) for visits, share in misses.items() if not visits.hot), None)
    said = f"Of a cycle of {cycle[0].pages:,} pages {min(cycle[1].value, 1.0):.0%} miss {level} here. " if cycle else ""
    fitting = [WORDS[policy.name] for policy in replacement.fitting(policies)]
    if not fitting:
        nearest = policies[0]
        return Prose(f"{said}Not one of the six policies fits all sequences: the nearest, {WORDS[nearest.name]}, is {nearest.away:.1f} "
                     "errors from one of them. What a core really does may be in no textbook, or change with what it sees.")
    return Prose(f"{said}That fits {listed(fitting, 'or')}, of the six.")


def sets_said(a: Analysis) -> Prose:
    """How the last level's sets are chosen, by where pages a power of two apart cease to fit."""
    fit, entries = a.fit, a.entries[-1]
    said = (f"{fit.pages} pages fit while they are up to {count(fit.widest)} apart, and miss at twice that. Where the lowest bits of a "
            f"page's number choose its set, such pages use few of the sets, and that many of them fill a level of {count(fit.entries)} "
            f"entries. This one has {count(entries)}")
    said += (": no hash of higher bits spreads them over more sets." if fit.entries <= entries < 2 * fit.entries else
             ", so higher bits take part, and an aligned arena has to be larger to do harm." if fit.entries > entries else
             ", so something else takes a part of it.")
    if len(a.placements) == 1:
        said += f" Of the simulated choices, {SET_WORDS[a.placements[0]]} fit{'s' * (a.placements[0] == 'xor')}."
    beside = [(wide, a.padded.at(wide + 1), a.strides.at(wide)) for wide in PADDED if wide > fit.widest and wide + 1 in a.padded.xs]
    if beside:
        wide, padded, plain = beside[-1]
        said += (f"\n\nA page of padding is the remedy: {count(wide)} pages apart a visit takes {plain.value:.1f} ns, and a page more "
                 f"{padded.value:.1f}." if (plain - padded).low > 0 else "\n\nA page of padding between them does not help here.")
    return Prose(said)


def siblings_said(a: Analysis) -> Prose:
    """Whether a sibling thread could share the TLB here."""
    return Prose({
        "on": "Each core of this computer runs two threads, which share what was measured here: work on the sibling takes entries away. "
              "The computer was idle.",
        "off": "Each core could run two threads that would share its TLB; that is switched off here."}.get(
            a.host.noise.smt, "Whether two threads of a core share its TLB cannot be seen here: a core shows one."))


def places_said(a: Analysis) -> Prose:
    """What the lowest entry's place does to a walk's price, by the survey."""
    walks, unit = required(a.walks, "the survey has no walk's price"), a.survey.unit
    told = listed(f"{walk.cost.value:,.0f} {unit} with it in {walk.table_in}" for walk in walks if walk.cost)
    return Prose(f"The entry that no such cache keeps is the lowest one, and a walk costs what its place costs: {told}.")
