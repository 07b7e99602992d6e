"""The page of numbers to remember: a few quantities of each chapter, on every published machine."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from markupsafe import Markup

from experiments import (
    code,
    flushes,
    hugepages,
    page_faults,
    page_walks,
    stlb_cliff,
    tlb_blocking,
    virtualization,
)
from tlb.report.chapter import Chapter, published
from tlb.report.names import machine_name
from tlb.report.quantities import Quantity
from tlb.report.render import Html, join
from tlb.stats.intervals import LEAST_COVERAGE

NUMBERS: dict[ModuleType, Sequence[str]] = {
    stlb_cliff: ("last_entries", "near_ns", "hit_ns", "walk_ns", "price_2_gib_ns"),
    page_walks: ("walk_l2_ns", "walk_memory_ns", "entry_ns"),
    hugepages: ("far_gain", "near_base_ns", "near_huge_ns", "walk_huge_share"),
    page_faults: ("buffer_page_ns", "fill_20_gb_s", "fill_20_gb_huge_s"),
    tlb_blocking: ("prefetch_gain", "join_gain", "padding_saves_ns"),
    flushes: ("unmap_alone_us", "unmap_added_us", "switch_us"),
    code: ("random_page_ns", "gain_100_mib"),
    virtualization: ("touch_least_ns", "touch_huge_ns"),
}


def numbers_table(chapter: Chapter) -> Html:
    """Return the quantities of each published machine, a column each, with links to the chapters
    that measure them."""
    names = {machine: machine_name(chapter.data, machine) for machine in chapter.data.machines()}
    heads = ["", *names.values()]
    rows, lines = Markup(""), ["\t".join(heads)]
    for module, wanted in NUMBERS.items():
        name = module.__name__.rpartition(".")[2]
        kept = [
            module.Quantities(published(name, machine).kept_quantities(machine))
            for machine in names
        ]
        for each in wanted:
            declared = module.Quantities.declared[each]
            cells = [_shown(quantities.of(declared)) for quantities in kept]
            label = Markup('<a href="{}.html">{}</a>').format(name, declared.label)
            rows += Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                label, join("<td>{}</td>", cells)
            )
            lines.append("\t".join([declared.label, *cells]))
    head = join('<th scope="col">{}</th>', heads)
    table = (
        '<div class="tlb-table tlb-data"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    )
    return Html(str(Markup(table).format(head, rows)), "\n".join(lines))


def _shown(quantity: Quantity) -> str:
    """Return a quantity without its interval, which its chapter has; marked of too few mappings."""
    if quantity.interval is None:
        return "–"
    few = quantity.mappings and quantity.interval.coverage < LEAST_COVERAGE
    return f"{quantity:value}{' *' if few else ''}"
