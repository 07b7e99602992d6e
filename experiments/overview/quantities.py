"""The numbers that the pages about all machines, the method and the claims quote."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class MachinesPage(quantities.Quantities):
    """Entries are those that a chase finds in all levels; gains are of 2 MiB pages in 2 GiB."""

    machines = QuantityDeclaration("machines with published rows", "")
    first_level_zen5_ns = QuantityDeclaration("a load that hits the first level, Zen 5", "ns", 1)
    first_level_emerald_ns = QuantityDeclaration(
        "a load that hits the first level, Emerald Rapids", "ns", 1
    )
    entries_emerald = QuantityDeclaration("entries of the TLB, Emerald Rapids", "pages")
    entries_zen5 = QuantityDeclaration("entries of the TLB, Zen 5", "pages")
    off_stated = QuantityDeclaration("largest difference of found from stated entries", "share", 1)
    gain_emerald = QuantityDeclaration("gain of huge pages, Emerald Rapids", "times", 2)
    gain_zen5 = QuantityDeclaration("gain of huge pages, Zen 5", "times", 2)
    gain_zen3 = QuantityDeclaration("gain of huge pages, Zen 3", "times", 2)
    gain_zen4 = QuantityDeclaration("gain of huge pages, Zen 4", "times", 2)


class MethodPage(quantities.Quantities):
    """Spreads are of the mappings of a point of the chase; the second run is of the same machine
    type on another day."""

    typical_spread = QuantityDeclaration("middle half of a point's mappings, typically", "share", 1)
    wide_spread = QuantityDeclaration("the same at one point in twenty, at least", "share")
    noise_spread = QuantityDeclaration("what noise within a mapping explains of it", "share")
    far_bytes = QuantityDeclaration("largest working set with a price", "bytes")
    far_ns = QuantityDeclaration("a spread load there", "ns")
    far_packed_ns = QuantityDeclaration("a packed load there", "ns")
    near_ns = QuantityDeclaration("a load in the smallest chase", "ns", 1)
    decided_on_the_line = QuantityDeclaration(
        "verdicts on a ratio at the edge of its band", "share", 1
    )
    decided_beyond = QuantityDeclaration("verdicts on a ratio a fifth beyond it", "share", 1)
    measurements = QuantityDeclaration("measurements behind the chapters", "")
    minutes = QuantityDeclaration("time that they took, in minutes", "")
    second_times = QuantityDeclaration("times that were measured in a second run", "")
    second_half = QuantityDeclaration(
        "difference of a median between the runs, typically", "share", 1
    )
    second_wide = QuantityDeclaration("the same for one in twenty, at least", "share")
    second_differ = QuantityDeclaration("times that differ by more than chance explains", "")
    second_same = QuantityDeclaration("times that do not", "")
    second_unclear = QuantityDeclaration("times whose intervals are too wide to tell", "")
    cliff_differ = QuantityDeclaration("times of the TLB cliff that differ", "")
    cliff_least_pages = QuantityDeclaration("their smallest working set", "pages")
    cliff_most_pages = QuantityDeclaration("their largest working set", "pages")
    cliff_least_ratio = QuantityDeclaration(
        "their smallest ratio, second run over first", "times", 2
    )
    cliff_most_ratio = QuantityDeclaration("their largest ratio", "times", 2)
    claims_again = QuantityDeclaration("claims that an interval decides in both runs", "")
    claims_same = QuantityDeclaration("of these, with the same verdict", "")


class ClaimsPage(quantities.Quantities):
    """Numbers of published claims."""

    claims = QuantityDeclaration("claims judged", "")
    testable = QuantityDeclaration("claims that a published machine can test", "")
    decided = QuantityDeclaration("claims that a published machine decides", "")
    hold = QuantityDeclaration("claims that hold on this machine", "")
    fail = QuantityDeclaration("claims that fail on it", "")
    undecided = QuantityDeclaration("claims that are undecided on it", "")
    untestable = QuantityDeclaration("claims that it cannot test", "")
    several = QuantityDeclaration("claims that two machines or more decide", "")
    disagree = QuantityDeclaration("claims that hold on one machine and fail on another", "")
    by_interval = QuantityDeclaration("claims that this machine judges by an interval", "")
    wrong_by_chance = QuantityDeclaration("wrong verdicts of these to expect, at most", "", 1)
    statements = QuantityDeclaration("statements of the sources that could be checked", "")
    beyond = QuantityDeclaration("statements that no measurement here can decide", "")
    arithmetic = QuantityDeclaration("statements that are arithmetic", "")
    repeated = QuantityDeclaration("statements that repeat another", "")
