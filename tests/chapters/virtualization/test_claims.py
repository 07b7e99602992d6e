"""Verdicts on guests and containers, on machines whose truth is known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from support.guests import GUESTS, HOSTS, MACHINES, Guests, analysis, rows, stated
from support.synthetic import fit

from experiments.virtualization import claims
from experiments.virtualization.analysis import Analysis
from experiments.virtualization.claims import cold_references, references_at_most
from tlb.report.claims import claims_of
from tlb.report.verdicts import Verdict, chapter_verdicts, judge

pytestmark = pytest.mark.filterwarnings("error")
PRACTICAL, CONTAINERS = ("a-guest-costs-under-three", "containers-add-nothing")
ALIGNED = "only-huge-on-huge-helps"
H, F, C, N = "holds", "fails", "cannot tell", "not testable here"
CLAIMS = {claim.id: claim for claim in claims_of(claims)}


def by_id(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    return {one.claim.id: fit(one) for one in chapter_verdicts(claims, a, **bands)}


def inflated(factor: float, noise: float = 0.003) -> pd.DataFrame:
    """Each guest's time is so many times that of the plain process on its page size."""
    frame = rows(Guests(far=(), noise=noise))
    plain = (
        frame[(frame["kernel"] == "page_chase") & (frame["mode"] == "")]
        .groupby(["pages", "layout", "lines"])["ns_per_access"]
        .median()
    )
    guest = frame["kernel"] == "guest_chase"
    keys = list(zip(frame["mode"], frame["layout"], frame["lines"], strict=True))
    ours = pd.Series(
        [
            plain.get(key, np.nan) if inside else np.nan
            for key, inside in zip(keys, guest, strict=True)
        ],
        index=frame.index,
    )
    wobble = frame["ns_per_access"] / frame.groupby(["kernel", "mode", "pages", "layout", "lines"])[
        "ns_per_access"
    ].transform("median")
    ns = (ours * factor * wobble).fillna(frame["ns_per_access"])
    return frame.assign(ns_per_access=ns, outside_ns_per_access=ns)  # by both clocks


def aligned_alone() -> pd.DataFrame:
    """A guest's 2 MiB pages on 4 KiB pages are as fast as on the host's 2 MiB pages."""
    frame = rows(Guests(far=()))
    guest = (frame["kernel"] == "guest_chase") & (frame["mode"] == "2m")
    whole = frame[guest & (frame["pages"] == "thp")]
    rest = frame[~(guest & (frame["pages"] == "4k"))]
    return pd.concat([rest, whole.assign(pages="4k")], ignore_index=True)


JUDGED: dict[str, tuple[str, Callable[[], pd.DataFrame], str, str]] = {
    "one and a half": (PRACTICAL, lambda: inflated(1.5), H, "12 of 12"),
    "four": (PRACTICAL, lambda: inflated(4.0), F, "4.0"),
    "three or not": (PRACTICAL, lambda: inflated(3.0, noise=0.2), C, " of 12"),
    "no guest": (PRACTICAL, MACHINES["no guest"], C, "no guest"),
    "walks a level shorter": (ALIGNED, lambda: rows(Guests(far=())), H, "0.79"),
    "shadow tables": (ALIGNED, lambda: rows(Guests(far=(), shadow=True)), H, "1.0"),
    "one side is enough": (ALIGNED, aligned_alone, F, "0.0"),
    "one side was not measured": (
        ALIGNED,
        lambda: rows(Guests(cells=(("4k", "4k"), ("2m", "thp")))),
        C,
        "2 MiB pages on the host's 4 KiB",
    ),
    "containers add nothing": (CONTAINERS, lambda: rows(Guests(noise=0.0005)), H, "1.0"),
    "containers add a tenth": (CONTAINERS, lambda: rows(Guests(namespaces=1.1)), F, "1.1"),
    "containers in noise": (CONTAINERS, lambda: rows(Guests(noise=0.5)), C, "no second set"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name):
    id, make, verdict, number = JUDGED[name]
    found = judge(CLAIMS[id], analysis(make()))
    assert (found.verdict, number in found.evidence) == (verdict, True), found


@pytest.mark.parametrize("id", [PRACTICAL, ALIGNED])
@pytest.mark.parametrize(("hypervisor", "verdict"), [("none", H), ("kvm", N), ("unknown", N)])
def test_a_guest_is_beside_bare_metal_or_not_testable(id, hypervisor, verdict):
    frame = inflated(1.5) if id == PRACTICAL else rows(Guests(far=()))
    found = judge(CLAIMS[id], analysis(frame, stated(hypervisor=hypervisor)))
    assert (found.verdict, bool(found.effects)) == (verdict, verdict == H)


def test_guests_are_the_reference_machines_where_there_are_none_and_containers_always_this_ones():
    other = analysis(rows(), stated(), rows={"virtualization": inflated(4.0)}).about
    mine = analysis(rows(Guests(cells=(), far=(), namespaces=1.1)), other=other)
    found = by_id(mine)
    own = by_id(analysis(inflated(4.0)))
    assert (
        found[PRACTICAL].verdict == F
        and found[CONTAINERS].verdict == F
        and own[CONTAINERS].verdict != F
    )
    assert (
        own[PRACTICAL].evidence in found[PRACTICAL].evidence != own[PRACTICAL].evidence
    )  # and it is said whose
    assert found[CONTAINERS].evidence == by_id(analysis(mine.frame))[CONTAINERS].evidence


def test_the_formula_and_the_cold_simulation_agree_in_every_cell_and_depth():
    for guest in GUESTS:
        for host in HOSTS:
            for levels in ((4, 4), (4, 5), (5, 4), (5, 5)):
                assert references_at_most(guest, host, *levels) == cold_references(
                    guest, host, *levels
                )
    assert references_at_most("4k", "4k") == 24 and references_at_most("4k", "4k", 5, 5) == 35
    assert references_at_most("2m", "thp") == 15 and references_at_most("1g", "1g") == 8
