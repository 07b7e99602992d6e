"""Sentences about a comparison: what to know of both sides, and which points only one has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tlb.measure import states
from tlb.report.setting import point_columns
from tlb.report.verdicts import WRONG_BY_CHANCE
from tlb.system.prose import count, listed
from tlb.system.reasons import if_available

if TYPE_CHECKING:
    from experiments.overview.compare import Compared, Side


def alone(a: pd.DataFrame, b: pd.DataFrame, chapters: Sequence[str]) -> Iterator[str]:
    """Yield a sentence a chapter of which only one side has some points."""
    for chapter in chapters:
        sides = [side[side["chapter"] == chapter] for side in (a, b)]
        by = [*dict.fromkeys(name for side in sides for name in point_columns(side))]
        points = [side.reindex(columns=by).drop_duplicates() for side in sides]
        one, two = ({*map(str, side.itertuples(index=False))} for side in points)
        alone = (("A", len(one - two)), ("B", len(two - one)))
        words = [f"{count(number)} of {letter} alone" for letter, number in alone if number]
        if words:
            yield f"Of {chapter} these points are measured on one side: {listed(words)}."


def notes(
    sides: tuple[Side, Side], quantities: list[Compared], left_out: set[str]
) -> Iterator[str]:
    """Yield what to know of both sides."""
    among = count(sum(quantity.can_tell for quantity in quantities))
    yield (
        f"{count(len(quantities))} quantities of points that both have measured are compared, "
        f"{among} of them with five processes or more on both sides. The intervals are widened for "
        f"{among} comparisons (Bonferroni): of tables like this one about machines that are alike, "
        f"at most {WRONG_BY_CHANCE:.0%} name any difference."
    )
    for place, side in enumerate(sides):
        yield from _about(side, "AB"[place], sum(q.pair.runs[place] > 1 for q in quantities))
    if left_out:
        names = listed(sorted(left_out))
        yield f"Left out, since one side was measured with an earlier version of the kernel: {names}."


def _about(side: Side, letter: str, several: int) -> Iterator[str]:
    """Yield sentences about one side. several: quantities of which there are several runs."""
    days = sorted({*side.rows["started_at"].str[:10]})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    rests = "Each of its quantities is of one run, so a difference may be that of the hour."
    if several:
        rests = f"{count(several)} of its quantities are of several runs; a difference has to "
        rests += "exceed that between runs."
    yield f"{letter} is {side.name}, measured {when}. {rests}"
    if len(boots := states.boots_of(side.rows)) > 1:
        each = f"{len(boots)} boots, {listed(boots)}"
        yield f"{letter} has rows of {each}; compare one alone as NAME@BOOT."
    if if_available(states.description_of_state, side.store, side.machine, side.state) is None:
        yield f"{side.name} has no description in the state {side.state}; the latest one is shown."
