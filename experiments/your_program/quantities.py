"""What the chapter about whole programs says of a machine."""

from tlb.report import quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    """Gains are how many times as fast a program is, the median over pairs of runs: on huge pages
    if nothing else is named. Others' programs count if a tenth of their memory was on huge
    pages, each once."""

    others = QuantityDeclaration("programs of others tried on huge pages", "")
    helped_others = QuantityDeclaration("of these, faster", "")
    hurt_others = QuantityDeclaration("of these, slower", "")
    same_others = QuantityDeclaration("of these, no different", "")
    undecided_others = QuantityDeclaration("of these, undecided", "")
    least_pairs = QuantityDeclaration("fewest pairs of runs of a program", "")
    most_pairs = QuantityDeclaration("most pairs of runs of a program", "")
    jvm_gain = QuantityDeclaration("gain of a JVM that touches 1 GiB and exits", "times", 1)
    jvm_8_gib_gain = QuantityDeclaration("gain of a JVM that touches 8 GiB and exits", "times", 1)
    larger_others = QuantityDeclaration("of these, with over 5% more memory at their peak", "")
    most_growth = QuantityDeclaration("the most that one of these grew", "times", 2)
    most_growth_1_gb = QuantityDeclaration(
        "the most that any run of 1 GB and more grew", "times", 2
    )
    profile_share = QuantityDeclaration("samples of a chase at a single instruction", "share")
    join_gain = QuantityDeclaration("gain of a hash join, a row", "times", 2)
    fares_gain = QuantityDeclaration("gain of a fare cache of 1 GiB, a look-up", "times", 2)
    hot_fares_gain = QuantityDeclaration("gain of one with nine in ten of few keys", "times", 2)
    rules_gain = QuantityDeclaration("gain of a rules engine of 1 GiB, a transaction", "times", 2)
    pool_rules_gain = QuantityDeclaration("gain of it on pages of the pool", "times", 2)
    map_gain = QuantityDeclaration("gain of Go's map of 1 GiB, a look-up", "times", 2)
    parts_gain = QuantityDeclaration("gain of the join by partitioning, on huge pages", "times", 1)
    sharded_gain = QuantityDeclaration("gain of 64 threads by a part for each, a read", "times", 1)
