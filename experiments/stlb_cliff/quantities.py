"""What the chapter about the cliff says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Prices are what translation adds to a dependent load: spread minus packed."""

    first_entries = QuantityDeclaration(
        "pages that the first level holds, by CPUID or else as found", "pages"
    )
    last_entries = QuantityDeclaration(
        "pages that the last level holds, by CPUID or else as found", "pages"
    )
    first_reach_bytes = QuantityDeclaration("memory that the first level's entries cover", "bytes")
    last_reach_bytes = QuantityDeclaration("memory that the last level's entries cover", "bytes")
    found_entries = QuantityDeclaration("pages that all levels hold, as found by chases", "pages")
    walks_begin = QuantityDeclaration("where a tenth of the second step is climbed", "pages")
    walks_begin_share = QuantityDeclaration(
        "the same, as a share of the last level's entries", "share"
    )
    near_ns = QuantityDeclaration("a load that hits the L1 cache and the first level", "ns", 1)
    hit_ns = QuantityDeclaration("price of a hit in the last level", "ns", 1)
    walk_ns = QuantityDeclaration(
        "price of a walk at two to four times the last level's reach", "ns"
    )
    unpriced_from_bytes = QuantityDeclaration(
        "smallest working set without a price, as only the packed lines fit a cache", "bytes"
    )
    unpriced_to_bytes = QuantityDeclaration("largest working set without a price", "bytes")
    far_bytes = QuantityDeclaration("largest working set with a price", "bytes")
    far_ns = QuantityDeclaration("a spread load in the largest working set", "ns")
    far_packed_ns = QuantityDeclaration("a packed load there", "ns")
    far_price_ns = QuantityDeclaration("price of translation there", "ns")
    far_share = QuantityDeclaration("translation's share of a load there", "share")
    price_2_gib_ns = QuantityDeclaration("price of translation in 2 GiB", "ns")
    sequential_64_mib_ns = QuantityDeclaration("price in sequential order, 64 MiB", "ns")
    cycle_64_mib_ns = QuantityDeclaration("price in a random cycle, 64 MiB", "ns")
    cache_bytes = QuantityDeclaration("cached lines that most mappings keep", "bytes")
    gather_2_gib_ns = QuantityDeclaration("an independent load in 2 GiB", "ns")
    gather_far_ns = QuantityDeclaration("an independent load in the largest working set", "ns")
    overlap = QuantityDeclaration("chase over gather there", "times")
    walks_below = QuantityDeclaration(
        "loads that walk at 0.7 times the last level's entries", "share"
    )
    walks_at = QuantityDeclaration("loads that walk at 1.1 times the entries", "share")
    walks_above = QuantityDeclaration("loads that walk at 1.4 times the entries", "share")
