"""What the cells of a chapter show: the source of its grid, charts of their own data, quantities,
verdicts on claims.

On the page of another machine than the reference, a chart lies over the reference's, whose data the
committed notebook has.
"""

from __future__ import annotations

import inspect
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeVar

import altair as alt
import pandas as pd
from markupsafe import Markup, escape
from pygments.lexers import CLexer

from tlb.machine.host import lacking_page_kinds
from tlb.measure.store import Store
from tlb.report import page
from tlb.report.all_machines import MACHINE_COLUMN, decided_elsewhere
from tlb.report.analysis import Analysis
from tlb.report.answers import ANSWERS_DOCUMENT
from tlb.report.card import THIS_COMPUTER_LABEL, machine_display_name
from tlb.report.chapter import Chapter
from tlb.report.claims import untestable_statements
from tlb.report.overlay import (
    DimmedFigure,
    OverlaidFigure,
    borrowed,
    grey_marks,
    has_breaks,
    has_dotted_gaps,
    has_dotted_lines,
    has_rows_of,
    lacking_marks_at_places,
    name_base_pages,
    own_marks_at_places,
)
from tlb.report.quantities import (
    ABSENT_CELL,
    FEW_MAPPINGS_MARK,
    FEWEST_MAPPINGS_WITH_INTERVAL,
    QUANTITIES_DOCUMENT,
    Quantities,
    Quantity,
)
from tlb.report.render import (
    ABSENT_HTML,
    FEW_MAPPINGS_NOTE,
    Figure,
    Html,
    data_table,
    format_each_as_html,
    has_few_mappings,
    has_hollow_points,
    has_marked_numbers,
    highlighted_code,
    inline_html,
    timed_source_part,
)
from tlb.report.verdicts import Verdict, chapter_verdicts, table_of_answered_verdicts, verdict_table
from tlb.stats.intervals import INTERVAL_COLUMNS, without_bounds_of_few
from tlb.system.files import ROOT
from tlb.system.page_sizes import BASE_PAGES, PAGE_KINDS, page_words
from tlb.system.reasons import explain_reason
from tlb.system.units import format_size, list_in_words

LEAST_SWEEP_BYTES = 1 << 30  # the chapters' quantities are of working sets past all caches
_Quantities = TypeVar("_Quantities", bound=Quantities)


def show_source(source: Callable[..., Any] | str, part: str = "") -> Html:
    """Return source code for the page: of a function, or of a C file what stands between the marks
    `[timed: part]` and `[end]`. Raises LookupError without that part."""
    if isinstance(source, str):
        _, lines = timed_source_part((ROOT / source).read_text(encoding="utf-8"), part)
        return Html(str(highlighted_code(code := "\n".join(lines), CLexer)), code)
    code = inspect.getsource(source)
    return Html(str(highlighted_code(code)), code)


# --- charts

MACHINE_COLUMNS = {MACHINE_COLUMN, "host"}  # of charts that name the machine of each row
# Whose a chart is on the page of another machine than the reference, below it and in its text.
_IN_GREY = "Grey {}: {}."
_BELOW = "Below: {}."
_PUBLISHED = "Published machines; none of this computer's points."
_WITHOUT_GREY = "Numbers of {}."
_AMONG_OTHERS = "This computer{} and published machines."
_IN_PLACE = "In place of {}: this computer{}."
_OF_FEW = "{}: fewer than five mappings, no interval, may be far off."
_DOTTED = "Dotted, in colour: points of this page are missing there."
_DOTTED_ITSELF = "Dotted: not measured, or not comparable."
_BROKEN = "No line: no comparable points."
_FEW_SHADED = "Shade: with so few mappings we cannot tell whether both lie in one cache."
_NO_DASHES = "No vertical dashes: these places are not known."
_PAGE_LABEL = re.compile(r"\d+ [KMG]iB")  # as tlb/system/page_sizes.py writes them


@dataclass(frozen=True)
class Committed:
    """A figure as the notebook of the reference keeps it, with the data to draw it again."""

    figure: Figure

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        kept = {"figure": self.figure.name, "csv": self.figure.csv()}
        return self.figure._repr_mimebundle_(), {"tlb": kept}


def show_chart(
    draw: Callable[[pd.DataFrame], alt.TopLevelMixin],
    data: pd.DataFrame,
    words: str,
    size_bytes: float = 0,
    size_of: str = "",
    *,
    is_ratio: bool = False,
) -> None:
    """Show what a function of a cell draws of a table.

    words: a sentence or two on what the reference's chart shows. size_bytes: what the data are of,
    where machines differ and the caption names the reference's; size_of: what has this size, as "a
    heap of". is_ratio: whether it compares times, of which too few mappings tell nothing. Number
    and caption stand in the cell's metadata, `mystnb: {figure: {name, caption}}`.

    On the page of another machine a chart has a line that says whose it is, unless it shows the
    same there or names each machine itself, in one of MACHINE_COLUMNS.
    """
    shown, name = page.current_page(), draw.__name__
    data = _without_noise(data) if shown.few_mappings else data
    shown.tables[name] = data
    if shown.is_reference:
        shown.put(Committed(_figure(draw, data, words)))
        return
    if MACHINE_COLUMNS & {*data}:  # of published machines: the reference is among them
        figure = _figure(draw, data, words)
        shown.put(_of_machines(figure, shown) if shown.is_this else Committed(figure))
        return
    beside = _table_beside(shown, name)
    if beside is None:  # before the first refresh, or not measured there
        shown.put(_figure(draw, data, words))
        return
    own = None if data.empty else _figure(draw, data, words, is_few=bool(shown.few_mappings))
    if own is None or (is_ratio and shown.few_mappings and own.is_of_few):
        shown.put(_dimmed(_figure(draw, beside, words), shown))
        return
    size = f"{size_of} {format_size(round(size_bytes))}".strip() if size_bytes > 0 else ""
    theirs = _figure(draw, _with_own_base_pages(shown, own, beside), words)
    shown.put(_over(own, theirs, size, shown))


def _with_own_base_pages(shown: page.Page, figure: Figure, beside: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the machine beside with its base pages called as the page's own machine's,
    where these differ and the figure has no row for each size: both have one place and one colour.
    The line below the figure gives both sizes."""
    own, theirs = shown.base_pages
    if not (own and theirs) or has_rows_of(figure.spec(), "pages", _PAGE_LABEL.match):
        return beside
    known = [name for name in ("pages", "name") if own in {*figure.data.get(name, ())}]
    known = [name for name in known if name in beside]
    return beside.assign(**{name: beside[name].replace(theirs, own) for name in known})


def _figure(
    draw: Callable[[pd.DataFrame], alt.TopLevelMixin],
    data: pd.DataFrame,
    words: str,
    *,
    is_few: bool = False,
) -> Figure:
    """Return what a function draws of a table. is_few: whether its numbers are of too few mappings
    if the table does not say of how many. Bounds of too few mappings are no bounds: the chart
    has them at the median, where nothing shows, and the data do not have them."""
    known = without_bounds_of_few(data)
    drawn = known.copy()
    for name in INTERVAL_COLUMNS[1:]:
        if {name, "median"} <= {*data}:
            drawn[name] = known[name].fillna(data["median"].where(data[name].notna()))
    known_few = has_few_mappings(data)
    is_of_few = is_few if known_few is None else known_few
    return Figure(draw(drawn), words, known, draw.__name__, is_of_few)


def _dimmed(theirs: Figure, shown: page.Page) -> DimmedFigure:
    """Return another machine's figure in place of one for which the page's machine has no data."""
    whose = shown.beside.machine if shown.beside else "the reference"
    is_measured = bool(shown.head and shown.head.has_rows)
    return DimmedFigure(**vars(theirs), whose=whose, is_measured=is_measured)


def show_table(frame: pd.DataFrame, note: str) -> Html:
    """Return a table that stands for a figure; on the page of another machine than the reference,
    with a note that says whose it is, and in place of an empty one the reference's."""
    table, shown = data_table(frame), page.current_page()
    if shown.is_reference:
        return table
    if frame.empty and (cell := shown.committed_cell()):
        committed = (out.get("data", {}).get("text/html", "") for out in cell.outputs)
        text = "This is the reference: not measured here."
        return Html(borrowed("".join(map("".join, committed)), text), text)
    below = Markup('<p class="tlb-beside" role="note">{}</p>').format(note)
    return table + Html(str(below), note)


def show_figure(figure: Figure | None) -> None:
    """Show a figure of the page's own machine that is drawn without a table of its cell, ABSENT_HTML for
    none; on the page of another machine than the reference, with a line that says whose it is."""
    shown = page.current_page()
    if figure is None:
        shown.put(ABSENT_HTML)
    elif shown.is_reference:
        shown.put(figure)
    else:
        shown.put(_beside(OverlaidFigure(**vars(figure)), shown))


def _beside(made: OverlaidFigure, shown: page.Page) -> OverlaidFigure:
    """Label a figure with what is grey in it or follows it."""
    grey = sorted(grey_marks(spec := made.spec()))
    other, own = shown.beside.machine if shown.beside else "the reference", made.label
    if made.reference and not has_rows_of(spec, "pages", _PAGE_LABEL.match):
        other += _on_pages(made.data, made.reference.data, shown.base_pages[::-1])
        own += _on_pages(made.reference.data, made.data, shown.base_pages)
    of_size = f" {shown.heading}: {own.strip()}." if own else ""
    if grey:
        if all(shown.base_pages):
            name_base_pages(spec, *shown.base_pages)
        label = _IN_GREY.format(list_in_words(grey), other) + of_size
    elif shown.beside:
        label = _BELOW.format(other) + of_size
        made = replace(made, is_followed=True)
    else:
        label = _WITHOUT_GREY.format(", ".join(filter(None, [shown.machine, made.label])))
    label += _notes_on_places(made, spec, shown) + _notes_on_marks(made, spec, shown)
    alt_text = f"{label} On the reference machine: {made.alt}"
    return replace(made, alt=alt_text, label=label, made=spec)


def _notes_on_places(made: OverlaidFigure, spec: dict[str, Any], shown: page.Page) -> str:
    """Say which marks at places along an axis are of the page's own machine alone."""
    published = _committed_output(shown, made.name)
    html = "".join(published.get("data", {}).get("text/html", ""))
    own = own_marks_at_places(spec, html)
    named = sorted(own) if grey_marks(spec) else []
    words = f" {list_in_words(named).capitalize()}: {shown.machine}'s." if named else ""
    words += f" {_FEW_SHADED}" if shown.few_mappings and "shade" in own else ""
    if "vertical dashes" in lacking_marks_at_places(spec, html):
        words += f" {_NO_DASHES}"
    return words


def _notes_on_marks(made: OverlaidFigure, spec: dict[str, Any], shown: page.Page) -> str:
    """Say which marks are of few mappings or none."""
    notes = []
    star = FEW_MAPPINGS_MARK.strip() if has_marked_numbers(spec) else ""
    few = shown.few_mappings.capitalize()
    if has_hollow_points(spec):
        notes.append(_OF_FEW.format(" or ".join(filter(None, ["Hollow", star]))))
    elif few and has_few_mappings(made.data) is not False:
        notes.append(f"{few}{f' ({star})' if star else ''}: no intervals, may be far off.")
    elif star:
        notes.append(_OF_FEW.format(star))
    return "".join(f" {note}" for note in notes) + _notes_on_gaps(spec)


def _notes_on_gaps(spec: dict[str, Any]) -> str:
    """Say how a figure draws where nothing was measured between points."""
    dotted = f" {_DOTTED}" if has_dotted_gaps(spec) else ""
    return f"{dotted} {_BROKEN}" if has_breaks(spec) else dotted


def _on_pages(own: pd.DataFrame, theirs: pd.DataFrame, bases: tuple[str, str]) -> str:
    """Name the page sizes of another machine's figure if this one has others in place of some, or
    its base pages are others. bases: the sizes of its base pages and of this one's, "" if they are
    alike."""
    here, there = (
        dict.fromkeys(
            page_words(one) if one in PAGE_KINDS else f"{one} pages"
            for one in data.get("pages", ())
            if one in PAGE_KINDS or _PAGE_LABEL.match(str(one))
        )
        for data in (own, theirs)
    )
    if bases[0]:
        base = dict.fromkeys([page_words(BASE_PAGES), *(f"{size} pages" for size in bases)])
        named = [f"{bases[0]} pages" if one in base else one for one in there]
        return f" on {list_in_words(dict.fromkeys(named or [f'{bases[0]} pages']))}"
    has_others = there.keys() - here.keys() and here.keys() - there.keys()
    return f" on {list_in_words(there)}" if has_others else ""


def _over(own: Figure, theirs: Figure, size: str, shown: page.Page) -> Figure:
    """Return a figure over another machine's, unless it has the same data."""
    if own.csv() == theirs.csv():
        return _labelled(own, _PUBLISHED) if shown.is_this else own
    return _beside(OverlaidFigure(**vars(own), reference=theirs, label=size), shown)


def _of_machines(figure: Figure, shown: page.Page) -> Figure:
    """Label a figure that names each machine."""
    names = figure.data.filter(items=sorted(MACHINE_COLUMNS))
    is_among = any(THIS_COMPUTER_LABEL in str(name) for name in names.to_numpy().flat)
    if not is_among:
        return _labelled(figure, _PUBLISHED)
    star = FEW_MAPPINGS_MARK.strip() if has_marked_numbers(spec := figure.spec()) else ""
    few = ", ".join(filter(None, [shown.few_mappings, star]))
    few = f" ({few}: no intervals, may be far off)" if shown.few_mappings else ""
    published = Store(ROOT / "data")  # beside the committed text
    reference = published.reference(shown.notebook)
    words = machine_display_name(published, reference).partition(",")[0]
    label = _IN_PLACE.format(words, few)
    if any(words in str(name) for name in names.to_numpy().flat):
        label = _AMONG_OTHERS.format(few)
    dotted = f" {_DOTTED_ITSELF}" if has_dotted_lines(spec) else ""
    return _labelled(figure, label + dotted + _notes_on_gaps(spec))


def _labelled(figure: Figure, label: str) -> Figure:
    """Return a figure that lies over no other, with a line below it that says whose it is."""
    return OverlaidFigure(**vars(figure), label=label, made=figure.spec())


def shows_its_machine(html: str) -> bool:
    """Return whether what a page shows is of its own machine: no figure of the reference that is
    dimmed, nor one of published machines alone."""
    return "tlb-borrowed" not in html and escape(_PUBLISHED) not in html


def _without_noise(data: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a chart without those of too few mappings whose median is below zero: no
    cost is."""
    if not {"median", "n"} <= {*data}:
        return data
    return data[~((data["median"] < 0) & (data["n"] < FEWEST_MAPPINGS_WITH_INTERVAL))]


def _table_beside(shown: page.Page, name: str) -> pd.DataFrame | None:
    """Return what a figure draws of the machine beside, of the reference as in the committed
    notebook."""
    if shown.beside:
        table = shown.beside.tables.get(name)
        return None if table is None or table.empty else table
    kept = _committed_output(shown, name).get("metadata", {}).get("tlb", {})
    return pd.read_csv(io.StringIO(kept["csv"])) if kept else None


def _committed_output(shown: page.Page, name: str) -> dict[str, Any]:
    """Return the output of the committed notebook that has a figure; {} if none has."""
    for cell in page.notebook_cells(shown.notebook):
        for output in cell.outputs:
            if output.get("metadata", {}).get("tlb", {}).get("figure") == name:
                return output
    return {}


# --- quantities


_MOST_UNFOLDED = 10  # rows of a table that is read beside its chapter
_DASH_WORDS = "– not measured, or not enough of it: the reasons"
_NOT_MEASURED = Html(
    '<p class="tlb-few">Nothing of this is known of this computer yet. For a program of your own, '
    'run <a href="your_program.html#what-to-do"><code>tlb try</code></a>.</p>',
    "Nothing of this is known of this computer yet. For a program of your own, run tlb try.",
)


def quantities_of(chapter: Chapter, kind: type[_Quantities]) -> tuple[_Quantities, _Quantities]:
    """Return the quantities of the page's machine, still to be recorded, and those of the
    reference, which are the same on its own page."""
    own = kind()
    own.is_short = chapter.is_this and chapter.profile.max_working_set < LEAST_SWEEP_BYTES
    own.is_own, own.notes = chapter.is_this, chapter.notes
    own.lacking_pages = lacking_page_kinds(chapter.host)
    return own, own if chapter.is_reference else kind(chapter.kept_quantities("reference"))


@dataclass(frozen=True)
class QuantitiesTable:
    """A table of quantities, which the notebook keeps as data too."""

    chapter: str
    table: Html
    found: Quantities

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.table._repr_mimebundle_(), {
            "tlb": {QUANTITIES_DOCUMENT: {self.chapter: self.found.kept}}
        }


def on_this_computer(own: _Quantities, reference: _Quantities) -> QuantitiesTable:
    """Return the table of a chapter's quantities: of this computer, or another machine, beside the
    reference or the page's machine beside. Raises PageError for one that no cell recorded."""
    shown = page.current_page()
    shown.quantities = own
    beside: Quantities = reference
    if shown.beside:
        beside = shown.beside.quantities or type(own)()
    if own.missing:
        raise page.PageError(f"{shown.place}: no cell recorded {', '.join(own.missing)}")
    is_measured = any(one.interval for _, one in own)
    if shown.head and not is_measured:
        shown.head.say_nothing_is_measured()
    sides: list[Quantities] = [beside]
    if own is not beside and is_measured:
        sides.append(own)
    heads = [shown.beside.machine if shown.beside else "Reference machine"]
    if len(sides) > 1:
        bases = (f", {size} base pages" if size else "" for size in reversed(shown.base_pages))
        pairs = zip([*heads, _head_of(shown)], bases, strict=True)
        heads = [head + base for head, base in pairs]
    heads = ["Quantity", *heads, "Mappings"]
    found = {name: [side.of(side.declared[name]) for side in sides] for name, _ in own}
    rows = [row for row in found.values() if any(one.interval for one in row)]
    table = _table(heads, rows)
    is_folded = shown.is_reference or not is_measured
    if shown.is_this and not is_measured:
        table += _NOT_MEASURED
    if is_folded and len(rows) > _MOST_UNFOLDED:
        summary = f"{len(rows)} quantities"
        folded = f"<details><summary>{summary}</summary>{table.markup}</details>"
        table = Html(folded, table.text)
    return QuantitiesTable(shown.notebook, table, own)


def _head_of(shown: page.Page) -> str:
    """Return the head of the column of a page's own machine."""
    if shown.is_this:
        return "This computer"
    return shown.machine if shown.beside else "This machine"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Quantity]]) -> Html:
    cells = [
        [
            sides[-1].label,
            *(one.cell for one in sides[:-1]),
            sides[-1].cell_beside(sides[:-1]),
            _mappings(sides[-1]),
            "" if (why := sides[-1].lacking) is None else explain_reason(why.code, why.detail),
        ]
        for sides in rows
    ]
    head = format_each_as_html('<th scope="col">{}</th>', heads)
    body = Markup("").join(
        Markup('<tr title="{}">{}</tr>').format(reason, format_each_as_html("<td>{}</td>", texts))
        for *texts, reason in cells
    )
    table = Markup(
        '<div class="tlb-table tlb-data"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, body)
    text = "\n".join("\t".join(line) for line in [list(heads), *(texts for *texts, _ in cells)])
    made = Html(str(table), text)
    if any(FEW_MAPPINGS_MARK in cell for *texts, _ in cells for cell in texts):
        made += FEW_MAPPINGS_NOTE
    is_own = len(heads) > 3  # beside the reference
    reasons = Counter(
        explain_reason(why.code)
        for *_, own in rows
        if is_own and own.cell == ABSENT_CELL and (why := own.lacking)
    )
    return made + _dash_note(reasons) if reasons else made


def _dash_note(reasons: Counter[str]) -> Html:
    """Return the reasons for dashes, with the number of rows of each, for readers who cannot point
    at a row."""
    each = [f"{reason} ({number})" for reason, number in reasons.most_common()]
    items = format_each_as_html("<li>{}</li>", map(inline_html, each))
    note = Markup(
        '<details class="tlb-few"><summary><small>{}</small></summary><ul>{}</ul></details>'
    )
    return Html(str(note.format(_DASH_WORDS, items)), "\n".join([_DASH_WORDS, *each]))


def _mappings(quantity: Quantity) -> str:
    return str(quantity.mappings) if quantity.mappings else ""


# --- claims


def judge(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> None:
    """Show a chapter's claims as a table, and keep the answers in the notebook. The page of another
    machine than the reference has only those that its rows decide, or leave open though they are
    enough.

    bands: for a predicate by its name, keywords in place of its defaults, as in `judge(claims,
    analysis, price_is_flat={"most": 1.1})`.
    """
    shown, found = page.current_page(), chapter_verdicts(module, a, **bands)
    answers = {verdict.claim.id: verdict.answer.kept for verdict in found}
    beyond = untestable_statements(a.chapter)
    table = (
        verdict_table(found, beyond, decided_elsewhere(a.about.machine)) + _second_run(found, a)
        if shown.is_reference
        else table_of_answered_verdicts(found, beyond, shown.heading)
    )
    shown.put(ClaimsTable(table, {shown.notebook: answers}))


def _second_run(found: Sequence[Verdict], a: Analysis) -> Html:
    """Say how many of the verdicts that an interval decides a second run of the machine reaches again
    (data/README.md), nothing where there was none."""
    path = a.about.store.root / "second_run" / f"{a.about.machine}.parquet"
    first = {one.claim.id: one.verdict for one in found if one.effects and one.is_decided}
    if not first or not path.is_file():
        return Html("", "")
    again = pd.read_parquet(path).dropna(subset="claim").set_index("claim")["second_verdict"]
    again = again[again.index.isin(first)]
    same = sum(first[str(id)] == verdict for id, verdict in again.items())
    words = (
        f"Of the {len(first)} that an interval decides, a second run decides {same} alike, "
        f"{len(again) - same} otherwise, and leaves {len(first) - len(again)} open "
        "(<a href='method.html#what-a-second-run-has-to-show'>method</a>)."
    )
    return Html(f'<p class="tlb-chance">{words}</p>', Markup(words).striptags())


@dataclass(frozen=True)
class ClaimsTable:
    """A table of verdicts, with the answers that they follow from as data, by chapter and claim."""

    table: Html
    answers: dict[str, dict[str, Any]]

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.table._repr_mimebundle_(), {"tlb": {ANSWERS_DOCUMENT: self.answers}}


def recorded(notebook: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return what an executed notebook's outputs keep, by chapter: QUANTITIES_DOCUMENT or ANSWERS."""
    found: dict[str, dict[str, Any]] = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            kept = output.get("metadata", {}).get("tlb", {}).get(kind, {})
            for chapter, named in kept.items():
                found.setdefault(chapter, {}).update(named)
    return found
