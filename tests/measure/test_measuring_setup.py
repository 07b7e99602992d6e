"""A rig: made once of a host, it hands each point to its `measure` with all that follows from the
host."""

from support.campaigns import GIB
from support.synthetic import Stated

from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import mapping, perf
from tlb.measure.measuring_setup import MeasuringSetup


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


def test_a_rig_is_what_follows_from_its_host(store, monkeypatch):
    probed: list[tuple] = []
    monkeypatch.setattr(
        perf, "plan", lambda name, cpu: probed.append((name, cpu)) or perf.NO_COUNTERS
    )
    host = with_memory(3 * GIB, core={"number": 5, "kind": "cpu_core", "highest_khz": None})
    made = MeasuringSetup.of(host, store)
    assert (made.machine, made.state) == (hosts.machine_id(host), hosts.state_digest(host))
    assert (made.usable_bytes, made.cpu, made.measure) == (
        3 * GIB // 2,
        5,
        mapping.measured,
    )  # half of what is free
    assert probed == [(host.microarchitecture, 5)]
    named = MeasuringSetup.of(host, store, "another", counters=False)
    assert (named.machine, named.cpu, named.plan) == ("another", 5, perf.NO_COUNTERS) and len(
        probed
    ) == 1
    # a description from before says nothing of a CPU
    assert MeasuringSetup.of(with_memory(GIB), store).cpu is None
