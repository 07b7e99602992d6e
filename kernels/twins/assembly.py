"""Instructions that numba has no words for, as assembly."""

from __future__ import annotations

import os

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

ARM64 = os.uname().machine == "aarch64"
binding.initialize_native_asmparser()  # numba does not, and the core's clock is assembly


def assembly(
    builder, text: str, constraints: str, arguments: tuple = (), result: ir.Type | None = None
):
    kind = ir.FunctionType(result or ir.IntType(64), [ir.IntType(64)] * len(arguments))
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), arguments)


@intrinsic
def ready(typing, number):
    """The number itself, known before what follows, so that no compiler vectorises."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: assembly(
        builder, "", "=r,0", args
    )
