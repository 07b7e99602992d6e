"""An experiment, and the verdicts on claims, on every published machine at once: for the pages that
re-run the sources, and for the page of all claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite

import pandas as pd
from markupsafe import Markup

from tlb.machine import host as hosts
from tlb.measure.store import Store, data_root
from tlb.report import page as pages
from tlb.report.answers import ANSWERS_DOCUMENT, ClaimDecision, StoredAnswer
from tlb.report.chapter import Chapter
from tlb.report.claims import Statement, statements
from tlb.report.names import THIS_COMPUTER, short_machine_names
from tlb.report.quantities import FEW_MAPPINGS_MARK, QUANTITIES_DOCUMENT
from tlb.report.render import Html, inline_html, join_html
from tlb.report.verdicts import (
    CSS_CLASS_BY_VERDICT,
    EFFECT_DIGITS,
    claim_anchor,
    effect_words,
    range_words,
    verdict_html,
)
from tlb.stats.effects import Effect
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, if_available
from tlb.system.units import significant_digits

MACHINE_COLUMN = "machine"  # the column that names a row's machine


def rows_on_all_machines(page: Chapter, experiment: str, engine: str = "") -> pd.DataFrame:
    """Return the rows of an experiment of the published machines that have some, with the column
    `machine`. This computer is not among them: a few of its rows, beside tables of all sizes and
    kernels, would be compared with what they are not.

    engine: of kernels with rows of several engines; by default the page's. Nothing is measured.
    Raises Unavailable("no-data") if no machine has rows.
    """
    frames = []
    for name, about in page.published.items():
        try:
            frames.append(about.kept(experiment, engine).assign(**{MACHINE_COLUMN: name}))
        except Unavailable as why:
            if why.code != "no-data":
                raise
    if not frames:
        raise Unavailable("no-data", experiment)
    return pd.concat(frames, ignore_index=True)


def estimates_on_all_machines(page: Chapter, experiment: str) -> pd.DataFrame:
    """Return what a chapter's kept quantities estimate, a row each by its name, and a column for each
    machine; NaN for what a machine lacks."""
    found = {}
    for name, about in page.published.items():
        kept = if_available(about.store.read_document, about.machine, QUANTITIES_DOCUMENT) or {}
        found[name] = {key: one.get("value") for key, one in kept.get(experiment, {}).items()}
    return pd.DataFrame(found, dtype=float)


# --- verdicts

_HEAD = '<th scope="col">{}</th>'
_ROW = '<tr id="{}"><td>“{}” <small>{}</small></td>{}</tr>'
_CELL = '<td title="{}"{}>{}</td>'
_TABLE = (
    '<div class="tlb-table tlb-by-machine"><table><thead><tr>{}</tr></thead>'
    "<tbody>{}</tbody></table></div>"
)
_FOLDED = '<details class="tlb-beyond"><summary>{}</summary>{}</details>'
_SUMMARY_ROW = "<tr><td>{}</td><td>{}</td><td>{}</td></tr>"
_HOW_TO_READ = (
    '<p class="tlb-chance">What <a href="method.html#how-a-claim-is-judged"><em>band</em>, <em>cannot tell</em> and '
    "<em>not testable</em></a> mean.</p>"
)
NOT_MEASURED, NOT_TESTABLE = "not measured", "not testable"
# Why a claim is open, in the few words that a cell has room for.
_REASON_WORDS = {
    "few": "too few mappings",
    "crosses": "crosses the band",
    "widened": "several comparisons",
    "bistable": "mappings in two groups",
    "conditions": "conditions differ",
    "ambiguous": "several explanations fit",
    "too-few-points": "sizes not measured",
    "sweep-short": "sweep too short",
    "no-data": "not measured",
    "control-elsewhere": "control in a nearer cache",
    "splintered": "splintered pages",
    "two-dimensions": "in a guest",
    "no-pmu": "no counters",
    "bare-metal": "needs bare metal",
    "pool-empty": "no pool of huge pages",
    "reach-in-cache": "cache exceeds reach",
    "no-la57": "no 5-level paging",
    "no-five-levels": "no 5-level paging",
}


def judged_on_all_machines(*ids: str) -> Html:
    """Return a table of claims: the quotation with what it predicts, and for each machine the verdict
    with the number that decides it. Those that no machine decides are folded below. What claims.csv
    says to be no claim is left out. Raises KeyError for an id that it lacks."""
    answers = answers_by_machine()
    shown = [one for one in map(statements().__getitem__, ids) if one.status != "no claim"]
    found = {one.id: _answers_to(one, answers) for one in shown}
    decided = [one for one in shown if any(map(_is_decided, found[one.id]))]
    others = [one for one in shown if one not in decided]
    markup = _claims_table(decided, found, [*answers]) if decided else Markup("")
    if others:
        counted = f"{len(others)} {'more ' if decided else ''}that no published machine decides"
        markup += Markup(_FOLDED).format(counted, _claims_table(others, found, [*answers]))
    lines = [["Claim", *answers]]
    for one in [*decided, *others]:
        cells = [verdict_cell(one, answer)[1].striptags() for answer in found[one.id]]
        lines.append([one.quote, *cells])
    return Html(str(markup), "\n".join("\t".join(line) for line in lines))


def _answers_to(
    statement: Statement, answers: Mapping[str, Mapping[str, StoredAnswer]]
) -> list[StoredAnswer | None]:
    """Return each machine's answer to a claim, None where there is none."""
    id = statement.where if statement.status == "said again" else statement.id
    return [found.get(id) for found in answers.values()]


def _is_decided(answer: StoredAnswer | None) -> bool:
    return answer is not None and answer.decide().is_decided


def _claims_table(
    claims: Sequence[Statement],
    answers: Mapping[str, Sequence[StoredAnswer | None]],
    machines: Sequence[str],
) -> Markup:
    rows = [
        (
            claim_anchor(one.id),
            inline_html(one.quote),
            prediction_in_words(one),
            _cells(one, answers[one.id]),
        )
        for one in claims
    ]
    heads = join_html(_HEAD, [(head,) for head in ["Claim", *machines]])
    return Markup(_TABLE).format(heads, join_html(_ROW, rows))


def _cells(statement: Statement, answers: Sequence[StoredAnswer | None]) -> Markup:
    """Return a cell for each machine; one for all where arithmetic, which knows no machine, decides."""
    first = answers[0]
    is_arithmetic = first is not None and first.holds is not None
    if is_arithmetic and all(answer == first for answer in answers):
        title, words = verdict_cell(statement, first)
        return Markup(_CELL).format(title, Markup(f' colspan="{len(answers)}"'), words)
    cells = (verdict_cell(statement, answer) for answer in answers)
    return join_html(_CELL, [(title, "", words) for title, words in cells])


def summary_of_article(*rows: tuple[str, str, str]) -> Html:
    """Return the table that opens a re-run: what the article says, what we find, and on which
    machines the claim holds.

    rows: what the article says, what we find, and the id of the claim. Raises KeyError for an id that
    claims.csv lacks.
    """
    answers = answers_by_machine()
    cells = [
        (inline_html(says), inline_html(finds), verdict_by_machine(statements()[id], answers))
        for says, finds, id in rows
    ]
    heads = ["The article says", "We find", "Verdict"]
    table = Markup(_TABLE).format(
        join_html(_HEAD, [(head,) for head in heads]), join_html(_SUMMARY_ROW, cells)
    )
    lines = [heads, *([*row[:2], cell[2]] for row, cell in zip(rows, cells, strict=True))]
    return Html(str(table + Markup(_HOW_TO_READ)), "\n".join("\t".join(line) for line in lines))


def verdict_by_machine(
    statement: Statement, answers: Mapping[str, Mapping[str, StoredAnswer]]
) -> str:
    """Return "holds: Zen 3, Zen 4; cannot tell: Zen 5", or "holds on all"."""
    machines: dict[str, list[str]] = {}
    for name, answer in zip(answers, _answers_to(statement, answers), strict=True):
        verdict = answer.decide().verdict if answer else NOT_TESTABLE
        machines.setdefault(verdict.removesuffix(" here"), []).append(name)
    if len(machines) == 1:
        (verdict,) = machines
        return f"{verdict} on any" if verdict == NOT_TESTABLE else f"{verdict} on all"
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in machines.items())


def answers_by_machine() -> dict[str, dict[str, StoredAnswer]]:
    """Return the answers to claims that are kept of each machine, by its short name and the claim's
    id: the reference first, and last, on a page about this computer, its own if it has any."""
    store = Store(ROOT / "data")  # beside the committed text, whatever is measured elsewhere
    names = published_names(store)
    found = {name: _kept_answers(store, machine) for machine, name in names.items()}
    if pages.current_page().is_this:
        own = _kept_answers(Store(data_root()).own, hosts.machine_id(hosts.inspect_machine()))
        found |= {THIS_COMPUTER: own} if own else {}
    return found


def published_names(store: Store) -> dict[str, str]:
    """Return the short name of each machine of a store, the reference first."""
    names, first = short_machine_names(store), store.reference()
    return dict(sorted(names.items(), key=lambda item: (item[0] != first, item[0])))


def _kept_answers(store: Store, machine: str) -> dict[str, StoredAnswer]:
    chapters: Mapping = if_available(store.read_document, machine, ANSWERS_DOCUMENT) or {}
    return {
        id: StoredAnswer.model_validate(answer)
        for answers in chapters.values()
        for id, answer in answers.items()
    }


def verdict_cell(statement: Statement, answer: StoredAnswer | None) -> tuple[str, Markup]:
    """Return the evidence as plain text, and as markup the verdict with the number that decides it,
    or why it is open. Of too few mappings there is no verdict, and the estimate alone."""
    if answer is None:
        is_untestable = statement.status == "not testable"
        return "", Markup(NOT_TESTABLE if is_untestable else NOT_MEASURED)
    found = answer.decide()
    css, number = CSS_CLASS_BY_VERDICT[found.verdict], number_words(statement, found)
    if found.reason == "few":
        word = verdict_html(reason_words("few"), css, "few")
        return "", Markup(" ").join([word, *filter(None, [number])])
    word = verdict_html(found.verdict, css, found.reason)
    more = [number, "" if found.is_decided else reason_words(found.reason)]
    return found.evidence, Markup(" ").join([word, *filter(None, more)])


def reason_words(code: str) -> str:
    return _REASON_WORDS.get(code, code.replace("-", " "))


def number_words(statement: Statement, found: ClaimDecision) -> str:
    """Return the estimate that decides a verdict, with its interval if that is of mappings enough:
    of several, the first that has the answer of all; "" if nothing was compared."""
    if not found.effects:
        return ""
    answer = {"holds": True, "fails": False}.get(found.verdict)
    effects = found.effects
    effect = next((one for one in effects if one.decided(len(effects)) is answer), effects[0])
    if found.reason == "few":
        value = significant_digits(effect.interval.value, EFFECT_DIGITS)
        return (
            f"{value}{_unit(statement, effect)}{FEW_MAPPINGS_MARK}"
            if isfinite(effect.interval.value)
            else ""
        )
    return f"{effect_words(effect)}{_unit(statement, effect)}"


def _unit(statement: Statement, effect: Effect) -> str:
    """Return the unit of a claim's band, for an effect that is compared with this band."""
    is_same = (effect.least, effect.most) == statement.band != (-inf, inf)
    return f" {statement.unit}" if is_same and statement.unit not in ("", "ratio", "share") else ""


def prediction_in_words(statement: Statement) -> str:
    """Return "predicts a load from memory: 70 to 80 ns", "" for a claim without a band; of one that no
    measurement here tests, also what would."""
    what_would = statement.note if statement.status == "not testable" else ""
    if not any(map(isfinite, statement.band)):
        return what_would
    unit = "" if statement.unit in ("ratio", "share") else f" {statement.unit}"
    band = f"predicts {statement.quantity}: {range_words(*statement.band)}{unit}"
    return f"{band}; {what_would}" if what_would else band
