"""The sentences of the chapter about programs, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article import setting
from experiments.article.setting import machine, run_this
from experiments.chapters.your_program.analysis import ONE, Analysis
from experiments.chapters.your_program.cases import CASES, HEAPS
from experiments.chapters.your_program.programs import WITHIN
from experiments.chapters.your_program.tables import MORE
from experiments.inference.intervals import Interval
from experiments.programs.trial import would_have_shown
from experiments.words.prose import Prose, choose, count, escape_markdown, in_words, listed, many, side
from experiments.words.reasons import Unavailable, if_available, required

__all__ = ["set_up", "change", "run_this", "lead", "gains_said", "costs_said", "hot_said", "rules_said", "pool_said", "starts_said",
           "layout_said", "taken_said", "redis_said", "go_said", "profile_said", "written_said"]

HALF = 0.5  # of the samples


def set_up(a: Analysis) -> Prose:
    """Return what the programs were measured on and how, item by item."""
    document = if_available(lambda: a.programs)
    if document is None or not document.told:
        return setting.set_up(a)
    pairs = [told.pairs for told in document.told]
    return Prose(f"- **Machine.** {escape_markdown(machine(a))}.\n- **System.** {setting.system(a, {document.state})}\n"
                 f"- **Measured.** {count(len(pairs))} programs on {document.measured_at[:10]}, each in {min(pairs)} to {max(pairs)} "
                 f"pairs of runs, with transparent huge pages set to `{document.thp}`.")


def not_found(difference: str, ratio: Interval) -> str:
    """Say that a difference was not found, and how large it may be all the same."""
    return f"No difference {difference} was found; one by a factor of {1 + would_have_shown(ratio):.3g} is not excluded."


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
    rows = a.of_pages(ours=False).to_dict("records")
    sides = [side(row["gain"]) for row in rows]
    faster = sorted((row for row in rows if row["gain"].low > 1), key=lambda row: -row["gain"].value)
    working = [f"{row['title']}: {row['gain']:.2f} times as fast" for row in faster if row["case"] not in HEAPS]
    said = (f"Of {in_words(len(rows))} programs that others wrote, large pages make {many(len(faster))} faster and "
            f"{many(sides.count('below'))} slower; for the others no difference was found. ")
    best = f"The largest gain is that of {faster[0]['title']}: {faster[0]['gain']:.2f} times as fast. " if faster else ""
    if not faster or faster[0]["case"] not in HEAPS:
        return Prose((said + best).rstrip())
    return Prose(f"{said}{best}It does nothing but fault its heap in.\n\n" + (
        f"Of those that do other work, the largest gain is that of {working[0]}." if working else
        "None that does other work was found to be faster."))


def gains_said(a: Analysis) -> Prose:
    """Whose gain is the largest, whose is none, and how wide the intervals are that say so."""
    rows = a.of_pages()
    faster = [row for row in rows.to_dict("records") if row["gain"].low > 1]
    slower = [row["title"] for row in rows.to_dict("records") if row["gain"].high < 1]
    alike = [row["title"] for row in rows.to_dict("records") if row["verdict"] == "no difference"]
    if not faster:
        return Prose("No program here is faster on large pages." + (f" Slower is {listed(slower)}." if slower else ""))
    faster.sort(key=lambda row: -row["gain"].value)
    told = listed(f"{row['title']}, {row['gain']:.2f} times as fast" for row in faster[:2])
    said = (f"The largest gains are those of {told}.\n\nA gain is of the whole run: it comes from fewer walks and from fewer page faults, "
            "which a table below counts.")
    return Prose(said + (f" No difference was found, and none over {WITHIN:.0%} is likely, for {listed(alike)}." if alike else "")
                 + (f" Slower on large pages: {listed(slower)}." if slower else "") + _unreached(a))


def _unreached(a: Analysis) -> str:
    """Whose lever did nothing, so that its time says nothing of large pages."""
    told = listed(f"{row['title']} ({row['large']:.0%} on large pages)" for row in a.unreached().to_dict("records"))
    return f" Left out, because the lever put next to nothing on large pages: {told}." if told else ""


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
    return Prose(f"Where every key is equally likely, a look-up is {every:.2f} times as fast on large pages.\n\nWhere nine in ten "
                 f"ask for one of {count(1024)} keys, it is {hot:.2f} times as fast.\n\n" + choose(every / hot, {
                     "above": "The hot keys lie on so few pages that the TLB holds them, so only the other tenth of look-ups gains.",
                     "open": not_found("between the two gains", every / hot),
                     "below": "Hot keys gain more: their lines are in the caches, and only their translations are missing."}))


def rules_said(a: Analysis) -> Prose:
    """The rules in one slice, with and without a neighbour that streams."""
    alone = a.gain("rules")
    beside = if_available(a.gain, "rules-beside")
    said = (f"The rules engine is {alone:.2f} times as fast with its slice in a mapping that is advised. ")
    if beside is None:
        return Prose(said.rstrip())
    said += f"Beside a goroutine that streams through memory it is {beside:.2f} times as fast.\n\n"
    return Prose(said + choose(beside / alone, {
        "above": "The neighbour takes the page tables out of the cache, so large pages save more under load than in a test.",
        "open": not_found("that the neighbour makes to the gain", beside / alone),
        "below": "The neighbour slows the accesses to the data, which large pages do not help, so the gain is smaller."}))


def pool_said(a: Analysis) -> Prose:
    """The same slice from the pool, beside the advised one."""
    pool, advised, beside = a.gain("rules-pool"), if_available(a.gain, "rules"), if_available(a.gain, "rules-pool-beside")
    said = f"With the slice in a pool that was reserved before, it is {pool:.2f} times as fast"
    said += f", and {beside:.2f} times beside the stream.\n\n" if beside is not None else ".\n\n"
    return Prose((said + (choose(pool / advised, {
        "above": "That is more than advice gains, which gets large pages only where Linux has them.",
        "open": not_found("between the pool and advice, which reserves no memory,", pool / advised),
        "below": "Advice gains more here."}) if advised is not None else "")).rstrip())


def starts_said(a: Analysis) -> Prose:
    """How the gain of a JVM that touches its heap and ends goes with the size of the heap."""
    gains = {gib: gain for name, gib in HEAPS.items() if (gain := if_available(a.gain, name)) is not None}
    least, most = min(required(gains, "no JVM was started")), max(gains)
    said = "With large pages, a JVM that touches its heap and ends is faster:\n\n" + "\n".join(
        f"- {gain:.2f} times as fast with a heap of {gib} GiB" for gib, gain in gains.items()) + "\n\n"
    if least == most:
        return Prose(said.rstrip())
    return Prose(said + choose(gains[most] / gains[least], {
        "above": "The larger the heap, the larger the part of its time that is page faults.",
        "open": not_found(f"between {least} GiB and {most} GiB", gains[most] / gains[least]), "below": "The larger heap gains less."}))


def redis_said(a: Analysis) -> Prose:
    """What large pages give redis, and what they do to its writes while it saves."""
    gain = a.gain("redis")
    said = f"Filled and read by its own benchmark, redis is {gain:.2f} times as fast on large pages. "
    said += choose(gain, {"open": not_found("in its time", gain)})
    saving = if_available(a.gain, "redis-save")
    if saving is None:
        return Prose(said.rstrip())
    slower = ONE / saving
    said = f"{said.rstrip()}\n\nWhile it saves, its slowest write in a thousand takes {slower:.2f} times as long on them"
    return Prose(said + choose(slower, {
        "above": ", as its vendor warns.", "open": f". {not_found('in its slowest writes', slower)}", "below": "."}))


def go_said(a: Analysis) -> Prose:
    """What large pages give a Go program with a heap of a GiB, and what they take."""
    gain = a.gain("go-map")
    memory = a.trials.set_index("case").loc["go-map", "memory"]
    return Prose(f"In a map of 1 GiB a look-up is {gain:.2f} times as fast on large pages, for {memory:.2f} times the memory. "
                 + choose(gain, {"above": "Go's guide promises up to a tenth, to programs that do more than look-ups."}, line=1.1))


def layout_said(a: Analysis) -> Prose:
    """What another order of the data gives, without asking anybody for pages."""
    told = [(said, gain) for said, case in (("giving each of 64 threads its own part makes a read", "sharded"),
                                            ("splitting both tables of a join first makes a row", "join-parts"))
            if (gain := if_available(a.gain, case)) is not None]
    required(told, "no other order of data was measured")
    said = "\n\n".join(f"{what[:1].upper()}{what[1:]} {gain:.1f} times as fast." for what, gain in told)
    pages = if_available(a.gain, "join")
    return Prose(f"{said}\n\nThat saves cache misses as well as TLB misses, which no page size does."
                 + (f" Large pages alone make the join's row {pages:.2f} times as fast." if pages is not None else ""))


def taken_said(a: Analysis) -> Prose:
    """What is lost where large pages that a library asks for are taken away."""
    gain = a.gain("numpy")
    return Prose(f"NumPy asks for large pages by itself. With that switched off, reading at random indices takes {gain:.2f} times as long. "
                 + choose(gain, {"above": "So look at what a program has before you ask for more.",
                                 "open": not_found("in its time", gain), "below": "So here it is faster without."}))


def profile_said(a: Analysis) -> Prose:
    """Where a profile by a clock finds the walks."""
    profile = a.profile
    share = profile.most / profile.ticks
    said = (f"A clock took {count(profile.ticks)} samples of a chase over 4 GiB of base pages. {share:.0%} of them are at one instruction, "
            "the load that misses or the one after it. ")
    return Prose(said + ("The walk has no bar of its own in a profile: its time is in the bar of the load, beside that of the data." if
                         share > HALF else "So this profile does not point at the load."))


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
