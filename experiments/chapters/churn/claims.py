"""What articles say of flushes, switches, cold starts, forks and neighbours, as predicates on the chapter's Analysis."""

from __future__ import annotations

from experiments.article.verdicts import Answer, Band, Compares, claim, inside
from experiments.chapters.churn.analysis import NEW, Analysis
from experiments.chapters.churn.grid import ARENA_BYTES, FIRST_HOPS, HELD, LARGE, STREAMED_MIB, far
from experiments.lab.grid import Scope
from experiments.lab.record import Point
from experiments.words.pages import BASE, words
from experiments.words.units import format_size


def _of(kernel: str, **where: object) -> Compares:
    """The points of a kernel that have these fields or options."""
    return lambda point, scope: point.kernel == kernel and {**dict(point.options), **point.model_dump()}.items() >= where.items()


@claim("switch-flushes-walk-caches", points=_of("switch_chase", hops=FIRST_HOPS))
def a_switch_flushes(a: Analysis, band: Band) -> Answer:
    ratio = a.first_walks()
    return inside(ratio, *band), (f"The first {FIRST_HOPS} walks after a switch of processes take {ratio:.2f} times as long as those after "
                                  "one of threads.")


@claim("cold-starts-pay-a-tax", points=_of("cold_chase", lines=HELD))
def a_cold_start_pays(a: Analysis, band: Band) -> Answer:
    ratio = a.cold_tax()
    return inside(ratio, *band), (f"Translation costs {ratio:.1f} times as much in a new process's first round over {HELD} pages as in its "
                                  "last; no page faults, and the lines are in its caches.")


def _worker(point: Point, scope: Scope) -> bool:
    return point.kernel in ("cold_chase", "switch_chase") and point.lines == HELD


@claim("warm-workers-win", points=_worker)
def a_warm_worker_wins(a: Analysis, band: Band) -> Answer:
    ratio = a.price_after(NEW) / a.price_after("process")
    return inside(ratio, *band), (f"Translation of a request over {HELD} pages costs {ratio:.1f} times as much in a new process as in a "
                                  "worker that is switched to.")


def _streams(point: Point, scope: Scope) -> bool:
    """The chase beside the largest stream, and beside none."""
    return point.kernel == "neighbour_chase" and point.lines == far(scope) and dict(point.options).get("stream_kib") in (
        0, STREAMED_MIB[-1] << 10)


@claim("neighbours-evict-the-table", points=_streams)
def neighbours_evict_the_table(a: Analysis, band: Band) -> Answer:
    ratio = a.under_load()
    return inside(ratio, *band), (f"Beside a thread that streams {STREAMED_MIB[-1]} MiB, translation over "
                                  f"{format_size(a.far_lines * a.base_page_bytes)} costs {ratio:.2f} times what it costs beside one that "
                                  "only runs.")


@claim("kernel-work-flushes-translations", points=_of("shootdown", mode="collapse"))
def kernel_work_flushes(a: Analysis, band: Band) -> Answer:
    seen = a.moved_flushes()
    return inside(seen, *band), (f"For each large page that the kernel makes of base pages, another CPU of the program sees "
                                 f"{seen:.2f} flushes.")


@claim("page-management-slows-a-loop", points=lambda point, scope: point.kernel == "neighbour_chase" and point.lines == HELD)
def page_management_slows(a: Analysis, band: Band) -> Answer:
    ratio = a.beside_discards()
    return inside(ratio, *band), (f"Beside a thread whose pages are taken back, a chase over {HELD} other pages takes {ratio:.2f} times "
                                  "as long.")


@claim("cow-copies-2-mib", points=_of("fork_write", mode="write", used=1))
def a_write_copies_2_mib(a: Analysis, band: Band) -> Answer:
    copied, _ = a.single_write(LARGE)
    return inside(copied, *band), f"A write to {words(LARGE)} after a fork copies {format_size(round(copied.value))}."


@claim("sparse-small-allocations-hurt", points=_of("fork_write", mode="touch"))
def sparse_allocations_hurt(a: Analysis, band: Band) -> Answer:
    ratio = a.waste()
    return inside(ratio, *band), (f"Arenas of {format_size(ARENA_BYTES)} apart take {ratio:.1f} times as much memory on {words(LARGE)} "
                                  f"as on {words(BASE)}.")
