"""random_touch draws what the JVM draws, and reads it."""

import re
import subprocess
from collections.abc import Iterator
from itertools import islice

import pytest
from support.kernels import checksum, compiled, disassembled, needs_c, run_c

from tlb.measure import build
from tlb.measure.record import KernelOutput

DRAWS = 2**20  # in a round of random_touch
pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def java_ints(seed: int, bound: int, thread: int = 0, high_bits: bool = False) -> Iterator[int]:
    """ThreadLocalRandom.nextInt(bound), from the JDK's source; `thread` and `high_bits` as the JDK
    has them from 17 on."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15 + 2 * thread) % 2**64
        z = (seed ^ seed >> 33) * 0xFF51AFD7ED558CCD % 2**64
        word = (z ^ z >> 33) * 0xC4CEB9FE1A85EC53 % 2**64 >> 32
        if bound & bound - 1 == 0:
            yield (word >> 1) * bound >> 31 if high_bits else word & bound - 1
        elif (word >> 1) // bound * bound + bound <= 2**31:  # a whole run of `bound` numbers
            yield (word >> 1) % bound


# Printed by OpenJDK 17: nextInt(bound), eight times, in thread 1, whose threadLocalRandomSeed had
# been set to 7.
PRINTED_BY_JAVA = {
    1000003: [260804, 286042, 319857, 262890, 6819, 504829, 935957, 242065],
    2**30 + 1: [
        679262841,
        50286192,
        270263700,
        681506872,
        604254748,
        556699183,
        694404122,
        411445449,
    ],
    4096: [1295, 95, 3645, 515, 2809, 1299, 2910, 2209],
}


@pytest.mark.parametrize("bound", PRINTED_BY_JAVA)
def test_the_oracle_draws_what_the_jvm_printed(bound):
    assert list(islice(java_ints(7, bound, thread=1, high_bits=True), 8)) == PRINTED_BY_JAVA[bound]


REJECTING = (2**30 + 1, 2**31 - 1, 2**30, 1)  # the first of them rejects half of all words


@needs_c
def test_c_draws_below_large_bounds_as_the_oracle_does(tmp_path):
    (tmp_path / "draws.c").write_text(
        f'#define main kernel_main\n#include "{build.KERNELS_FOLDER}/random_touch.c"\n#undef main\n'
        "int main(int argc, char **argv) { uint64_t seed = 11; for (int i = 0; argc > 1 && i < 2000; i++)"
        ' printf("%" PRIu32 "\\n", next_int(&seed, (uint32_t)atoll(argv[1]))); return 0; }\n'
    )
    binary = compiled(tmp_path / "draws.c", tmp_path / "draws")
    for bound in REJECTING:
        printed = subprocess.run(
            [binary, str(bound)], capture_output=True, text=True, check=True
        ).stdout
        assert [int(word) for word in printed.split()] == list(
            islice(java_ints(11, bound), 2000)
        ), bound


@needs_c
@pytest.mark.parametrize(
    ("size", "spare"), [(1, 0), (1000, 0), (1000, 2), (4096, 0), (10**6 + 3, 0), (1 << 26, 0)]
)
def test_c_reads_what_the_oracle_draws(size, spare):
    options = {"bytes": size} | ({"spare_draws": spare} if spare else {})
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    reports = []
    for _ in range(3):
        done = run_c(
            "random_touch",
            [*given, "--lines", str(-(-size // 64)), "--seed", "7", "--region-ms", "1"],
        )
        assert (done.returncode, done.stderr) == (0, "")
        reports.append(KernelOutput.model_validate_json(done.stdout))
    report = reports[0]
    assert (report.layout, report.order, report.options) == (
        "packed",
        "random",
        tuple(options.items()),
    )
    assert (
        report.checksum == checksum(list(islice(java_ints(7, size), 4096)))
        and report.arena_bytes == -(-size // 4096) * 4096
    )
    assert report.accesses % (
        DRAWS * len(report.batch_ns_per_access)
    ) == 0 and report.also.keys() == {"generator_ns_per_access"}
    assert any((one.minor_faults, one.major_faults) == (0, 0) for one in reports)
    # larger than a core's own caches: the draws alone are a part of what is timed
    if size == 1 << 26:
        assert any(0 < one.also["generator_ns_per_access"] < one.ns_per_access for one in reports)


@pytest.mark.needs("a C compiler", "objdump")
def test_both_loops_draw_alike_and_only_one_of_them_loads():
    code = {symbol: disassembled("random_touch", symbol) for symbol in ("touch", "generate")}
    found = {
        symbol: [
            sum(bool(re.match(kind, one)) for one in lines)
            for kind in (r"call|blr?\b", r"i?mul|madd", r"i?div|udiv|sdiv")
        ]
        for symbol, lines in code.items()
    }
    calls, multiplications, divisions = found["touch"]
    assert (
        found["generate"] == found["touch"]
        and calls == 0
        and multiplications >= 2
        and divisions >= 1
    )
    bytes_read = {
        symbol: sum(bool(re.match(r"movzb|ldrb", one)) for one in lines)
        for symbol, lines in code.items()
    }
    assert bytes_read["touch"] >= 1 and bytes_read["generate"] == 0
