"""What `tlb where` may conclude of huge pages for a program, and the most that page faults cost it."""

from __future__ import annotations

from enum import StrEnum

from tlb.programs.runs import Run

# Of a page fault, with the page that Linux clears: generous, as the published rows of page_fault have
# 2.8 us at most. It bounds faults where Linux's time is mostly reading and writing.
FAULT_NS = 10_000


class Verdict(StrEnum):
    """What is known of huge pages for a program."""

    HELPS = "huge pages help"  # some runs with them are faster
    NO_GAIN = "nothing to gain"  # all that translation and page faults cost is next to nothing
    NO_GAIN_SHOWN = "no gain shown"  # by runs that would show it
    UNDECIDED = "cannot tell"
    NOT_ENDED = "did not end"
    POSSIBLE = "possible gain"  # and no runs with huge pages


def most_faults_s(alone: Run) -> float:
    """Return the most that page faults cost a run, in s."""
    return min(alone.system_s, alone.minor_faults * FAULT_NS / 1e9)
