"""The page of all claims: each with its verdict and number on every published machine, from the
answers that the chapters recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tlb.measure.store import Store
from tlb.report import all_machines
from tlb.report.answers import Decision, KeptAnswer
from tlb.report.claims import Statement, statements
from tlb.report.discovery import table_of_contents
from tlb.report.names import THIS_COMPUTER
from tlb.report.verdicts import WRONG_BY_CHANCE
from tlb.system.files import ROOT

NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with the answers of the machines that have one, by the machine's name."""

    statement: Statement
    answers: Mapping[str, KeptAnswer]

    @property
    def decisions(self) -> dict[str, Decision]:
        return {name: answer.decide() for name, answer in self.answers.items()}

    @property
    def words(self) -> list[str]:
        """The verdicts of the machines that measured what it needs."""
        found = self.decisions.values()
        return [one.verdict for one in found if one.is_decided or one.effects]

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
    """All claims that are judged, in the order of the chapters.

    machines: the columns. ids: of the machines, by name. shown: the machine that the page is about, the reference or this computer.
    """

    def __init__(self) -> None:
        answers = all_machines.answers_by_machine()
        self.machines = [*answers]
        published = all_machines.published_names(Store(ROOT / "data"))
        self.ids = {name: machine for machine, name in published.items()} | {THIS_COMPUTER: "this"}
        self.shown = THIS_COMPUTER if THIS_COMPUTER in answers else self.machines[0]
        order = table_of_contents()
        judged = [one for one in statements().values() if one.status == "judged"]
        self.claims = [
            JudgedClaim(
                one, {name: found[one.id] for name, found in answers.items() if one.id in found}
            )
            for one in sorted(judged, key=lambda one: order.index(one.where))
        ]

    def counts(self) -> dict[str, float]:
        """Return the numbers of claims that the page's text quotes, by name of ClaimsPage."""
        shown = [claim.decisions.get(self.shown) for claim in self.claims]
        words = Counter(one.verdict if one else "" for one in shown)
        by_interval = [one for one in shown if one and one.effects]
        kinds = Counter(statement.status for statement in statements().values())
        several = [claim for claim in self.claims if sum(map(_decides, claim.words)) > 1]
        return {
            "claims": len(self.claims),
            "testable": sum(claim.is_testable for claim in self.claims),
            "decided": sum(claim.is_decided for claim in self.claims),
            "hold": words["holds"],
            "fail": words["fails"],
            "undecided": words["cannot tell"],
            "untestable": words[NOT_TESTABLE],
            "several": len(several),
            "disagree": sum(claim.machines_disagree for claim in several),
            "by_interval": len(by_interval),
            "wrong_by_chance": len(by_interval) * WRONG_BY_CHANCE,
            "statements": kinds.total(),
            "beyond": kinds["not testable"],
            "arithmetic": kinds["arithmetic"],
            "repeated": kinds["said again"],
        }


def _decides(word: str) -> bool:
    return word in ("holds", "fails")
