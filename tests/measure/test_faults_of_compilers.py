"""A compiler that changes, fails or leaves accesses out: measured anew, a reason, and no number."""

import shutil

import pytest
from support.campaigns import says
from support.common import needs_c
from support.kernels import measured

from tlb.measure import build
from tlb.measure.record import Point
from tlb.system.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- a compiler that optimises the chase away; cc that fails (test_build.py)

CHASE, DRAWS, GATHER = (
    "for (uint64_t i = hops / 16; i; i--) {",
    "for (; i + 16 <= draws; i += 16) {",
    "for (; rounds; rounds--)",
)
LEFT_OUT = {  # what -> the kernel, where, in the place of what, what, and the order that runs it
    "the whole chase": ("page_chase", "chase.h", CHASE, f"return p;\n{CHASE}", "cycle"),
    "half of the hops": ("page_chase", "chase.h", CHASE, CHASE.replace("16", "32"), "cycle"),
    "one hop in a round": (
        "page_chase",
        "chase.h",
        "i = hops % 16;",
        "i = (hops - 1) % 16;",
        "cycle",
    ),
    "every draw": ("page_chase", "page_chase.c", DRAWS, f"return loaded;\n{DRAWS}", "random"),
    "the gathered loads": (
        "page_gather",
        "page_gather.c",
        "(unsigned char)base[index[i]]",
        "0 * base[index[i]]",
        "cycle",
    ),
    "the gather's loop": (
        "page_gather",
        "page_gather.c",
        GATHER,
        f"return rounds * lines;\n{GATHER}",
        "cycle",
    ),
}


@needs_c
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_compiler_that_leaves_accesses_out_gives_no_number(tmp_path, monkeypatch, what):
    name, where, before, after, order = LEFT_OUT[what]
    shutil.copytree(
        build.KERNELS_FOLDER, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    file = tmp_path / "kernels" / where
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    monkeypatch.setattr(build, "KERNELS_FOLDER", tmp_path / "kernels")
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    point = Point(kernel=name, lines=4096 + 5, order=order, region_ms=1)
    with pytest.raises(Unavailable) as why:
        measured(point, 2**30)
    says(why.value, "kernel-failed")
