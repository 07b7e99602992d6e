"""What the chapter about huge pages says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Times are of a dependent load from one line in every base page; prices are spread minus
    packed."""

    last_entries = QuantityDeclaration(
        "pages that the last level holds, by CPUID or else as found", "pages"
    )
    base_reach_bytes = QuantityDeclaration("memory that these cover with base pages", "bytes")
    huge_reach_bytes = QuantityDeclaration(
        "memory that they would cover with whole 2 MiB pages", "bytes"
    )
    far_bytes = QuantityDeclaration(
        "largest working set measured on base and on huge pages", "bytes"
    )
    far_base_ns = QuantityDeclaration("a load there, on base pages", "ns")
    far_huge_ns = QuantityDeclaration("a load there, on 2 MiB pages", "ns")
    far_gain = QuantityDeclaration("how many times as fast that is", "times", 2)
    far_thp_gain = QuantityDeclaration(
        "how many times as fast transparent huge pages are there", "times", 2
    )
    far_1g_gain = QuantityDeclaration("how many times as fast 1 GiB pages are there", "times", 2)
    base_64_mib_ns = QuantityDeclaration("a load in 64 MiB, on base pages", "ns", 1)
    huge_64_mib_ns = QuantityDeclaration("a load in 64 MiB, on 2 MiB pages", "ns", 1)
    packed_64_mib_ns = QuantityDeclaration("a load of as many packed lines", "ns", 1)
    near_base_ns = QuantityDeclaration("price between the TLB's levels, on base pages", "ns", 1)
    near_huge_ns = QuantityDeclaration("price between the TLB's levels, on 2 MiB pages", "ns", 1)
    walk_base_ns = QuantityDeclaration("price past the last level, on base pages", "ns")
    walk_huge_ns = QuantityDeclaration("price past the last level, on 2 MiB pages", "ns")
    walk_huge_share = QuantityDeclaration("the latter as a share of the former", "share")
    gather_gain_256_mib = QuantityDeclaration("gain of the published loop in 256 MiB", "times", 2)
    gather_gain_1_gib = QuantityDeclaration("gain of the published loop in 1 GiB", "times", 2)
    gather_gain_4_gib = QuantityDeclaration("gain of the published loop in 4 GiB", "times", 2)
    gather_base_ns = QuantityDeclaration(
        "an access of the published loop in 4 GiB, on base pages", "ns"
    )
    gather_huge_ns = QuantityDeclaration("an access of it there, on 2 MiB pages", "ns")
    read_base_ns = QuantityDeclaration("a random read of a 100 MB array, on base pages", "ns", 1)
    read_thp_ns = QuantityDeclaration("a random read of it, on transparent huge pages", "ns", 1)
    read_gain = QuantityDeclaration("how many times as fast that is", "times", 2)
