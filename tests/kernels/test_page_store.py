"""page_store: stores and loads of the lines that page_gather loads, in its order, each pass
whole."""

import pytest
from support.kernels import changed, checksum, measured, needs_c, run_program, visits

from tlb.measure.catalogue import KERNEL_DECLARATIONS
from tlb.measure.plan import order_seed
from tlb.measure.record import Point

pytestmark = [pytest.mark.measures, pytest.mark.measuring, needs_c]
MODES = KERNEL_DECLARATIONS["page_store"].modes


@pytest.mark.parametrize("layout", ["spread", "packed"])
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_visits_every_line_in_the_order_of_page_gather(mode, layout):
    point = Point(kernel="page_store", mode=mode, layout=layout, lines=3000, region_ms=1)
    record = measured(point)
    assert record.checksum == checksum(visits("page_gather", "cycle", 3000, order_seed(point, 0)))
    assert record.accesses % 3000 == 0 and record.accesses >= 5 * 3000
    # NUMA balancing may unmap some
    assert record.minor_faults == 0 or any(measured(point).minor_faults == 0 for _ in range(3))


DIRTY = """
static int dirty(const struct arena *a) /* whether smaps calls any of the arena so */
{
    char line[512];
    unsigned long long from = 0, to = 0, kb, sum = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, f))
        if ((sscanf(line, "%llx-%llx ", &from, &to) != 2 || strstr(line, " kB")) && from < (uint64_t)a->base + a->bytes
            && to > (uint64_t)a->base && sscanf(line, "Private_Dirty: %llu", &kb) == 1)
            sum += kb;
    fclose(f);
    return sum > 0;
}

static void prepare_pass("""


@pytest.mark.parametrize(("advice", "refused"), [("MADV_FREE", False), ("MADV_WILLNEED", True)])
def test_by_the_kernels_own_count_no_page_is_dirty_once_the_bits_are_cleared(
    advice, refused, tmp_path
):
    kernel = changed(
        "page_store",
        {"static void prepare_pass(": DIRTY, "MADV_FREE))": f"{advice}) || dirty(a))"},
        tmp_path,
    )
    done = run_program(kernel, ["--lines", "500", "--mode", "store-clean", "--region-ms", "1"])
    assert (done.returncode != 0) == refused, done.stderr
