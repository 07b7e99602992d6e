"""The scorecard's cards and tables: verdicts by machine, each claim, and what is not judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isinf

from markupsafe import Markup

from experiments.overview.scorecard import (
    CSS_CLASS_BY_WORD,
    MACHINES_DISAGREE,
    MEASURED_DIFFERENTLY,
    UNMEASURED,
    Analysis,
)
from tlb.report.claims import source_names
from tlb.report.render import Html, inline, join
from tlb.report.verdicts import Statement, claim_anchor, range_words, statements, verdict_html
from tlb.system.prose import count
from tlb.system.reasons import REASONS

# Why a claim is undecided or cannot be tested, in the few words that a row has room for.
_SHORT = {
    "few": "too few mappings",
    "crosses": "crosses the band",
    "widened": "several comparisons",
    "bistable": "mappings in two groups",
    "conditions": "conditions differ",
    "ambiguous": "several explanations fit",
    "too-few-points": "sizes not measured",
    "sweep-short": "sweep too short",
    "no-data": "not measured",
    "housekeeping-not-asked": "measured on other machines only",
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


def counts(a: Analysis) -> Html:
    """Return the number of each verdict by machine. The page of machines links to these rows."""
    label = "this computer" if a.own else "the reference machine"
    here = {"this" if a.own else a.about.machine: (label, a.rows["verdict"])}
    here |= {name: (label, a.rows[name]) for name, label in a.others.items()}
    words = [
        word for word in CSS_CLASS_BY_WORD if any((rows == word).any() for _, rows in here.values())
    ]
    head = join('<th scope="col">{}</th>', ["machine", *words])
    body, lines = Markup(""), ["\t".join(["machine", *words])]
    for name, (label, rows) in here.items():
        numbers = [int((rows == word).sum()) for word in words]
        cells = join('<td class="tlb-number">{}</td>', numbers)
        body += Markup('<tr id="verdicts-{}"><th scope="row">{}</th>{}</tr>').format(
            name, label, cells
        )
        lines.append("\t".join([label, *map(str, numbers)]))
    table = (
        '<div class="tlb-table"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    )
    return Html(str(Markup(table).format(head, body)), "\n".join(lines))


# --- each claim


def cards(a: Analysis, explained: Mapping[str, Mapping[str, str]]) -> Html:
    """Return the claims that the page explains (by id, why, by verdict), a card each."""
    rows = a.rows.set_index("id", drop=False).loc[[*explained]].to_dict("records")
    items = []
    for row in rows:
        word, statement = row["verdict"], statements()[row["id"]]
        why = inline(explained[str(row["id"])].get(word, ""))
        items.append(
            (
                CSS_CLASS_BY_WORD[word],
                _mark(row),
                _link(statement),
                _source(statement),
                why,
                _shown(row),
            )
        )
    card = '<li data-is="{}"><p>{}</p><p>{} {}</p><p>{}</p><p><small>{}</small></p></li>'
    lines = "\n".join(f"{row['verdict'].upper()}: {row['id']}" for row in rows)
    return Html(f'<ul class="tlb-cards tlb-scorecard">{join(card, items)}</ul>', lines)


def claims(a: Analysis, without: Collection[str]) -> Html:
    """Return all claims but some, by id, a line each that unfolds, to be chosen from by chapter and
    verdict."""
    rest = a.rows[~a.rows["id"].isin([*without])]
    groups = join(
        '<tbody data-chapter="{0}"><tr><th scope="rowgroup" colspan="2">'
        '<a href="{0}.html">{1}</a></th></tr>{2}</tbody>',
        [
            (chapter, a.titles[str(chapter)], _lines(a, rows.to_dict("records")))
            for chapter, rows in rest.groupby("chapter", sort=False)
        ],
    )
    table = Markup(
        '<div class="tlb-scorecard">{}<table class="tlb-claims"><colgroup><col><col></colgroup>'
        '<thead><tr><th scope="col">Verdict'
        '</th><th scope="col">Claim</th></tr></thead>{}</table></div>'
    ).format(_filter(a, rest), groups)
    return Html(
        str(table),
        "\n".join(
            f"{verdict.upper()}: {id}"
            for verdict, id in zip(rest["verdict"], rest["id"], strict=True)
        ),
    )


def _lines(a: Analysis, rows: list[dict]) -> Markup:
    found = []
    for row in rows:
        statement = statements()[row["id"]]
        marks = (
            f"{CSS_CLASS_BY_WORD[row['verdict']]} {MACHINES_DISAGREE}"
            if row[MACHINES_DISAGREE]
            else CSS_CLASS_BY_WORD[row["verdict"]]
        )
        others = ", ".join(
            f"{label}: {row[name]}"
            for name, label in a.others.items()
            if row[name] not in (UNMEASURED, MEASURED_DIFFERENTLY)
        )
        where = _link(statement, "In its chapter"), _source(statement), _predicts(statement)
        other = f"Other machines: {others}." if others else ""
        found.append((marks, _mark(row), inline(statement.quote), *where, _shown(row), other))
    return join(
        '<tr data-is="{}"><td>{}</td><td><details><summary>“{}”</summary><p>{}, {}. '
        "Predicts {}.</p><p>{}</p><p>{}</p></details></td></tr>",
        found,
    )


def _mark(row: Mapping) -> Markup:
    """Return the verdict and, if it is neither holds nor fails, why in a few words."""
    shown = verdict_html(row["verdict"], CSS_CLASS_BY_WORD[row["verdict"]], row["reason"])
    if row["verdict"] in ("holds", "fails"):
        return shown
    return Markup("{} <small>{}</small>").format(shown, short(row["reason"], row["evidence"]))


def short(reason: str, evidence: str) -> str:
    """Return why a claim is open, in a few words. reason: its code; "" where only the evidence
    begins with the sentence of an obstacle."""
    if not reason:
        found = [code for code in REASONS if evidence.startswith(REASONS[code].sentence[:-1])]
        reason = found[0] if found else ""
    return _SHORT.get(reason, reason.replace("-", " "))


def _shown(row: Mapping) -> Markup:
    return inline(row["evidence"]) + Markup(row["compared"])  # a frame keeps a plain str


def _source(statement: Statement) -> Markup:
    return Markup('<a class="tlb-source" href="references.html">{}</a>, {}').format(
        source_names().get(statement.source, statement.source), statement.place
    )


def _predicts(statement: Statement) -> str:
    """Return the quantity and the band that would support the sentence."""
    if all(map(isinf, statement.band)):
        return statement.quantity
    unit = "" if statement.unit in ("ratio", "share") else f" {statement.unit}"
    return f"{statement.quantity}: {range_words(*statement.band)}{unit}"


def _link(row: Statement, text: str = "") -> Markup:
    """Return a link to where a sentence is judged; of one that a chapter only uses, to that."""
    where = "" if row.status == "arithmetic" else f"#{claim_anchor(row.id)}"
    shown = inline(text or f"“{row.quote}”")
    return Markup('<a href="{}.html{}">{}</a>').format(row.where, where, shown)


# --- the filter: two lists and rules of style, so that it works without a script, and without style
# all rows show


def _filter(a: Analysis, rows) -> Markup:
    chapters = {
        chapter: f"{a.titles[chapter].partition(':')[0]} ({count(number)})"
        for chapter, number in rows["chapter"].value_counts(sort=False).items()
    }
    words = rows["verdict"].value_counts()
    verdicts = {
        CSS_CLASS_BY_WORD[word]: f"{word} ({count(words[word])})"
        for word in CSS_CLASS_BY_WORD
        if word in words
    }
    if rows[MACHINES_DISAGREE].any():
        verdicts[MACHINES_DISAGREE] = f"machines disagree ({count(rows[MACHINES_DISAGREE].sum())})"
    rules = [
        *_rules(chapters, "tbody:not([data-chapter='{0}'])"),
        *_rules(
            verdicts, "tbody:not(:has([data-is~='{0}'])), {1} tr[data-is]:not([data-is~='{0}'])"
        ),
    ]
    return Markup('<style>{}</style><p class="tlb-filter">{} {}</p>').format(
        Markup("".join(rules)), _choice("Chapter", chapters), _choice("Verdict", verdicts)
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
    options = join('<option value="{}">{}</option>', values.items())
    return Markup(
        '<label>{} <select autocomplete="off"><option value="">all</option>{}</select></label>'
    ).format(label, options)


# --- what is not judged


def not_judged() -> Html:
    """Return, to unfold, what no measurement decides, what is arithmetic, and what is said again."""
    titles = {
        "not testable": "No measurement in this book can decide",
        "arithmetic": "Arithmetic",
        "said again": "Repeats another statement",
    }
    parts, lines = [], []
    for status, title in titles.items():
        rows = [row for row in statements().values() if row.status == status]
        items = [(*_sentence(row), _source(row), _note(row)) for row in rows]
        parts.append((title, len(rows), join("<li>{}{}{} {}{}</li>", items)))
        lines.append(f"{title}: {len(rows)}")
    folds = join("<details><summary>{}: {}</summary><ul>{}</ul></details>", parts)
    return Html(f'<div class="tlb-beyond">{folds}</div>', "\n".join(lines))


def _sentence(row: Statement) -> tuple[Markup | str, ...]:
    if row.status == "said again":
        return "“", inline(row.quote), "”"
    return "", _link(row), ""


def _note(row: Statement) -> Markup:
    if row.status == "said again":
        return Markup(": the same as {}").format(_link(statements()[row.where]))
    return Markup(": {}").format(inline(row.note)) if row.note else Markup("")
