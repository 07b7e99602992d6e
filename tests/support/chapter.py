"""What tests of a chapter share: one about this computer, and the reason with which a call ends."""

from tlb.report.chapter import Chapter, begin

CHAPTER = "stlb_cliff"
DEFAULTS = {
    "machine": "reference",
    "beside": "reference",
    "profile": "quick",
    "max_working_set": "profile",
    "repeats": 0,
    "minutes": 10.0,
    "engine": "auto",
}


def this(**changes: object) -> Chapter:
    return begin(CHAPTER, DEFAULTS | {"machine": "this"} | changes)
