"""Machines that never were, for pages about a machine: what each kind states, and surveys whose
every number is known."""

import pandas as pd

from experiments.stlb_cliff import Analysis
from support.common import About, make_record
from support.synthetic import Stated
from tlb.machine.host import Host
from tlb.stats.geometry import TlbGeometry, TlbLevel
from tlb.stats.geometry_curves import BoundedEstimate, WalkPrice
from tlb.system.reasons import explain_reason

# --- what a machine states

ARM = {
    "arch": "aarch64",
    "tlb": (),
    "tlb_reason": "no-geometry",
    "la57": None,
    "hypervisor": "unknown",
}


def host(**changes: object) -> Host:
    """An x86-64 guest of KVM with four levels and a TLB of two, changed."""
    return Stated(hypervisor="kvm", changes=changes).host()


# --- what its survey says

GHZ = 2.0
LINES = (8, *(2**k for k in range(4, 15)))
STEPS = ((64, 7.0), (2048, 30.0))  # pages that a level holds, cycles that the next costs more
PENALTY = 9.0


def measured(
    steps=STEPS, layouts=("spread", "packed", "alias"), ghz: float = GHZ, tried=LINES
) -> pd.DataFrame:
    """A row a point of chases that cost 4 cycles, and more past each step: no noise, so that every
    number is known."""
    rows = []
    for layout in layouts:
        for lines in tried:
            cycles = (
                4
                + (PENALTY if layout == "alias" else 0)
                + sum(cost for n, cost in steps if lines > n and layout != "packed")
            )
            ns = cycles / (ghz or 1)
            times = {"ns_per_access": ns, "batch_ns_per_access": [ns], "core_ghz": ghz}
            record = make_record(layout=layout, lines=lines, stride_pages=1, **times)
            rows.append(record.model_dump(exclude={"counters"}))
    return pd.DataFrame(rows)


def estimate(
    value: float, low: float | None = None, high: float | None = None, method: str = "alias, step"
) -> BoundedEstimate:
    low, high = (value if end is None else end for end in (low, high))
    return BoundedEstimate(value=value, low=low, high=high, method=method)


def level(number: int, entries: BoundedEstimate, **changes: object) -> TlbLevel:
    pages = entries.value
    given = {
        "opinions": {"price": entries, "alias": entries},
        "stated": int(pages),
        "rise": (pages, pages + 1),
        "hit_cost": estimate(7, 6.9, 7.2) if number > 1 else None,
        "verdict": f"Price and alias agree on {pages:,.0f} pages.",
    }
    return TlbLevel.model_validate({"level": number, "entries": entries, **given, **changes})


FIRST, SECOND = level(1, estimate(64, 64, 65), ways=0), level(2, estimate(2048, 1998.6, 2100.2))
WALKS = [
    WalkPrice(
        table_in=place, pages=pages, stride_pages=stride, table_bytes=size, cost=cost, reason=why
    )
    for place, pages, stride, size, cost, why in (
        ("L2", 16384, 1, 131072, estimate(20, 19.8, 20.1), None),
        ("L3", 65536, 8, 4 << 20, None, explain_reason("no-data")),
        ("memory", 1 << 20, 8, 64 << 20, estimate(300, 250, 410), None),
    )
]
NO_WAYS = {"ways": None, "ways_reason": explain_reason("no-step", "16 pages cost no more than two")}
UNKNOWN = level(1, estimate(64), stated=None, **NO_WAYS)
BARE = level(2, estimate(1500), opinions={"alias": estimate(1500)}, stated=None, hit_cost=None)
IN_NS = {"unit": "ns", "core_ghz": None}


def geometry(**changes: object) -> TlbGeometry:
    return TlbGeometry.model_validate(
        {
            "pages": "4k",
            "unit": "cycles",
            "core_ghz": GHZ,
            "first_tread": 4.0,
            "levels": [FIRST, SECOND],
            "walks": WALKS,
            "alias_penalty": PENALTY,
            "notes": ["Alias chases: a note."],
            **changes,
        }
    )


SURVEYS: dict[str, tuple[pd.DataFrame, TlbGeometry]] = {
    "two levels": (measured(), geometry()),
    "one level": (measured(STEPS[:1]), geometry(levels=[FIRST])),
    "ways": (measured(), geometry(levels=[level(1, estimate(64), ways=4), SECOND])),
    "next to nothing": (
        measured(),
        geometry(levels=[UNKNOWN, BARE], walks=[], alias_penalty=None, notes=[]),
    ),
}


def surveyed(rows: pd.DataFrame, found: TlbGeometry) -> Analysis:
    """The chapter's analysis of rows, with a geometry in place of the one that they give."""
    a = Analysis(rows, About(host()))
    a.survey = found
    return a


def stating(of: Host) -> Analysis:
    """The chapter's analysis of a machine whose survey is the plainest."""
    a = surveyed(*SURVEYS["two levels"])
    a.about.host = of
    return a
