"""The page of all claims: each with its verdict and number on every published machine, from the
answers that the chapters recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tlb.measure.store import Store
from tlb.report import all_machines, page, quantities
from tlb.report.all_machines import NOT_MEASURED_CELL, prediction_in_words, verdict_cell
from tlb.report.answers import ClaimDecision, StoredAnswer
from tlb.report.card import THIS_COMPUTER_LABEL
from tlb.report.claims import PublishedStatement, source_names, statements
from tlb.report.notebooks import chapter_names_in_order
from tlb.report.quantities import QuantityDeclaration
from tlb.report.render import Html, format_each_as_html, inline_html
from tlb.report.verdicts import (
    CSS_CLASS_BY_VERDICT,
    RECOMPUTED_CLAIM_STATUS,
    UNDECIDABLE,
    UNTESTABLE_HERE,
    claim_anchor,
    shown_verdict,
)
from tlb.system.files import ROOT
from tlb.system.units import with_thousands


class ClaimsPageQuantities(quantities.Quantities):
    """Numbers of published claims."""

    claims = QuantityDeclaration("claims judged by what machines show", "")
    testable = QuantityDeclaration("claims that a published machine can test", "")
    decided = QuantityDeclaration("claims that a published machine decides", "")
    hold = QuantityDeclaration("claims that hold on this machine", "")
    fail = QuantityDeclaration("claims that fail on it", "")
    undecided = QuantityDeclaration("claims for which it cannot tell", "")
    untestable = QuantityDeclaration("claims that it cannot test", "")
    several = QuantityDeclaration("claims that two machines or more decide", "")
    disagree = QuantityDeclaration("claims that hold on one machine and fail on another", "")
    hold_by_interval = QuantityDeclaration("claims that hold on it by a measured interval", "")
    fail_by_interval = QuantityDeclaration("claims that fail on it by a measured interval", "")
    number_hold = QuantityDeclaration("of these that hold, claims that predict a number", "")
    number_fail = QuantityDeclaration("of these that fail, claims that predict a number", "")
    recomputed = QuantityDeclaration("claims recomputed from numbers alone", "")
    recomputed_hold = QuantityDeclaration("claims of these that hold", "")
    direction = QuantityDeclaration("claims that predict a direction only", "")
    direction_hold = QuantityDeclaration("claims of these that hold on this machine", "")
    by_interval = QuantityDeclaration("claims that this machine judges by an interval", "")
    statements = QuantityDeclaration("statements that we read in the sources", "")
    beyond = QuantityDeclaration("statements that no measurement here can decide", "")
    arithmetic = QuantityDeclaration("statements that are arithmetic", "")
    repeated = QuantityDeclaration("statements that repeat another", "")
    no_claim = QuantityDeclaration("statements that cannot fail", "")


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with the answers of the machines that have one, by the machine's name."""

    statement: PublishedStatement
    answers: Mapping[str, StoredAnswer]

    @property
    def decisions(self) -> dict[str, ClaimDecision]:
        return {name: answer.decide() for name, answer in self.answers.items()}

    @property
    def words(self) -> list[str]:
        """The verdicts of the machines that measured what it needs."""
        found = self.decisions.values()
        return [one.verdict for one in found if one.is_decided or one.effects]

    @property
    def is_recomputed(self) -> bool:
        """Whether it follows from numbers alone, so that no machine tests it."""
        return self.statement.status == RECOMPUTED_CLAIM_STATUS

    @property
    def is_testable(self) -> bool:
        """Whether any machine measured what it needs."""
        return bool(self.words)

    @property
    def is_decided(self) -> bool:
        return bool({"holds", "fails"} & {*self.words})

    @property
    def machines_disagree(self) -> bool:
        return {"holds", "fails"} <= {*self.words}


class Scorecard:
    """All claims with a verdict, in the order of the chapters.

    judged: those that machines decide, without the recomputed ones. machines: the columns. ids: of
    the machines, by name. shown: the machine that the page is about, the reference or this computer.
    """

    def __init__(self) -> None:
        answers = all_machines.answers_by_machine()
        self.machines = [*answers]
        published = all_machines.published_names(Store(ROOT / "data"))
        self.ids = {name: machine for machine, name in published.items()} | {
            THIS_COMPUTER_LABEL: "this"
        }
        self.shown = THIS_COMPUTER_LABEL if THIS_COMPUTER_LABEL in answers else self.machines[0]
        order = chapter_names_in_order()
        with_verdict = [one for one in statements().values() if one.has_verdict]
        self.claims = [
            JudgedClaim(
                one, {name: found[one.id] for name, found in answers.items() if one.id in found}
            )
            for one in sorted(with_verdict, key=lambda one: order.index(one.where))
        ]
        self.judged = [claim for claim in self.claims if not claim.is_recomputed]

    def counts(self) -> dict[str, float]:
        """Return the numbers of claims that the page's text quotes, by name of ClaimsPageQuantities."""
        shown = [claim.decisions.get(self.shown) for claim in self.judged]
        words = Counter(one.verdict if one else "" for one in shown)
        by_interval = [one.verdict for one in shown if one and one.is_of_interval]
        with_number = self._verdicts_on_numbers()
        recomputed = [claim.words for claim in self.claims if claim.is_recomputed]
        kinds = Counter(statement.status for statement in statements().values())
        directions = [
            claim.decisions.get(self.shown)
            for claim in self.judged
            if claim.statement.predicts_direction_only
        ]
        several = [claim for claim in self.judged if sum(map(_decides, claim.words)) > 1]
        return {
            "claims": len(self.judged),
            "testable": sum(claim.is_testable for claim in self.judged),
            "decided": sum(claim.is_decided for claim in self.judged),
            "hold": words["holds"],
            "fail": words["fails"],
            "undecided": words["cannot tell"],
            "untestable": words[UNTESTABLE_HERE],
            "hold_by_interval": by_interval.count("holds"),
            "fail_by_interval": by_interval.count("fails"),
            "number_hold": with_number.count("holds"),
            "number_fail": with_number.count("fails"),
            "recomputed": len(recomputed),
            "recomputed_hold": sum("holds" in words for words in recomputed),
            "direction": len(directions),
            "direction_hold": sum(one.verdict == "holds" for one in directions if one),
            "several": len(several),
            "disagree": sum(claim.machines_disagree for claim in several),
            "by_interval": len(by_interval),
            "statements": kinds.total(),
            "beyond": kinds["not testable"],
            "arithmetic": kinds["arithmetic"],
            "repeated": kinds["said again"],
            "no_claim": kinds["no claim"],
        }

    def _verdicts_on_numbers(self) -> list[str]:
        """Return the verdicts of the shown machine, by an interval, on claims that predict a number."""
        shown = (
            claim.decisions.get(self.shown)
            for claim in self.judged
            if not claim.statement.predicts_direction_only
        )
        return [one.verdict for one in shown if one and one.is_of_interval]


def _decides(word: str) -> bool:
    return word in ("holds", "fails")


# --- tables

# The page that re-runs a source, by the source's key.
RERUNS = {
    "padho_tlb": "rerun_translation_costs",
    "matthews_tlbperf": "rerun_graph_walk",
    "shipilev_thp": "rerun_large_pages",
    "dawson_5level": "rerun_five_levels",
    "elimelt_tlb": "rerun_strides",
}
UNMEASURED = "unmeasured"
DISAGREE = "apart"  # marks a claim that holds on one machine and fails on another
_TABLE = (
    '<div class="tlb-table tlb-by-machine"><table class="tlb-claims"><thead><tr>{}</tr></thead>{}'
    "</table></div>"
)
_HEAD = '<th scope="col">{}</th>'


def verdict_counts(card: Scorecard) -> Html:
    """Return the number of each verdict by machine, and of claims without an answer if there are
    any. The page of machines links to these rows."""
    counts = {name: _counted_verdicts(card, name) for name in card.machines}
    words = [*CSS_CLASS_BY_VERDICT]
    if any(found[NOT_MEASURED_CELL] for found in counts.values()):
        words.append(NOT_MEASURED_CELL)
    body, lines = Markup(""), ["\t".join(["machine", *words])]
    for name, found in counts.items():
        numbers = [found[word] for word in words]
        row = '<tr id="verdicts-{}"><th scope="row">{}</th>{}</tr>'
        cells = format_each_as_html(
            '<td class="tlb-number">{}</td>', [(number,) for number in numbers]
        )
        body += Markup(row).format(card.ids[name], name, cells)
        lines.append("\t".join([name, *map(str, numbers)]))
    head = format_each_as_html(_HEAD, [(word,) for word in ["machine", *words]])
    table = (
        '<div class="tlb-table"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    )
    return Html(str(Markup(table).format(head, body)), "\n".join(lines))


def _counted_verdicts(card: Scorecard, machine: str) -> Counter[str]:
    return Counter(
        shown_verdict(claim.decisions[machine], claim.statement)
        if machine in claim.answers
        else NOT_MEASURED_CELL
        for claim in card.judged
    )


# --- each claim


def headline_claims(card: Scorecard, explained: Mapping[str, Mapping[str, str]]) -> Html:
    """Return the claims that the page explains (by id, why, by verdict), an item each: the verdict of
    the reference, which the explanation is about and which the item names, and below it those of
    the others, this computer's first."""
    items, lines = [], []
    for claim in card.claims:
        if claim.statement.id not in explained:
            continue
        reference, *others = card.machines
        decision = claim.decisions.get(reference)
        mark = _cell(claim, reference, is_summary=True)[1]
        words = {name: _cell(claim, name, is_summary=True)[1].striptags() for name in others}
        own = words.pop(THIS_COMPUTER_LABEL, "")
        below = "; ".join(f"{name}: {each}" for name, each in words.items())
        lasts = [f"This computer: {own}" if own else "", below]
        why = explained[claim.statement.id].get(decision.verdict, "") if decision else ""
        quote = _link(claim.statement), _source(claim.statement)
        last = format_each_as_html("<p><small>{}.</small></p>", filter(None, lasts))
        items.append((_css(claim, reference), *quote, mark, inline_html(why), last))
        lines.append(f"Reference: {mark.striptags()}: {claim.statement.quote}")
    each = '<li data-is="{}"><p>{} {}</p><p>Reference: {}</p><p>{}</p>{}</li>'
    markup = f'<ul class="tlb-cards tlb-scorecard">{format_each_as_html(each, items)}</ul>'
    return Html(markup, "\n".join(lines))


def claims_by_machine(card: Scorecard) -> Html:
    """Return all claims, a row each with a column a machine, to be chosen from by chapter and by the
    verdict of the machine that the page is about."""
    groups, lines = Markup(""), ["\t".join(["Claim", *card.machines])]
    for chapter, found in groupby(card.claims, key=lambda claim: claim.statement.where):
        rows = [*found]
        head = Markup(
            '<tr><th scope="rowgroup" colspan="{}"><a href="{}.html">{}</a></th></tr>'
        ).format(len(card.machines) + 1, chapter, _title(chapter))
        body = Markup("").join(_row(claim, card) for claim in rows)
        groups += Markup('<tbody data-chapter="{}">{}{}</tbody>').format(chapter, head, body)
        lines += [_line(claim, card) for claim in rows]
    heads = format_each_as_html(_HEAD, [(head,) for head in ["Claim", *card.machines]])
    table = Markup('<div class="tlb-scorecard">{}{}</div>').format(
        _filter(card), Markup(_TABLE).format(heads, groups)
    )
    return Html(str(table), "\n".join(lines))


def _row(claim: JudgedClaim, card: Scorecard) -> Markup:
    answers = [claim.answers.get(name) for name in card.machines]
    cells = all_machines.cells_by_machine(claim.statement, answers, card.machines)
    band = prediction_in_words(claim.statement)
    row = '<tr data-is="{}"><td>{} <small>{}{}</small></td>{}</tr>'
    where = _source(claim.statement)
    return Markup(row).format(
        _css(claim, card.shown), _link(claim.statement), where, f"; {band}" if band else "", cells
    )


def _line(claim: JudgedClaim, card: Scorecard) -> str:
    cells = [_cell(claim, name)[1].striptags() for name in card.machines]
    return "\t".join([claim.statement.quote, *cells])


def _cell(claim: JudgedClaim, machine: str, *, is_summary: bool = False) -> tuple[str, Markup]:
    return verdict_cell(claim.statement, claim.answers.get(machine), is_summary=is_summary)


def _css(claim: JudgedClaim, machine: str) -> str:
    """Return the classes of a claim by a machine's verdict, by which it is coloured and chosen."""
    decision = claim.decisions.get(machine)
    word = shown_verdict(decision, claim.statement) if decision else ""
    css = CSS_CLASS_BY_VERDICT.get(word, UNMEASURED)
    css = RECOMPUTED_CLAIM_STATUS if claim.is_recomputed else css
    return f"{css} {DISAGREE}" if claim.machines_disagree else css


def _source(statement: PublishedStatement) -> Markup:
    return Markup('<a class="tlb-source" href="references.html">{}</a>, {}').format(
        source_names().get(statement.source, statement.source), statement.place
    )


def _link(statement: PublishedStatement) -> Markup:
    """Return the quotation as a link to where it is judged: into the page that re-runs its source if
    that shows it, else into the chapter."""
    anchor, where = claim_anchor(statement.id), statement.where
    rerun = RERUNS.get(statement.source, "")
    if rerun and f'id="{anchor}"' in _outputs(rerun):
        where = rerun
    fragment = "" if statement.status == "arithmetic" else f"#{anchor}"
    return Markup('<a href="{}.html{}">“{}”</a>').format(
        where, fragment, inline_html(statement.quote)
    )


def _outputs(notebook: str) -> str:
    """Return the HTML that a committed notebook shows."""
    outputs = (output for cell in page.notebook_cells(notebook) for output in cell.outputs)
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)


def _title(chapter: str) -> str:
    """The heading of a chapter's page."""
    return page.notebook_cells(chapter)[0].source.splitlines()[0].removeprefix("# ")


# --- the filter: two lists and rules of style, so that it works without a script, and without style
# all rows show


def _filter(card: Scorecard) -> Markup:
    chapters = Counter(claim.statement.where for claim in card.claims)
    marks = Counter(mark for claim in card.claims for mark in _css(claim, card.shown).split())
    words = {css: word for word, css in CSS_CLASS_BY_VERDICT.items()}
    words |= {
        UNMEASURED: NOT_MEASURED_CELL,
        DISAGREE: "machines disagree",
        RECOMPUTED_CLAIM_STATUS: RECOMPUTED_CLAIM_STATUS,
    }
    by_chapter = {
        name: f"{_title(name).partition(':')[0]} ({with_thousands(number)})"
        for name, number in chapters.items()
    }
    by_verdict = {
        css: f"{word} ({with_thousands(marks[css])})" for css, word in words.items() if marks[css]
    }
    rules = [
        *_rules(by_chapter, "tbody:not([data-chapter='{0}'])"),
        *_rules(
            by_verdict, "tbody:not(:has([data-is~='{0}'])), {1} tr[data-is]:not([data-is~='{0}'])"
        ),
    ]
    return Markup('<style>{}</style><p class="tlb-filter">{} {}</p>').format(
        Markup("".join(rules)),
        _choice("Chapter", by_chapter),
        _choice(f"Verdict of {card.shown}", by_verdict),
    )


def _rules(values: Mapping[str, str], hidden: str) -> list[str]:
    """Return a rule a value that hides what is not of it while it is chosen. The values are names
    of this book, no two of which are the same."""
    chosen = [f".tlb-scorecard:has(option[value='{value}']:checked)" for value in values]
    return [
        f"{where} {hidden.format(value, where)}{{display:none}}"
        for where, value in zip(chosen, values, strict=True)
    ]


def _choice(label: str, values: Mapping[str, str]) -> Markup:
    options = format_each_as_html('<option value="{}">{}</option>', values.items())
    return Markup(
        '<label>{} <select autocomplete="off"><option value="">all</option>{}</select></label>'
    ).format(label, options)


# --- what is not judged


def unjudged_statements() -> Html:
    """Return, to unfold, what no measurement decides, what is arithmetic, and what is said again."""
    titles = {
        "not testable": UNDECIDABLE,
        "arithmetic": "Arithmetic",
        "said again": "Repeats another statement",
        "no claim": "Cannot fail: captions, definitions and truisms",
    }
    parts, lines = [], []
    for status, title in titles.items():
        rows = [row for row in statements().values() if row.status == status]
        items = [(_sentence(row), _source(row), _note(row)) for row in rows]
        parts.append((title, len(rows), format_each_as_html("<li>{} {}{}</li>", items)))
        lines.append(f"{title}: {len(rows)}")
    folds = format_each_as_html("<details><summary>{}: {}</summary><ul>{}</ul></details>", parts)
    return Html(f'<div class="tlb-beyond">{folds}</div>', "\n".join(lines))


def _sentence(row: PublishedStatement) -> Markup:
    return (
        Markup("“{}”").format(inline_html(row.quote))
        if row.status in ("said again", "no claim")
        else _link(row)
    )


def _note(row: PublishedStatement) -> Markup:
    if row.status == "said again":
        return Markup(": the same as {}").format(_link(statements()[row.where]))
    return Markup(": {}").format(inline_html(row.note)) if row.note else Markup("")
