"""A clock for a single hop, and a histogram of its readings: kernels/hops.h."""

from __future__ import annotations

import os

import numpy as np
from llvmlite import binding, ir
from numba import njit, types, uint64
from numba.extending import intrinsic

SUB, BINS = 128, 26 * 128
QUANTILES = {
    "p5_ns": 0.05,
    "p25_ns": 0.25,
    "p50_ns": 0.5,
    "p75_ns": 0.75,
    "p95_ns": 0.95,
    "p99_ns": 0.99,
    "p999_ns": 0.999,
}
ARM64 = os.uname().machine == "aarch64"
binding.initialize_native_asmparser()  # numba does not, and the clock's reading is assembly


def assembly(
    builder, text: str, constraints: str, arguments: tuple = (), result: ir.Type | None = None
):
    kind = ir.FunctionType(result or ir.IntType(64), [ir.IntType(64)] * len(arguments))
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), arguments)


@intrinsic
def stamp(typing):
    """The clock's ticks, after all earlier loads and before any later one."""
    x86 = (
        "rdtscp\nlfence\nshlq $$32, %rdx\norq %rdx, %rax",
        "={rax},~{rdx},~{rcx},~{memory},~{flags}",
    )
    arm = "dsb ishld\nisb\nmrs $0, cntvct_el0\nisb", "=r,~{memory}"
    return types.uint64(), lambda context, builder, signature, args: assembly(
        builder, *(arm if ARM64 else x86)
    )


@intrinsic
def ready(typing, number):
    """The number itself, known before what follows, so that no compiler vectorises."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: assembly(
        builder, "", "=r,0", args
    )


@intrinsic
def leading_zeros(typing, number):
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.ctlz(
        args[0], ir.Constant(ir.IntType(1), 0)
    )


@njit(inline="always")
def bin_of(ticks):
    shift = uint64(0) if ticks < uint64(2 * SUB) else uint64(56) - leading_zeros(ticks)
    return min(shift * uint64(SUB) + (ticks >> shift), uint64(BINS - 1))


@njit(cache=True)
def read_nothing(bins, times):
    for _ in range(times):
        begin = stamp()
        bins[bin_of(stamp() - begin)] += 1


@njit(cache=True)
def read_stamp():
    return stamp()


def least_of(bins: np.ndarray) -> np.ndarray:
    """The least ticks in each of the bins with these numbers."""
    return np.where(bins < 2 * SUB, bins, (bins % SUB + SUB) << np.maximum(bins // SUB - 1, 0))


def quantile(bins: np.ndarray, q: float) -> float:
    """The least ticks that a share q of the hops did not exceed, as the middle of their bin."""
    at = int(np.searchsorted(np.cumsum(bins), q * bins.sum()))
    least, after = least_of(np.array([at, at + 1]))
    return float(least + after - 1) / 2


def clock_ticks(bins: np.ndarray) -> float:
    """What two readings around nothing differ by: the mean of the fastest 99 %."""
    last = int(np.searchsorted(np.cumsum(bins), 0.99 * bins.sum()))
    return float(np.average(least_of(np.arange(last + 1)), weights=bins[: last + 1]))


def of_hops(bins: np.ndarray, ticks: int, clock: float, ghz: float) -> dict[str, float]:
    single = np.flatnonzero(bins[: 2 * SUB])
    step = int(np.diff(single).min(initial=2 * SUB))
    return {
        "tsc_ghz": ghz,
        "clock_ns": clock / ghz,
        "clock_step_ns": step / ghz,
        "mean_ns": (ticks / int(bins.sum()) - clock) / ghz,
        **{name: max(quantile(bins, q) - clock, 0) / ghz for name, q in QUANTILES.items()},
    }
