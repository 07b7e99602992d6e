"""What an article says of virtual machines and containers, as predicates on the rows of experiment `virtualization`."""

from __future__ import annotations

import pandas as pd

from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization import costs as virtual_costs
from experiments.chapters.virtualization import references as virtual_counts
from experiments.chapters.virtualization.entries import Share, shares
from experiments.chapters.your_machine.address import listed
from experiments.inference.curves import PAGE, Verdict, judge
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

# "Under 2-3x native": two is the stricter reading, three the wider.
STRICT, WIDE = 2.0, 3.0
# Two processes of one program differ by as much without a reason.
SAME = 0.01


def spans(found: list[Share]) -> tuple[bool | None, str]:
    """Whether an entry spans the smaller of the two pages, and the shares that say so. Raises Unavailable("too-few-points")."""
    inside, large = [one for one in found if one.guest], [one for one in found if not one.guest]
    if not inside:
        raise Unavailable("too-few-points", "no guest's chase shows the steps of base pages on base pages beside another's")
    mixed = [one for one in inside if virtual.smaller(one.guest, one.host) == "4k"]
    both = [one for one in inside if one not in mixed]
    told = [f"{virtual.cell_name(one.guest, one.host)} pays {one.share.value:.2f} ({one.share.low:.2f} to {one.share.high:.2f})"
            for one in inside]
    said = f"Between the two levels' entries, of what base pages on base pages pay for translation, {listed(told)}."
    kinds = {one.kind for one in mixed}
    if "whole" in kinds:
        return False, f"{said} An entry spans more than the smaller page there."
    if not mixed or not both or kinds != {"pieces"} or both[0].kind == "open":
        return None, f"{said} That leaves it open."
    if both[0].kind == "whole":
        return True, f"{said} So it takes large pages on both sides for an entry to span one."
    if any(one.kind == "pieces" for one in large):
        return None, (f"{said} Large pages outside the guest pay {large[0].share.value:.2f} as well: this computer's own are in pieces, "
                      "and no guest on it can have larger ones.")
    if not any(one.kind == "whole" for one in large):
        return None, f"{said} Whether this computer's own large pages are whole is open, and a guest's can be no larger."
    return False, f"{said} Large pages on both sides are in pieces, though outside they are whole."


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    """What the article says of guests and containers, and what this frame says of it."""

    def references() -> tuple[bool | None, str]:
        counts = {(guest, host): virtual_counts.cold(guest, host) for guest in virtual.GUEST_PAGES for host in virtual.GUEST_PAGES}
        most = max(counts.values())
        agree = all(count == virtual_counts.at_most(*pages) for pages, count in counts.items())
        five = virtual_counts.cold("4k", "4k", 5, 5)
        return most == 24 and agree, (
            f"Counted by the simulator, a load with every cache of translations empty takes {most} references on base pages over base "
            f"pages, {min(counts.values())} on 1 GiB pages over 1 GiB pages, and {five} with five levels on five; the formula "
            f"(g+1)(h+1)-1 gives {'the same for all nine pairs' if agree else 'others'}.")

    def practical() -> tuple[bool | None, str]:
        found = virtual.at(virtual.matrix(frame))
        found = found[found["over_alike"].notna()]
        if found.empty:
            raise Unavailable("too-few-points", "no page size was measured both in a guest and outside")
        worst, best = (found.loc[getattr(found["over_alike"], name)()] for name in ("idxmax", "idxmin"))
        under = int((found["over_alike_high"] < STRICT).sum())
        said = (f"At {format_size(int(worst['lines']) * PAGE)} a load in the guest takes {best['over_alike']:.2f} to "
                f"{worst['over_alike']:.2f} times one outside on the same pages, the most on "
                f"{virtual.cell_name(worst['guest'], worst['host'])} ({worst['over_alike_low']:.2f} to {worst['over_alike_high']:.2f}); "
                f"{under} of {len(found)} pairs of page sizes stay under {STRICT:.0f}.")
        truth = True if found["over_alike_high"].max() < WIDE else False if found["over_alike_low"].max() >= WIDE else None
        return truth, said

    def containers() -> tuple[bool | None, str]:
        ratio = virtual_costs.container_ratio(frame)
        table = virtual_costs.containers(frame)
        zero = int(((table["low"] <= 0) & (table["high"] >= 0)).sum())
        said = (f"In fresh user, mount, pid and network namespaces a load takes {ratio.value:.4f} times a plain process's "
                f"({ratio.low:.4f} to {ratio.high:.4f}, {ratio.coverage:.0%} interval over all pairs); point by point, {zero} of "
                f"{len(table)} intervals of the difference hold zero.")
        truth = True if 1 - SAME < ratio.low <= 1 <= ratio.high < 1 + SAME else False if ratio.low > 1 + SAME else None
        return truth, said

    return [
        judge("A walk in two dimensions takes up to 24 references.", references),
        judge("In practice a guest's load costs under 2 to 3 times a native one.", practical),
        judge("A TLB entry spans the smaller of the guest's page and the host's.", lambda: spans(shares(frame))),
        judge("Containers add no translation cost.", containers),
    ]
