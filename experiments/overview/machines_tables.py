"""The table of machines: a row a machine, to be put in another order by a list above it, also where
no script runs.

The rows are in the document once, by label. Each knows its place in every order as a property of
its style; a rule a choice, beside the table, makes that its `order`, and book/assets/machines.css
lets the reading order follow. Without style, the table is whole and by label.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import NamedTuple

from markupsafe import Markup

from experiments.overview.machines import Analysis, Machine
from experiments.overview.machines_compared import ENTRIES
from tlb.machine.host import Host
from tlb.reasons import REASONS
from tlb.report.render import Html
from tlb.report.setting import hypervisor_name
from tlb.system import procfs
from tlb.units import format_size

_UNMEASURED = "not measured"
_PAGES = {"whole": "large pages whole", "splintered": "large pages cut up", "unknown": ""}


class Order(NamedTuple):
    """A way to sort: its name in the style, what the list calls it, and the key, of which the least
    comes first."""

    name: str
    words: str
    key: Callable[[Machine], object]


def _most(*names: str) -> Callable[[Machine], object]:
    """The largest value of the first of these quantities first; who has none, last."""
    return lambda each: -value if isfinite(value := each.value(*names)) else inf


ORDERS = (
    Order("cpu", "processor", lambda each: (not each.is_own, each.label, each.name)),
    Order(
        "host",
        "host: bare metal first, whole pages first",
        lambda each: (
            (False, True, None).index(each.is_guest),
            ("whole", "splintered", "unknown").index(each.pages),
        ),
    ),
    Order("counters", "counters: those that have some first", lambda each: not each.counts),
    Order("reach", "reach, farthest first", lambda each: -(_reach_bytes(each) or 0)),
    Order("hit", "last-level hit, dearest first", _most("hit_last_level")),
    Order("walk", "walk, dearest first", _most("walk_past_last_level")),
    Order("far", "walk over 2 GiB, dearest first", _most("walk_over_2_gib")),
    Order("gain", "gain of 2 MiB pages, most first", _most("gain_thp", "gain_2m")),
    Order("fault", "first touch, dearest first", _most("fault_fresh")),
    Order(
        "date", "measured, last first", lambda each: tuple(-ord(letter) for letter in each.days[1])
    ),
    Order("rows", "rows, most first", lambda each: -each.rows),
)
_HEAD = (
    "Machine",
    "Where it runs",
    "Reach",
    "Last-level hit",
    "Walk",
    "Walk over 2 GiB",
    "On 2 MiB pages",
    "First touch",
    "Measured",
)


def machines_table(a: Analysis) -> Html:
    """Raises Unavailable("no-data") where there is no machine."""
    machines = a.machines
    places = {order.name: _places(machines, order) for order in ORDERS}
    lines = [(each, _cells(each)) for each in machines]
    head = Markup("").join(
        Markup('<th scope="col" role="columnheader">{}</th>').format(name) for name in _HEAD
    )
    body = Markup("").join(
        _line(each, cells, {name: of[each.name, each.is_own] for name, of in places.items()})
        for each, cells in lines
    )
    table = Markup(
        '<div class="tlb-table"><table role="table"><thead role="rowgroup"><tr role="row">{}</tr></thead>'
        '<tbody role="rowgroup">{}</tbody></table></div>'
    ).format(head, body)
    text = "\n".join(
        "\t".join(Markup(cell).striptags() for cell in cells)
        for cells in [_HEAD, *(cells for _, cells in lines)]
    )
    return Html(
        str(
            Markup('<div class="tlb-machines">{}{}</div>').format(
                _choice() if len(machines) > 1 else "", table
            )
        ),
        text,
    )


def _places(machines: list[Machine], order: Order) -> dict[tuple[str, bool], int]:
    """Each machine's place, from 1 on; of two alike, that by label comes first."""
    ordered = sorted(machines, key=lambda each: (order.key(each), ORDERS[0].key(each)))  # type: ignore[arg-type,return-value]
    return {(each.name, each.is_own): place for place, each in enumerate(ordered, 1)}


def _choice() -> Markup:
    """The list, and its rules. The orders' names are this module's, and no machine's words are in a
    rule."""
    rules = Markup("").join(
        Markup(".tlb-machines:has(option[value={0}]:checked) tbody tr{{order:var(--{0})}}").format(
            order.name
        )
        for order in ORDERS
    )
    options = Markup("").join(
        Markup('<option value="{}">{}</option>').format(order.name, order.words) for order in ORDERS
    )
    return Markup(
        '<style>{}</style><p class="tlb-filter"><label>Order by <select autocomplete="off">{}</select></label></p>'
    ).format(rules, options)


def _line(each: Machine, cells: list[Markup], places: dict[str, int]) -> Markup:
    style = ";".join(f"--{name}:{place}" for name, place in places.items())
    first, *others = cells
    row = Markup("").join(
        Markup('<td role="cell" data-is="{}">{}</td>').format(name, cell)
        for name, cell in zip(_HEAD[1:], others, strict=True)
    )
    return Markup(
        '<tr role="row" style="{}"><th scope="row" role="rowheader">{}</th>{}</tr>'
    ).format(style, first, row)


def _cells(each: Machine) -> list[Markup]:
    entries = each.value(*ENTRIES[2])
    reach = _reach_bytes(each)
    return [
        _who(each),
        _where(each),
        _pair(format_size(reach), f"{entries:,.0f} entries")
        if reach
        else _pair("", _why(each, ENTRIES[2][0])),
        *(
            _value(each, name)
            for name in ("hit_last_level", "walk_past_last_level", "walk_over_2_gib")
        ),
        _value(each, "gain_thp" if each.quantity("gain_thp") else "gain_2m"),
        _value(each, "fault_fresh"),
        _pair(
            each.days[1] or "never", f"{each.rows:,} rows{', by earlier kernels' * each.is_earlier}"
        ),
    ]


def _who(each: Machine) -> Markup:
    """The machine with its links: to its data card, and to its verdicts."""
    model = procfs.label(each.host.cpu_model) if each.host else "described by another version"
    own, column = ("own.", "this") if each.is_own else ("", each.name)
    # book/_ext/tlb_files.py puts the card there.
    card = (
        Markup('<a href="../_sources/{}{}.txt">Data card</a>, ').format(own, each.name)
        if each.has_card
        else ""
    )
    name = "" if each.label == each.name else Markup("<small>{}</small>").format(each.name)
    return Markup(
        '<strong>{}</strong><small>{}</small>{}<small>{}<a href="scorecard.html#verdicts-{}">verdicts</a></small>'
    ).format(each.label, model, name, card, column)


def _where(each: Machine) -> Markup:
    host = each.host
    if host is None:
        return _pair("", "not known")
    counts = "counters" if each.counts else "no counters"
    told = [
        _PAGES[each.pages],
        counts,
        f"{host.os} {procfs.label(host.kernel_release)}",
        procfs.label(host.arch),
    ]
    return Markup("{}{}").format(
        _guest(host),
        Markup("").join(Markup("<small>{}</small>").format(words) for words in told if words),
    )


def _guest(host: Host) -> str:
    return {"none": "bare metal", "unknown": "bare metal or a guest"}.get(
        host.hypervisor, f"guest, {procfs.label(hypervisor_name(host))}"
    )


def _value(each: Machine, name: str) -> Markup:
    """A quantity with its interval below it, or why it has none."""
    found = each.quantity(name)
    if found is None or found.value is None:
        return _pair("", _why(each, name))
    unit, digits = (
        ("×", 2)
        if found.unit == "ratio"
        else (" ns", 0 if found.value >= 100 else 1 if found.value >= 10 else 2)
    )
    value = (
        f"{unit}{found.value:.{digits}f}"
        if found.unit == "ratio"
        else f"{found.value:,.{digits}f}{unit}"
    )
    ends = [
        f"{end:,.{digits}f}" if end is not None else "no bound" for end in (found.low, found.high)
    ]
    return _pair(value, f"{ends[0]} to {ends[1]}")


def _why(each: Machine, name: str) -> str:
    """Of what was not measured no more than that; else the reason's sentence."""
    found = (
        next((q for q in each.profile.quantities if q.name == name), None) if each.profile else None
    )
    return (
        _UNMEASURED
        if found is None or found.reason in (None, "no-data")
        else REASONS[found.reason].sentence
        if (found.reason in REASONS)
        else _UNMEASURED
    )


def _pair(value: str, below: str) -> Markup:
    return Markup("{}<small>{}</small>").format(value, below)


def _reach_bytes(each: Machine) -> int | None:
    """Entries of the last level times the base page; None where either is not known."""
    entries = each.value(*ENTRIES[2])
    return int(entries * each.host.base_page_bytes) if each.host and isfinite(entries) else None
