"""The sentences of the chapter about programs, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.setting import run_this, set_up
from experiments.chapters.your_program.analysis import Analysis
from experiments.chapters.your_program.cases import CASES, HEAPS
from experiments.chapters.your_program.tables import MORE
from experiments.words.prose import Prose, choose, count, in_words, listed, many, side
from experiments.words.reasons import Unavailable, if_available, required

__all__ = ["set_up", "change", "run_this", "lead", "gains_said", "costs_said", "hot_said", "rules_said", "pool_said", "starts_said",
           "layout_said", "taken_said", "redis_said", "go_said", "profile_said", "written_said"]

HALF = 0.5  # of the samples


def lead(a: Analysis) -> Prose:
    """The result in brief; where there is none yet, what waits and the command."""
    try:
        return brief(a)
    except Unavailable as why:
        if why.code != "no-data":
            raise
        return Prose("The programs of this chapter wait: on this machine they were not measured. `tlb run your_program` does that in "
                     "a quarter of an hour, or in as many as `-p minutes` says; `make book` leaves them out. Of a program that is not "
                     "installed, the page says so.")


def brief(a: Analysis) -> Prose:
    """How many of somebody else's programs large pages help, and by how much at most."""
    rows = a.of_pages(ours=False)
    sides = [side(gain) for gain in rows["gain"]]
    best = rows.iloc[max(range(len(rows)), key=lambda n: rows["gain"].iloc[n].value)]
    said = (f"Of {in_words(len(rows))} programs that others wrote, large pages make {many(sides.count('above'))} faster and "
            f"{many(sides.count('below'))} slower; of the rest no difference can be told, or there is none. ")
    return Prose(said + (f"The most goes to {best['title']}, {best['gain'].value:.2f} times as fast." if best["gain"].low > 1 else ""))


def gains_said(a: Analysis) -> Prose:
    """Whose gain is the largest, whose is none, and how wide the intervals are that say so."""
    rows = a.of_pages()
    faster = [row for row in rows.to_dict("records") if row["gain"].low > 1]
    slower = [row["title"] for row in rows.to_dict("records") if row["gain"].high < 1]
    alike = [row["title"] for row in rows.to_dict("records") if row["verdict"] == "no difference"]
    if not faster:
        return Prose("No program here is faster on large pages." + (f" Slower is {listed(slower)}." if slower else ""))
    faster.sort(key=lambda row: -row["gain"].value)
    told = listed(f"{row['title']} {row['gain'].value:.2f} times" for row in faster[:2])
    said = f"The largest gains: {told}. A gain is of a whole run: fewer walks, and fewer page faults, which a table below has too."
    return Prose(said + (f" No difference worth a setting: {listed(alike)}." if alike else "")
                 + (f" Slower on large pages: {listed(slower)}." if slower else "") + _unreached(a))


def _unreached(a: Analysis) -> str:
    """Whose lever did nothing, so that its time says nothing of large pages."""
    told = listed(f"{row['title']} ({row['large']:.0%} on large pages)" for row in a.unreached().to_dict("records"))
    return f" Left out, since the lever hardly reached it: {told}." if told else ""


def costs_said(a: Analysis) -> Prose:
    """What large pages take of memory."""
    rows = a.of_pages().dropna(subset=["memory"])
    most = rows.iloc[rows["memory"].argmax()]
    more = [row["title"] for row in rows.to_dict("records") if row["memory"] > MORE]
    if not more:
        return Prose(f"No program takes more than {MORE - 1:.0%} more memory: what they ask for, they use.")
    return Prose(f"{in_words(len(more)).capitalize()} of {in_words(len(rows))} take more memory, most of all {most['title']}, "
                 f"{most['memory']:.2f} times as much. A large page is resident whole, though a program may use a part of it.")


def hot_said(a: Analysis) -> Prose:
    """What becomes of the gain where most look-ups go to few keys."""
    every, hot = a.gain("fare-cache"), a.gain("fare-cache-hot")
    return Prose(f"Where any key is as likely as any other, a look-up is {every.value:.2f} times as fast on large pages. Where nine in ten "
                 f"ask for one of {count(1024)} keys, it is {hot.value:.2f} times as fast. " + choose(every / hot, {
                     "above": "The hot keys lie on so few pages that the TLB holds them; the tenth that does not is what is left to gain.",
                     "open": "So how hot the keys are does not matter here.",
                     "below": "So what is hot gains more: its lines are near, and only their pages are far."}))


def rules_said(a: Analysis) -> Prose:
    """The rules in one slice, with and without a neighbour that streams."""
    alone = a.gain("rules")
    beside = if_available(a.gain, "rules-beside")
    said = (f"The rules engine is {alone.value:.2f} times as fast with its slice in a mapping that is advised. ")
    if beside is None:
        return Prose(said.rstrip())
    said += f"Beside a goroutine that streams through memory it is {beside.value:.2f} times as fast. "
    return Prose(said + choose(beside / alone, {
        "above": "A neighbour takes the page tables out of the cache, so large pages save more under load than in a test.",
        "open": "So a neighbour does not change what large pages gain, as far as can be told.",
        "below": "A neighbour slows what large pages do not help: the data themselves."}))


def pool_said(a: Analysis) -> Prose:
    """The same slice from the pool, beside the advised one."""
    pool, advised, beside = a.gain("rules-pool"), if_available(a.gain, "rules"), if_available(a.gain, "rules-pool-beside")
    said = f"From a pool that was reserved before, the slice makes it {pool.value:.2f} times as fast"
    said += f", and {beside.value:.2f} times beside the stream. " if beside is not None else ". "
    return Prose((said + (choose(pool / advised, {
        "above": "That is more than advice gives, which gets large pages only where the kernel has them.",
        "open": "Advice gives as much, as far as can be told, and nobody has to reserve memory for it.",
        "below": "Advice gives more here."}) if advised is not None else "")).rstrip())


def starts_said(a: Analysis) -> Prose:
    """How the gain of a JVM that touches its heap and ends goes with the size of the heap."""
    gains = {gib: gain for name, gib in HEAPS.items() if (gain := if_available(a.gain, name)) is not None}
    least, most = min(required(gains, "no JVM was started")), max(gains)
    said = f"A JVM that touches a heap of {least} GiB and ends is {gains[least].value:.2f} times as fast with large pages"
    if least == most:
        return Prose(f"{said}.")
    return Prose(f"{said}, and one of {most} GiB {gains[most].value:.2f} times. " + choose(gains[most] / gains[least], {
        "above": "The larger the heap, the less of its time is anything but page faults.",
        "open": "So the size does not matter, as far as can be told.", "below": "The larger heap gains less."}))


def redis_said(a: Analysis) -> Prose:
    """What large pages give redis, and what they do to its writes while it saves."""
    gain = a.gain("redis")
    said = choose(gain, {"above": f"Filled and read by its own benchmark, redis is {gain.value:.2f} times as fast on large pages. ",
                         "open": "Filled and read by its own benchmark, redis is no faster on large pages, as far as can be told. ",
                         "below": f"Filled and read by its own benchmark, redis on large pages takes {1 / gain.value:.2f} times as long. "})
    saving = if_available(a.gain, "redis-save")
    if saving is None:
        return Prose(said.rstrip())
    return Prose(said + choose(saving, {
        "above": f"And while it saves, its slowest write in a thousand takes {1 / saving.value:.2f} of its time on base pages.",
        "open": "While it saves, its slowest write in a thousand takes no longer on them, as far as can be told.",
        "below": f"But while it saves, its slowest write in a thousand takes {1 / saving.value:.2f} times as long, as its vendor warns."}))


def go_said(a: Analysis) -> Prose:
    """What large pages give a Go program with a heap of a GiB, and what they take."""
    gain = a.gain("go-map")
    memory = a.trials.set_index("case").loc["go-map", "memory"]
    return Prose(f"In a map of 1 GiB a look-up is {gain.value:.2f} times as fast on large pages, for {memory:.2f} times the memory. "
                 + choose(gain, {"above": "What its guide promises is up to a tenth, of programs that do not only look up."},
                          line=1.1))


def layout_said(a: Analysis) -> Prose:
    """What another order of the data gives, without asking anybody for pages."""
    told = [(said, gain) for said, case in (("giving each of 64 threads its own part makes a read", "sharded"),
                                            ("splitting both tables of a join first makes a row", "join-parts"))
            if (gain := if_available(a.gain, case)) is not None]
    required(told, "no other order of data was measured")
    said = listed(f"{what} {gain.value:.1f} times as fast" for what, gain in told)
    pages = if_available(a.gain, "join")
    return Prose(f"{said[:1].upper()}{said[1:]}. It brings the caches near as well as the TLB, which no page size does."
                 + (f" Large pages alone make the join's row {pages.value:.2f} times as fast." if pages is not None else ""))


def taken_said(a: Analysis) -> Prose:
    """What is lost where large pages that a library asks for are taken away."""
    gain = a.gain("numpy")
    return Prose(f"NumPy asks for large pages by itself. With that switched off, drawn indices take {gain.value:.2f} times as long. "
                 + choose(gain, {"above": "So look at what a program has before you ask for more.",
                                 "open": "Whether that is a loss cannot be told here.", "below": "So here it is a gain to be without."}))


def profile_said(a: Analysis) -> Prose:
    """Where a profile by a clock finds the walks."""
    profile = a.profile
    share = profile.most / profile.ticks
    said = (f"A clock took {count(profile.ticks)} samples of a chase over 4 GiB of base pages. {share:.0%} of them are at one instruction, "
            "the load that misses or the one behind it. ")
    return Prose(said + ("A walk has no bar of its own in a profile, but its wait is in the load's." if share > HALF else
                         "So a profile does not point at the load here."))


def written_said(a: Analysis) -> Prose:
    """Whether the programs wrote the same with the lever as without, and what was left out."""
    rows = a.measured()
    other = [row["title"] for row in rows.to_dict("records") if not row["alike"]]
    lacking = len(a.lacking)
    said = "Every program wrote the same with its lever as without. " if not other else (
        f"What {listed(other)} wrote differs from run to run. ")
    return Prose(said + (f"Of {count(len(CASES))} programs {in_words(lacking)} could not be measured, and the table says why." if lacking
                         else "Not one was left out."))



# --- again


def change(a: Analysis) -> Prose:
    """The programs have no sizes of the book's; how long they may take is what there is to change."""
    pairs = a.trials["pairs"]
    return Prose(f"**Change one thing:** `-p minutes=5`. Expect fewer of the programs: each takes as many pairs of runs as it needs, here "
                 f"{pairs.min():.0f} to {pairs.max():.0f}, and what there is no time for is left out and says so." if len(pairs) else
                 "**Change one thing:** `-p minutes=5`. Expect fewer of the programs; what there is no time for is left out and says so.")
