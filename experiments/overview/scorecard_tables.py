"""The scorecard's tables: verdicts by machine, each claim, and what is not judged."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf

import pandas as pd
from markupsafe import Markup

from experiments.overview.scorecard import APART, MARKS, Analysis
from tlb.prose import count
from tlb.report.bibliography import sources
from tlb.report.compared import range_words
from tlb.report.render import Html, data_table, inline
from tlb.report.verdict_table import anchor, mark
from tlb.report.verdicts import Statement, statements


def counts(a: Analysis) -> Html:
    """Verdicts by machine."""
    here = {"this machine": a.rows["verdict"]} | {
        label: a.rows[name] for name, label in a.others.items()
    }
    words = [word for word in MARKS if any((column == word).any() for column in here.values())]
    rows = [
        (name, *(int((column == word).sum()) for word in words)) for name, column in here.items()
    ]
    return data_table(pd.DataFrame(rows, columns=["machine", *words]))


def claims(a: Analysis) -> Html:
    """Each claim with its source, what it predicts, what is shown here, and its verdicts, to be
    chosen from by chapter and verdict."""
    names = ["Claim, and what it predicts", "This machine shows", "Verdict", *a.others.values()]
    columns = [
        "",
        "",
        "this" if a.own else a.about.machine,
        *a.others,
    ]  # the page of machines links to these
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(
            Markup(' id="verdicts-{}"').format(column) if column else "", name
        )
        for column, name in zip(columns, names, strict=True)
    )
    groups = Markup("").join(
        _group(a, str(chapter), rows, len(names))
        for chapter, rows in a.rows.groupby("chapter", sort=False)
    )
    table = Markup(
        '<div class="tlb-table"><table class="tlb-verdicts"><thead><tr>{}</tr></thead>{}</table>'
        "</div>"
    ).format(head, groups)
    text = "\n".join(f"{row.verdict.upper()}: {row.id}" for row in a.rows.itertuples())
    return Html(
        str(Markup('<div class="tlb-scorecard">{}{}</div>').format(_filter(a), table)), text
    )


def _group(a: Analysis, chapter: str, rows: pd.DataFrame, columns: int) -> Markup:
    lines = Markup("").join(_line(a, row) for row in rows.to_dict("records"))
    title = Markup(
        '<tr><th scope="rowgroup" colspan="{}"><a href="{}.html">{}</a></th></tr>'
    ).format(columns, chapter, a.titles[chapter])
    return Markup('<tbody data-chapter="{}">{}{}</tbody>').format(chapter, title, lines)


def _line(a: Analysis, row: Mapping) -> Markup:
    statement = statements()[row["id"]]
    marks = f"{MARKS[row['verdict']]} {APART}" if row[APART] else MARKS[row["verdict"]]
    claim = Markup('<a href="{}.html#{}">“{}”</a> {}<br><small>Predicts {}.</small>').format(
        row["chapter"],
        anchor(row["id"]),
        inline(statement.quote),
        _source(statement),
        _predicts(statement),
    )
    shown = inline(row["evidence"]) + Markup(row["compared"])  # a frame keeps a plain str
    others = Markup("").join(
        Markup('<td data-machine="{}">{}</td>').format(label, _mark(row[name]))
        for name, label in a.others.items()
    )
    return Markup('<tr data-is="{}"><td>{}</td><td>{}</td><td>{}</td>{}</tr>').format(
        marks, claim, shown, _mark(row["verdict"], row["reason"]), others
    )


def _mark(word: str, reason: str = "") -> Markup:
    return mark(word, MARKS[word], reason)


def _source(statement: Statement) -> Markup:
    return Markup('<a class="tlb-source" href="references.html">{}</a>, {}').format(
        sources().get(statement.source, statement.source), statement.place
    )


def _predicts(statement: Statement) -> str:
    """The quantity and the band that would bear the sentence out."""
    if all(map(isinf, statement.band)):
        return statement.quantity
    unit = "" if statement.unit in ("ratio", "share") else f" {statement.unit}"
    return f"{statement.quantity}: {range_words(*statement.band)}{unit}"


# --- the filter: two lists and rules of style, so that it works without a script, and without style
# all rows show


def _filter(a: Analysis) -> Markup:
    chapters = {
        chapter: f"{a.titles[chapter]} ({count(number)})"
        for chapter, number in a.rows["chapter"].value_counts(sort=False).items()
    }
    words = a.rows["verdict"].value_counts()
    verdicts = {MARKS[word]: f"{word} ({count(words[word])})" for word in MARKS if word in words}
    if a.rows[APART].any():
        verdicts[APART] = f"machines disagree ({count(a.rows[APART].sum())})"
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
    """A rule a value that hides what is not of it while it is chosen. The values are names of this
    book, no two of which are the same."""
    chosen = [f".tlb-scorecard:has(option[value='{value}']:checked)" for value in values]
    return [
        f"{where} {hidden.format(value, where)}{{display:none}}"
        for where, value in zip(chosen, values, strict=True)
    ]


def _choice(label: str, values: Mapping[str, str]) -> Markup:
    options = Markup("").join(
        Markup('<option value="{}">{}</option>').format(value, text)
        for value, text in values.items()
    )
    return Markup(
        '<label>{} <select autocomplete="off"><option value="">all</option>{}</select></label>'
    ).format(label, options)


# --- what is not judged


def not_judged(a: Analysis) -> Html:
    """To unfold: what no measurement decides, what is arithmetic, and what is said again."""
    every = statements()
    notes = {
        "not testable": lambda row: Markup(": {}").format(inline(row.note)),
        "arithmetic": lambda row: (
            Markup(": {}").format(inline(row.note)) if row.note else Markup("")
        ),
        "said again": lambda row: Markup(": as {}").format(
            _link(every[row.where], f"“{every[row.where].quote}”")
        ),
    }
    titles = {
        "not testable": "No measurement here decides",
        "arithmetic": "Arithmetic",
        "said again": "Said again",
    }
    parts, lines = [], []
    for status, note in notes.items():
        rows = [row for row in every.values() if row.status == status]
        items = Markup("").join(
            Markup("<li>{} {}{}</li>").format(
                _link(row, f"“{row.quote}”")
                if status != "said again"
                else Markup("“{}”").format(inline(row.quote)),
                _source(row),
                note(row),
            )
            for row in rows
        )
        parts.append(
            Markup("<details><summary>{}: {}</summary><ul>{}</ul></details>").format(
                titles[status], len(rows), items
            )
        )
        lines.append(f"{titles[status]}: {len(rows)}")
    return Html(
        str(Markup('<div class="tlb-beyond">{}</div>').format(Markup("").join(parts))),
        "\n".join(lines),
    )


def _link(row: Statement, text: str) -> Markup:
    """To where a sentence stands in its chapter; a chapter that only uses it, to that."""
    where = "" if row.status == "arithmetic" else f"#{anchor(row.id)}"
    return Markup('<a href="{}.html{}">{}</a>').format(row.where, where, inline(text))
