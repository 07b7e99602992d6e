"""What an article says of page-management work that empties TLBs, as a predicate on the chapter's
Analysis."""

from __future__ import annotations

from experiments.shootdowns.analysis import Analysis
from experiments.shootdowns.grid import PAGES_THE_TLB_HOLDS
from tlb.report.verdicts import Answer, Band, claim, inside, points_of


@claim(
    "page-management-slows-a-loop", points=points_of("neighbour_chase", lines=PAGES_THE_TLB_HOLDS)
)
def page_management_slows(a: Analysis, band: Band) -> Answer:
    ratio = a.beside_discards()
    return inside(ratio, *band), (
        f"Beside a thread that gives its pages back, a chase through {PAGES_THE_TLB_HOLDS} other pages takes "
        f"{ratio:.2f} times as "
        "long, after dividing by the slowdown of its packed control, which is the interrupts'."
    )
