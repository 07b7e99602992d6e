"""What the chapter about code says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """Times are of a jump to a line of code. What its own page adds is spread minus packed."""

    last_entries = Measured(
        "pages that the last level of the iTLB holds, as stated", "pages", source="CPUID"
    )
    predicted_pages = Measured("pages before direct jumps slow most", "pages")
    direct_ns = Measured("a direct jump to as many", "ns", 1)
    direct_page_ns = Measured("what its own page adds to it", "ns", 1)
    learned_page_ns = Measured("what it adds to an indirect jump that repeats", "ns", 1)
    random_page_ns = Measured("what it adds to a random jump", "ns")
    hidden_share = Measured("of the latter, what prediction hides from a direct jump", "share")
    forgotten_pages = Measured("pages after direct jumps slow most", "pages")
    forgotten_ns = Measured("a direct jump to these", "ns")
    far_pages = Measured("most pages that were jumped to", "pages")
    far_direct_ns = Measured("a direct jump to the most pages", "ns")
    far_random_ns = Measured("a random jump to the most pages", "ns")
    walk_ns = Measured("an instruction page walk, at least", "ns")
    direct_walks = Measured("page walks of a direct jump to the most pages, counted", "", 2)
    random_walks = Measured("page walks of a random jump to the most pages, counted", "", 2)
    text_bytes = Measured("largest code", "bytes")
    gain_100_mib = Measured("gain by 2 MiB pages in 100 MiB of code", "times", 2)
    gain_far = Measured("gain by 2 MiB pages in the largest code", "times", 1)
    hot_share = Measured("part of the largest code that is hot", "share")
    hot_ns = Measured("a jump among hot lines in every page", "ns")
    hot_huge_ns = Measured("a jump among them on huge pages", "ns")
    hot_packed_ns = Measured("a jump among as many hot lines side by side", "ns")
    file_huge_share = Measured("code of a mapped file that is on huge pages", "share")
    advised_huge_share = Measured("code copied to advised memory that is on huge pages", "share")
