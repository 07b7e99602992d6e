"""What the chapter about page faults says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """A page is a base page. A buffer is mapped, touched and unmapped; a heap is filled once."""

    file_page_ns = QuantityDeclaration("a page of a cached file, touched and unmapped", "ns")
    file_pages_per_fault = QuantityDeclaration("pages of a cached file that a fault maps", "pages")
    file_fault_us = QuantityDeclaration("one fault on the cached file", "us", 1)
    folio_page_ns = QuantityDeclaration(
        "a page of a file in large folios, touched and unmapped", "ns"
    )
    folio_pages_per_fault = QuantityDeclaration("pages of it that a fault maps", "pages")
    buffer_page_ns = QuantityDeclaration(
        "a page of a buffer on base pages, touched and unmapped", "ns"
    )
    first_touch_ns = QuantityDeclaration("a first touch of a page of such a buffer", "ns")
    populated_page_ns = QuantityDeclaration("a page of such a buffer, populated and unmapped", "ns")
    buffer_huge_page_ns = QuantityDeclaration("a base page of a buffer on huge pages", "ns")
    charge_share = QuantityDeclaration(
        "what a memory cgroup's charge adds to a page of a buffer", "share", 1
    )
    heap_bytes = QuantityDeclaration("heap that is filled", "bytes")
    heap_page_ns = QuantityDeclaration("a page of the heap, on base pages", "ns")
    heap_huge_page_ns = QuantityDeclaration("a base page of the heap, on huge pages", "ns")
    heap_huge_fault_us = QuantityDeclaration("a fault of the heap, on huge pages", "us")
    heap_gain = QuantityDeclaration("how many times as fast 2 MiB pages fill it", "times", 1)
    heap_two_threads_gain = QuantityDeclaration(
        "how many times as fast two threads fill it", "times", 2
    )
    fill_20_gb_s = QuantityDeclaration("seconds to fill 20 GB at that rate, on base pages", "", 1)
    fill_20_gb_huge_s = QuantityDeclaration(
        "seconds to fill 20 GB at that rate, on huge pages", "", 1
    )
    zeroing_share = QuantityDeclaration("samples that zero pages, on base pages", "share")
    zeroing_huge_share = QuantityDeclaration("samples that zero pages, on huge pages", "share")
    record_kept_us = QuantityDeclaration("a record in a buffer that is kept", "us")
    record_mapped_us = QuantityDeclaration("a record in a buffer mapped for it", "us")
    kept_scaling = QuantityDeclaration("gain by a thread on each CPU, buffers kept", "times", 1)
    mapped_scaling = QuantityDeclaration("gain by a thread on each CPU, buffers mapped", "times", 1)
    idle_fault_ms = QuantityDeclaration("slowest fault on memory left alone, a 2 MiB page", "ms", 1)
