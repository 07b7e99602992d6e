"""What the chapter about page walks says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """A hop is one of a random walk through a graph with a cache line a vertex; its times are
    medians of all hops. Peaks are of all hops on a page size, in the largest graph that shows all."""

    far_bytes = QuantityDeclaration("largest graph walked on base pages", "bytes")
    far_ns = QuantityDeclaration("a hop there, on base pages", "ns")
    far_thp_ns = QuantityDeclaration("a hop there, on transparent huge pages", "ns")
    data_ns = QuantityDeclaration("a hop that waits for its data and a short walk", "ns")
    entry_ns = QuantityDeclaration("what a page-table entry from memory adds", "ns")
    rest_ns = QuantityDeclaration("what remains of a hop beside its data and two entries", "ns")
    walk_share = QuantityDeclaration("share of a hop that is its page walk", "share")
    first_peak_ns = QuantityDeclaration("first peak, on base pages", "ns")
    second_peak_ns = QuantityDeclaration("second peak, on base pages", "ns")
    third_peak_ns = QuantityDeclaration("third peak, on base pages", "ns")
    large_first_peak_ns = QuantityDeclaration("first peak, on large pages", "ns")
    large_second_peak_ns = QuantityDeclaration("second peak, on large pages", "ns")
    three_share = QuantityDeclaration(
        "hops that take as long as three accesses, on base pages", "share"
    )
    large_three_share = QuantityDeclaration("hops that take as long, on large pages", "share")
    touch_address_ns = QuantityDeclaration("a load of pages first touched by address", "ns")
    touch_visit_ns = QuantityDeclaration(
        "a load of pages first touched in the order of the visits", "ns"
    )
    touch_shuffled_ns = QuantityDeclaration("a load of pages first touched in a random order", "ns")
    touch_saves_ns = QuantityDeclaration("what that saves of a load", "ns")
    touch_model_ns = QuantityDeclaration("what it should save: 7/8 of an entry", "ns")
    walk_l2_ns = QuantityDeclaration("a walk whose entries lie in the L2 cache", "ns", 1)
    walk_l3_ns = QuantityDeclaration("a walk whose entries fit the stated L3 cache", "ns", 1)
    walk_memory_ns = QuantityDeclaration("a walk whose entries lie in memory", "ns")
    one_walk_ns = QuantityDeclaration("a hop in 1 GiB, one walk at a time", "ns")
    best_walks_ns = QuantityDeclaration("a hop there, with the best number of walks in turn", "ns")
    best_walkers = QuantityDeclaration("that number of walks", "")
    walks_per_hop = QuantityDeclaration("page walks a hop, counted, on base pages", "", 2)
    thp_walks_per_hop = QuantityDeclaration(
        "page walks a hop, counted, on transparent huge pages", "", 2
    )
    few_tables_ns = QuantityDeclaration("a TLB miss through few page tables", "ns")
    many_tables_ns = QuantityDeclaration("a TLB miss through many page tables", "ns")
    cached_tables = QuantityDeclaration("tables whose upper entry is cached", "")
    cached_bytes = QuantityDeclaration("memory that these map", "bytes")
