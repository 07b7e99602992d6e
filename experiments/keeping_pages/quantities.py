"""What the chapter about getting and keeping huge pages says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured

_SMAPS = "smaps of one process"


class Quantities(quantities.Quantities):
    """Rates are of memory made ready by a write to each base page. Prices are spread minus packed
    in a working set of eight times the TLB's reach."""

    ways_given = Measured("ways of asking that gave memory", "", source=_SMAPS)
    ways_whole = Measured("of these, all of it on huge pages", "", source=_SMAPS)
    ways_base = Measured("of these, none of it on huge pages", "", source=_SMAPS)
    plain_share = Measured("memory that nothing was asked for, on huge pages", "share")
    advised_share = Measured("advised memory on huge pages", "share")
    shared_share = Measured("advised shared memory on huge pages", "share")
    pool_share = Measured("memory from the hugetlb pool on huge pages", "share")
    freed_bytes = Measured("less resident after 4 KiB of a huge page are given back", "bytes")
    lost_pages = Measured("huge pages lost by that", "", source=_SMAPS)
    plain_programs = Measured("of five languages, arrays on huge pages unasked", "", source=_SMAPS)
    advised_programs = Measured(
        "of five languages, advised arrays on huge pages", "", source=_SMAPS
    )
    pool_programs = Measured("of five languages, arrays on pages of the pool", "", source=_SMAPS)
    least_gain = Measured("least gain by advice, of random reads of 256 MiB", "times", 2)
    most_gain = Measured("most gain by advice, of random reads of 256 MiB", "times", 2)
    base_gb_s = Measured("GB/s that one thread touches on base pages", "", 1)
    thp_gb_s = Measured("GB/s that one thread touches on transparent huge pages", "", 1)
    gigantic_gb_s = Measured("GB/s that one thread touches on 1 GiB pages", "", 1)
    base_all_gb_s = Measured("GB/s that a thread on each CPU touches on base pages", "", 1)
    thp_all_gb_s = Measured("GB/s that these touch on transparent huge pages", "", 1)
    heap_base_s = Measured("seconds to touch 20 GB at one thread's rate, on base pages", "", 1)
    heap_thp_s = Measured("seconds to touch 20 GB at its rate on huge pages", "", 1)
    one_byte_bytes = Measured("resident for one byte written on the largest pages", "bytes")
    price_base_ns = Measured("price of translation on base pages", "ns")
    price_64k_ns = Measured("price of translation on 64 KiB pages (mTHP)", "ns")
    price_thp_ns = Measured("price of translation on transparent huge pages", "ns")
