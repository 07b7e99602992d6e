"""What the articles say of getting, proving and wasting large pages, judged on machines and
documents whose truth is known."""

import pandas as pd
import pytest
from support.keeping_pages import WHOLE, analysis, asked, only, pool, programs, rows
from support.page_sizes import Paged
from support.synthetic import MIB, fit

from tlb.measure.toolchains import TOOLCHAINS
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge

pytestmark = pytest.mark.filterwarnings("error")

SIX, GO, FIVE = (
    "pretouch-six-times-as-fast",
    "go-asks-for-no-large-pages",
    "recipes-work-in-five-languages",
)
SMALL = "small-object-takes-a-large-page"
TABLES = "smaller-page-tables"
DROPS, CHOOSES = ("madvise-drops-2-mib", "madvise-chooses-where")
H, F, C = "holds", "fails", "cannot tell"


def faulted(factor: float, machine: Paged = WHOLE) -> pd.DataFrame:
    """The rows with transparent pages made ready in so many times the time."""
    frame = rows(machine)
    chosen = (frame["kernel"] == "prefault") & (frame["pages"] == "thp")
    return frame.assign(
        ns_per_access=frame["ns_per_access"].where(~chosen, frame["ns_per_access"] * factor)
    )


def one_byte(pages: str, size: int) -> pd.DataFrame:
    """The rows with another size resident for one byte on these pages."""
    frame = rows()
    return frame.assign(
        one_byte_resident_bytes=frame["one_byte_resident_bytes"].where(
            frame["pages"] != pages, float(size)
        )
    )


def go(huge_bytes: int) -> dict:
    """Three plain runs of a Go program, and what lies on large pages of each."""
    found = programs()
    plain = [
        report | {"language": "go", "huge_bytes": huge_bytes}
        for report in found["reports"]
        if report["variant"] == "plain"
    ]
    return found | {"reports": plain, "lacking": {}}


JUDGED: dict[str, tuple[str, object, str, str]] = {
    "sixfold": (SIX, lambda: analysis(), H, "4 threads, base pages are ready at 1"),
    "twofold": (SIX, lambda: analysis(faulted(3.0)), F, "2."),
    "a byte takes 2 MiB": (SMALL, lambda: analysis(), H, "2 MiB resident"),
    "a byte takes a base page": (
        SMALL,
        lambda: analysis(one_byte("thp", 4096)),
        F,
        "4 KiB resident",
    ),
    "tables of a pool": (TABLES, lambda: analysis(), H, "524 KiB on base pages and 16 KiB on"),
    "tables as large": (TABLES, lambda: analysis(rows().assign(page_table_bytes=9e5)), F, "878.9"),
    "no pool for tables": (TABLES, lambda: analysis(only("4k", "thp")), C, "pool"),
    "a large page is dropped": (
        DROPS,
        lambda: analysis(ways=shrunk("dropped", 14 * MIB)),
        H,
        "2 MiB less",
    ),
    "a large page is split": (DROPS, lambda: analysis(ways=asked()), F, "1 of the huge pages"),
    "a half": (CHOOSES, lambda: analysis(ways=asked()), H, "100% is on huge"),
    "no half": (CHOOSES, lambda: analysis(ways=asked(half=0)), F, " 0% is on huge"),
    "Go asks for none": (GO, lambda: analysis(runtimes=go(0)), H, "0 B is"),
    "Go asks for some": (GO, lambda: analysis(runtimes=go(2**23)), F, "8 MiB is"),
    "Go given some unasked": (
        GO,
        lambda: analysis(runtimes=go(2**23) | {"thp": "always"}),
        C,
        "always",
    ),
    "from the pool": (FIVE, lambda: analysis(runtimes=pools()), H, "C 100%"),
    "not from the pool": (FIVE, lambda: analysis(runtimes=pool(2**23)), F, "C 50%"),
    "no pool": (
        FIVE,
        lambda: analysis(runtimes=programs() | {"lacking": {"c pool": "pool-empty"}}),
        C,
        "pool",
    ),
}


def pools() -> dict:
    """Each language's array from the pool."""
    return programs() | {
        "reports": [pool(2**24, language)["reports"][-1] for language in TOOLCHAINS]
    }


def shrunk(way: str, resident: int) -> dict:
    document = asked()
    for got in document["got"]:
        if got["way"] == way:
            got |= {"resident_bytes": resident, "huge_bytes": min(got["huge_bytes"], resident)}
    return document


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_what_it_is_about(name):
    claim, make, verdict, told = JUDGED[name]
    found = fit(judge(REGISTRY[claim], make()))
    assert (found.verdict, told in found.evidence) == (verdict, True), found
