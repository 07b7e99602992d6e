"""What the chapter about page faults says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """A page is a base page. A buffer is mapped, touched and unmapped; a heap is filled once."""

    file_page_ns = Measured("a page of a cached file, touched and unmapped", "ns")
    file_pages_per_fault = Measured("pages of a cached file that a fault maps", "pages")
    file_fault_us = Measured("one fault on the cached file", "us", 1)
    folio_page_ns = Measured("a page of a file in large folios, touched and unmapped", "ns")
    folio_pages_per_fault = Measured("pages of it that a fault maps", "pages")
    buffer_page_ns = Measured("a page of a buffer on base pages, touched and unmapped", "ns")
    first_touch_ns = Measured("a first touch of a page of such a buffer", "ns")
    populated_page_ns = Measured("a page of such a buffer, populated and unmapped", "ns")
    buffer_huge_page_ns = Measured("a base page of a buffer on huge pages", "ns")
    charge_share = Measured("what a memory cgroup's charge adds to a page of a buffer", "share", 1)
    heap_bytes = Measured("heap that is filled", "bytes")
    heap_page_ns = Measured("a page of the heap, on base pages", "ns")
    heap_huge_page_ns = Measured("a base page of the heap, on huge pages", "ns")
    heap_huge_fault_us = Measured("a fault of the heap, on huge pages", "us")
    heap_gain = Measured("how many times as fast 2 MiB pages fill it", "times", 1)
    heap_two_threads_gain = Measured("how many times as fast two threads fill it", "times", 2)
    fill_20_gb_s = Measured("seconds to fill 20 GB at that rate, on base pages", "", 1)
    fill_20_gb_huge_s = Measured("seconds to fill 20 GB at that rate, on huge pages", "", 1)
    zeroing_share = Measured("samples that zero pages, on base pages", "share")
    zeroing_huge_share = Measured("samples that zero pages, on huge pages", "share")
    record_kept_us = Measured("a record in a buffer that is kept", "us")
    record_mapped_us = Measured("a record in a buffer mapped for it", "us")
    kept_scaling = Measured("gain by a thread on each CPU, buffers kept", "times", 1)
    mapped_scaling = Measured("gain by a thread on each CPU, buffers mapped", "times", 1)
    idle_fault_ms = Measured("slowest fault on memory left alone, a 2 MiB page", "ms", 1)
