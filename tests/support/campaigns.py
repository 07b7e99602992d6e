"""What the tests of measure/ share: a rig in which nothing is counted, processes that are scripted,
lines of a store, and what breaks them."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.common import make_record
from support.synthetic import Stated
from tlb.measure import campaign, perf
from tlb.measure.mapping import PointResult
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.plan import MeasuringConditions
from tlb.measure.record import Point, Record
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

MACHINE, NAME, STATE = "zen-3-00c0ffee", "stlb_cliff", "00112233aabb"
ROWS = "page_chase"  # the kernel of make_record and POINTS, and so the file that their rows are in
GIB = 2**30
POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (64, 128, 256)]
VICTIM = POINTS[1]  # what befalls this point must not befall the others


def a_rig(store: Store, **changes: Any) -> MeasuringSetup:
    """A computer that never was, ready to measure on this one: nothing is counted, and a gibibyte
    may be used."""
    return MeasuringSetup(
        **(
            {
                "host": Stated().host(),
                "store": store,
                "machine": MACHINE,
                "state": STATE,
                "usable_bytes": GIB,
                "plan": perf.NO_COUNTERS,
            }
            | changes
        )
    )


def run(
    store: Store,
    points: list[Point],
    repeats: int | Callable[[Point], int] = 1,
    *,
    name: str = NAME,
    retry_share: float | None = None,
    seed: int = 0,
    quiet: bool = True,
    **rig: Any,
) -> campaign.CampaignOutcome:
    """A campaign of these points; `rig`: fields of its rig, `measure` a function of one point."""
    if "measure" in rig:
        rig["measure"] = one_by_one(rig["measure"])
    how = {} if retry_share is None else {"retry_share": retry_share}
    return campaign.run(a_rig(store, **rig), {name: points}, repeats, seed=seed, quiet=quiet, **how)


def says(why: Unavailable, code: str) -> None:
    """The reason is this one, in one line that ends with what to do about it."""
    assert why.code == code, why
    assert str(why).endswith(why.remedy) and len(str(why).splitlines()) == 1


def one_by_one(measure: Callable[..., Record]) -> Callable[..., Iterator[PointResult]]:
    """`mapping.measured` by a function of one point: nothing is tried again."""

    def measured(
        points: Sequence[Point],
        repeat: int,
        setting: MeasuringConditions,
        *,
        begin: Callable[[Point], bool],
        retry_share: float = 0.0,
    ) -> Iterator[PointResult]:
        for point in points:
            if begin(point):
                try:
                    yield point, measure(point, repeat, **setting._asdict())
                except Unavailable as why:
                    yield point, why

    return measured


class Scripted:
    """Stands for plan.measure: notes what it is asked. Each call gives the next of (mark, ns per
    access) or fails so, then come quiet ones; `trouble` may raise what it likes."""

    def __init__(self, *tries: tuple[str, float] | Unavailable) -> None:
        self.tries = list(tries)
        self.asked: list[tuple[Point, int]] = []
        self.trouble: Callable[[Point, int], None] = lambda point, repeat: None
        self.measures = 1  # the version that its records are of

    def __call__(self, point: Point, repeat: int, *, state: str, **_: object) -> Record:
        self.asked.append((point, repeat))
        self.trouble(point, repeat)
        given = self.tries.pop(0) if self.tries else ("", 5.0)
        if isinstance(given, Unavailable):
            raise given
        noisy, ns = given
        how = {"repeat": repeat, "state": state, "measures": self.measures}
        return make_record(**point.model_dump(), **how, noisy=noisy, ns_per_access=ns)


# --- lines of a store


def put(store: Store, machine: str, experiment: str, *records: Record) -> list[str]:
    """Stores what an experiment asked for; the keys."""
    store.ask(machine, experiment, [record.point for record in records])
    return [store.append(machine, record) for record in records]


def repeats(store: Store) -> list[int]:
    return store.load(MACHINE, NAME)["repeat"].tolist()


def assert_whole(store: Store, rows: int, *names: str) -> None:
    """The machine has so many rows, each once, and each was asked for by one of these experiments,
    by default NAME."""
    asked = set().union(*(store.keys(MACHINE, name) for name in names or [NAME]))
    assert len(asked) == rows == len(store.records(MACHINE)) == len(store.load(MACHINE))


def mounted(place: Path, options: bytes | None = None) -> bool:
    """Put an empty tmpfs with these options over a folder or, without any, the folder itself but
    read-only, for this process alone; False without the right to."""
    libc, name = ctypes.CDLL(None, use_errno=True), str(place).encode()
    # a mount namespace of its own (CLONE_NEWNS), detached from the others (MS_REC | MS_PRIVATE)
    if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x4000 | 0x40000, None):
        return False
    if options is not None:
        return not libc.mount(b"tmpfs", name, b"tmpfs", 0, options)
    # MS_BIND, then MS_REMOUNT | MS_BIND | MS_RDONLY
    return not (
        libc.mount(name, name, None, 0x1000, None) or libc.mount(None, name, None, 0x1021, None)
    )


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
