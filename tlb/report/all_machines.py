"""An experiment, and the verdicts on claims, on every published machine at once: for the pages that
re-run the sources, and for the page of all claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite
from operator import itemgetter

import pandas as pd
from markupsafe import Markup

from tlb.machine import host as hosts
from tlb.measure.store import Store, data_root
from tlb.report import page as pages
from tlb.report.answers import ANSWERS_DOCUMENT, ClaimDecision, StoredAnswer
from tlb.report.card import THIS_COMPUTER_LABEL, short_machine_names
from tlb.report.chapter import Chapter
from tlb.report.claims import PublishedStatement, statements
from tlb.report.quantities import FEW_MAPPINGS_MARK, QUANTITIES_DOCUMENT
from tlb.report.render import Html, format_each_as_html, inline_html
from tlb.report.verdicts import (
    FAILS_HERE,
    RECOMPUTED_CLAIM_STATUS,
    UNTESTABLE_HERE,
    claim_anchor,
    format_band_in_unit,
    format_effect_in_unit,
    format_exact_in_unit,
    format_median_in_unit,
    format_number_in_unit,
    shown_verdict,
    verdict_in_words,
)
from tlb.stats.effects import Effect
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval
from tlb.system.files import ROOT
from tlb.system.reasons import UNDECIDED_TEXTS, Unavailable, none_if_unavailable
from tlb.system.units import count_with_verb, list_in_words

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
    """Return what a chapter's kept quantities estimate, a row each by its name, and a column of
    intervals for each machine; UNKNOWN_INTERVAL for what a machine lacks."""
    found = {}
    for name, about in page.published.items():
        kept = (
            none_if_unavailable(about.store.read_document, about.machine, QUANTITIES_DOCUMENT) or {}
        )
        found[name] = {
            key: Interval(one["value"], one["low"], one["high"], one.get("coverage", 1.0))
            for key, one in kept.get(experiment, {}).items()
            if "value" in one
        }
    return pd.DataFrame(found, dtype=object).map(
        lambda one: one if isinstance(one, Interval) else UNKNOWN_INTERVAL
    )


# --- verdicts

_HEAD = '<th scope="col">{}</th>'
_ROW = "<tr{}><td>{} <small>{}</small></td>{}</tr>"
_CELL = '<td title="{}"{}>{}</td>'
_TABLE = (
    '<div class="tlb-table tlb-by-machine"><table><thead><tr>{}</tr></thead>'
    "<tbody>{}</tbody></table></div>"
)
_WHY = '<tr class="tlb-why"><td colspan="{}">{}</td></tr>'
_FOLDED = '<details class="tlb-beyond"><summary>{}</summary>{}</details>'
_HOW_TO_READ = (
    '<p class="tlb-chance">In brackets is what a claim predicts. A cell gives the verdict and the measured '
    "number that decides it, as an interval where that is wide. Where the article's words leave open what "
    "to measure, the line below says how we read them. <em>Fails here</em>: a time, or a ratio of two, "
    "that fails on this machine; on its source's it may be right. An asterisk marks fewer "
    'than five mappings. <a href="method.html#how-a-claim-is-judged">What the verdicts mean</a>.</p>'
)
FAILS_THERE = "fails there"  # FAILS_HERE, said of another machine than the page's
DIRECTION_ONLY = "direction only"  # of a claim that any difference to one side supports
NOT_MEASURED_CELL, NOT_TESTABLE = "not measured", "not testable"
# Why a claim is not decided, in the few words that a cell has room for.
_REASON_WORDS = {
    "few": "too few mappings",
    "crosses": "crosses the band",
    "widened": "several comparisons",
    "bistable": "measurements in two groups",
    "conditions": "not under its conditions",
    "ambiguous": "several explanations fit",
    "too-few-points": "not enough measured",
    "sweep-short": "sweep too short",
    "no-data": "not measured",
    "housekeeping-not-asked": "not measured",
    "no-geometry": "TLB's size not stated",
    "unstable": "a difference near zero",
    "control-elsewhere": "control in a nearer cache",
    "splintered": "splintered pages",
    "two-dimensions": "in a guest",
    "no-pmu": "no counters",
    "no-perf": "no counters",
    "bare-metal": "needs bare metal",
    "pool-empty": "no pool of huge pages",
    "no-large-pages": "nothing on large pages",
    "reach-in-cache": "cache exceeds reach",
    "no-five-levels": "no 5-level paging",
}


def judged_on_all_machines(*ids: str) -> Html:
    """Return a folded table of claims: the quotation with what it predicts, and for each machine the
    verdict with the number that decides it; those that no machine decides are last. Raises KeyError
    for an id that claims.csv lacks, ValueError for one that is not judged, as it repeats another."""
    answers = answers_by_machine()
    shown = [statements()[id] for id in ids]
    is_shown = {one.id: one.has_verdict or one.status == "not testable" for one in shown}
    if repeated := [id for id in ids if not is_shown[id]]:
        raise ValueError(
            f"{list_in_words(repeated)}: not judged; show the claims that claims.csv names."
        )
    found = {one.id: _answers_to(one, answers) for one in shown}
    decided = [one for one in shown if any(map(_is_decided, found[one.id]))]
    ordered = [*decided, *(one for one in shown if one not in decided)]
    claims = "1 claim" if len(shown) == 1 else f"{len(shown)} claims"
    counted = f"The article's words and the verdicts: {claims}, {len(decided)} decided"
    markup = Markup(_FOLDED).format(counted, _claims_table(ordered, found, [*answers]))
    lines = [["Claim", *answers]]
    for one in ordered:
        lines.append([one.quote, *_cell_texts(one, found[one.id])])
    return Html(str(markup), "\n".join("\t".join(line) for line in lines))


def _answers_to(
    statement: PublishedStatement, answers: Mapping[str, Mapping[str, StoredAnswer]]
) -> list[StoredAnswer | None]:
    """Return each machine's answer to a claim, None where there is none."""
    return [found.get(statement.id) for found in answers.values()]


def _is_decided(answer: StoredAnswer | None) -> bool:
    return answer is not None and answer.decide().is_decided


def _cell_texts(statement: PublishedStatement, answers: Sequence[StoredAnswer | None]) -> list[str]:
    return [verdict_cell(statement, answer)[1].striptags() for answer in answers]


def _claims_table(
    claims: Sequence[PublishedStatement],
    answers: Mapping[str, Sequence[StoredAnswer | None]],
    machines: Sequence[str],
) -> Markup:
    rows = [
        (
            Markup(' id="{}"').format(claim_anchor(one.id)),
            Markup("“{}”").format(inline_html(one.quote)),
            prediction_in_words(one),
            cells_by_machine(one, answers[one.id], machines),
        )
        for one in claims
    ]
    return _table("Claim", machines, format_each_as_html(_ROW, rows))


def _table(first: str, machines: Sequence[str], body: Markup) -> Markup:
    heads = format_each_as_html(_HEAD, [(head,) for head in [first, *machines]])
    return Markup(_TABLE).format(heads, body)


def cells_by_machine(
    statement: PublishedStatement,
    answers: Sequence[StoredAnswer | None],
    machines: Sequence[str],
    *,
    is_summary: bool = False,
) -> Markup:
    """Return a cell for each machine, one for neighbours that have the same: what arithmetic
    decides, or what none of them can test. is_summary: as of `verdict_cell`."""
    cells = [verdict_cell(statement, answer, is_summary=is_summary) for answer in answers]
    shown = Markup("")
    for (title, words), same in groupby(zip(cells, machines, strict=True), key=itemgetter(0)):
        names = [name for _, name in same]
        width = Markup(' colspan="{}"').format(len(names)) if len(names) > 1 else ""
        # A narrow screen shows the names before the cell, and none before one for all.
        named = Markup(' data-machine="{}"').format(", ".join(names))
        shown += Markup(_CELL).format(
            title, width + (named if len(names) < len(cells) else ""), words
        )
    return shown


def _cell_of_each_machine(
    cells: Sequence[tuple[str, str | Markup]], machines: Iterable[str]
) -> Markup:
    named = [Markup(' data-machine="{}"').format(name) for name in machines]
    return format_each_as_html(
        _CELL, [(title, name, words) for (title, words), name in zip(cells, named, strict=True)]
    )


def summary_of_article(*rows: tuple[str, str, str], more: Sequence[tuple[str, str]] = ()) -> Html:
    """Return the table that opens a re-run: for what the article rests on the verdict with the number
    that decides it, and a sentence of ours; and, folded, the same of `more`, without a sentence, and
    how many of the article's judged claims get which verdict on each machine.

    rows: what the article says, the id of the claim, and the sentence, before which stands how we
    read the article's words where they leave that open. Raises KeyError for an id that
    claims.csv lacks.
    """
    answers = answers_by_machine()
    body, lines = Markup(""), ["\t".join(["The article says", *answers])]
    for says, id, why in rows:
        row, line = _summary_row(says, id, answers, why)
        body += row
        lines += [line, why]
    below = Markup("")
    for says, id in more:
        row, line = _summary_row(says, id, answers)
        below += row
        lines.append(line)
    counts, counted = _count_rows(statements()[rows[0][1]].source, answers)
    words = f"{len(more)} more of its claims, and how many hold on each machine"
    table = _table("The article says", [*answers], body) + Markup(_HOW_TO_READ)
    folded = _table("The article says", [*answers], below + counts)
    markup = table + Markup(_FOLDED).format(words, folded)
    return Html(str(markup), "\n".join([*lines, *counted]))


def _summary_row(
    says: str, id: str, answers: Mapping[str, Mapping[str, StoredAnswer]], why: str = ""
) -> tuple[Markup, str]:
    """Return a row of a re-run's first table, under it how we read the claim and why, if there is
    any of the two, and the row as text."""
    one = statements()[id]
    found = _answers_to(one, answers)
    is_marked = one.predicts_direction_only and one.status != RECOMPUTED_CLAIM_STATUS
    band = format_band_in_unit(*one.band, one.unit) if any(map(isfinite, one.band)) else ""
    small = f"({DIRECTION_ONLY})" if is_marked else f"({band})" if band else ""
    unmarked = one._replace(reading="")  # it stands below
    cells = cells_by_machine(unmarked, found, [*answers], is_summary=True)
    shown = (verdict_cell(unmarked, answer, is_summary=True)[1].striptags() for answer in found)
    row = Markup(_ROW).format("", inline_html(says), small, cells)
    if below := f"{one.reading} {why}".strip():
        row += Markup(_WHY).format(len(answers) + 1, inline_html(below))
    return row, "\t".join([says, *shown])


def _count_rows(
    source: str, answers: Mapping[str, Mapping[str, StoredAnswer]]
) -> tuple[Markup, list[str]]:
    """Return two rows, and the same as text: how many of a source's judged claims get which verdict
    on each machine, and how many of those that predict a number and that an interval answers. A row
    without a verdict is left out."""
    judged = [
        one for one in statements().values() if (one.source, one.status) == (source, "judged")
    ]
    rows, lines = Markup(""), []
    for says, is_by_interval in (
        (f"all {len(judged)} claims judged", False),
        ("those of them that predict a number, judged by an interval", True),
    ):
        counts = [_verdict_counts(judged, found, is_by_interval) for found in answers.values()]
        if not any(counts):
            continue
        counts = [each or "–" for each in counts]
        cells = _cell_of_each_machine([("", each) for each in counts], answers)
        rows += Markup(_ROW).format("", says, "", cells)
        lines.append("\t".join([says, *counts]))
    return rows, lines


def _verdict_counts(
    judged: Sequence[PublishedStatement], found: Mapping[str, StoredAnswer], is_by_interval: bool
) -> str:
    """Return "12 hold, 6 fail, 3 fail here, 8 cannot tell, 5 not testable here", without those of 0;
    "" if there are none.

    is_by_interval: only of claims that predict more than a direction and that a measured interval
    answers.
    """
    if is_by_interval:
        judged = [
            one
            for one in judged
            if one.id in found
            and found[one.id].decide().is_of_interval
            and not one.predicts_direction_only
        ]
    words = Counter(
        shown_verdict(found[one.id].decide(), one) if one.id in found else NOT_MEASURED_CELL
        for one in judged
    )
    verbs = {"hold": words["holds"], "fail": words["fails"], "fail here": words[FAILS_HERE]}
    counts = [count_with_verb(count, verb) for verb, count in verbs.items() if count]
    for word in ("cannot tell", UNTESTABLE_HERE, NOT_MEASURED_CELL):
        counts += [f"{words[word]} {word}"] if words[word] else []
    return ", ".join(counts)


def decided_elsewhere(machine: str) -> dict[str, str]:
    """Return what the other published machines decide, by claim: "Zen 3: fails there: 1.20 times"."""
    names = published_names(Store(ROOT / "data"))
    answers = answers_by_machine()
    others = {name: answers[name] for other, name in names.items() if other != machine}
    found = dict[str, str]()
    for one in statements().values():
        cells = [
            f"{name}: {verdict_cell(one, answer, is_summary=True)[1].striptags()}"
            for name, kept in others.items()
            if (answer := kept.get(one.id)) and _is_decided(answer)
        ]
        if cells:
            found[one.id] = f"{'; '.join(cells)}.".replace(FAILS_HERE, FAILS_THERE)
    return found


def answers_by_machine() -> dict[str, dict[str, StoredAnswer]]:
    """Return the answers to claims that are kept of each machine, by its short name and the claim's
    id: the reference first, and last, on a page about this computer, its own if it has any."""
    store = Store(ROOT / "data")  # beside the committed text, whatever is measured elsewhere
    names = published_names(store)
    found = {name: _kept_answers(store, machine) for machine, name in names.items()}
    if pages.current_page().is_this:
        own = _kept_answers(Store(data_root()).own, hosts.machine_id(hosts.inspect_machine()))
        found |= {THIS_COMPUTER_LABEL: own} if own else {}
    return found


def published_names(store: Store) -> dict[str, str]:
    """Return the short name of each machine of a store, in the order of `machines_in_order`."""
    names = short_machine_names(store)
    return {machine: names[machine] for machine in store.machines_in_order()}


def _kept_answers(store: Store, machine: str) -> dict[str, StoredAnswer]:
    chapters: Mapping = none_if_unavailable(store.read_document, machine, ANSWERS_DOCUMENT) or {}
    return {
        id: StoredAnswer.model_validate(answer)
        for answers in chapters.values()
        for id, answer in answers.items()
    }


def verdict_cell(
    statement: PublishedStatement, answer: StoredAnswer | None, *, is_summary: bool = False
) -> tuple[str, Markup]:
    """Return the evidence as plain text, none of too few mappings, and as markup the verdict with the
    number that decides it, or why there is none. is_summary: one number, in as few words as possible."""
    if answer is None:
        is_untestable = statement.status == "not testable"
        return "", Markup(NOT_TESTABLE if is_untestable else NOT_MEASURED_CELL)
    found = answer.decide()
    word, number = verdict_in_words(found, statement), number_words(statement, found)
    if is_summary and found.effects:
        number = _deciding_number(statement, found) if found.is_decided else ""
    if found.is_decided:
        between = ", " if statement.status == RECOMPUTED_CLAIM_STATUS else ": "
        return found.evidence, Markup(between).join(filter(None, [word, number]))
    if found.reason == "few" or any(one.is_of_few for one in found.effects):
        # its number would be compared
        return "", Markup("{}: {}").format(word, _why_open(found))
    why, title = ", ".join(filter(None, [_why_open(found), number])), found.evidence
    return title, Markup("{}: {}").format(word, why)


def _why_open(found: ClaimDecision) -> str:
    """Return the reason in few words: an undecided fact's own, else that of its code."""
    is_own = not found.effects and found.why not in ("", UNDECIDED_TEXTS.get(found.reason, ""))
    return found.why if is_own else reason_words(found.reason)


def reason_words(code: str) -> str:
    return _REASON_WORDS.get(code, code.replace("-", " "))


MOST_SHOWN = 3  # conditions of a claim that a cell prints; of more, the first that decides


def number_words(statement: PublishedStatement, found: ClaimDecision) -> str:
    """Return what a verdict compares, in its unit, each of a claim's conditions with its name: "335
    (277 to 375) cycles, in 4 GiB". Of a claim that fails, only those that fail. "" if nothing was
    compared or the fact is no number."""
    effects = found.effects
    if not effects:
        if isinstance(found.value, float | int):
            return format_exact_in_unit(found.value, statement.unit)
        return found.value or ""
    answer = {"holds": True, "fails": False}.get(found.verdict)
    deciding = [one for one in effects if one.decided(len(effects)) is answer]
    if len(effects) <= MOST_SHOWN:
        is_of_several = found.verdict == "fails" and len(effects) > 1
        shown = deciding if is_of_several and deciding else effects
        return "; ".join(_effect_words(one, statement, is_of_several) for one in shown)
    if found.verdict == "holds":  # the one that is nearest to failing
        deciding.sort(
            key=lambda one: min(one.interval.low / one.least, one.most / one.interval.high)
        )
    first = _effect_words((deciding or effects)[0], statement)
    return f"in {len(deciding)} of {len(effects)}: {first}"


def _deciding_number(statement: PublishedStatement, found: ClaimDecision) -> str:
    """Return the number of the condition that decides a verdict: of one that fails the farthest
    outside its band, which is given if it is not the claim's; of one that holds the nearest to an
    end. It is an interval where a median says little."""

    def room(effect: Effect) -> float:
        """How far an interval is from the nearer end of its band, over that end; below 0 outside."""
        inside = {effect.least: effect.interval.low - effect.least}
        inside |= {effect.most: effect.most - effect.interval.high}
        return min((d / (abs(end) or 1) for end, d in inside.items() if isfinite(end)), default=0)

    answer = found.verdict == "holds"
    deciding = [one for one in found.effects if one.decided(len(found.effects)) is answer]
    one = min(deciding or found.effects, key=room)
    unit = one.unit or statement.unit
    words = format_median_in_unit(one, unit)
    if (one.least, one.most) != statement.band:
        return _with_condition(one, words, format_band_in_unit(one.least, one.most, unit))
    return _with_condition(one, words)


def _with_condition(effect: Effect, number: str, band: str = "") -> str:
    """Return a number, which the verdict is about, then what it is of, then what was predicted."""
    predicted = f"predicted {band}" if band else ""
    return ", ".join(filter(None, [number, effect.what.rstrip(":,"), predicted]))


def _effect_words(effect: Effect, statement: PublishedStatement, has_band: bool = False) -> str:
    """Return an effect with its name and unit, and its band if has_band or where that is not the
    claim's. Of too few mappings it is the estimate alone."""
    unit = effect.unit or statement.unit
    words = format_effect_in_unit(effect, unit)
    if effect.is_of_few:
        words = f"{format_number_in_unit(effect.interval.value, unit)}{FEW_MAPPINGS_MARK}"
    band = effect.least, effect.most
    if effect.what and (has_band or band != statement.band):
        return _with_condition(effect, words, format_band_in_unit(*band, unit))
    return _with_condition(effect, words)


def prediction_in_words(statement: PublishedStatement) -> str:
    """Return "predicts a load from memory: 70 to 80 ns", "" for a claim without a band; also how we
    read it, or of one that no measurement here tests what would."""
    more = statement.note if statement.status == "not testable" else statement.reading
    if not any(map(isfinite, statement.band)):
        return more
    band = f"predicts {statement.quantity}: {format_band_in_unit(*statement.band, statement.unit)}"
    if statement.predicts_direction_only:
        band += f" ({DIRECTION_ONLY})"
    return f"{band}. {more}" if more else band
