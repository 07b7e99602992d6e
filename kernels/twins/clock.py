"""The core's clock in numba: core_ghz() of kernels/region.h."""

from __future__ import annotations

from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels.twins.arguments import now_ns
from kernels.twins.assembly import ARM64, assembly


@intrinsic
def sixteen_additions(typing, a, b):
    """a + 16 b by 16 dependent register additions, which no compiler may fold."""
    text = "\n".join(["add $0, $0, $2" if ARM64 else "addq $2, $0"] * 16)
    return types.uint64(
        types.uint64, types.uint64
    ), lambda context, builder, signature, args: assembly(builder, text, "=r,0,r", args)


@njit(cache=True)
def _additions(times):
    a, b = uint64(1), uint64(3)
    for _ in range(times):
        a = sixteen_additions(a, b)
    return a


def core_ghz() -> float:
    """Core clock in GHz; a call's overhead (under 1 us in 50) makes it a lower bound."""
    begin = now_ns()
    _additions(62_500)  # 1e6 additions, a few hundred microseconds
    return 1e6 / (now_ns() - begin)
