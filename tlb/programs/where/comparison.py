"""Compare what a program counts with its baseline: sentences, tables, Markdown, JSON and JUnit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

from tlb.programs.where.baseline import METRICS, Baseline, CountedPlace, Metric, command_words
from tlb.programs.where.report import FEW_EXPOSED_SHARE, MAX_TABLE_ROWS, TextTable
from tlb.system.units import list_in_words

# A growth of fewer walks or pages than this is none: another line printed at the start makes
# dozens, and these take a few microseconds.
LEAST = 256
# How many times the allowed growth is allowed: which walks are exposed also depends on the order of a
# compiler's instructions. Loops written otherwise changed it by up to 2.4 % where no walk was added.
MARGINS: dict[Metric, int] = {"exposed": 5, "walks": 1, "pages": 1}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")
Pair = tuple[
    CountedPlace, CountedPlace
]  # before and now; one of them has no counts if it is new or gone


@dataclass(frozen=True)
class Comparison:
    """fail_above: the share by which a count may grow."""

    before: Baseline
    now: Baseline
    fail_above: float

    def allowed(self, metric: Metric) -> float:
        """Return the share by which a count may grow: at least what it differs between runs."""
        most = MARGINS[metric] * self.fail_above
        return max(most, self.before.spread[metric], self.now.spread[metric])

    def growth(self, metric: Metric) -> int:
        return self.now.totals[metric] - self.before.totals[metric]

    def _changed(self, sign: int) -> list[Metric]:
        return [metric for metric in METRICS if sign * self.growth(metric) > self._least(metric)]

    def _least(self, metric: Metric) -> float:
        """Return the growth that still is none. Exposed walks, where they are few, have to grow by
        as much as if they were a share of all walks that matters."""
        totals = self.before.totals
        base = max(
            totals[metric], FEW_EXPOSED_SHARE * totals["walks"] if metric == "exposed" else 0
        )
        return max(self.allowed(metric) * base, LEAST - 1)

    @cached_property
    def grown(self) -> list[Metric]:
        """The counts that grew too much: the gate is open without any."""
        return self._changed(1)

    @property
    def ranked_by(self) -> Metric:
        """The count by whose change functions and allocations are listed."""
        return (self.grown or self._changed(-1) or ["exposed"])[0]

    def changes(self, kind: str) -> list[Pair]:
        """Return the functions or the allocations whose counts changed, the largest change first."""
        sides = [
            {each.key: each for each in getattr(side, kind)} for side in (self.before, self.now)
        ]
        pairs = [
            tuple(side.get(key) or CountedPlace(name=key[0], place=key[1]) for side in sides)
            for key in dict.fromkeys(key for side in sides for key in side)
        ]
        changed = [
            (before, now)
            for before, now in pairs
            if any(getattr(before, metric) != getattr(now, metric) for metric in METRICS)
        ]
        return sorted(changed, key=self._rank)

    def _rank(self, pair: Pair) -> tuple[int, ...]:
        """Return the changes of a pair, largest first: those of the ranking count before others."""
        order = sorted(METRICS, key=lambda metric: metric != self.ranked_by)
        return tuple(-abs(getattr(pair[1], metric) - getattr(pair[0], metric)) for metric in order)

    # --- for people

    def sentences(self) -> list[str]:
        """Return the verdict, then what qualifies it."""
        now, allowed = self.now, _percentage(self.fail_above)
        grown = list_in_words(
            [f"{METRICS[metric]} {self._percent(metric)}" for metric in self.grown]
        )
        made = [f"No count grew by more than is allowed (--fail-above {allowed})."]
        if self.grown:
            made = [f"More than is allowed (--fail-above {allowed}): {grown}."]
        if less := self._changed(-1):
            fewer = list_in_words([f"{METRICS[metric]} {self._percent(metric)}" for metric in less])
            made.append(f"Fewer than the baseline: {fewer}. --save makes this the baseline.")
        made += [
            f"{METRICS[metric].capitalize()} differ by {spread:.2%} between runs of one program, so as "
            "much is allowed."
            for metric in METRICS
            if (spread := self.allowed(metric)) > MARGINS[metric] * self.fail_above
        ]
        levels = f"{now.geometry['base']['first']:,} and {now.geometry['base']['second']:,} entries"
        runs = f"{now.runs} runs" if now.runs > 1 else "1 run"
        return [*made, f"Simulated TLB: {now.machine}, {levels}; {runs}."]

    def _percent(self, metric: Metric) -> str:
        before = self.before.totals[metric]
        return f"{self.growth(metric) / before:+.2%}" if before else f"{self.growth(metric):+,}"

    def tables(self) -> dict[str, TextTable]:
        """Return the totals, and the functions and allocations that changed, by headings."""
        totals: list[tuple[str, ...]] = [
            (METRICS[metric], f"{self.before.totals[metric]:,}", f"{self.now.totals[metric]:,}",
             self._percent(metric), _percentage(self.allowed(metric)), "FAIL" if metric in self.grown else "")
            for metric in METRICS
        ]  # fmt: skip
        made: dict[str, TextTable] = {
            "Totals": (("", "baseline", "now", "change", "allowed", ""), totals)
        }
        for heading, kind in (("Lines of code", "functions"), ("Allocations", "allocations")):
            shown: Sequence[Metric] = [*METRICS][: 3 if kind == "allocations" else 2]
            rows = [_row(pair, shown) for pair in self.changes(kind)[:MAX_TABLE_ROWS]]
            if rows:
                made[heading] = (kind.removesuffix("s"), *(METRICS[each] for each in shown)), rows
        return made

    # --- for other programs

    def markdown(self) -> str:
        """Return everything as Markdown, for a pull request."""
        title = "page walks grew" if self.grown else "no more page walks than the baseline"
        made = [f"### `{command_words(self.now.command)}`: {title}", *self.sentences()]
        for heading, (head, rows) in self.tables().items():
            made += ["" if heading == "Totals" else f"**{heading}**", _markdown_table(head, rows)]
        return "\n\n".join(part for part in made if part) + "\n"

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        sides = {"baseline": self.before, "now": self.now}
        keys: set[str] = {*METRICS}
        return {
            "schema_version": self.now.schema_version,
            "tlb": self.now.tlb,
            "command": self.now.command,
            "machine": self.now.machine,
            "geometry": self.now.geometry,
            "conditions": self.now.conditions,
            "has_grown": bool(self.grown),
            "grown": self.grown,
            "fail_above": self.fail_above,
            "allowed": {metric: self.allowed(metric) for metric in METRICS},
            "totals": {name: side.totals for name, side in sides.items()},
            "runs": {name: side.runs for name, side in sides.items()},
            **{
                kind: [
                    {"name": now.name, "place": now.place}
                    | {
                        "baseline": before.model_dump(include=keys),
                        "now": now.model_dump(include=keys),
                    }
                    for before, now in self.changes(kind)
                ]
                for kind in ("functions", "allocations")
            },
        }

    def junit(self) -> str:
        """Return a JUnit report: a test case for each count."""
        rows = [row for _, rows in self.tables().values() for row in rows]
        changes = "\n".join(_NO_XML.sub("?", " | ".join(row)) for row in rows)
        suites = ElementTree.Element("testsuites")
        numbers = {"tests": str(len(METRICS)), "failures": str(len(self.grown)), "errors": "0"}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": "tlb where", **numbers})
        for metric, words in METRICS.items():
            named = {"classname": _NO_XML.sub("?", command_words(self.now.command)), "name": words}
            case = ElementTree.SubElement(suite, "testcase", named)
            if metric in self.grown:
                allowed = _percentage(self.allowed(metric))
                message = f"{words} {self._percent(metric)}, allowed {allowed}"
                ElementTree.SubElement(case, "failure", {"message": message}).text = changes
        return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _percentage(share: float) -> str:
    return f"{100 * share:.6g}%"


def _row(pair: Pair, shown: Iterable[Metric]) -> tuple[str, ...]:
    before, now = pair
    named = now if now.walks or now.pages else before
    cells = []
    for metric in shown:
        count, change = getattr(now, metric), getattr(now, metric) - getattr(before, metric)
        cells.append(f"{count:,} ({change:+,})" if change else f"{count:,}")
    return (f"{named.name} ({named.place})" if named.place else named.name, *cells)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", "\\|").replace("<", "&lt;") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
