"""Which CPU is measured, and that it is the one that is described: hybrid parts, big and little
cores, two dies of unlike caches."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.host import (
    ARM,
    GRAVITON,
    HERE,
    ICE_LAKE,
    SERVER,
    cache_of,
    cpuid_of_a_server,
    plant,
    reader,
)

from tlb.machine import host
from tlb.machine.cpuid import Registers
from tlb.machine.host import Host
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.store import Store
from tlb.system.processes import pinned_to_cpu
from tlb.system.reasons import Unavailable

CPU = "sys/devices/system/cpu"
PMUS = "sys/bus/event_source/devices"
BARE = {
    name: text for name, text in SERVER.items() if "/cache/" not in name and "/cpufreq/" not in name
}


def on_each(
    cpus: range, *found: dict[str, str] | Callable[[int], dict[str, str]]
) -> dict[str, str]:
    return {
        name: text
        for cpu in cpus
        for files in found
        for name, text in (files(cpu) if callable(files) else files).items()
    }


def blocks(text: str, cpus: range) -> str:
    """A block of cpuinfo for each CPU."""
    return "".join(text.replace("processor\t: 3", f"processor\t: {cpu}") for cpu in cpus)


# --- a hybrid part of Intel: P cores 0 to 7, E cores 8 to 15; a core's CPUID describes the core
# that executes it

ALDER_LAKE = (
    BARE
    | {f"{PMUS}/cpu_core/cpus": "0-7\n", f"{PMUS}/cpu_atom/cpus": "8-15\n"}
    | on_each(range(8), lambda cpu: cache_of(cpu, "48K"))
    | on_each(range(8, 16), lambda cpu: cache_of(cpu, "32K", ways=8))
)


class Hybrid:
    """CPUID of a part with two kinds of core: the thread is on an E core until it is pinned."""

    def __init__(self) -> None:
        self.now, self.asked_on = 12, []
        self.performance, self.efficient = reader(ICE_LAKE), cpuid_of_a_server

    @contextmanager
    def pinned(self, cpu: int) -> Iterator[None]:
        before, self.now = self.now, cpu
        yield
        self.now = before

    def read(self, leaf: int, subleaf: int) -> Registers:
        self.asked_on.append(self.now)
        return (self.performance if self.now < 8 else self.efficient)(leaf, subleaf)


@pytest.mark.parametrize(
    ("usable", "number", "kind", "kib", "entries"),
    [
        (range(16), 7, "cpu_core", 48, (64, 2048)),
        ((1, 9, 15), 1, "cpu_core", 48, (64, 2048)),
        (range(8, 16), 15, "cpu_atom", 32, (64, 1536)),
    ],
)
def test_of_a_hybrid_part_the_core_that_is_measured_is_described_and_asked_for_its_tlb(
    tmp_path, usable, number, kind, kib, entries
):
    cpu = Hybrid()
    found = host.inspect_machine(
        plant(tmp_path, ALDER_LAKE),
        replace(HERE, usable_cpus=tuple(usable), cpuid=cpu.read, pinned=cpu.pinned),
    )
    assert (found.core.number, found.core.kind, host.data_caches(found)) == (
        number,
        kind,
        {1: kib << 10},
    )
    assert set(cpu.asked_on) == {number} and cpu.now == 12
    assert tuple(host.tlb_entries(found)) == entries


# --- RK3588: four A55, then four A76 with twice the caches


def stating(cpu: int, capacity: int, khz: int) -> dict[str, str]:
    return {
        f"{CPU}/cpu{cpu}/cpu_capacity": f"{capacity}\n",
        f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": f"{khz}\n",
    }


def little(cpu: int) -> dict[str, str]:
    return cache_of(cpu, "32K", ways=4, sets=128) | stating(cpu, 530, 1_800_000)


def big(cpu: int, capacity: int = 1024) -> dict[str, str]:
    return cache_of(cpu, "64K", ways=4, sets=256) | stating(cpu, capacity, 2_400_000)


RK3588 = (
    BARE
    | on_each(range(4), little)
    | on_each(range(4, 8), big)
    | {
        "proc/cpuinfo": blocks(GRAVITON.replace("0xd40", "0xd05"), range(4))
        + blocks(GRAVITON.replace("0xd40", "0xd0b"), range(4, 8)),
        f"{PMUS}/armv8_cortex_a55/cpus": "0-3\n",
        f"{PMUS}/armv8_cortex_a76/cpus": "4-7\n",
    }
)


def rockchip(root: Path, usable: range, files: dict[str, str] | None = None) -> Host:
    return host.inspect_machine(
        plant(root, RK3588 | (files or {})), replace(ARM, usable_cpus=tuple(usable))
    )


@pytest.mark.parametrize(
    ("usable", "number", "name", "kind", "kib"),
    [
        (range(8), 7, "Cortex-A76", "armv8_cortex_a76", 64),
        (range(5), 4, "Cortex-A76", "armv8_cortex_a76", 64),
        (range(4), 3, "Cortex-A55", "armv8_cortex_a55", 32),
    ],
)
def test_of_big_and_little_cores_the_one_that_is_measured_is_named(
    tmp_path, usable, number, name, kind, kib
):
    found = rockchip(tmp_path, usable)
    assert (found.core.number, found.core.kind, host.data_caches(found)) == (
        number,
        kind,
        {1: kib << 10},
    )
    assert found.microarchitecture == name and name in found.cpu_model


# --- the choice is made once


def test_a_rig_measures_on_the_cpu_that_was_inspected_with_the_counters_of_its_pmu(
    tmp_path, monkeypatch
):
    asked: list[int | None] = []
    monkeypatch.setattr(
        "tlb.measure.measuring_setup.perf.plan", lambda name, cpu: asked.append(cpu)
    )
    found = rockchip(tmp_path, range(8), on_each(range(4), big) | on_each(range(4, 8), little))
    assert (MeasuringSetup.of(found, Store(tmp_path)).cpu, asked) == (3, [3])


def test_a_cpu_that_went_away_before_it_could_be_asked_is_no_other_cpu(tmp_path):
    @contextmanager
    def gone(cpu: int) -> Iterator[None]:
        raise OSError(22, "Invalid argument")
        yield

    with pytest.raises(Unavailable) as why:
        host.inspect_machine(plant(tmp_path, SERVER), replace(HERE, pinned=gone))
    assert why.value.code == "cpu-gone" and "CPU 3" in why.value.detail


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs a system that pins threads")
def test_a_thread_is_pinned_alone_and_put_back_whatever_happens():
    before, elsewhere, now = os.sched_getaffinity(0), [], threading.Event()
    other = threading.Thread(
        target=lambda: now.wait() and elsewhere.append(os.sched_getaffinity(0))
    )
    other.start()
    with pytest.raises(KeyError), pinned_to_cpu(min(before)):
        now.set()
        other.join()
        assert os.sched_getaffinity(0) == {min(before)} and elsewhere == [before]
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with pytest.raises(OSError), pinned_to_cpu(100_000):
        pass
    assert os.sched_getaffinity(0) == before
