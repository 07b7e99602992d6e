"""What the chapter about getting and keeping huge pages says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration

_SMAPS = "smaps of one process"


class Quantities(quantities.Quantities):
    """Rates are of memory made ready by a write to each base page. Prices are spread minus packed
    in a working set of eight times the TLB's reach."""

    ways_given = QuantityDeclaration("ways of asking that gave memory", "", source=_SMAPS)
    ways_whole = QuantityDeclaration("of these, all of it on huge pages", "", source=_SMAPS)
    ways_base = QuantityDeclaration("of these, none of it on huge pages", "", source=_SMAPS)
    plain_share = QuantityDeclaration("memory that nothing was asked for, on huge pages", "share")
    advised_share = QuantityDeclaration("advised memory on huge pages", "share")
    shared_share = QuantityDeclaration("advised shared memory on huge pages", "share")
    pool_share = QuantityDeclaration("memory from the hugetlb pool on huge pages", "share")
    freed_bytes = QuantityDeclaration(
        "less resident after 4 KiB of a huge page are given back", "bytes"
    )
    lost_pages = QuantityDeclaration("huge pages lost by that", "", source=_SMAPS)
    plain_programs = QuantityDeclaration(
        "of five languages, arrays on huge pages unasked", "", source=_SMAPS
    )
    advised_programs = QuantityDeclaration(
        "of five languages, advised arrays on huge pages", "", source=_SMAPS
    )
    pool_programs = QuantityDeclaration(
        "of five languages, arrays on pages of the pool", "", source=_SMAPS
    )
    least_gain = QuantityDeclaration("least gain by advice, of random reads of 256 MiB", "times", 2)
    most_gain = QuantityDeclaration("most gain by advice, of random reads of 256 MiB", "times", 2)
    base_gb_s = QuantityDeclaration("GB/s that one thread touches on base pages", "", 1)
    thp_gb_s = QuantityDeclaration("GB/s that one thread touches on transparent huge pages", "", 1)
    gigantic_gb_s = QuantityDeclaration("GB/s that one thread touches on 1 GiB pages", "", 1)
    base_all_gb_s = QuantityDeclaration(
        "GB/s that a thread on each CPU touches on base pages", "", 1
    )
    thp_all_gb_s = QuantityDeclaration("GB/s that these touch on transparent huge pages", "", 1)
    heap_base_s = QuantityDeclaration(
        "seconds to touch 20 GB at one thread's rate, on base pages", "", 1
    )
    heap_thp_s = QuantityDeclaration("seconds to touch 20 GB at its rate on huge pages", "", 1)
    one_byte_bytes = QuantityDeclaration(
        "resident for one byte written on the largest pages", "bytes"
    )
    price_base_ns = QuantityDeclaration("price of translation on base pages", "ns")
    price_64k_ns = QuantityDeclaration("price of translation on 64 KiB pages (mTHP)", "ns")
    price_thp_ns = QuantityDeclaration("price of translation on transparent huge pages", "ns")
