"""What the chapter about whole programs says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import Measured


class Quantities(quantities.Quantities):
    """Gains are how many times as fast a program is, the median over pairs of runs: on huge pages
    if nothing else is named. Others' programs count if a tenth of their memory was on huge
    pages, each once."""

    others = Measured("programs of others tried on huge pages", "")
    clear_others = Measured("of these, faster or slower by more than 3%", "")
    edge_others = Measured("of these, faster or slower, but maybe by less", "")
    same_others = Measured("of these, no different", "")
    undecided_others = Measured("of these, undecided", "")
    least_pairs = Measured("fewest pairs of runs of a program", "")
    most_pairs = Measured("most pairs of runs of a program", "")
    jvm_gain = Measured("gain of a JVM that touches 1 GiB and exits", "times", 1)
    jvm_8_gib_gain = Measured("gain of a JVM that touches 8 GiB and exits", "times", 1)
    larger_others = Measured("of these, with over 5% more memory at their peak", "")
    most_growth = Measured("the most that one of these grew", "times", 2)
    most_growth_1_gb = Measured("the most that any run of 1 GB and more grew", "times", 2)
    profile_share = Measured("samples of a chase at a single instruction", "share")
    join_gain = Measured("gain of a hash join, a row", "times", 2)
    fares_gain = Measured("gain of a fare cache of 1 GiB, a look-up", "times", 2)
    hot_fares_gain = Measured("gain of one with nine in ten of few keys", "times", 2)
    rules_gain = Measured("gain of a rules engine of 1 GiB, a transaction", "times", 2)
    pool_rules_gain = Measured("gain of it on pages of the pool", "times", 2)
    map_gain = Measured("gain of Go's map of 1 GiB, a look-up", "times", 2)
    parts_gain = Measured("gain of the join by partitioning, on huge pages", "times", 1)
    sharded_gain = Measured("gain of 64 threads by a part for each, a read", "times", 1)
