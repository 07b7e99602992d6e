"""Which points the chapter about context switches measures: programs switched and started, and
chases beside others that use the same caches or the same core."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE

SWITCHES = ("alone", "thread", "process")
PAGES_THE_TLB_HOLDS = (
    512  # pages: more than a first level of those published holds, and fewer than a last one
)
CHASED = (
    64,
    PAGES_THE_TLB_HOLDS,
    8 * PAGES_THE_TLB_HOLDS,
)  # pages after a switch; of a coarse grid the last two
UNSTATED_ENTRIES = (
    8 * PAGES_THE_TLB_HOLDS
)  # of a last level that nothing states: as the largest x86-64 has
HOPS_AFTER_SWITCH = 64  # after a switch, of a cycle that the TLB does not hold
NEW_PROCESS_ROUNDS = tuple(
    1 << octave for octave in range(7)
)  # rounds of a new process, kernels/cold_chase.c
FAR_BYTES = 512 << 20  # whose lowest tables fill a second-level cache, and its lines more
STREAMED_MIB = (0, 1, 4, 16, 32, 64, 128)
COARSE_STREAMED_MIB = (0, 128)
TAIL_MS = 30  # of region: for a 99th percentile of hundreds of slices


def points(scope: Scope) -> list[Point]:
    return list(dict.fromkeys([*switches(scope), *neighbours(scope)]))


def switches(scope: Scope) -> list[Point]:
    """A round of a chase after each switch, and of a new process; and the first hops of a cycle
    that the TLB does not hold."""
    walked = min(4 * max(scope.entries[-1:], default=UNSTATED_ENTRIES), scope.most_lines)
    chased = [n for n in CHASED[0 if scope.is_fine else 1 :] if n <= scope.most_lines]
    rounds = [("switch_chase", mode) for mode in SWITCHES] + [("cold_chase", "")]
    held = [
        point
        for kernel, mode in rounds
        for lines in chased
        for point in scope.chase(kernel, BASE, lines, mode)
    ]
    return held + [
        scope.point("switch_chase", mode=mode, lines=walked, hops=HOPS_AFTER_SWITCH)
        for mode in SWITCHES
    ]


def far_lines(scope: Scope) -> int:
    """Lines of a chase whose tables compete for the caches."""
    return min(scope.lines(FAR_BYTES), scope.most_lines)


def neighbours(scope: Scope) -> list[Point]:
    """The far chase alone and beside streams, and one that the TLB holds beside a chase on the
    core's other thread."""

    def beside(mode: str, lines: int, **load: Any) -> list[Point]:
        region_ms = max(TAIL_MS, scope.profile.region_ms)
        return scope.chase("neighbour_chase", BASE, lines, mode, region_ms=region_ms, **load)

    alone = beside("alone", far_lines(scope))
    if scope.cpus < 2:
        return alone
    streams = [
        point
        for mib in (STREAMED_MIB if scope.is_fine else COARSE_STREAMED_MIB)
        for point in beside("other", far_lines(scope), stream_kib=mib << 10)
    ]
    shared = [
        point
        for lines in (0, scope.lines(32 << 20))
        for point in beside("sibling", min(PAGES_THE_TLB_HOLDS, scope.most_lines), walk_lines=lines)
    ]
    return [*(alone if scope.is_fine else ()), *streams, *shared]
