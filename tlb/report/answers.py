"""Answers: what a machine's rows say to a claim, kept as data in `data/<machine>/claims.json`.

`judge` records them in a notebook's outputs, and `tlb refresh` keeps them beside the rows. The
verdict is computed from an answer whenever it is shown: pages about several machines need neither
rows nor a chapter's Analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from tlb.stats.effects import Effect, why_effects_are_undecided
from tlb.stats.intervals import Interval
from tlb.system.reasons import REASON_TEXTS, UNDECIDED_TEXTS, explain_reason, state_reason
from tlb.system.units import digits_preserving_order, format_significant_digits, rounded_to_digits

ANSWERS_DOCUMENT = "claims"  # the document that keeps them, and their key in a notebook's outputs
DIGITS = 6  # what is beyond them depends on the CPU that computed it
VerdictWord = Literal["holds", "fails", "cannot tell", "not testable here"]

# Reasons that no setting, no longer run and no repetition removes.
_CODES = """
    bare-metal splintered two-dimensions no-pmu event-unknown no-events no-walk-cycle-event
    no-kvm page-size-unsupported other-arch one-cpu linux-lacks
    no-five-levels emulated reach-in-cache
    """
OBSTACLES = frozenset(_CODES.split())
# Those whose remedy is a command on the computer at hand, which is no evidence.
_REMEDIED_BY_A_COMMAND = {"no-events", "no-kvm", "page-size-unsupported"}


class EffectBounds(NamedTuple):
    """The ends of an interval and of the band that it must lie in; infinite if they are open."""

    low: float
    high: float
    least: float
    most: float

    @property
    def band(self) -> tuple[float, float]:
        return self.least, self.most


@dataclass(frozen=True)
class ClaimDecision:
    """A verdict with its evidence. value: of a fact that is a number. reason: why it is open, as a code of UNDECIDED_TEXTS or REASON_TEXTS. why:
    the same as a sentence; empty if the evidence says it."""

    verdict: VerdictWord
    evidence: str
    effects: tuple[Effect, ...] = ()
    reason: str = ""
    why: str = ""
    value: float | str | None = None

    @property
    def bounds(self) -> list[EffectBounds]:
        """What was compared, interval by interval."""
        return [
            EffectBounds(effect.interval.low, effect.interval.high, effect.least, effect.most)
            for effect in self.effects
        ]

    @property
    def is_of_interval(self) -> bool:
        """Whether it compares a number that was measured. One that is stated or counted has no
        interval, so chance cannot decide it wrongly."""
        known = (one.interval for one in self.effects)
        return any(one.low < one.high or one.coverage < 1 for one in known)

    @property
    def is_decided(self) -> bool:
        return self.verdict in ("holds", "fails")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredEffect(_Strict):
    """An effect: an estimate between its bounds, and the band that it has to lie in; None for an
    end that is open. among, what, unit: as of an Effect."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    coverage: float = 1.0
    modes: int = 1
    least: float | None = None
    most: float | None = None
    among: int = 1
    what: str = ""
    unit: str = ""

    @classmethod
    def of(cls, effect: Effect) -> StoredEffect:
        """Round to the digits that are the same on all CPUs; to more where an end would touch its
        band."""
        value, low, high = effect.interval.value_and_bounds
        digits = digits_preserving_order((low, high), (effect.least, effect.most), DIGITS)

        def end(number: float) -> float | None:
            return (
                float(format_significant_digits(number, digits).replace(",", ""))
                if isfinite(number)
                else None
            )

        return cls(
            value=end(value),
            low=end(low),
            high=end(high),
            coverage=rounded_to_digits(float(effect.interval.coverage), DIGITS),
            modes=effect.interval.modes,
            least=end(effect.least),
            most=end(effect.most),
            among=effect.among,
            what=effect.what,
            unit=effect.unit,
        )

    @property
    def effect(self) -> Effect:
        interval = Interval(
            _end(self.value, nan),
            _end(self.low, -inf),
            _end(self.high, inf),
            self.coverage,
            self.modes,
        )
        band = _end(self.least, -inf), _end(self.most, inf)
        return Effect(interval, *band, self.among, self.what, self.unit)


def _end(kept: float | None, otherwise: float) -> float:
    return otherwise if kept is None else kept


class StoredAnswer(_Strict):
    """What one machine's rows say to a claim: effects with their bands, or a fact, or a reason.

    holds, value: of a fact, and its number in the claim's unit, or what was found in few words.
    reason: a code of UNDECIDED_TEXTS, or of REASON_TEXTS where there is nothing to compare. detail: of that
    reason. evidence: the answer in a sentence; empty where the reason says it.
    """

    evidence: str = ""
    effects: tuple[StoredEffect, ...] = ()
    holds: bool | None = None
    value: float | str | None = None
    reason: str = ""
    detail: str = ""

    @classmethod
    def of(cls, holds: bool, because: str, value: float | str | None) -> StoredAnswer:
        """Return the answer of a fact; its number is rounded as an effect's, unless it is whole."""
        if not isinstance(value, str | None) and value % 1:
            value = rounded_to_digits(value, DIGITS)
        return cls(holds=holds, evidence=because, value=value)

    @property
    def kept(self) -> dict[str, Any]:
        """What claims.json keeps."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def decide(self) -> ClaimDecision:
        """Return the verdict by the rule: the interval inside its band, or outside of it."""
        if self.holds is not None:
            return ClaimDecision(
                "holds" if self.holds else "fails", self.evidence, value=self.value
            )
        if self.reason in REASON_TEXTS:
            word: VerdictWord = "not testable here" if self.reason in OBSTACLES else "cannot tell"
            return ClaimDecision(word, _evidence_of(self), reason=self.reason)
        effects = tuple(kept.effect for kept in self.effects)
        if self.reason in UNDECIDED_TEXTS:
            return ClaimDecision("cannot tell", self.evidence, effects, self.reason, self.detail)
        holds = all_effects_inside(effects)
        if holds is None:
            why = why_effects_are_undecided(effects)
            return ClaimDecision("cannot tell", self.evidence, effects, why.code, why.text)
        return ClaimDecision("holds" if holds else "fails", self.evidence, effects)


def _evidence_of(answer: StoredAnswer) -> str:
    """Return why there is nothing to compare, and of an obstacle what could test the claim."""
    could_be_tested = answer.reason in OBSTACLES - _REMEDIED_BY_A_COMMAND
    return (explain_reason if could_be_tested else state_reason)(answer.reason, answer.detail)


def all_effects_inside(effects: Sequence[Effect]) -> bool | None:
    """Return whether all effects lie in their bands: False if one lies outside, None if undecided."""
    answers = [effect.decided(len(effects)) for effect in effects]
    return False if False in answers else None if None in answers else True
