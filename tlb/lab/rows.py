"""Select the stored rows of a computer's present state and kernels, of one engine and one
profile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tlb.lab import build, kernels
from tlb.lab.record import Identity, Point
from tlb.reasons import Unavailable

if TYPE_CHECKING:
    import pandas as pd

# Why a kernel that has rows cannot be built now: those rows are of another one.
_GONE = {"no-compiler", "engine-lacks", "bad-parameter"}
# with a kernel's own options, what decides which function a point runs
_PROGRAM = ["kernel", "engine", "mode", "layout", "order"]


def current(frame: pd.DataFrame, state: str) -> pd.DataFrame:
    """Return the rows of `state` and of what the kernels measure now, in the order of `Store.load`.

    Rows of another setting, Linux or compiler stay stored and are used again when it returns.
    Raises Unavailable where an existing kernel does not build.
    """
    options = [
        name
        for name in frame
        if any(name in kernel.options for kernel in kernels.CATALOGUE.values())
    ]
    identity, known = build.identities(), dict[tuple[object, ...], Identity | None]()
    programs = (
        frame[_PROGRAM + options].astype(object).where(frame[_PROGRAM + options].notna(), None)
    )
    now = []
    for program in programs.itertuples(index=False, name=None):
        if program not in known:
            known[program] = _identity(identity, dict(zip(programs, program, strict=True)))
        now.append(known[program])
    is_now = (frame["measures"] == [found and found.measures for found in now]) & (
        frame["kernel_digest"] == [found and found.code_digest for found in now]
    )
    return frame[(frame["state"] == state) & is_now].reset_index(drop=True)


def _identity(identity: Callable[[Point], Identity], program: dict[str, Any]) -> Identity | None:
    """Return the identity of a row's point, None for a kernel that is gone."""
    try:
        own = {
            name: int(value)
            for name in kernels.declaration(program["kernel"]).options
            if (value := program.get(name)) is not None
        }
        return identity(Point(**{name: program[name] for name in _PROGRAM}, lines=1, options=own))
    except Unavailable as why:
        if why.code not in _GONE:
            raise
        return None


def of_one_engine(
    frame: pd.DataFrame, asked: Collection[tuple[str, str]], engine: str
) -> pd.DataFrame:
    """Return the rows of the requested engines, so that no median mixes two.

    asked: (kernel, engine) pairs. Of a kernel in none of them: the rows of `engine`, else those of
    the other.
    """
    kept = set(asked)
    kernels = {kernel for kernel, _ in asked}
    there = {*_programs(frame)}
    kept |= {
        pair
        for pair in there
        if pair[0] not in kernels and (pair[1] == engine or (pair[0], engine) not in there)
    }
    return frame.loc[[program in kept for program in _programs(frame)]].reset_index(drop=True)


def of_one_region(
    frame: pd.DataFrame, asked: Collection[tuple[str, int]] = (), *, is_strict: bool = False
) -> pd.DataFrame:
    """Return the rows of each kernel that were timed as long as asked, so that no median mixes
    profiles.

    asked: (kernel, region_ms) pairs. For other kernels, and for those without such rows unless
    `is_strict`: the longest time with at least half as many rows as the most frequent one, because
    a profile may have been broken off.
    """
    if frame.empty:
        return frame
    kept, known = set(asked), {kernel for kernel, _ in asked}
    for kernel, many in frame.groupby(["kernel", "region_ms"]).size().groupby("kernel"):
        if kept.isdisjoint(many.index) and not (is_strict and kernel in known):
            kept.add(
                (
                    kernel,
                    max(region for (_, region), rows in many.items() if 2 * rows >= many.max()),
                )
            )
    return frame.loc[
        [region in kept for region in zip(frame["kernel"], frame["region_ms"], strict=True)]
    ].reset_index(drop=True)


def _programs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """(kernel, engine) of each row."""
    return list(zip(frame["kernel"], frame["engine"], strict=True))
