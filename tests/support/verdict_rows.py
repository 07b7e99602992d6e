"""Verdicts as a page of the built site prints them."""

from dataclasses import dataclass, field
from math import inf

from bs4 import BeautifulSoup, Tag

from tlb.report.verdicts import FAILS_HERE
from tlb.system.reasons import REASON_TEXTS, UNDECIDED_TEXTS


@dataclass(frozen=True)
class Row:
    """A verdict of a page. effects: (low, high, least, most) as printed."""

    claim: str
    verdict: str
    reason: str
    text: str
    effects: list[tuple[float, float, float, float]] = field(default_factory=list)

    def contradictions(self) -> list[str]:
        """Return a sentence for each way in which the row's printed interval, verdict and reason do
        not go together."""
        within = [least <= low and high <= most for low, high, least, most in self.effects]
        outside = [high < least or low > most for low, high, least, most in self.effects]
        found = []
        if self.verdict == "holds" and not all(within):
            found.append("it holds, though an interval is not inside its band")
        if self.verdict in ("fails", FAILS_HERE) and self.effects and not any(outside):
            found.append("it fails, though no interval is outside its band")
        if self.verdict != "cannot tell":
            return found
        said = (
            UNDECIDED_TEXTS.get(self.reason)
            or REASON_TEXTS.get(self.reason)
            and REASON_TEXTS[self.reason].sentence.rstrip(".")
        )
        if not said or "Not decided: " not in self.text and said not in self.text:
            found.append("it is undecided without a printed reason")
        if self.effects and (all(within) or any(outside)) and self.reason not in ("few", "widened"):
            found.append("it is undecided, though its intervals decide it as printed")
        return found


def rows(page: BeautifulSoup) -> list[Row]:
    """Return the verdicts of a chapter's page, or of the scorecard for the machine that it is
    about."""
    chapter = [(row["id"], row) for row in page.select(".tlb-verdicts tr[id^='claim-']")]
    scorecard = [
        (row.select_one("a")["href"].partition("#")[2], row)
        for row in page.select(".tlb-scorecard tr[data-is]")
    ]
    return [_row(str(id).removeprefix("claim-"), row) for id, row in chapter + scorecard]


def _row(id: str, row: Tag) -> Row:
    mark = row.select_one(".tlb-verdict")
    effects = []
    for span in row.select(".tlb-effect"):
        low, high, least, most = (
            str(span[f"data-{name}"]) for name in ("low", "high", "least", "most")
        )
        printed = span.text.replace(",", "")
        assert all(number in printed for number in (low, high)), (
            f"{id}: {printed!r} is not what its attributes say"
        )
        effects.append(
            (float(low or -inf), float(high or inf), float(least or -inf), float(most or inf))
        )
    return Row(id, mark.text, str(mark.get("data-reason", "")), row.text, effects)
