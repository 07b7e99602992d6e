"""What the chapter about the cliff says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """Prices are what translation adds to a dependent load: spread minus packed."""

    first_entries = Measured("pages that the first level holds, by CPUID or else as found", "pages")
    last_entries = Measured("pages that the last level holds, by CPUID or else as found", "pages")
    first_reach_bytes = Measured("memory that the first level's entries cover", "bytes")
    last_reach_bytes = Measured("memory that the last level's entries cover", "bytes")
    found_entries = Measured("pages that all levels hold, as found by chases", "pages")
    walks_begin = Measured("where a tenth of the second step is climbed", "pages")
    walks_begin_share = Measured("the same, as a share of the last level's entries", "share")
    near_ns = Measured("a load that hits the L1 cache and the first level", "ns", 1)
    hit_ns = Measured("price of a hit in the last level", "ns", 1)
    walk_ns = Measured("price of a walk at two to four times the last level's reach", "ns")
    far_bytes = Measured("largest working set with a price", "bytes")
    far_ns = Measured("a spread load in the largest working set", "ns")
    far_packed_ns = Measured("a packed load there", "ns")
    far_price_ns = Measured("price of translation there", "ns")
    far_share = Measured("translation's share of a load there", "share")
    price_2_gib_ns = Measured("price of translation in 2 GiB", "ns")
    sequential_64_mib_ns = Measured("price in sequential order, 64 MiB", "ns")
    cycle_64_mib_ns = Measured("price in a random cycle, 64 MiB", "ns")
    cache_bytes = Measured("cached lines that most mappings keep", "bytes")
    gather_2_gib_ns = Measured("an independent load in 2 GiB", "ns")
    gather_far_ns = Measured("an independent load in the largest working set", "ns")
    overlap = Measured("chase over gather there", "times")
    walks_below = Measured("loads that walk at 0.7 times the last level's entries", "share")
    walks_at = Measured("loads that walk at 1.1 times the entries", "share")
    walks_above = Measured("loads that walk at 1.4 times the entries", "share")
