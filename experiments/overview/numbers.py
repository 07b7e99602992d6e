"""The page of numbers to remember: a few quantities of each chapter, on every published machine."""

from __future__ import annotations

from types import ModuleType

from markupsafe import Markup

from experiments import code, flushes, hugepages, page_faults, page_walks, stlb_cliff, tlb_blocking
from tlb.report.chapter import Chapter, published_chapter
from tlb.report.names import THIS_COMPUTER, machine_name
from tlb.report.quantities import FEW_MAPPINGS_MARK, QUANTITIES_DOCUMENT, Quantity
from tlb.report.render import FEW_MAPPINGS_NOTE, Html, join_html
from tlb.stats.scatter import LEAST_MODE_RATIO
from tlb.system.reasons import if_available

# Of each chapter, what a number is called where its neighbours in the chapter are not beside it.
NUMBERS: dict[ModuleType, dict[str, str]] = {
    stlb_cliff: {
        "last_entries": "Pages that the TLB's last level holds (Emerald Rapids: both levels, by chase)",
        "near_ns": "A load that hits the L1 cache and the TLB's first level",
        "hit_ns": "A hit in the TLB's second level adds",
        "walk_ns": "A page walk just past the TLB's reach adds",
        "price_2_gib_ns": "Translation adds to a random load in 2 GiB, at least",
    },
    page_walks: {
        "walk_l2_ns": "A walk whose entries lie in the L2 cache",
        "walk_memory_ns": "A walk whose entries lie in memory",
        "entry_ns": "A page-table entry from memory adds",
    },
    hugepages: {
        "far_thp_gain": "Transparent huge pages speed up a random load in 4 GiB, times",
        "walk_huge_share": "A walk on 2 MiB pages, as a share of one on 4 KiB pages",
    },
    page_faults: {
        "buffer_page_ns": "Touch and unmap a fresh 4 KiB page",
        "fill_20_gb_s": "Fill 20 GB on 4 KiB pages, seconds",
        "fill_20_gb_huge_s": "Fill 20 GB on 2 MiB pages, seconds",
    },
    tlb_blocking: {
        "prefetch_gain": "Prefetching the hops of a known path speeds it up, times",
        "join_gain": "Partitioning speeds up a hash join, times",
        "padding_saves_ns": "64 bytes of padding at a stride of 4 KiB save, per load",
    },
    flushes: {
        "unmap_alone_us": "munmap of a page, all threads on one CPU",
        "unmap_added_us": "Threads on other CPUs add to it",
        "switch_us": "Switch to another process and back",
    },
    code: {"gain_100_mib": "2 MiB pages speed up 100 MiB of code, times"},
}


def numbers_table(chapter: Chapter) -> Html:
    """Return the quantities of each published machine, and of this computer on a page about it, a
    column each, with links to the chapters that measure them."""
    names = {machine: machine_name(chapter.data, machine) for machine in chapter.data.machines()}
    heads = ["", *names.values(), *([THIS_COMPUTER] if chapter.is_this else [])]
    own = if_available(chapter.store.read_document, chapter.machine, QUANTITIES_DOCUMENT) or {}
    rows, lines = Markup(""), ["\t".join(heads)]
    for module, wanted in NUMBERS.items():
        name = module.__name__.rpartition(".")[2]
        kept = [
            module.Quantities(published_chapter(name, machine).kept_quantities(machine))
            for machine in names
        ]
        if chapter.is_this:
            kept.append(module.Quantities(own.get(name, {})))
        for each, words in wanted.items():
            declared = module.Quantities.declared[each]
            cells = [_shown(quantities.of(declared)) for quantities in kept]
            label = Markup('<a href="{}.html">{}</a>').format(name, words)
            rows += Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                label, join_html("<td>{}</td>", cells)
            )
            lines.append("\t".join([words, *cells]))
    head = join_html('<th scope="col">{}</th>', heads)
    table = (
        '<div class="tlb-table tlb-data"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    )
    made = Html(str(Markup(table).format(head, rows)), "\n".join(lines))
    return made + FEW_MAPPINGS_NOTE if any(FEW_MAPPINGS_MARK in line for line in lines) else made


def _shown(quantity: Quantity) -> str:
    """Return a quantity without its interval, which its chapter has, or the range alone of one that
    varies widely; of too few mappings the estimate alone, marked."""
    if quantity.interval is None:
        return "–"
    if quantity.is_of_few:
        return quantity.cell
    if (
        quantity.interval.low > 0
        and quantity.interval.high > LEAST_MODE_RATIO * quantity.interval.low
    ):
        return f"{quantity}"
    return f"{quantity:value}"
