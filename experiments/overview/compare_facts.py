"""What differs about two computers, each fact with the quantities that it can touch.

Can, and no more: many facts differ between two computers at once, and their times say of none that
it is the cause. What a fact cannot touch, though, it does not explain; and where one fact alone can
touch what differs, there is one thing to look at. Two states of one computer differ in few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from experiments.overview.profiles import DIFFERS
from tlb.inference import splinter
from tlb.inference.campaigns import newest
from tlb.lab import kernels
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.page_sizes import LARGE, PAGES
from tlb.prose import count, listed
from tlb.reasons import if_available
from tlb.units import format_size

if TYPE_CHECKING:
    import pandas as pd

    from experiments.overview.compare import Compared

Hosts = tuple[Host | None, Host | None]
Touches = Callable[["Compared"], bool]
_MEMORY_BYTES = (
    1 << 30
)  # what a kernel keeps of a machine's memory for itself differs from boot to boot, by less
_TABLE_ENTRY_BYTES = 8  # of a page: beside its line, what a cache has to hold for a walk

# Whose timed part is the kernel's work, or begins and ends in it.
_KERNEL_WORK = {name for name, kernel in kernels.CATALOGUE.items() if kernel.faults_in} | {
    "shootdown",
    "switch_chase",
    "neighbour_chase",
}
_SEVERAL_CPUS = {"shootdown", "neighbour_chase", "map_churn", "prefault"}
_SWITCHES = {"switch_chase", "shootdown"}


def _all(compared: Compared) -> bool:
    return True


def _none(compared: Compared) -> bool:
    return False


def _kernel_work(compared: Compared) -> bool:
    return compared.point["kernel"] in _KERNEL_WORK


def _walks(compared: Compared) -> bool:
    """Packed lines lie on so few pages that nothing walks for them."""
    return compared.point["layout"] != "packed" or not _is_chase(compared)


def _is_chase(compared: Compared) -> bool:
    kernel = kernels.CATALOGUE.get(compared.point["kernel"])
    return kernel is None or kernel.is_chase


def _walks_or_faults(compared: Compared) -> bool:
    return _walks(compared) or _kernel_work(compared)


def _guests(compared: Compared) -> bool:
    return compared.point["kernel"] == "guest_chase"


def _calls_and_guests(compared: Compared) -> bool:
    return _kernel_work(compared) or _guests(compared)


def _on(pages: Sequence[str]) -> Touches:
    return lambda compared: compared.point["pages"] in pages


def _of(names: set[str]) -> Touches:
    return lambda compared: compared.point["kernel"] in names


def _past(least: float) -> Touches:
    """Of more lines than the smaller of two capacities: on fewer, both hold all."""
    return lambda compared: compared.point["lines"] > least


class Kind(NamedTuple):
    """Facts of one kind, by the label that `tlb inspect` has for them; what they can touch, in
    words and as a test of a quantity, which may depend on both hosts."""

    label: str
    words: str
    touches: Callable[[Hosts, str], Touches]


def _always(touches: Touches) -> Callable[[Hosts, str], Touches]:
    return lambda hosts, label: touches


def _cache(hosts: Hosts, label: str) -> Touches:
    level = int(re.search(r"-?\d+", label)[0])  # type: ignore[index]
    sizes = [data_caches(host).get(level, 0) for host in hosts if host]
    return _past(min(sizes, default=0) / (kernels.LINE_BYTES + _TABLE_ENTRY_BYTES))


def _tlb(hosts: Hosts, label: str) -> Touches:
    level = int(re.search(r"-?\d+", label)[0])  # type: ignore[index]
    past = _past(
        min(
            (
                tlb.entries
                for host in hosts
                if host
                for tlb in data_tlbs(host)
                if tlb.level == level
            ),
            default=0,
        )
    )
    return lambda compared: past(compared) and _walks(compared)


# In the order of `tlb inspect`; of several patterns the first counts. Where a source is named, it
# is where the reason can be read.
KINDS = (
    Kind("CPU", "everything", _always(_all)),
    # It brings the instructions that mitigations flush buffers with, and switches off what has an
    # erratum (Linux, admin-guide/hw-vuln).
    Kind(
        "microcode",
        "the way into the kernel and back, where mitigations stand",
        _always(_kernel_work),
    ),
    # Other CPUs are asked to flush, zero pages, and hold threads beside the one that is measured.
    Kind("CPUs", "what several CPUs do together", _always(_of(_SEVERAL_CPUS))),
    # A second dimension of walks, its own way of backing memory, exits of the guest (Bhargava et
    # al., ASPLOS 2008).
    Kind(
        "hypervisor",
        "walks, which it may give a second dimension, first touches and flushes",
        _always(_walks_or_faults),
    ),
    Kind("KVM, .*", "guests of this machine", _always(_guests)),
    Kind(
        r"(L\S+|TLB level \S+) instruction", "jumps through much code", _always(_of({"code_chase"}))
    ),
    Kind(r"L\S+ .*", "what leaves the smaller of the two", _cache),
    Kind(r"TLB level .*", "loads of more pages than the smaller of the two holds", _tlb),
    Kind("TLB", "nothing: it is what is stated, and no time", _always(_none)),
    # A level more is a step more wherever the walk caches do not hold it, and a table more to fill
    # (Dawson's comparison of both).
    Kind("page table", "walks and first touches", _always(_walks_or_faults)),
    Kind("base page", "everything: a page is another thing", _always(_all)),
    # What madvise(2) gets, and how long the kernel looks for a large page at a fault (Linux,
    # admin-guide/mm/transhuge.rst).
    Kind("THP", "what lies on transparent 2 MiB pages", _always(_on(["thp"]))),
    Kind(
        "mTHP",
        "what lies on transparent pages between base and 2 MiB",
        _always(_on([name for name, page in PAGES.items() if page.source == "mthp"])),
    ),
    Kind(
        "pool .*",
        "which points on its pages could be measured",
        lambda hosts, label: _on([label.removeprefix("pool ")]),
    ),
    # Unmaps pages now and then to see who touches them (Linux, admin-guide/sysctl/kernel.rst).
    Kind("NUMA balancing", "whatever runs long enough to be looked at", _always(_all)),
    # machine/background.py: what each does to a program meanwhile.
    Kind("DAMON|khugepaged|swap", "whatever runs long enough for it to come by", _always(_all)),
    Kind(
        "KSM|memory cgroup|hugetlb cgroup",
        "nothing: kernels offer it no pages, and a limit ends a process or leaves it alone",
        _always(_none),
    ),
    # L1TF flushes the first-level cache on the way into a guest; Meltdown's remedy changes the page
    # table at each entry of the kernel.
    Kind(
        "against (l1tf|mmio_stale_data|vmscape)",
        "the way into the kernel and into guests",
        _always(_calls_and_guests),
    ),
    Kind("against .*", "the way into the kernel and back", _always(_kernel_work)),
    Kind(
        "governor|turbo|clock beside the points",
        "every time that a core and not memory decides",
        _always(_all),
    ),
    Kind("SMT", "everything, while the other thread of the core works", _always(_all)),
    # A kernel's digest holds its compiler's version, and rows of two digests are not compared.
    Kind(
        "C compiler",
        "nothing that is compared: another compiler's kernel is another kernel",
        _always(_none),
    ),
    Kind("system", "the kernel's own work", _always(_kernel_work)),
    # settings.BOOT_WORDS: levels of the table, its isolation, and whether a switch keeps
    # translations.
    Kind(
        "booted with",
        "walks, the way into the kernel, and what a switch keeps",
        _always(lambda compared: _walks_or_faults(compared) or _of(_SWITCHES)(compared)),
    ),
    Kind("memory", "how far sweeps go, and so which points both have", _always(_none)),
    # An entry spans the smaller of the guest's page and the host's (inference/splinter.py).
    Kind(
        "large pages, as rows show them", "what lies on large pages", _always(_on([*LARGE, "1g"]))
    ),
)


class Fact(NamedTuple):
    """What differs: on A, on B; what it can touch in words, and of so many compared quantities that
    it can how many differ."""

    what: str
    a: str
    b: str
    touches: str
    compared: int
    differ: int


def facts(
    hosts: Hosts,
    rows: tuple[pd.DataFrame, pd.DataFrame],
    computers: Sequence[tuple[str, str, str]],
    quantities: Sequence[Compared],
) -> tuple[list[Fact], list[str]]:
    """Facts that differ, and what follows from what they can touch, in sentences. computers: label,
    A, B, as `tlb compare` shows them."""
    lines = [*computers, *_memory(hosts), *_large_pages(hosts, rows)]
    touching = [
        (line, kind, kind.touches(hosts, line[0])) for line in lines for kind in [kind_of(line[0])]
    ]
    found = []
    for line, kind, touches in touching:
        touched = [quantity for quantity in quantities if touches(quantity)]
        found.append(
            Fact(
                *line,
                kind.words,
                len(touched),
                sum(quantity.verdict == DIFFERS for quantity in touched),
            )
        )
    return found, _follows(
        [(line[0], touches) for line, _, touches in touching],
        [q for q in quantities if q.verdict == DIFFERS],
    )


def kind_of(label: str) -> Kind:
    """Raises StopIteration for what `tlb inspect` does not say."""
    return next(kind for kind in KINDS if re.fullmatch(kind.label, label))


def _memory(hosts: Hosts) -> list[tuple[str, str, str]]:
    totals = [host.memory.total_bytes for host in hosts if host]
    if len(totals) < 2 or abs(totals[0] - totals[1]) < _MEMORY_BYTES:
        return []
    return [("memory", *(format_size(total) for total in totals))]  # type: ignore[list-item]


def _large_pages(
    hosts: Hosts, rows: tuple[pd.DataFrame, pd.DataFrame]
) -> list[tuple[str, str, str]]:
    """What each host makes of large pages, where both sides' rows tell."""
    told = []
    for host, side in zip(hosts, rows, strict=True):
        chapter = side[side["chapter"] == "hugepages"]
        judged = (
            if_available(
                lambda host=host, chapter=chapter: splinter.judge(
                    newest(chapter).copy(), host.hypervisor
                )
            )
            if (host and len(chapter))
            else None
        )
        told.append(judged.verdict if judged else "cannot tell")
    return [("large pages, as rows show them", *told)] if told[0] != told[1] else []  # type: ignore[list-item]


def _follows(touching: Sequence[tuple[str, Touches]], differ: Sequence[Compared]) -> list[str]:
    """What none of the facts can touch, and what one alone can."""
    if not differ:
        return []
    by = [[what for what, touches in touching if touches(quantity)] for quantity in differ]
    told, none = [], sum(not facts for facts in by)
    if none:
        told.append(
            f"Of {count(len(differ))} quantities that differ, {count(none)} are of a kind that none of these facts touches: other "
            "guests of the host, the hour, or the physical pages that a boot had left may be behind them."
        )
    alone = {what: sum(facts == [what] for facts in by) for what, _ in touching}
    if said := listed(f"{what} ({count(number)})" for what, number in alone.items() if number):
        told.append(f"One fact alone touches some of them: {said}.")
    if len({what for facts in by for what in facts}) > 1:
        told.append(
            "Several facts differ at once, and nothing here says which of them is a cause. Two states of one computer, compared as "
            "NAME@STATE, differ in few."
        )
    return told
