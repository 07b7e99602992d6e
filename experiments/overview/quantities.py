"""The numbers that the pages about all machines, the method and the claims quote."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class MachinesPage(quantities.Quantities):
    """Entries are those that a chase finds in all levels; gains are of 2 MiB pages in 2 GiB."""

    machines = Measured("machines with published rows", "")
    first_level_zen5_ns = Measured("a load that hits the first level, Zen 5", "ns", 1)
    first_level_emerald_ns = Measured("a load that hits the first level, Emerald Rapids", "ns", 1)
    entries_emerald = Measured("entries of the TLB, Emerald Rapids", "pages")
    entries_zen5 = Measured("entries of the TLB, Zen 5", "pages")
    off_stated = Measured("largest difference of found from stated entries", "share", 1)
    gain_emerald = Measured("gain of huge pages, Emerald Rapids", "times", 2)
    gain_zen5 = Measured("gain of huge pages, Zen 5", "times", 2)
    gain_zen3 = Measured("gain of huge pages, Zen 3", "times", 2)
    gain_zen4 = Measured("gain of huge pages, Zen 4", "times", 2)


class MethodPage(quantities.Quantities):
    """Spreads are of the mappings of a point of the chase; the second run is of the same machine
    type on another day."""

    typical_spread = Measured("middle half of a point's mappings, typically", "share", 1)
    wide_spread = Measured("the same at one point in twenty, at least", "share")
    noise_spread = Measured("what noise within a mapping explains of it", "share")
    far_bytes = Measured("largest working set with a price", "bytes")
    far_ns = Measured("a spread load there", "ns")
    far_packed_ns = Measured("a packed load there", "ns")
    near_ns = Measured("a load in the smallest chase", "ns", 1)
    decided_on_the_line = Measured("verdicts on a ratio at the edge of its band", "share", 1)
    decided_beyond = Measured("verdicts on a ratio a fifth beyond it", "share", 1)
    measurements = Measured("measurements behind the chapters", "")
    minutes = Measured("time that they took, in minutes", "")
    second_times = Measured("times that were measured in a second run", "")
    second_half = Measured("difference of a median between the runs, typically", "share", 1)
    second_wide = Measured("the same for one in twenty, at least", "share")
    second_differ = Measured("times that differ by more than chance explains", "")
    second_same = Measured("times that do not", "")
    second_unclear = Measured("times whose intervals are too wide to tell", "")
    cliff_differ = Measured("times of the TLB cliff that differ", "")
    cliff_least_pages = Measured("their smallest working set", "pages")
    cliff_most_pages = Measured("their largest working set", "pages")
    cliff_least_ratio = Measured("their smallest ratio, second run over first", "times", 2)
    cliff_most_ratio = Measured("their largest ratio", "times", 2)
    claims_again = Measured("claims that an interval decides in both runs", "")
    claims_same = Measured("of these, with the same verdict", "")


class ClaimsPage(quantities.Quantities):
    """Numbers of published claims."""

    claims = Measured("claims judged", "")
    testable = Measured("claims that a published machine can test", "")
    decided = Measured("claims that a published machine decides", "")
    hold = Measured("claims that hold on this machine", "")
    fail = Measured("claims that fail on it", "")
    undecided = Measured("claims that are undecided on it", "")
    untestable = Measured("claims that it cannot test", "")
    several = Measured("claims that two machines or more decide", "")
    disagree = Measured("claims that hold on one machine and fail on another", "")
    by_interval = Measured("claims that this machine judges by an interval", "")
    wrong_by_chance = Measured("wrong verdicts of these to expect, at most", "", 1)
    statements = Measured("statements of the sources that could be checked", "")
    beyond = Measured("statements that no measurement here can decide", "")
    arithmetic = Measured("statements that are arithmetic", "")
    repeated = Measured("statements that repeat another", "")
