"""The machine code that is timed: a kernel's own program and its session time the same, and none
changes without a new MEASURES. TLB_ACCEPT=1 writes the digests anew."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.common import needs_c

from tlb.machine.host import compiler_on_path
from tlb.measure import build
from tlb.measure.catalogue import KERNEL_DECLARATIONS
from tlb.measure.record import Point

DIGESTS = Path(__file__).with_name("timed_code.json")
pytestmark = [
    needs_c,
    pytest.mark.measures,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("objdump"), reason="objdump is lacking"),
]

POINTS = [
    Point(kernel=name, mode=mode, layout=layout, order=order, lines=64, options=options)
    for name, kernel in KERNEL_DECLARATIONS.items()
    if build.source(name, "c").exists()
    for mode in kernel.modes or ("",)
    if mode not in kernel.played
    for layout, order in {(kernel.layout, kernel.order), ("alias", "cycle"), ("spread", "random")}
    for options in (
        {},
        *({o: 4} for o in ("spare_draws", "walkers", "per_hop") if o in kernel.options),
    )
]
FUNCTIONS = {
    (point.kernel, function): build.has_session(point)
    for point in POINTS
    for function in KERNEL_DECLARATIONS[point.kernel].timed(point)
    if not KERNEL_DECLARATIONS[point.kernel].in_guest  # whose code is copied into the guest
}


def code_of(program: Path, function: str) -> tuple[str, int]:
    """A function's instructions with what they refer to, and its address modulo a cache line's 64
    bytes, on which the decoders of a core depend."""
    section = ["-j", f".text.{function}", "--no-show-raw-insn", "--no-addresses"]
    words = ["objdump", "-dr", *section, program.with_name(f"{program.name}.o")]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    instructions = text.partition(f"<{function}>:")[2]
    assert instructions, f"{function} is not in a section of its own"
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    (address,) = re.findall(rf"^([0-9a-f]+) \w {function}$", symbols, re.MULTILINE)
    return instructions, int(address, 16) % 64


@pytest.mark.parametrize(
    ("kernel", "function"), sorted(key for key, shares in FUNCTIONS.items() if shares)
)
def test_a_session_times_the_machine_code_that_its_kernels_own_program_times(kernel, function):
    alone = Path(build.kernel(kernel).command[0])
    session = Path(build.session(KERNEL_DECLARATIONS[kernel].session, "c")[0])
    assert code_of(session, function) == code_of(alone, function)


def test_no_timed_code_changes_without_a_new_version():
    """By this compiler: another one makes other code of the same loop, which a row's key tells."""
    made_by = f"{compiler_on_path().version} {platform.machine()}"
    now = {
        f"{kernel} {build.declared_measures(kernel, 'c')} {function}": hashlib.sha256(
            repr(code_of(Path(build.kernel(kernel).command[0]), function)).encode()
        ).hexdigest()[:16]
        for kernel, function in sorted(FUNCTIONS)
    }
    if os.environ.get("TLB_ACCEPT"):
        DIGESTS.write_text(json.dumps({made_by: now}, indent=1) + "\n")
    kept = json.loads(DIGESTS.read_text())
    if made_by not in kept:
        pytest.skip(f"the digests are of another compiler than {made_by}")
    assert now == kept[made_by]
