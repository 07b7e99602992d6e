"""Select rows: of a computer's present state and kernels, of one engine and one profile, and of each
kernel's last campaign, which pages show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

from tlb.measure import build
from tlb.measure.record import KernelBuild, KernelEngine
from tlb.system.reasons import Unavailable

if TYPE_CHECKING:
    import pandas as pd
if TYPE_CHECKING:
    import pandas as pd

# Why a kernel that has rows cannot be built now: those rows are of another one.
_GONE = {"no-compiler", "engine-lacks", "bad-parameter"}


def current_rows(frame: pd.DataFrame, state: str) -> pd.DataFrame:
    """Return the rows of `state` and of what the kernels measure now, in the order of `Store.load`.

    Rows of another setting, Linux or compiler stay stored and are used again when it returns.
    Raises Unavailable where an existing kernel does not build.
    """
    measured = list(zip(frame["kernel"], frame["engine"], strict=True))
    builds = {pair: _build(*pair) for pair in {*measured}}
    now = [builds[pair] for pair in measured]
    is_now = (frame["measures"] == [found and found.measures for found in now]) & (
        frame["compiler"] == [found and found.compiler for found in now]
    )
    return frame[(frame["state"] == state) & is_now].reset_index(drop=True)


def _build(kernel: str, engine: KernelEngine) -> KernelBuild | None:
    """Return what would measure a kernel's rows now, None for a kernel that is gone."""
    try:
        return build.kernel(kernel, engine).build
    except Unavailable as why:
        if why.code not in _GONE:
            raise
        return None


def rows_of_one_engine(
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


def rows_of_one_profile(
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
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for kernel, region in zip(frame["kernel"], frame["region_ms"], strict=True):
        counts[kernel][region] += 1
    for kernel, many in counts.items():
        is_asked = any((kernel, region) in kept for region in many)
        if not is_asked and not (is_strict and kernel in known):
            most = max(many.values())
            kept.add((kernel, max(region for region, rows in many.items() if 2 * rows >= most)))
    return frame.loc[
        [region in kept for region in zip(frame["kernel"], frame["region_ms"], strict=True)]
    ].reset_index(drop=True)


def _programs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (kernel, engine) of each row."""
    return list(zip(frame["kernel"], frame["engine"], strict=True))


# --- the last campaign

# What tells two points of a frame apart, but for a kernel's own options, whose columns look like
# those of results.
_SETTING = ("pages", "layout", "order", "lines", "stride_pages", "mode")
KERNEL_COLUMNS = ["kernel", "engine"]
# of the settings of an experiment: one that asks for most of another's points is no campaign of it
_WHOLE_CAMPAIGN = 0.9


def rows_of_last_campaign(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each kernel and engine, the rows of its last campaign: of the newest `measures`
    and one machine state.

    For published rows; of this computer's own the present state is known (`current_rows`). The
    last campaign is the one whose last row is, in the order of appending, so a clock that steps
    back changes nothing. Two kinds of campaigns hide no other of the same `measures`: one with
    fewer than half as many rows as the largest was broken off; one that covers fewer than nine in
    ten of the settings that the widest covers belongs to another experiment.
    """
    frame = frame[frame["measures"] == frame.groupby(KERNEL_COLUMNS)["measures"].transform("max")]
    return _of_last_campaign(frame, KERNEL_COLUMNS, ["state"]).reset_index(drop=True)


def _of_last_campaign(frame: pd.DataFrame, by: list[str], conditions: list[str]) -> pd.DataFrame:
    """Return the rows of each group whose conditions are those of its last campaign that hides
    others."""
    setting = frame.groupby(
        [name for name in _SETTING if name in frame] or by, dropna=False
    ).ngroup()
    campaigns = (
        frame[[*by, *conditions]].assign(setting=setting).groupby([*by, *conditions])["setting"]
    )
    rows, covered = campaigns.transform("size"), campaigns.transform("nunique")

    def most(of: pd.Series) -> pd.Series:
        return of.groupby([frame[name] for name in by]).transform("max")

    is_whole = (2 * rows >= most(rows)) & (covered >= _WHOLE_CAMPAIGN * most(covered))
    last = frame[by].join(frame[is_whole].groupby(by)[conditions].last(), on=by)[conditions]
    return frame[(frame[conditions] == last).all(axis=1)]
