"""A rig: made once of a host, it hands each point to its `measure` with all that follows from the
host."""

from __future__ import annotations

import pytest
from support.lab import GIB
from support.synthetic import Stated

from tlb.lab import kernels, mapping, perf
from tlb.lab.record import Point
from tlb.lab.rig import Rig, usable_bytes
from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host


def with_memory(
    usable: int, pool_pages: int = 0, reserved: int = 0, limit: int | None = None, **changes: object
) -> Host:
    """A host with so much memory free, so many free pages in a pool of 2 MiB pages, and this limit
    on address space."""
    pool = {
        "page": "2m",
        "total": pool_pages,
        "free": pool_pages,
        "reserved": reserved,
        "surplus": 0,
    }
    memory = {
        "total_bytes": 16 * GIB,
        "available_bytes": usable,
        "usable_bytes": usable,
        "limit_source": "MemAvailable",
        "address_space_bytes": limit,
    }
    return Stated(changes={"pools": [pool], "memory": memory, **changes}).host()


def test_a_rig_is_what_follows_from_its_host(store: Store, monkeypatch: pytest.MonkeyPatch):
    probed: list[tuple] = []
    monkeypatch.setattr(
        perf, "plan", lambda name, cpu: probed.append((name, cpu)) or perf.NO_COUNTERS
    )
    host = with_memory(3 * GIB, core={"number": 5, "kind": "cpu_core", "highest_khz": None})
    made = Rig.of(host, store)
    assert (made.machine, made.state) == (hosts.machine_id(host), hosts.state(host))
    assert (made.usable_bytes, made.cpu, made.measure) == (
        3 * GIB // 2,
        5,
        mapping.measured,
    )  # half of what is free
    assert probed == [(host.microarchitecture, 5)]
    named = Rig.of(host, store, "another", counters=False)
    assert (named.machine, named.cpu, named.plan) == ("another", 5, perf.NO_COUNTERS) and len(
        probed
    ) == 1
    assert (
        Rig.of(with_memory(GIB), store).cpu is None
    )  # a description from before says nothing of a CPU


# --- a pool's pages are memory of their own

CHASE = Point(
    kernel="page_chase", pages="2m", lines=(4 * GIB) // 4096
)  # 4 GiB, and 16 MiB of order beside it


def room(store: Store, host: Host, point: Point) -> int:
    return Rig.of(host, store, counters=False).usable_bytes - kernels.memory_bytes(point)


def test_with_the_pools_filled_as_advised_on_16_gib_a_point_on_a_pool_is_measured_and_one_on_base_pages_is_not(
    store: Store,
):
    filled = with_memory(
        3 * GIB, pool_pages=4096
    )  # 8 GiB of the 16 are the pool's, so MemAvailable has them no more
    assert room(store, filled, CHASE) >= 0
    for pages in ("4k", "64k", "thp"):
        assert room(store, filled, CHASE.model_copy(update={"pages": pages})) < 0


@pytest.mark.parametrize(("pages", "size"), [("4k", GIB), ("thp", GIB), ("2m", 2 * GIB), ("1g", 0)])
def test_a_sweep_on_each_kind_of_pages_ends_where_its_own_memory_does(pages: str, size: int):
    assert usable_bytes(with_memory(2 * GIB, pool_pages=1030, reserved=6), pages) == size
    assert usable_bytes(with_memory(2 * GIB, 1030, 6, limit=1 << 20), "2m") == 1 << 20
