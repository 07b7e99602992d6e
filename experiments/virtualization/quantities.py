"""What the chapter about virtual machines says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Of a guest that the measured machine runs in itself. `2m_on_4k` is a guest's 2 MiB page on
    4 KiB pages of the machine; its 2 MiB pages are transparent ones. Prices are spread minus packed."""

    near_4k_on_4k_ns = QuantityDeclaration(
        "guest's 4 KiB on 4 KiB: price between the levels", "ns", 1
    )
    near_2m_on_4k_ns = QuantityDeclaration(
        "guest's 2 MiB on 4 KiB: price between the levels", "ns", 1
    )
    near_4k_on_2m_ns = QuantityDeclaration(
        "guest's 4 KiB on 2 MiB: price between the levels", "ns", 1
    )
    near_2m_on_2m_ns = QuantityDeclaration(
        "guest's 2 MiB on 2 MiB: price between the levels", "ns", 1
    )
    reach_2m_on_4k = QuantityDeclaration(
        "the price of guest's 2 MiB on 4 KiB there, over 4 KiB on 4 KiB", "times", 2
    )
    reach_4k_on_2m = QuantityDeclaration("the same of 4 KiB on 2 MiB", "times", 2)
    reach_2m_on_2m = QuantityDeclaration("the same of 2 MiB on 2 MiB", "times", 2)
    reach_process = QuantityDeclaration(
        "the same of 2 MiB pages without a guest, over 4 KiB", "times", 2
    )
    walk_2m_on_4k = QuantityDeclaration(
        "price past both levels, guest's 2 MiB on 4 KiB, over 4 KiB on 4 KiB", "times", 2
    )
    walk_4k_on_2m = QuantityDeclaration("the same of 4 KiB on 2 MiB", "times", 2)
    walk_2m_on_2m = QuantityDeclaration("the same of 2 MiB on 2 MiB", "times", 2)
    walk_process = QuantityDeclaration(
        "the same of 2 MiB pages without a guest, over 4 KiB", "times", 2
    )
    far_bytes = QuantityDeclaration("largest working set of all pairs of page sizes", "bytes")
    far_4k_ratio = QuantityDeclaration(
        "a load there in a guest of 4 KiB on 4 KiB, over a process on 4 KiB", "times", 2
    )
    far_2m_ratio = QuantityDeclaration(
        "a load there in a guest of 2 MiB on 4 KiB, over a process on 2 MiB", "times", 2
    )
    touch_least_ns = QuantityDeclaration(
        "first touch of 4 KiB with 4 KiB pages on a side, the least", "ns"
    )
    touch_most_ns = QuantityDeclaration(
        "first touch of 4 KiB with 4 KiB pages on a side, the most", "ns"
    )
    touch_huge_ns = QuantityDeclaration(
        "first touch of 4 KiB with huge pages on both sides, the most", "ns"
    )
    clocks_agree = QuantityDeclaration(
        "guest's runs timed alike by its clock and one outside", "share"
    )
    near_ratio = QuantityDeclaration(
        "a load that misses nothing in the guest, over one of a process", "times", 2
    )
    container_ratio = QuantityDeclaration(
        "a load in fresh namespaces, over a plain process's", "times", 2
    )
    remote_memory = QuantityDeclaration(
        "a load from another node's memory, over this node's", "times", 2
    )
    remote_tables = QuantityDeclaration("a load whose page table is on another node", "times", 2)
