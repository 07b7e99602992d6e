"""Verdicts: claims judged by a chapter's Analysis, and their table.

The claim holds if the interval of its effect lies inside the band, fails if it lies outside, and is
undecided if it crosses an end or covers less than LEAST_COVERAGE, as that of fewer than five
processes does. A claim that needs what this computer lacks (counters, a second node, bare metal) is
not testable here. An open verdict names the first thing that is in its way: what the machine lacks,
then rows, then mappings; only where there are enough of these, what they show. `make bench` prints
how often the rule is wrong, and how often it decides.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf, isfinite
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import pandas as pd
from markupsafe import Markup, escape

from tlb.machine.host import lacking_page_kinds
from tlb.measure.events import SOFTWARE_EVENTS
from tlb.report.analysis import Analysis
from tlb.report.answers import (
    ClaimDecision,
    EffectBounds,
    StoredAnswer,
    StoredEffect,
    all_effects_inside,
)
from tlb.report.claims import (
    Claim,
    Fact,
    MeasuredAnswer,
    PointSelector,
    PublishedStatement,
    claims_of,
    source_names,
    statements,
)
from tlb.report.render import Html, format_each_as_html, highlighted_code, inline_html
from tlb.stats.curves import missing_counter_reason
from tlb.stats.effects import Effect
from tlb.stats.intervals import LEAST_COVERAGE, MIN_MODE_RATIO, significant_digits
from tlb.system.page_sizes import BASE_PAGES, HUGE_PAGE_KINDS, PUBLISHED_BASE_PAGE_BYTES
from tlb.system.reasons import (
    REASON_TEXTS,
    UNDECIDED_TEXTS,
    Unavailable,
    Undecided,
    require_nonempty,
)
from tlb.system.units import (
    digits_preserving_order,
    format_rounded,
    format_significant_digits,
    format_size,
    rounded_to_digits,
)

Measured = TypeVar("Measured")

# --- obstacles: properties of a machine that keep it from testing a claim, whatever is measured there.
# claims.csv names those of each claim; `judge` checks them before the predicate runs.


def _splintered(a: Analysis) -> str:
    """The host was found to splinter large pages; an undecided finding is no obstacle."""
    found = a.splintering()
    return "splintered" if found and found.is_splintered else ""


def _two_dimensions(a: Analysis) -> str:
    """It is a guest, unless its page tables are known to be walked alone."""
    if a.host.is_emulated:
        return "emulated"
    return "" if a.host.has_nested_walks is False else "two-dimensions"


def _bare_metal(a: Analysis) -> str:
    return "" if a.host.hypervisor == "none" else "bare-metal"


def _no_pmu(a: Analysis) -> str:
    """No row has hardware counts."""
    reasons = (column for column in a.frame.columns if column.endswith("_reason"))
    quantities = {column.removesuffix("_reason") for column in reasons}
    hardware = quantities - {event.quantity for event in SOFTWARE_EVENTS}
    columns = [f"{quantity}_per_access" for quantity in hardware]
    if columns and a.frame[columns].notna().to_numpy().any():
        return ""
    return missing_counter_reason(a.frame, "walk", a.host.pmu.reason)


def _reach_in_cache(a: Analysis) -> str:
    """A part of the data inside the TLB's reach is inside the caches too, so what it gains is not
    the TLB's alone. Not known without the TLB's entries."""
    reach = max(a.entries, default=0) * a.base_page_bytes
    largest = max((cache.size_bytes for cache in a.host.caches), default=0)
    return "reach-in-cache" if 0 < reach <= largest else ""


def _other_base_pages(a: Analysis) -> str:
    """The claim is about sizes or strides of 4 KiB pages, and the machine has none."""
    return "" if a.base_page_bytes == PUBLISHED_BASE_PAGE_BYTES else "page-size-unsupported"


# What the column `obstacles` may name: functions that return a reason's code, or "".
OBSTACLE_CHECKS: dict[str, Callable[[Analysis], str]] = {
    "splintered": _splintered,
    "two-dimensions": _two_dimensions,
    "bare-metal": _bare_metal,
    "no-pmu": _no_pmu,
    "reach-in-cache": _reach_in_cache,
    "page-size-unsupported": _other_base_pages,
}


def require_unsplintered_pages(a: Analysis, effect: Effect, answer: bool) -> Effect:
    """Return the effect of a claim that splintered large pages decide one way only.

    answer: what they cannot show. Where they miss as base pages do, what base pages cost more is a
    lower bound: it can support a sentence and cannot refute it. Raises Unavailable("splintered") if
    the effect gives that answer on such a host.
    """
    if effect.decided() is answer and (code := _splintered(a)):
        raise Unavailable(code)
    return effect


def effects_judgeable_in_guest(a: Analysis, *effects: Effect) -> list[Effect]:
    """Return the effects of what a walk costs that this machine can judge a claim by.

    In a guest a walk goes through the host's tables too, so its cost is an upper bound of a walk's
    that does not: it can refute a claim that walks cost more, confirm one that they cost at most so
    much, and nothing else. Raises Unavailable("two-dimensions") if no effect does that in a guest.
    """
    if not (code := _two_dimensions(a)):
        return [*effects]
    if all(_upper_bound_supports(effect, len(effects)) for effect in effects):
        return [*effects]
    refuting = [effect for effect in effects if _upper_bound_refutes(effect, len(effects))]
    return require_nonempty(refuting, "", code)


def _upper_bound_supports(effect: Effect, together: int) -> bool:
    """Whether a cost that is at most this supports a claim that it is at most so much, or would with
    more mappings."""
    if effect.is_of_few:
        return effect.least == -inf and effect.interval.value <= effect.most
    return effect.least == -inf and bool(effect.decided(together))


def _upper_bound_refutes(effect: Effect, together: int) -> bool:
    """Whether a cost that is at most this refutes a claim that it is more, or would with more
    mappings."""
    if effect.is_of_few:
        return effect.interval.value < effect.least
    return effect.decided(together) is False and effect.interval.high < effect.least


def measured_outside_guest(a: Analysis, measure: Callable[[], Measured]) -> Measured:
    """Return what was measured of a walk's cost, for a claim that no cost in a guest supports.

    Raises Unavailable: "two-dimensions" where nothing was measured in a guest, which more
    measurements would not help; else why nothing was.
    """
    try:
        return measure()
    except Unavailable as why:
        code = _two_dimensions(a)
        raise Unavailable(code) if code else why from None


def obstacle(a: Analysis, codes: str) -> Unavailable | None:
    """Return the first of the space-separated obstacles that this machine has.

    Raises ValueError for a code without a check.
    """
    for code in codes.split():
        if code not in OBSTACLE_CHECKS:
            known = ", ".join(OBSTACLE_CHECKS)
            raise ValueError(f"{code!r} is no obstacle that can be checked; use one of {known}.")
        if found := OBSTACLE_CHECKS[code](a):
            return Unavailable(found)
    return None


# --- what a verdict compares, as its row prints it

EFFECT_DIGITS = 3


def range_words(low: float, high: float, digits: int = EFFECT_DIGITS) -> str:
    """Return "1 to 2", "1 or more", "up to 2", "2", or "any value", without trailing zeros."""
    texts = [format_significant_digits(end, digits) if isfinite(end) else "" for end in (low, high)]
    least, most = (text.rstrip("0").rstrip(".") if "." in text else text for text in texts)
    return least if least and low == high else _words(least, most)


def _words(low: str, high: str) -> str:
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low else f"up to {high}" if high else "any value"


# What a number of a claim's unit is printed with. A share is printed in percent.
_UNIT_WORDS = {"": "", "ratio": " times", "share": "%"}


def format_number_in_unit(value: float, unit: str, digits: int = EFFECT_DIGITS) -> str:
    """Return a number of claims.csv as "1.38 times", "3.9%", "335 cycles", "2 MiB", or "2 MB" for
    bytes that are no whole KiB; "" for one that is not finite."""
    if not isfinite(value):
        return ""
    if unit == "bytes":
        return _size_in_words(int(value))
    number = format_significant_digits(100 * value if unit == "share" else value, digits)
    return f"{number}{_UNIT_WORDS.get(unit, f' {unit}')}"


def format_measured_in_unit(value: float, unit: str, digits: int) -> str:
    """Return a measured number as `format_number_in_unit`, rounded to its digits."""
    is_rounded = isfinite(value) and unit != "bytes"
    return format_number_in_unit(
        rounded_to_digits(value, digits) if is_rounded else value, unit, digits
    )


def format_exact_in_unit(value: float, unit: str) -> str:
    """Return a count, or an end of a band, as `format_number_in_unit` without trailing zeros; a ratio
    that is near to 1 with as many digits as tell the two apart."""
    one = (1.0,) if unit == "ratio" else ()
    digits = digits_preserving_order((value,), one, EFFECT_DIGITS)
    number, *rest = format_number_in_unit(value, unit, digits).partition(" ")
    percent = "%" if number.endswith("%") else ""
    number = number.removesuffix("%")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return "".join([number, percent, *rest])


def _size_in_words(size_bytes: int) -> str:
    """Return a size of pages, a power of two, in binary units, and any other in decimal ones."""
    if size_bytes.bit_count() == 1 and size_bytes < 1 << 50:
        return format_size(size_bytes)
    for factor, name in ((1e18, "EB"), (1e15, "PB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{format_significant_digits(size_bytes / factor, EFFECT_DIGITS)} {name}"
    return f"{size_bytes} bytes"


def format_band_in_unit(least: float, most: float, unit: str) -> str:
    """Return "60 to 250 cycles", "5% or less", "2 MiB", "any value"."""
    low, high = (format_exact_in_unit(end, unit) for end in (least, most))
    if low and high and low != high:
        suffix = _UNIT_WORDS.get(unit, f" {unit}")
        return f"{low.removesuffix(suffix) if unit != 'bytes' else low} to {high}"
    return (
        low
        if low and high
        else f"{low} or more"
        if low
        else f"{high} or less"
        if high
        else "any value"
    )


def format_effect_in_unit(effect: Effect, unit: str) -> str:
    """Return an effect's interval as "1.4 (1.1 to 1.5) times" or "1.12 times or more", or "72
    entries" for a number without uncertainty. An end that would be printed as the band's is "just
    above 125"."""
    numbers = value, low, high = effect.interval.value_and_bounds
    band, least = (effect.least, effect.most), significant_digits(low, high)
    needed = [digits_preserving_order((number,), band, least) for number in numbers]
    most = EFFECT_DIGITS + 1
    digits = max([least, *(one for one in needed if one <= most)])

    def words(number: float, needed: int) -> str:
        if needed <= most:
            return format_measured_in_unit(number, unit, digits)
        end = min(band, key=lambda end: abs(end - number))
        return f"just {'above' if number > end else 'below'} {format_number_in_unit(end, unit)}"

    if low == high:
        shown = format_number_in_unit(value, unit, max(digits, EFFECT_DIGITS))
        return shown if value or unit in {*_UNIT_WORDS, "bytes"} else f"no {unit}"
    shown, *ends = map(words, numbers, needed)
    if shown == ends[0] == ends[1] or (
        len({format_exact_in_unit(number, unit) for number in (value, low, high)}) == 1
    ):
        return shown  # not "100% (100.0% to 100%)"
    if not (all(ends) and shown):
        return f"{ends[0]} or more" if ends[0] else f"{ends[1]} or less" if ends[1] else shown
    suffix = "" if unit == "bytes" else _UNIT_WORDS.get(unit, f" {unit}")
    if suffix == "%":
        return f"{shown} ({' to '.join(ends)})"
    shown, *ends = (text.removesuffix(suffix) if suffix else text for text in (shown, *ends))
    return f"{shown} ({' to '.join(ends)}){suffix}"


def format_median_in_unit(effect: Effect, unit: str) -> str:
    """Return an effect's median alone, or its interval where that is so wide that a median says
    little."""
    value, low, high = effect.interval.value_and_bounds
    is_wide = high > MIN_MODE_RATIO * low > 0
    shown = (low, high) if is_wide else (value,)
    band, known = (effect.least, effect.most), significant_digits(low, high)
    digits = digits_preserving_order(shown, band, known)
    if is_wide and unit != "bytes":
        ends = [rounded_to_digits(end, digits) for end in shown]
        return format_band_in_unit(ends[0], ends[1], unit)
    if low == high:
        return format_number_in_unit(value, unit, max(digits, EFFECT_DIGITS))
    return format_measured_in_unit(value, unit, digits)


def bounds_words(bounds: Iterable[EffectBounds]) -> Markup:
    """Return "Interval 0.95 to 1.02; band 1 or more.", with each printed number as an attribute; of
    what is stated or counted "Value 2,048; band 1 or more.".

    An interval has as many digits as are known, and enough that no end is printed on the other side
    of a band's end.
    """
    sentences = []
    for (least, most), group in groupby(bounds, lambda one: one.band):
        found = list(group)
        ends = (end for one in found for end in (one.low, one.high))
        digits = digits_preserving_order(ends, (least, most), EFFECT_DIGITS)
        shown = Markup(", ").join(_interval(one, digits) for one in found)
        kind = "Value" if all(one.low == one.high for one in found) else "Interval"
        plural = "s" if len(found) > 1 else ""
        sentence = Markup("{}{} {}; band {}.")
        sentences.append(sentence.format(kind, plural, shown, range_words(least, most, digits)))
    return Markup(" ").join(sentences)


def _interval(one: EffectBounds, band_digits: int) -> Markup:
    ends, band, is_counted = (one.low, one.high), one.band, one.low == one.high
    digits = digits_preserving_order(ends, band, significant_digits(*ends))
    numbers = [
        *(_number(end, band_digits if is_counted else digits, not is_counted) for end in ends),
        *(_number(end, band_digits, False) for end in band),
    ]
    words = numbers[0] if one.low == one.high else _words(*numbers[:2])
    names = ("low", "high", "least", "most")
    attributes = Markup(" ").join(
        Markup('data-{}="{}"').format(name, number.replace(",", ""))
        for name, number in zip(names, numbers, strict=True)
    )
    return Markup('<span class="tlb-effect" {}>{}</span>').format(attributes, words)


def _number(end: float, digits: int, is_rounded: bool) -> str:
    """Return an end of an interval or a band; "" if it is open."""
    if not isfinite(end):
        return ""
    return (format_rounded if is_rounded else format_significant_digits)(end, digits)


# --- the rule

# At most this share of the claims tested with an interval; tests/report/test_rule.py checks it.
WRONG_VERDICT_PROBABILITY = 0.05
# Kernels whose earlier versions warmed what they then timed, and the first version that does not:
# rows of the earlier ones are shown, marked, and prove nothing.
SUPERSEDED = {"shootdown": 2, "fork_write": 2}


def does_answer_hold(truth: MeasuredAnswer) -> bool | None:
    """Return True, False, or None if undecided."""
    return None if isinstance(truth, Undecided) else all_effects_inside(effects_of(truth))


def effects_of(truth: MeasuredAnswer) -> tuple[Effect, ...]:
    """Return what a truth compares. Raises Unavailable("too-few-points") for an empty list,
    TypeError for anything but a MeasuredAnswer."""
    if isinstance(truth, Undecided):
        return ()
    if isinstance(truth, Effect):
        return (truth,)
    effects = tuple(effect for effect in truth if isinstance(effect, Effect))
    if not isinstance(truth, Sequence) or len(effects) < len(truth):
        raise TypeError(f"A predicate gives effects with a sentence, or a Fact, not {truth!r}.")
    return require_nonempty(effects, "nothing was compared")


@dataclass(frozen=True, kw_only=True)
class Verdict(ClaimDecision):
    """The verdict on a claim, and the answer that it follows from."""

    claim: Claim
    answer: StoredAnswer = StoredAnswer()


def judge(claim: Claim, a: Analysis, **bands: Any) -> Verdict:
    """Return the verdict on a claim. bands: keywords of its predicate in place of its defaults."""
    answer = answer_of(claim, a, **bands)
    return Verdict(**vars(answer.decide()), claim=claim, answer=answer)


def answer_of(claim: Claim, a: Analysis, **bands: Any) -> StoredAnswer:
    """Return what a machine's rows say to a claim.

    An obstacle that claims.csv names and this machine has makes the claim not testable here before
    its predicate runs. What few mappings leave open, or decide without the finding that an obstacle
    needs, is open for that.
    """
    answer = _answer_of_rows(claim, a, **bands)
    if not a.has_few_mappings or _is_of_enough_runs(answer):
        return answer
    is_open = answer.decide().reason in OPEN_TO_MORE_MAPPINGS
    if not is_open and not (answer.holds is not None and _may_be_splintered(claim, a)):
        return answer
    return StoredAnswer(
        evidence="" if answer.reason in REASON_TEXTS else answer.evidence,
        effects=tuple(one for one in answer.effects if one.effect.is_of_few),
        reason="few",
        detail=UNDECIDED_TEXTS["few"],
    )


# What few mappings leave open for these reasons, more of them may decide, or leave open for another.
_CODES = "crosses widened bistable ambiguous unstable sweep-short no-step control-elsewhere"
OPEN_TO_MORE_MAPPINGS = frozenset(_CODES.split())


def _is_of_enough_runs(answer: StoredAnswer) -> bool:
    """Whether it rests on runs of its own, such as those of a program, and there are enough."""
    return any(LEAST_COVERAGE <= one.coverage < 1 for one in answer.effects)


def _may_be_splintered(claim: Claim, a: Analysis) -> bool:
    """Whether a claim is about whole large pages, and those of this guest are not known to be."""
    statement = statements().get(claim.id)
    if statement is None or "splintered" not in statement.obstacles.split():
        return False
    found = a.splintering()
    return a.host.hypervisor != "none" and (found is None or found.verdict != "not splintered")


def _answer_of_rows(claim: Claim, a: Analysis, **bands: Any) -> StoredAnswer:
    """Return what rows say to a claim, whatever the number of their mappings."""
    statement = statements().get(claim.id)
    if statement and (found := obstacle(a, statement.obstacles)):
        return _unavailable(found, a)
    if found := _superseded(claim, a.frame):
        return _unavailable(found, a)
    if statement and "band" in inspect.signature(claim.decide).parameters:
        bands = {"band": statement.band} | bands
    try:
        answer = claim.decide(a, **(claim.fixed | bands))
        if isinstance(answer, Fact):
            return StoredAnswer.of(answer.holds, answer.because, answer.value)
        truth, evidence = answer
        effects = effects_of(truth)
    except Unavailable as why:
        return _of_replaced_program(claim, a, why) or _unavailable(_lack_of_pages(claim, a, why), a)
    except TypeError as why:
        raise TypeError(f"The predicate of {claim.id!r} failed: {why}") from why
    if effects and a.host.is_emulated:  # sources speak of processors, and this timed a program
        return StoredAnswer(reason="emulated", detail=evidence.rstrip("."))
    if isinstance(truth, Undecided):
        return StoredAnswer(evidence=evidence, reason=truth.code, detail=truth.text)
    return StoredAnswer(evidence=evidence, effects=tuple(map(StoredEffect.of, effects)))


def _superseded(claim: Claim, frame: pd.DataFrame) -> Unavailable | None:
    """Return why a claim is not judged by rows of a kernel that then measured something else."""
    for kernel, least in SUPERSEDED.items():
        if isinstance(claim.points, PointSelector) and kernel in claim.points.kernels:
            measured = frame.loc[frame["kernel"] == kernel, "measures"]
            if len(measured) and measured.max() < least:
                return Unavailable("no-data", f"`{kernel}` in its version {least}")
    return None


def _of_replaced_program(claim: Claim, a: Analysis, why: Unavailable) -> StoredAnswer | None:
    """Return why a claim is open whose rows are of another compiler or library than is here; None
    if none of its rows is."""
    if claim.points is None or why.code not in ("too-few-points", "no-data"):
        return None
    for point, program in a.about.replaced.items():
        if claim.points(point, a.about.scope):
            return StoredAnswer(reason="conditions", detail=f"measured with {program}")
    return None


# Reasons that stand for nothing measured, of which the machine's pages may be the cause.
_NOTHING_MEASURED = {"pool-empty", "too-few-points", "no-data", "housekeeping-not-asked"}


def _lack_of_pages(claim: Claim, a: Analysis, why: Unavailable) -> Unavailable:
    """Return why a claim has no answer: that the machine gives none of the large pages that the
    claim is about, if so, which no measurement changes. One of the pool is judged on transparent
    pages too."""
    if why.code not in _NOTHING_MEASURED:
        return why
    statement, lacking = statements().get(claim.id), lacking_page_kinds(a.host)
    about = {*statement.pages.split("/")} - {"", BASE_PAGES} if statement else set[str]()
    about |= {*HUGE_PAGE_KINDS} if "2m" in about else set()
    if about and all(lacking.get(pages) == "page-size-unsupported" for pages in about):
        return Unavailable("page-size-unsupported")
    if why.code == "pool-empty" and "2m" in lacking:
        return Unavailable("no-large-pages", why.detail)
    return why


LOOKS_SPLINTERED = "too few mappings; huge pages look splintered"


def _unavailable(why: Unavailable, a: Analysis) -> StoredAnswer:
    """Return the answer of a reason; that huge pages are splintered is no reason yet if too few
    mappings show it."""
    found = a.splintering() if why.code == "splintered" else None
    if found and found.is_of_few:
        return StoredAnswer(reason="few", detail=LOOKS_SPLINTERED)
    return StoredAnswer(reason=why.code, detail=why.detail)


def chapter_verdicts(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> list[Verdict]:
    """Judge each claim of a chapter. bands: for a predicate by its name, keywords in place of its
    defaults."""
    return [judge(claim, a, **bands.get(claim.decide.__name__, {})) for claim in claims_of(module)]


# --- the table

# A time that fails, or a ratio of two, was measured on another processor than the source's, where it
# may be right.
FAILS_HERE = "fails here"
AS_WE_READ_IT = "as we read it,"  # before a verdict that rests on `PublishedStatement.reading`
UNTESTABLE_HERE = "not testable here"
# The style's class of each verdict, as pages write it (`shown_verdict`).
CSS_CLASS_BY_VERDICT: dict[str, str] = {
    "holds": "holds",
    "fails": "fails",
    FAILS_HERE: "elsewhere",
    "cannot tell": "unknown",
    UNTESTABLE_HERE: "untestable",
}
# The word, and the class, of what follows from numbers alone: arithmetic, or what the source or
# published tables print. It is counted apart from what was measured.
RECOMPUTED_CLAIM_STATUS = "recomputed"
_TABLE = (
    '<div class="tlb-table"><table class="tlb-verdicts"><thead><tr><th scope="col">Claim</th>'
    '<th scope="col">Verdict</th><th scope="col">{}</th></tr></thead>'
    "<tbody>{}</tbody></table></div>"
)
_EVIDENCE_HEAD, _ELSEWHERE_HEAD = "Evidence", "On our other machines"
_SOURCE = '<a class="tlb-source" href="references.html">{}</a>'
_ROW = (
    f'<tr id="{{}}"><td>{{}} {_SOURCE}</td><td>{{}}</td><td>{{}}{{}}</td></tr>'
    '<tr class="tlb-predicate"><td colspan="3"><details><summary>Predicate: <code>{}</code>'
    "</summary>{}</details></td></tr>"
)
_BEYOND = '<details class="tlb-beyond"><summary>{}</summary><ul>{}</ul></details>'
_SAME_REASON = '<details class="tlb-beyond"><summary>{}: {}</summary>{}</details>'
_DECIDED_NOWHERE = "none decides it"


def claim_anchor(id: str) -> str:
    """Return the id of a claim on its chapter's page."""
    return f"claim-{id}"


def verdict_html(word: str, css: str, reason: str = "") -> Markup:
    """Return a verdict in its colour, with the code of why it is undecided as an attribute."""
    attribute = Markup(' data-reason="{}"').format(reason) if reason else ""
    span = Markup('<span class="tlb-verdict tlb-verdict-{}"{}>{}</span>')
    return span.format(css, attribute, word)


def shown_verdict(found: ClaimDecision, statement: PublishedStatement | None) -> str:
    """Return a verdict as every page writes it: a key of CSS_CLASS_BY_VERDICT."""
    is_time = statement is not None and statement.is_time
    return FAILS_HERE if found.verdict == "fails" and is_time else found.verdict


def verdict_in_words(found: ClaimDecision, statement: PublishedStatement | None) -> Markup:
    """Return a verdict in its colour, marked if it is on our reading of the source's words; of a
    claim that no machine's rows decide "recomputed", and whether it holds."""
    if statement and statement.status == RECOMPUTED_CLAIM_STATUS and found.is_decided:
        return verdict_html(RECOMPUTED_CLAIM_STATUS, RECOMPUTED_CLAIM_STATUS) + Markup(
            ": {}"
        ).format(found.verdict)
    word = shown_verdict(found, statement)
    shown = verdict_html(word, CSS_CLASS_BY_VERDICT[word], found.reason)
    if statement and statement.reading and found.is_decided:
        return Markup("{} {}").format(AS_WE_READ_IT, shown)
    return shown


def bounds_html(bounds: Sequence[EffectBounds], why: str) -> Markup:
    """Return the intervals and bands of a verdict, and why they leave it undecided."""
    parts = filter(None, [bounds_words(bounds), escape(f"Not decided: {why}" if why else "")])
    text = Markup(" ").join(parts)
    return Markup(' <small class="tlb-compared">{}</small>').format(text) if text else Markup("")


def verdict_table(
    found: Sequence[Verdict],
    beyond: Sequence[PublishedStatement] = (),
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> Html:
    """Return a row and a folded predicate for each verdict; how many may be wrong by chance; and,
    folded, the statements beyond any measurement here. Claims that this machine cannot test for one
    reason are folded below it.

    elsewhere: what other machines decide of a claim, by its id; shown of those that this machine
    cannot test, or has no results for.
    """
    number = Counter(one.evidence for one in found if one.verdict == UNTESTABLE_HERE)
    alone, by_reason = list[Verdict](), dict[str, list[Verdict]]()
    for one in found:
        if one.verdict != UNTESTABLE_HERE or number[one.evidence] == 1:
            is_without_results = one.verdict == UNTESTABLE_HERE or one.reason in REASON_TEXTS
            others = elsewhere.get(one.claim.id, "") if is_without_results else ""
            alone.append(replace(one, evidence=f"{one.evidence} {others}".rstrip()))
        else:
            others = elsewhere.get(one.claim.id, _DECIDED_NOWHERE)
            by_reason.setdefault(one.evidence, []).append(replace(one, evidence=others))
    table = _table(alone, _EVIDENCE_HEAD) if alone else Html("", "")
    for reason, same in by_reason.items():
        words = f"{len(same)} claims are {UNTESTABLE_HERE}"
        decided = sum(one.claim.id in elsewhere for one in same)
        words += f" ({decided} decided on our other machines)" if decided else ""
        below = _table(same, _ELSEWHERE_HEAD)
        markup = Markup(_SAME_REASON).format(words, inline_html(reason), Markup(below.markup))
        table += Html(str(markup), f"{words}: {reason}\n{below.text}")
    return table + _chance(found) + _beyond(beyond)


def _table(found: Sequence[Verdict], head: str) -> Html:
    """Return a table of verdicts. head: of the column of their evidence."""
    rows = [
        (
            claim_anchor(verdict.claim.id),
            inline_html(verdict.claim.says),
            _source(verdict.claim.source),
            verdict_in_words(verdict, statements().get(verdict.claim.id)),
            inline_html(_evidence_and_reading(verdict)),
            bounds_html(verdict.bounds, verdict.why),
            verdict.claim.place,
            highlighted_code(inspect.getsource(verdict.claim.decide)),
        )
        for verdict in found
    ]
    text = "\n".join(
        f"{shown_verdict(verdict, statements().get(verdict.claim.id)).upper()}: "
        f"{verdict.claim.says} [{verdict.evidence}]"
        f"{bounds_html(verdict.bounds, verdict.why).striptags()}"
        for verdict in found
    )
    return Html(str(Markup(_TABLE).format(head, format_each_as_html(_ROW, rows))), text)


def _evidence_and_reading(verdict: Verdict) -> str:
    """Return the evidence, and of a decided claim what we take its words to mean."""
    statement = statements().get(verdict.claim.id)
    reading = statement.reading if statement and verdict.is_decided else ""
    return f"{verdict.evidence} {reading}".strip()


def table_of_answered_verdicts(
    found: Sequence[Verdict], beyond: Sequence[PublishedStatement] = (), whose: str = ""
) -> Html:
    """Return `verdict_table` of the verdicts that rows decide, or leave open although there are
    enough of them, and the number of others: on the page of a machine of which little was measured,
    each of these would give the same reason. whose: that machine."""
    answered, open_ones = list[Verdict](), list[Verdict]()
    for one in found:
        is_answered = one.is_decided or (one.effects and one.reason != "few")
        (answered if is_answered else open_ones).append(one)
    table = verdict_table(answered, beyond) if answered else _beyond(beyond)
    if not open_ones:
        return table
    claims = "claim has" if len(open_ones) == 1 else "claims have"
    words = (
        f"{len(open_ones)} {claims} no row here: this machine lacks what they need, or too little of it "
        "was measured."
    )
    # The page of all claims links to these too.
    anchors = format_each_as_html(
        '<span id="{}"></span>', [claim_anchor(one.claim.id) for one in open_ones]
    )
    markup = Markup('<p class="tlb-open" data-whose="{}" data-claims="{}">{}{}</p>').format(
        whose, len(found), anchors, words
    )
    return Html(str(markup), f"{words}\n") + table


def _source(key: str) -> str:
    return source_names().get(key, key)


def _chance(found: Sequence[Verdict]) -> Html:
    tested = sum(verdict.is_of_interval for verdict in found)
    if not any(verdict.is_of_interval and verdict.is_decided for verdict in found):
        return Html("", "")
    number = f"{tested} of these {len(found)} claims"
    if tested == len(found):
        number = f"All {tested} of these claims" if tested > 1 else "This claim"
    words = (
        f"{number} {'is' if tested == 1 else 'are'} judged by an interval. Within one run the rule decides "
        f"at most {WRONG_VERDICT_PROBABILITY:.0%} of such claims wrongly."
    )
    return Html(f'<p class="tlb-chance">{escape(words)}</p>', words)


UNDECIDABLE = "No measurement in this book can decide"  # statements that no machine of ours tests


def _beyond(beyond: Sequence[PublishedStatement]) -> Html:
    if not beyond:
        return Html("", "")
    items = [
        (claim_anchor(one.id), inline_html(one.quote), _source(one.source), inline_html(one.note))
        for one in beyond
    ]
    summary = f"{UNDECIDABLE}: {len(beyond)} more"
    listed = format_each_as_html(f'<li id="{{}}">“{{}}” {_SOURCE}: {{}}</li>', items)
    text = "\n".join([summary, *(f"{one.quote}: {one.note}" for one in beyond)])
    return Html(str(Markup(_BEYOND).format(summary, listed)), text)
