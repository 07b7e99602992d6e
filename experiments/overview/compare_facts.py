"""What differs about two computers, each fact with the quantities that it can touch.

Many facts differ between two computers at once, and their times name none of them as the cause. But
a fact that cannot touch what differs does not explain it, and where one fact alone can, there is
one thing to look at. Two states of one computer differ in few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from experiments.overview.profile_comparison import DIFFERS
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.measure import kernels
from tlb.measure.last_campaign import last_campaign
from tlb.stats import splinter
from tlb.system.page_sizes import LARGE, PAGES
from tlb.system.prose import count, listed
from tlb.system.reasons import if_available
from tlb.system.units import format_size

if TYPE_CHECKING:
    from experiments.overview.compare import Compared

Hosts = tuple[Host | None, Host | None]
Touches = Callable[["Compared"], bool]
Line = tuple[str, str, str]  # label, A, B
_MEMORY_BYTES = 1 << 30  # Linux keeps some memory for itself, by boot; less than this
_TABLE_ENTRY_BYTES = 8  # of a page: beside its line, what a cache has to hold for a walk
# Their timed part is the OS kernel's work, or begins and ends in it.
_OS_WORK = {name for name, kernel in kernels.CATALOGUE.items() if kernel.faults_in}
_OS_WORK |= {"shootdown", "switch_chase", "neighbour_chase"}
_LARGE_PAGES = "large pages, as rows show them"

# By label of `tlb inspect` (shell patterns, the first that matches counts): which tags of a point
# the fact can touch (`_tags`), and that in words. Sources are where the reason can be read.
_WALKS = "walks os"
_MTHP = " ".join(name for name, page in PAGES.items() if page.source == "mthp")
_NOTHING = "nothing: kernels offer it no pages, and a limit ends a process or leaves it alone"
_GUESTS = ("os guest_chase", "the way into the kernel and into guests")
_CLOCK = ("all", "every time that a core and not memory decides")
_PERIODIC = ("all", "whatever runs long enough for it to come by")
KINDS: dict[str, tuple[str, str]] = {
    "CPU": ("all", "everything"),
    # It has the instructions by which mitigations flush buffers (Linux, admin-guide/hw-vuln).
    "microcode": ("os", "the way into the kernel and back, where mitigations stand"),
    # Other CPUs are asked to flush, zero pages, and run threads beside the one that is measured.
    "CPUs": ("shootdown neighbour_chase map_churn prefault", "what several CPUs do together"),
    # A second dimension of walks, its own backing of memory, exits (Bhargava et al., ASPLOS 2008).
    "hypervisor": (
        _WALKS,
        "walks, which it may give a second dimension, first touches and flushes",
    ),
    "KVM, *": ("guest_chase", "guests of this machine"),
    **dict.fromkeys(
        ("L* instruction", "TLB level * instruction"), ("code_chase", "jumps through much code")
    ),
    "L* *": ("past a cache", "what leaves the smaller of the two"),
    "TLB level *": ("past a TLB", "loads of more pages than the smaller of the two holds"),
    "TLB": ("", "nothing: it is what is stated, and no time"),
    # One more level is a step where the walk caches do not hold it, and one more table to fill.
    "page table": (_WALKS, "walks and first touches"),
    "base page": ("all", "everything: a page is another thing"),
    # What madvise(2) gets, and the effort at a fault (Linux, admin-guide/mm/transhuge.rst).
    "THP": ("thp", "what lies on transparent 2 MiB pages"),
    "mTHP": (_MTHP, "what lies on transparent pages between base and 2 MiB"),
    "pool *": ("its pages", "which points on its pages could be measured"),
    # Unmaps pages now and then to see who touches them (Linux, admin-guide/sysctl/kernel.rst).
    "NUMA balancing": ("all", "whatever runs long enough to be looked at"),
    # machine/background.py: what each does to a program meanwhile.
    **dict.fromkeys(("DAMON", "khugepaged", "swap"), _PERIODIC),
    **dict.fromkeys(("KSM", "memory cgroup", "hugetlb cgroup", "user namespace"), ("", _NOTHING)),
    "seccomp filter": ("", "nothing: what needs a refused call was not measured"),
    "CPU quota": ("all", "whatever runs when a period's CPU time is used up"),
    "THP of this process": ("thp", "what lies on transparent 2 MiB pages"),
    # L1TF flushes the first-level cache on the way into a guest.
    **dict.fromkeys(("against l1tf", "against mmio_stale_data", "against vmscape"), _GUESTS),
    # Meltdown's remedy changes the page table at each entry of the kernel.
    "against *": ("os", "the way into the kernel and back"),
    **dict.fromkeys(("governor", "turbo", "clock beside the points"), _CLOCK),
    "SMT": ("all", "everything, while the other thread of the core works"),
    # Rows of two compilers' kernels are not compared.
    "C compiler": ("", "nothing that is compared: another compiler's kernel is another kernel"),
    "system": ("os", "the kernel's own work"),
    # settings.BOOT_WORDS: levels of the table, its isolation, what a switch keeps.
    "booted with": (_WALKS, "walks, the way into the kernel, and what a switch keeps"),
    "memory": ("", "how far sweeps go, and so which points both have"),
    # An entry spans the smaller of the guest's page and the host's (stats/splinter.py).
    _LARGE_PAGES: (" ".join([*LARGE, "1g"]), "what lies on large pages"),
}


class Fact(NamedTuple):
    """What differs, on A and on B; what it can touch in words; and of the compared quantities how
    many it can touch, and how many of these differ."""

    what: str
    a: str
    b: str
    touches: str
    compared: int
    differ: int


def facts(
    hosts: Hosts,
    rows: tuple[pd.DataFrame, pd.DataFrame],
    computers: Sequence[Line],
    quantities: Sequence[Compared],
) -> tuple[list[Fact], list[str]]:
    """Return the facts that differ, and sentences on what follows from what they can touch.
    computers: the lines of `tlb compare` about both."""
    found, touching = [], {}
    for line in [*computers, *_memory(hosts), *_large_pages(hosts, rows)]:
        touches = touching[line[0]] = touches_of(line[0], hosts)
        touched = [quantity for quantity in quantities if touches(quantity)]
        differ = sum(quantity.verdict == DIFFERS for quantity in touched)
        found.append(Fact(*line, KINDS[_kind(line[0])][1], len(touched), differ))
    return found, _follows(touching, [q for q in quantities if q.verdict == DIFFERS])


def _kind(label: str) -> str:
    """Return the pattern of KINDS. Raises StopIteration for what `tlb inspect` does not print."""
    return next(pattern for pattern in KINDS if fnmatchcase(label, pattern))


def touches_of(label: str, hosts: Hosts) -> Touches:
    """Return whether a fact can touch a quantity, as a function of the quantity."""
    tags = KINDS[_kind(label)][0]
    if tags == "its pages":
        tags = label.removeprefix("pool ")
    if not tags.startswith("past"):
        return lambda compared: not _tags(compared.point).isdisjoint(tags.split())
    level = int(re.search(r"-?\d+", label)[0])  # type: ignore[index]
    known = [host for host in hosts if host]
    if tags == "past a cache":
        caches = [data_caches(host).get(level, 0) for host in known]
        least = min(caches, default=0) / (kernels.LINE_BYTES + _TABLE_ENTRY_BYTES)
        return lambda compared: compared.point["lines"] > least
    entries = [tlb.entries for host in known for tlb in data_tlbs(host) if tlb.level == level]
    least = min(entries, default=0)
    return lambda compared: compared.point["lines"] > least and "walks" in _tags(compared.point)


def _tags(point: dict) -> set[str]:
    """Return a point's kernel and page size, "os" if Linux works in it, and "walks" unless its
    lines are packed on so few pages that their entries stay in the TLB."""
    kernel = kernels.CATALOGUE.get(point["kernel"])
    tags = {"all", point["kernel"], point["pages"]}
    if point["kernel"] in _OS_WORK:
        tags.add("os")
    if point["layout"] != "packed" or (kernel and not kernel.is_chase):
        tags.add("walks")
    return tags


def _memory(hosts: Hosts) -> list[Line]:
    totals = [host.memory.total_bytes for host in hosts if host]
    if len(totals) < 2 or abs(totals[0] - totals[1]) < _MEMORY_BYTES:
        return []
    return [("memory", format_size(totals[0]), format_size(totals[1]))]


def _large_pages(hosts: Hosts, rows: tuple[pd.DataFrame, pd.DataFrame]) -> list[Line]:
    """Return what each host makes of large pages, if both sides' rows show it and it differs."""
    a, b = (_backing(host, side) for host, side in zip(hosts, rows, strict=True))
    return [(_LARGE_PAGES, a, b)] if a != b else []


def _backing(host: Host | None, side: pd.DataFrame) -> str:
    chase = side[side["chapter"] == "hugepages"]
    if host is None or chase.empty:
        return "cannot tell"
    judged = if_available(lambda: splinter.judge(last_campaign(chase).copy(), host.hypervisor))
    return judged.verdict if judged else "cannot tell"


def _follows(touching: dict[str, Touches], differ: Sequence[Compared]) -> list[str]:
    """Return sentences: what none of the facts can touch, and what one alone can."""
    if not differ:
        return []
    by = [[what for what, touches in touching.items() if touches(each)] for each in differ]
    sentences, none = [], by.count([])
    if none:
        sentences.append(
            f"Of {count(len(differ))} quantities that differ, {count(none)} are of a kind that "
            "none of these facts touches: other guests of the host, the hour, or the physical "
            "pages that a boot had left may be behind them."
        )
    alone = [(what, by.count([what])) for what in touching]
    if words := listed(f"{what} ({count(number)})" for what, number in alone if number):
        sentences.append(f"One fact alone touches some of them: {words}.")
    if len({what for facts in by for what in facts}) > 1:
        sentences.append(
            "Several facts differ at once, and nothing here says which of them is a cause. Two "
            "states of one computer, compared as NAME@STATE, differ in few."
        )
    return sentences
