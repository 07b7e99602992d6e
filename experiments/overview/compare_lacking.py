"""What of two computers is not compared, and why: points that one has measured alone, and
quantities that one profile has no value of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from experiments.overview.profile import PARTS, Profile, Quantity, is_current, read
from tlb.lab.store import Store
from tlb.prose import count, listed
from tlb.reasons import REASONS, if_available
from tlb.report.setting import point_columns


def points(a: pd.DataFrame, b: pd.DataFrame, chapters: Sequence[str]) -> list[str]:
    """By chapter how many points only one of two frames has (with a column `chapter`), in
    sentences."""
    told = []
    for chapter in chapters:
        sides = [side[side["chapter"] == chapter] for side in (a, b)]
        by = [*dict.fromkeys(name for side in sides for name in point_columns(side))]
        one, two = (
            {*map(str, side.reindex(columns=by).drop_duplicates().itertuples(index=False))}
            for side in sides
        )
        alone = [
            f"{count(len(mine))} of {letter} alone"
            for letter, mine in (("A", one - two), ("B", two - one))
            if mine
        ]
        if alone:
            told.append(f"Of {chapter} these points are measured on one side: {listed(alone)}.")
    return told


def of_profiles(sides: Sequence[tuple[str, Store, str]]) -> list[str]:
    """Quantities that one profile lacks and the other has, with why; why there is no profile.
    sides: letter, store, machine."""
    known = [
        (letter, machine, if_available(read, store, machine), store)
        for letter, store, machine in sides
    ]
    told = [
        f"{letter} has no profile to compare: translation.json of {machine} "
        f"{'is of other rows' if profile else 'is not there or of another version'}."
        for letter, machine, profile, store in known
        if not profile or not is_current(store, profile)
    ]
    if told:
        return told
    (one, _, a, _), (two, _, b, _) = known
    return [*_lacks(one, a, b), *_lacks(two, b, a)]


def _lacks(letter: str, mine: Profile, other: Profile) -> Iterator[str]:
    """By reason, what one profile has no value of and the other has."""
    theirs = {quantity.name for quantity in other.quantities if quantity.value is not None}
    for (code, detail), quantities in mine.lacking.items():
        if lacking := [quantity for quantity in quantities if quantity.name in theirs]:
            why = REASONS[code].sentence if code in REASONS else detail
            yield f"{letter} has no value of {listed(map(_words, lacking))}. {why}"


def _words(quantity: Quantity) -> str:
    return f"{PARTS[quantity.part]}: {quantity.words}"
