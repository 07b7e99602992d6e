"""What the chapter about page walks says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """A hop is one of a random walk through a graph with a cache line a vertex; its times are
    medians of all hops. Peaks are of all hops on a page size, in the largest graph that shows all."""

    far_bytes = Measured("largest graph walked on base pages", "bytes")
    far_ns = Measured("a hop there, on base pages", "ns")
    far_thp_ns = Measured("a hop there, on transparent huge pages", "ns")
    data_ns = Measured("a hop that waits for its data and a short walk", "ns")
    entry_ns = Measured("what a page-table entry from memory adds", "ns")
    rest_ns = Measured("what remains of a hop beside its data and two entries", "ns")
    walk_share = Measured("share of a hop that is its page walk", "share")
    first_peak_ns = Measured("first peak, on base pages", "ns")
    second_peak_ns = Measured("second peak, on base pages", "ns")
    third_peak_ns = Measured("third peak, on base pages", "ns")
    large_first_peak_ns = Measured("first peak, on large pages", "ns")
    large_second_peak_ns = Measured("second peak, on large pages", "ns")
    three_share = Measured("hops that take as long as three accesses, on base pages", "share")
    large_three_share = Measured("hops that take as long, on large pages", "share")
    touch_address_ns = Measured("a load of pages first touched by address", "ns")
    touch_visit_ns = Measured("a load of pages first touched in the order of the visits", "ns")
    touch_shuffled_ns = Measured("a load of pages first touched in a random order", "ns")
    touch_saves_ns = Measured("what that saves of a load", "ns")
    touch_model_ns = Measured("what it should save: 7/8 of an entry", "ns")
    walk_l2_ns = Measured("a walk whose entries lie in the L2 cache", "ns", 1)
    walk_l3_ns = Measured("a walk whose entries fit the stated L3 cache", "ns", 1)
    walk_memory_ns = Measured("a walk whose entries lie in memory", "ns")
    one_walk_ns = Measured("a hop in 1 GiB, one walk at a time", "ns")
    best_walks_ns = Measured("a hop there, with the best number of walks in turn", "ns")
    best_walkers = Measured("that number of walks", "")
    walks_per_hop = Measured("page walks a hop, counted, on base pages", "", 2)
    thp_walks_per_hop = Measured("page walks a hop, counted, on transparent huge pages", "", 2)
    few_tables_ns = Measured("a TLB miss through few page tables", "ns")
    many_tables_ns = Measured("a TLB miss through many page tables", "ns")
    cached_tables = Measured("tables whose upper entry is cached", "")
    cached_bytes = Measured("memory that these map", "bytes")
