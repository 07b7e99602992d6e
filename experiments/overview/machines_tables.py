"""Tables of all machines: the page of machines has a row a machine, the page of numbers to remember
a few quantities of each chapter, a column a machine.

The table of machines is to be put in another order by a list above it, also where no script runs.
The rows are in the document once, as all pages order machines. Each knows its place in every order
as a property of its style; a rule for each choice, beside the table, makes that its `order`, and
book/assets/machines.css lets the reading order follow. Without style, the table is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, isfinite
from types import ModuleType
from typing import NamedTuple

from markupsafe import Markup

from experiments import code, flushes, hugepages, page_faults, page_walks, stlb_cliff, tlb_blocking
from experiments.overview import chapter_name, index
from experiments.overview.machines import TLB_ENTRY_QUANTITY_NAMES, Analysis, MeasuredMachine
from experiments.overview.profile import ProfileQuantity
from tlb.machine.host import Host, tlb_entries
from tlb.report.card import THIS_COMPUTER_LABEL
from tlb.report.chapter import Chapter, chapter_of_published_machine
from tlb.report.notebooks import page_titles
from tlb.report.quantities import (
    FEW_MAPPINGS_MARK,
    QUANTITIES_DOCUMENT,
    Quantities,
    Quantity,
    in_brackets,
)
from tlb.report.render import FEW_MAPPINGS_NOTE, Html, format_each_as_html
from tlb.report.setting import hypervisor_name
from tlb.stats.intervals import LEAST_COVERAGE
from tlb.stats.scatter import MIN_MODE_RATIO
from tlb.system import procfs
from tlb.system.page_sizes import PUBLISHED_BASE_PAGE_BYTES
from tlb.system.reasons import REASON_TEXTS, none_if_unavailable, require_nonempty
from tlb.system.units import format_significant_digits, format_size

_UNMEASURED = "not measured"
_WHY = {  # a price has none, in the few words that a cell has room for
    "no-data": _UNMEASURED,
    "no-geometry": "not stated",
    "too-few-points": "not known",
    "unstable": "mappings differ",
    "control-elsewhere": "not comparable",
}
_PAGES = {
    "whole": "huge pages whole",
    "splintered": "huge pages splintered",
    "unknown": "huge pages: not known",
}


class Order(NamedTuple):
    """A way to sort: its name in the style, what the list calls it, and the key, of which the least
    comes first."""

    name: str
    words: str
    key: Callable[[MeasuredMachine], object]


def _largest(*names: str) -> Callable[[MeasuredMachine], object]:
    """Return a key: the largest value of the first of these quantities first, none last."""
    return lambda each: -value if isfinite(value := each.value(*names)) else inf


def _by_host(each: MeasuredMachine) -> object:
    return (False, True, None).index(each.is_guest), [*_PAGES].index(each.pages)


TABLE_ORDERS = (
    Order("book", "as elsewhere in the book", lambda each: 0),
    Order("host", "host, bare metal first", _by_host),
    Order("counters", "machines with counters first", lambda each: not each.counts),
    Order("reach", "reach, largest first", lambda each: -(_reach_bytes(each) or 0)),
    Order("walk", "page walk, slowest first", _largest("walk_past_last_level")),
    Order("far", "page walk in 2 GiB, slowest first", _largest("walk_over_2_gib")),
    Order("fault", "touch and unmap, slowest first", _largest("fault_fresh")),
    Order("date", "newest first", lambda each: [-ord(letter) for letter in each.days[1]]),
)
_HEAD = (
    *("Machine", "Where it runs", "Reach, stated", "Reach, found", "STLB hit", "Page walk"),
    *("Page walk in 2 GiB", "Touch, unmap"),
)
_TABLE = (
    '<div class="tlb-machines">{}<div class="tlb-table"><table role="table"><thead role="rowgroup">'
    '<tr role="row">{}</tr></thead><tbody role="rowgroup">{}</tbody></table></div></div>'
)
_CHOICE = (
    '<style>{}</style><p class="tlb-filter"><label>Order by <select autocomplete="off">{}</select>'
    "</label></p>"
)
_RULE = ".tlb-machines:has(option[value={0}]:checked) tbody tr{{order:var(--{0})}}"
_ROW = '<tr role="row" style="{}"><th scope="row" role="rowheader">{}</th>{}</tr>'
_WHO = (
    "<strong>{}</strong><small>{}</small>{}<small>{}"
    '<a href="scorecard.html#verdicts-{}">verdicts</a></small>'
)


def machines_table(a: Analysis) -> Html:
    """Return the table. Raises Unavailable("no-data") where there is no machine."""
    machines, styles = a.machines, dict[str, list[str]]()
    for order in TABLE_ORDERS:
        # Of two alike, as the pages have them.
        ordered = sorted(machines, key=lambda each: (order.key(each),))
        for place, each in enumerate(ordered, 1):
            styles.setdefault(f"{each.is_own} {each.name}", []).append(f"--{order.name}:{place}")
    body, lines = Markup(""), ["\t".join(_HEAD)]
    for each in machines:
        first, *others = cells = _cells(each)
        row = format_each_as_html(
            '<td role="cell" data-is="{}">{}</td>', zip(_HEAD[1:], others, strict=True)
        )
        style = ";".join(styles[f"{each.is_own} {each.name}"])
        body += Markup(_ROW).format(style, first, row)
        lines.append("\t".join(Markup(cell).striptags() for cell in cells))
    head = format_each_as_html('<th scope="col" role="columnheader">{}</th>', _HEAD)
    choice = Markup("")
    if len(machines) > 1:  # the orders' names are this module's, so no rule has a machine's words
        rules = format_each_as_html(_RULE, TABLE_ORDERS)
        choice = Markup(_CHOICE).format(
            rules, format_each_as_html('<option value="{}">{}</option>', TABLE_ORDERS)
        )
    return Html(str(Markup(_TABLE).format(choice, head, body)), "\n".join(lines))


def _cells(each: MeasuredMachine) -> list[Markup]:
    found, stated = TLB_ENTRY_QUANTITY_NAMES[2]
    shown = ("hit_last_level", "walk_past_last_level", "walk_over_2_gib", "fault_fresh")
    prices = [_price(each, name) for name in shown]
    return [_who(each), _where(each), _reach(each, stated), _reach(each, found), *prices]


def _reach(each: MeasuredMachine, name: str) -> Markup:
    """Return what the entries of a quantity cover on base pages, to two digits, as many as are
    known, and below it the entries."""
    quantity = each.quantity(name)
    if quantity is None or quantity.value is None or each.host is None:
        return _pair("", _why(each, name))
    known = quantity.interval
    is_exact = known is None or known.low == known.high
    size = format_significant_digits(quantity.value * each.host.base_page_bytes / 2**20, 2)
    pages = _of_other_pages(each)
    if _is_of_few(quantity):
        entries = f"{quantity.value:,.0f} entries{pages}, too few mappings"
        return _pair(f"{size} MiB{FEW_MAPPINGS_MARK}", entries)
    entries = f"{quantity.value:,.0f}" if is_exact else f"{known:,.0f}"
    return _pair(f"{size} MiB", f"{entries} entries{pages}")


def _of_other_pages(each: MeasuredMachine) -> str:
    """Return what a cell adds where a machine's base pages are not those that the page speaks of."""
    if each.host is None or each.host.base_page_bytes == PUBLISHED_BASE_PAGE_BYTES:
        return ""
    return f", {format_size(each.host.base_page_bytes)} pages"


def _who(each: MeasuredMachine) -> Markup:
    """Return the machine with its links: to its data card, and to its verdicts."""
    model = procfs.label(each.host.cpu_model) if each.host else "described by another version"
    if each.is_own and each.host:  # others have it as their label
        model += f" ({procfs.label(each.host.microarchitecture)})"
    file, column = ("this-computer", "this") if each.is_own else (each.name, each.name)
    card = name = Markup("")
    if each.has_card:  # book/_ext/tlb_files.py copies it there
        card = Markup('<a href="../_sources/{}.txt">Data card</a>, ').format(file)
    # Copies of a disk image have one id, so this computer is not called by a published machine's.
    if each.label != each.name and not each.is_own:
        name = Markup("<small>{}</small>").format(each.name)
    return Markup(_WHO).format(each.label, model, name, card, column)


def _where(each: MeasuredMachine) -> Markup:
    host = each.host
    if host is None:
        return _pair("", "not known")
    guest = {"none": "bare metal", "unknown": "bare metal or a guest"}.get(host.hypervisor)
    counts = "counters" if each.counts else "no counters"
    pages = _PAGES[each.pages]
    if each.pages != "unknown" and each.splinter and each.splinter.is_of_few:
        pages += ", by few mappings"
    earlier = ""
    if each.earlier_kernels:
        earlier = f"{each.earlier_kernels} of {each.kernels} programs in an earlier version"
    words = [pages, counts, earlier]
    below = format_each_as_html("<small>{}</small>", filter(None, words))
    return Markup("{}{}").format(guest or f"guest, {procfs.label(hypervisor_name(host))}", below)


def _price(each: MeasuredMachine, name: str) -> Markup:
    """Return a quantity with its interval below it, or why it has none. An interval whose ends are
    more than JUMP apart stands alone, as in a text (Interval.__format__)."""
    found = each.quantity(name)
    if found is None or found.value is None:
        return _pair("", _why(each, name))
    digits = 0 if found.value >= 100 else 1 if found.value >= 10 else 2
    pages = _of_other_pages(each)
    if _is_of_few(found):
        return _pair(f"{found.value:,.{digits}f} ns{FEW_MAPPINGS_MARK}", f"too few mappings{pages}")
    bounds = (found.low, found.high)
    ends = ["no bound" if end is None else f"{end:,.{digits}f}" for end in bounds]
    if found.low and found.high and found.high > MIN_MODE_RATIO * found.low > 0:
        return _pair(f"{' to '.join(ends)} ns", pages.removeprefix(", "))
    return _pair(f"{found.value:,.{digits}f} ns", f"{' to '.join(ends)}{pages}")


def _is_of_few(found: ProfileQuantity | None) -> bool:
    return bool(found and found.coverage is not None and found.coverage < LEAST_COVERAGE)


def _why(each: MeasuredMachine, name: str) -> str:
    """Return the reason in a few words, or its sentence; of what was not measured just that."""
    quantities = each.profile.quantities if each.profile else ()
    codes = {quantity.name: quantity.reason for quantity in quantities}
    code = codes.get(name) or "no-data"
    if code in _WHY or code not in REASON_TEXTS:
        return _WHY.get(code, _UNMEASURED)
    return REASON_TEXTS[code].sentence


def _pair(value: str, below: str) -> Markup:
    return Markup("{}<small>{}</small>").format(value, below)


def _reach_bytes(each: MeasuredMachine) -> int | None:
    """Return the entries of the last level times the base page; None if either is unknown."""
    number = each.value(*TLB_ENTRY_QUANTITY_NAMES[2])
    return int(number * each.host.base_page_bytes) if each.host and isfinite(number) else None


# --- numbers to remember

# Of each chapter, what a number is called where its neighbours in the chapter are not beside it.
# Those of 4 GiB are the first page's. Each row is of one size, so that its machines compare.
_LAST_ENTRIES = "last_entries"
NUMBERS: dict[ModuleType, dict[str, str]] = {
    stlb_cliff: {
        _LAST_ENTRIES: "Entries of the STLB",
        "near_ns": "A load that hits the L1 cache and the TLB's first level",
        "hit_ns": "A hit in the STLB adds",
        "walk_ns": "Translation adds to a random load over 2 to 4 times the STLB's reach",
        "walk_4_gib_ns": "Translation adds to a random load over 4 GiB, at least",
    },
    page_walks: {
        "walk_l2_ns": "A walk alone (data in the L1 cache), its entry in the L2 cache",
        "walk_l3_ns": "A walk alone, its entry within the stated size of the L3 cache",
        "walk_memory_ns": "A walk alone, the guest's last entry in memory, upper ones in the data caches",
        "entry_ns": "Each page-table entry that a load must read from memory adds",
    },
    hugepages: {
        "base_64_mib_ns": "A random load over 64 MiB on 4 KiB pages",
        "huge_64_mib_ns": "The same on huge pages",
        "gain_4_gib": "Random loads over 4 GiB on transparent huge pages: times as fast",
    },
    page_faults: {
        "buffer_page_ns": "Touch and unmap a fresh 4 KiB page",
        "heap_page_ns": "First touch of a 4 KiB page of a heap",
        "heap_huge_fault_us": "First touch of a 2 MiB page of a heap",
    },
    tlb_blocking: {
        "join_gain": "A hash join, partitioned first: times as fast",
        "padding_saves_ns": "64 bytes of padding at a stride of 4 KiB save, per load (below 0: they cost)",
    },
    flushes: {
        "unmap_alone_us": "munmap of a page, all threads on one CPU",
        "unmap_added_us": "A thread on each other CPU adds to it (EPYC guests have one)",
        "switch_us": "Switch to another process and back",
    },
    code: {"gain_100_mib": "100 MiB of code on 2 MiB pages: times as fast"},
}


def numbers_table(chapter: Chapter) -> Html:
    """Return the quantities of each published machine, and of this computer on a page about it, a
    column each, grouped by the chapters that measure them, with links."""
    published = chapter.published
    machines = [each.machine for each in published.values()]
    hosts = [each.host for each in published.values()]
    hosts = [*([chapter.host] if chapter.is_this else []), *hosts]
    heads = ["", *([_own_head(chapter.host)] if chapter.is_this else []), *published]
    read = chapter.store.read_document
    own = none_if_unavailable(read, chapter.machine, QUANTITIES_DOCUMENT) or {}
    titles = page_titles()
    rows, lines = Markup(""), ["\t".join(heads)]
    for module, wanted in NUMBERS.items():
        name = chapter_name(module)
        title = titles.get(name, name)
        rows += Markup('<tr><th colspan="{}"><a href="{}.html">{}</a></th></tr>').format(
            len(heads), name, title
        )
        lines.append(title)
        for each, words in wanted.items():
            recorder = module if each in module.Quantities.declared else index
            kept = _kept_of_machines(recorder, machines)
            if chapter.is_this:
                kept.insert(0, recorder.Quantities(own.get(chapter_name(recorder), {})))
            declared = recorder.Quantities.declared[each]
            row = [quantities.of(declared) for quantities in kept]
            if each == _LAST_ENTRIES:
                row = [*map(_of_levels, row, hosts)]
            words, *cells = _shown(words, row)
            rows += Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                words, format_each_as_html("<td>{}</td>", cells)
            )
            lines.append("\t".join([words, *cells]))
    head = format_each_as_html('<th scope="col">{}</th>', heads)
    table = (
        '<div class="tlb-table tlb-data"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    )
    made = Html(str(Markup(table).format(head, rows)), "\n".join(lines))
    return made + FEW_MAPPINGS_NOTE if any(FEW_MAPPINGS_MARK in line for line in lines) else made


def _own_head(host: Host) -> str:
    """Return the head of this computer's column, with its base pages if rows name others."""
    if host.base_page_bytes == PUBLISHED_BASE_PAGE_BYTES:
        return THIS_COMPUTER_LABEL
    sizes = (host.base_page_bytes, PUBLISHED_BASE_PAGE_BYTES)
    return f"{THIS_COMPUTER_LABEL}, {' in place of '.join(map(format_size, sizes))} pages"


def _of_levels(entries: Quantity, host: Host) -> Quantity:
    """Return a number of entries with a note where no level is stated, so that a chase found all."""
    found = "" if tlb_entries(host) else "all levels, found by a chase"
    return replace(entries, conditions=found)


class RangeOverMachines(NamedTuple):
    """The lowest and the highest end of a quantity's intervals, and on how many published machines."""

    low: float
    high: float
    machines: int


def range_over_machines(chapter: Chapter, module: ModuleType, name: str) -> RangeOverMachines:
    """Return the range of a chapter's quantity over the published machines that measured it in
    enough mappings for an interval. Raises Unavailable("no-data") where none did."""
    published = [each.machine for each in chapter.published.values()]
    kept = _kept_of_machines(module, published)
    every = [quantities.of(module.Quantities.declared[name]) for quantities in kept]
    known = [each.interval for each in every if each.interval and not each.is_of_few]
    require_nonempty(known, f"{name} of no machine", "no-data")
    lowest, highest = min(each.low for each in known), max(each.high for each in known)
    return RangeOverMachines(lowest, highest, len(known))


def _kept_of_machines(module: ModuleType, machines: Iterable[str]) -> list[Quantities]:
    """Return a chapter's quantities of each machine, as `tlb refresh` kept them."""
    name = chapter_name(module)
    return [
        module.Quantities(chapter_of_published_machine(name, machine).kept_quantities(machine))
        for machine in machines
    ]


def _shown(words: str, row: Sequence[Quantity]) -> list[str]:
    """Return the label and the cells of a row, with the sizes or kinds of pages that they are of:
    in the label if all are of the same, else in each cell."""
    conditions = {one.conditions for one in row if one.interval}
    cells = [_without_interval(one) for one in row]
    if len(conditions) == 1 and any(conditions):
        words += in_brackets(conditions.pop())
    for place, one in enumerate(row if conditions else ()):
        if one.interval and one.conditions:
            cells[place] += in_brackets(one.conditions)
    return [words, *cells]


def _without_interval(quantity: Quantity) -> str:
    """Return a quantity without its interval, which its chapter has, or the range alone of one that
    varies widely; of too few mappings the estimate alone, marked."""
    known = quantity.interval
    if known is None or quantity.is_of_few:
        return quantity.cell
    if known.high > MIN_MODE_RATIO * known.low > 0:
        return f"{quantity}"
    return f"{quantity:value}"
