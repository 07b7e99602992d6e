"""What the chapter about code says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Times are of a jump to a line of code. What its own page adds is spread minus packed."""

    last_entries = QuantityDeclaration(
        "pages that the last level of the iTLB holds, as stated", "pages", source="CPUID"
    )
    predicted_pages = QuantityDeclaration("pages before direct jumps slow most", "pages")
    direct_inside_ns = QuantityDeclaration("a direct jump as the iTLB is full", "ns", 1)
    direct_ns = QuantityDeclaration("a direct jump to as many", "ns", 1)
    direct_page_ns = QuantityDeclaration("what its own page adds to it", "ns", 1)
    learned_page_ns = QuantityDeclaration("what it adds to an indirect jump that repeats", "ns", 1)
    random_page_ns = QuantityDeclaration("what it adds to a random jump", "ns")
    hidden_share = QuantityDeclaration(
        "of the latter, what prediction hides from a direct jump", "share"
    )
    forgotten_pages = QuantityDeclaration("pages after direct jumps slow most", "pages")
    forgotten_ns = QuantityDeclaration("a direct jump to these", "ns")
    far_pages = QuantityDeclaration("most pages that were jumped to", "pages")
    far_direct_ns = QuantityDeclaration("a direct jump to the most pages", "ns")
    far_random_ns = QuantityDeclaration("a random jump to the most pages", "ns")
    walk_ns = QuantityDeclaration("an instruction page walk, at least", "ns")
    direct_walks = QuantityDeclaration(
        "page walks of a direct jump to the most pages, counted", "", 2
    )
    random_walks = QuantityDeclaration(
        "page walks of a random jump to the most pages, counted", "", 2
    )
    text_bytes = QuantityDeclaration("largest code", "bytes")
    gain_100_mib = QuantityDeclaration("gain by 2 MiB pages in 100 MiB of code", "times", 2)
    gain_far = QuantityDeclaration("gain by 2 MiB pages in the largest code", "times", 1)
    hot_share = QuantityDeclaration("part of the largest code that is hot", "share")
    hot_ns = QuantityDeclaration("a jump among hot lines in every page", "ns")
    hot_huge_ns = QuantityDeclaration("a jump among them on huge pages", "ns")
    hot_packed_ns = QuantityDeclaration("a jump among as many hot lines side by side", "ns")
    file_huge_share = QuantityDeclaration("code of a mapped file that is on huge pages", "share")
    advised_huge_share = QuantityDeclaration(
        "code copied to advised memory that is on huge pages", "share"
    )
