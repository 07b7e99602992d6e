"""What the chapter about flushes says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration

_DOCUMENT = "housekeeping.json"


class Quantities(quantities.Quantities):
    """Of calls and flushes, of a chase through 512 pages, and of Linux's own work on pages."""

    unmap_alone_us = QuantityDeclaration("munmap of one page, program on one CPU", "us", 1)
    unmap_beside_us = QuantityDeclaration(
        "munmap of one page, threads on the other CPUs too", "us", 1
    )
    unmap_added_us = QuantityDeclaration("what those threads add", "us", 1)
    unmap_processes_us = QuantityDeclaration(
        "munmap of one page, separate processes there", "us", 1
    )
    flushes_seen = QuantityDeclaration(
        "flushes that other CPUs carried out, of those requested", "share", 1
    )
    heap_singly_ms = QuantityDeclaration("2 GB given back one page a call", "ms")
    heap_batched_ms = QuantityDeclaration("2 GB given back 512 pages a call", "ms")
    lost_packed_us = QuantityDeclaration("lost to a flush by a chase with few TLB entries", "us")
    lost_spread_us = QuantityDeclaration("lost to a flush by a chase through 512 pages", "us")
    part_unmap_us = QuantityDeclaration(
        "munmap of one base page of a huge page, on one CPU", "us", 1
    )
    collapse_us = QuantityDeclaration("a collapse, program on one CPU", "us")
    area_collapse_ms = QuantityDeclaration("a collapse of 64 MiB that another thread reads", "ms")
    collapse_flushes = QuantityDeclaration("flushes of each other CPU by a collapse", "", 1)
    fork_base_us = QuantityDeclaration("fork with 64 MiB on base pages", "us")
    fork_thp_us = QuantityDeclaration("fork with 64 MiB on huge pages", "us")
    write_base_us = QuantityDeclaration("first write after a fork, on base pages", "us", 1)
    write_thp_us = QuantityDeclaration("the same to a huge page", "us", 1)
    price_alone_ns = QuantityDeclaration("translation of a load without a switch", "ns", 1)
    price_process_ns = QuantityDeclaration(
        "the same after a switch to another process and back", "ns", 1
    )
    price_new_ns = QuantityDeclaration("the same in the first round of a new process", "ns", 1)
    first_walks_us = QuantityDeclaration("512 such first loads of a new process", "us", 1)
    switch_us = QuantityDeclaration("a switch to another process and back", "us", 1)
    exec_us = QuantityDeclaration("fork, exec and exit of a small program", "us")
    merged_write_us = QuantityDeclaration(
        "next write to a page that KSM merged", "us", 1, _DOCUMENT
    )
    own_write_ns = QuantityDeclaration("next write to any other page", "ns", 0, _DOCUMENT)
    touch_fragments_us = QuantityDeclaration(
        "first touch of 2 MiB in fragmented memory, defrag=always", "us", 0, _DOCUMENT
    )
