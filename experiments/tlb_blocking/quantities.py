"""What the chapter about layout says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Times per hop of a random walk, per row of a hash join and per load of a strided sum, on base
    pages."""

    last_entries = QuantityDeclaration(
        "pages that the last level holds, by CPUID or else as found", "pages"
    )
    hop_ns = QuantityDeclaration("a hop of the largest random walk, without blocks", "ns")
    block_bytes = QuantityDeclaration("largest blocks inside the TLB's reach", "bytes")
    block_gain_few = QuantityDeclaration("gain in such blocks, stays of 1,024 hops", "times", 1)
    block_gain = QuantityDeclaration("gain in such blocks, the longest stays", "times", 1)
    block_gain_past = QuantityDeclaration("gain in blocks of twice the reach or more", "times", 1)
    page_each_ns = QuantityDeclaration("price of a page for each vertex, without blocks", "ns")
    page_each_inside_ns = QuantityDeclaration("the same in blocks inside the reach", "ns", 1)
    prefetch_ns = QuantityDeclaration("a hop prefetched at the best distance", "ns", 1)
    prefetch_gain = QuantityDeclaration("gain by that prefetch", "times")
    prefetch_gain_next = QuantityDeclaration("gain by a prefetch one hop ahead", "times")
    plain_tail_ns = QuantityDeclaration("95th percentile of a hop in the largest graph", "ns")
    stay_tail_ns = QuantityDeclaration("the same in one block of 256 MiB, never left", "ns")
    join_ns = QuantityDeclaration("a row of a hash join without partitions", "ns", 1)
    join_gain = QuantityDeclaration("gain of the join by 256 partitions", "times", 1)
    scatter_ns = QuantityDeclaration("a row scattered into 4,096 partitions in one pass", "ns", 1)
    scatter_twice_ns = QuantityDeclaration("the same in two passes", "ns", 1)
    stride_ns = QuantityDeclaration("a load at a stride of 4,096 bytes", "ns", 1)
    padded_ns = QuantityDeclaration("a load at a stride of 4,160 bytes", "ns", 1)
    padding_saves_ns = QuantityDeclaration("what these 64 bytes save a load", "ns", 1)
    padding_saves_8_kib_ns = QuantityDeclaration("what they save at a stride of 8 KiB", "ns", 1)
    stride_walks = QuantityDeclaration("page walks a load at 4,096 bytes, as counted", "", 2)
    padded_walks = QuantityDeclaration("page walks a load at 4,160 bytes, as counted", "", 2)
    translation_most_ns = QuantityDeclaration("translation at 4,160 bytes, at most", "ns", 1)
    shuffled_most_ns = QuantityDeclaration("the same in shuffled order", "ns", 1)
