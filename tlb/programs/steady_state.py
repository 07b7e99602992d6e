"""Tell the samples of a program at work from those of its start-up, which reads, fills and frees
memory that it does not touch again."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high

from tlb.programs.activity import Sample

_RESIZED = 2.0  # memory of another phase is so many times as large or as small
_LESS = 1.5  # so many times less than before is another phase, and no scatter of samples
_AS_BUSY = 0.5  # of the CPU time a second: a program that idles touches less in any phase


def after_start(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the program at work, in order. A start-up takes at most the first half
    of the time, so the later half always stays.

    A sample is of the start-up if the program's memory was far larger or smaller than in the later
    half, or if it touches far more than any later sample of a window as long: in one phase, more
    time touches more."""
    if not samples:
        return []
    middle_s = (samples[0].at_s + samples[-1].at_s) / 2
    later = [sample.resident_bytes for sample in samples if sample.at_s >= middle_s]
    level = median_high(later)
    after = list[Sample]()  # the later samples but for those that another one outdoes
    for n in range(len(samples) - 1, -1, -1):
        sample = samples[n]
        is_resized = not level / _RESIZED <= sample.resident_bytes <= level * _RESIZED
        if sample.at_s < middle_s and (is_resized or _is_contradicted(sample, after)):
            return [*samples[n + 1 :]]
        if not any(_outdoes(other, sample) for other in after):
            after = [other for other in after if not _outdoes(sample, other)] + [sample]
    return [*samples]


def contradiction(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """Return two windows in s, of which the longer touched far less, so that the samples are of
    several phases; None without any."""
    for sample in samples:
        if _is_contradicted(sample, [each for each in samples if each is not sample]):
            longer = [each.window_s for each in samples if each.window_s > sample.window_s]
            return (sample.window_s, min(longer)) if longer else None
    return None


def _outdoes(one: Sample, other: Sample) -> bool:
    """Whether one sample is as long and as busy as the other and touches as much, so that it is the
    stronger evidence of what later windows touch."""
    return (
        one.window_s >= other.window_s
        and one.cpu_share >= other.cpu_share
        and one.active_bytes >= other.active_bytes
    )


def _is_contradicted(sample: Sample, others: Sequence[Sample]) -> bool:
    """Whether a sample touches far more than all others of windows as long or longer in which the
    program was as busy."""
    comparable = [
        other.active_bytes
        for other in others
        if other.window_s >= sample.window_s and other.cpu_share >= _AS_BUSY * sample.cpu_share
    ]
    return bool(comparable) and sample.active_bytes > _LESS * max(comparable)
