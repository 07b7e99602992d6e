"""What the chapter about huge pages says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """Times are of a dependent load from one line in every base page; prices are spread minus
    packed."""

    last_entries = Measured("pages that the last level holds, by CPUID or else as found", "pages")
    base_reach_bytes = Measured("memory that these cover with base pages", "bytes")
    huge_reach_bytes = Measured("memory that they would cover with whole 2 MiB pages", "bytes")
    far_bytes = Measured("largest working set measured on base and on huge pages", "bytes")
    far_base_ns = Measured("a load there, on base pages", "ns")
    far_huge_ns = Measured("a load there, on 2 MiB pages", "ns")
    far_gain = Measured("how many times as fast that is", "times", 2)
    far_thp_gain = Measured("how many times as fast transparent huge pages are there", "times", 2)
    far_1g_gain = Measured("how many times as fast 1 GiB pages are there", "times", 2)
    base_64_mib_ns = Measured("a load in 64 MiB, on base pages", "ns", 1)
    huge_64_mib_ns = Measured("a load in 64 MiB, on 2 MiB pages", "ns", 1)
    packed_64_mib_ns = Measured("a load of as many packed lines", "ns", 1)
    near_base_ns = Measured("price between the TLB's levels, on base pages", "ns", 1)
    near_huge_ns = Measured("price between the TLB's levels, on 2 MiB pages", "ns", 1)
    walk_base_ns = Measured("price past the last level, on base pages", "ns")
    walk_huge_ns = Measured("price past the last level, on 2 MiB pages", "ns")
    walk_huge_share = Measured("the latter as a share of the former", "share")
    gather_gain_256_mib = Measured("gain of the published loop in 256 MiB", "times", 2)
    gather_gain_1_gib = Measured("gain of the published loop in 1 GiB", "times", 2)
    gather_gain_4_gib = Measured("gain of the published loop in 4 GiB", "times", 2)
    gather_base_ns = Measured("an access of the published loop in 4 GiB, on base pages", "ns")
    gather_huge_ns = Measured("an access of it there, on 2 MiB pages", "ns")
    read_base_ns = Measured("a random read of a 100 MB array, on base pages", "ns", 1)
    read_thp_ns = Measured("a random read of it, on transparent huge pages", "ns", 1)
    read_gain = Measured("how many times as fast that is", "times", 2)
