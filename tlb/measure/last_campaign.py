"""Which of an experiment's rows a page shows: those of each kernel's last campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# What tells two points of a frame apart, but for a kernel's own options, whose columns look like
# those of results.
_SETTING = ("pages", "layout", "order", "lines", "stride_pages", "mode")
KERNEL_COLUMNS = ["kernel", "engine"]
# of the settings of an experiment: one that asks for most of another's points is no campaign of it
_WHOLE_CAMPAIGN = 0.9


def last_campaign(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each kernel and engine, the rows of its last campaign: of the newest `measures`
    and one machine state.

    For published rows; of this computer's own the present state is known (measure.row_selection.current_rows). The
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
