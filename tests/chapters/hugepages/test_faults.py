"""What can go wrong with huge pages, in the order of the issue's list: each fault gives its reason
and no record.

The kernels run as they are, on the huge pages of another machine that tests/support/other_machine.c
shows them: its pools, its settings, its smaps. So each test is the same on a computer with a pool
and on one without transparent huge pages. The first tests show that the other machine measures
where it lacks nothing, and so that each fault is what stops it.
"""

import errno
import os
import re

import pytest
from support.kernels import measured, why_not
from support.stand_ins import PAGE
from support.synthetic import MIB

from tlb.measure.record import Point

pytestmark = [pytest.mark.measures, pytest.mark.needs("a C compiler")]
CPUS = len(os.sched_getaffinity(0))
ARENA = 16 * MIB  # eight pages of 2 MiB, of which 60 % and all but one are different numbers

CASES = {
    "page_chase in C": Point(kernel="page_chase", lines=ARENA // 4096, region_ms=1),
    "random_touch in C": Point(
        kernel="random_touch",
        layout="packed",
        order="random",
        lines=ARENA // 64,
        options={"bytes": ARENA},
        region_ms=1,
    ),
    **{
        f"prefault by {mode}": Point(
            kernel="prefault", order="sequential", mode=mode, lines=ARENA // 4096, region_ms=1
        )
        for mode in ("touch", "populate")
    },
    "prefault by touch in two threads": Point(
        kernel="prefault",
        order="sequential",
        mode="touch",
        lines=ARENA // 4096,
        options={"threads": 2},
        region_ms=1,
    ),
}
# Two programs stand for all: most kernels share one arena, and prefault maps its own in each batch.
each_arena = pytest.mark.parametrize("case", ["page_chase in C", "prefault by touch"])


def on(case: str, pages: str, size: int = ARENA) -> Point:
    """The case on these pages; an arena of `size` bytes at the least, and a page for each
    thread."""
    point = CASES[case]
    if dict(point.options).get("threads", 1) > CPUS:
        pytest.skip("one CPU")
    size = max(size, PAGE[pages] * dict(point.options).get("threads", 1))
    lines = size // (64 if point.layout == "packed" else 4096)
    options = {"bytes": size} if point.kernel == "random_touch" else point.options
    return Point(
        **point.model_dump(exclude={"lines", "options", "pages"}),
        pages=pages,
        lines=lines,
        options=options,
    )


def needed(point: Point) -> int:
    """How many pages the point's arena takes."""
    size = point.lines * (64 if point.layout == "packed" else 4096)
    return -(-size // PAGE[point.pages])


@pytest.mark.parametrize(
    ("case", "pages"),
    [
        *(("page_chase in C", pages) for pages in ("4k", "64k", "thp", "2m")),
        *((case, "2m") for case in ("random_touch in C", "prefault by populate")),
    ],
)
def test_a_machine_that_lacks_nothing_is_measured_on_the_pages_named(machine, case, pages):
    point = on(case, pages)
    record = measured(point)
    assert record.point == point and (record.pages, record.backing) == (pages, pages)
    assert record.arena_bytes == needed(point) * PAGE[pages]


# --- the pool is empty, or holds a part


@each_arena
def test_a_pool_that_holds_all_but_one_says_how_many_are_there(machine, case):
    machine.pool("2m", 7)
    assert "8 pages of 2m needed, 7 free" in why_not(on(case, "2m"), "pool-empty")
    machine.pool("2m", 8)
    assert measured(on(case, "2m")).backing == "2m"


# --- the pool is emptied between the check and the mapping, or between the mapping and the first
# touch


@each_arena
def test_a_pool_that_refuses_what_it_showed_as_free_is_empty(machine, case):
    machine.set("refusal", errno.ENOMEM)
    assert "pages of 2m needed" in why_not(on(case, "2m"), "pool-empty")


@pytest.mark.parametrize("populates", [True, False], ids=["since Linux 5.14", "before Linux 5.14"])
@each_arena
def test_pages_that_were_promised_and_are_gone_at_the_first_touch_are_no_crash(
    machine, case, populates
):
    point = on(case, "2m")
    if not populates:
        machine.set(
            "unready", errno.EINVAL
        )  # the kernel has to write to the pages, and SIGBUS comes
    machine.set("given", 7)
    assert (
        "could not be faulted in" in (detail := why_not(point, "pool-empty"))
        or detail == "SIGBUS while faulting in"
    )


@pytest.mark.parametrize("mode", ["touch", "memset"])
def test_of_two_threads_the_one_that_meets_the_missing_page_says_so(machine, mode):
    point = on("prefault by touch in two threads", "2m").model_copy(update={"mode": mode})
    for given in (1, 5):  # of the first thread's pages, and of the second's
        machine.set("given", given)
        assert "SIGBUS; the pool was emptied meanwhile, or the cgroup's hugetlb limit" in why_not(
            point, "pool-empty"
        )


# --- thp=never


@each_arena
def test_the_setting_of_thp_s_own_size_decides_where_there_is_one(machine, case):
    machine.set("mm/transparent_hugepage/enabled", "always madvise [never]")
    machine.set(
        "mm/transparent_hugepage/hugepages-2048kB/enabled", "always inherit [madvise] never"
    )
    assert measured(on(case, "thp")).backing == "thp"
    machine.set("mm/transparent_hugepage/enabled", "[always] madvise never")
    machine.set(
        "mm/transparent_hugepage/hugepages-2048kB/enabled", "always inherit madvise [never]"
    )
    why_not(on(case, "thp"), "thp-never")


# --- older kernels: no 64 KiB pages


@each_arena
def test_a_kernel_without_pages_of_64_kib_does_not_offer_them(machine, case):
    machine.lacks("mm/transparent_hugepage/hugepages-64kB")
    assert "64 kB" in why_not(on(case, "64k"), "page-size-unsupported")
    assert measured(on(case, "thp")).backing == "thp"


# --- none gives a row with another page size than the one named


@pytest.mark.parametrize("pages", ["4k", "thp", "2m"])
@each_arena
def test_one_page_of_another_size_is_enough_to_refuse(machine, case, pages):
    machine.set("percent", 87 if pages != "4k" else 1)  # seven of eight, or one
    why_not(on(case, pages), "backing-partial")


@pytest.mark.parametrize("pages", ["4k", "thp", "2m"])
@each_arena
def test_pages_that_are_joined_or_split_while_time_runs_are_refused_at_its_end(
    machine, case, pages
):
    """smaps is read before the timed region and after it; by prefault in each batch, and once for
    its single page."""
    machine.set("percent", 60)
    machine.set("whole", 1 if CASES[case].kernel != "prefault" else 3)
    why_not(on(case, pages), "backing-partial")


@pytest.mark.parametrize("case", ["page_chase in C", "prefault by touch"])
def test_a_64_kib_page_that_fell_back_may_have_been_ours(machine, case):
    machine.set("fallen", 1)
    assert re.findall(r"\b\d+\b", why_not(on(case, "64k"), "backing-partial")) == [
        "256",
        "256",
        "1",
    ]
