"""random_touch draws what the JVM draws and reads it; prefault makes every page ready, and gives it back."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.common import ROOT, software_plan
from test_contract import POOLS, THP, assert_refused, checksum, compiled, needs_c, reason, run_c, run_twins, setting

from experiments.lab import build, measure
from experiments.lab.record import KernelReport, Point, Record
from experiments.machine.compiler import compiler
from experiments.words.reasons import Unavailable
from kernels.random_touch import draw

BOUNDS = (1, 2, 3, 1000, 4096, 2**20, 10**6 + 3)
DRAWS = 2**20  # in a round of random_touch
MODES = ("touch", "populate", "memset")
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

pytestmark = pytest.mark.measures


# --- the generator, by an independent account of it


def java_ints(seed: int, bound: int, thread: int = 0, high_bits: bool = False) -> Iterator[int]:
    """ThreadLocalRandom.nextInt(bound), from the JDK's source; `thread` and `high_bits` as the JDK has them from 17 on."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15 + 2 * thread) % 2**64
        z = (seed ^ seed >> 33) * 0xFF51AFD7ED558CCD % 2**64
        word = (z ^ z >> 33) * 0xC4CEB9FE1A85EC53 % 2**64 >> 32
        if bound & bound - 1 == 0:
            yield (word >> 1) * bound >> 31 if high_bits else word & bound - 1
        elif (word >> 1) // bound * bound + bound <= 2**31:  # a whole run of `bound` numbers
            yield (word >> 1) % bound


# Printed by OpenJDK 17: nextInt(bound), eight times, in thread 1, whose threadLocalRandomSeed had been set to 7.
PRINTED_BY_JAVA = {
    1000: [841, 192, 590, 700, 238, 872, 532, 539],
    1000003: [260804, 286042, 319857, 262890, 6819, 504829, 935957, 242065],
    2**30 + 1: [679262841, 50286192, 270263700, 681506872, 604254748, 556699183, 694404122, 411445449],
    4096: [1295, 95, 3645, 515, 2809, 1299, 2910, 2209],
    3: [0, 0, 0, 0, 0, 1, 0, 1],
}


@pytest.mark.parametrize("bound", PRINTED_BY_JAVA)
def test_the_oracle_draws_what_the_jvm_printed(bound: int):
    assert list(islice(java_ints(7, bound, thread=1, high_bits=True), 8)) == PRINTED_BY_JAVA[bound]


REJECTING = (2**30 + 1, 2**31 - 1, 3 * 2**29 + 1, 2**30, 5, 1)  # the first of them rejects half of all words


@pytest.mark.parametrize("bound", REJECTING)
def test_numba_draws_below_large_bounds_as_the_oracle_does(bound: int):
    state, drawn = np.uint64(11), []
    for _ in range(2000):
        state, number = draw(np.uint64(state), np.uint64(bound))
        drawn.append(int(number))
    assert drawn == list(islice(java_ints(11, bound), 2000))
    steps = (int(state) - 11) * pow(0x9E3779B97F4A7C15, -1, 2**64) % 2**64  # the state only ever grows by the constant
    assert (steps > 3000) == (bound == 2**30 + 1)


@needs_c
def test_c_draws_below_large_bounds_as_the_oracle_does(tmp_path: Path):
    (tmp_path / "draws.c").write_text(
        f'#define main kernel_main\n#include "{build.KERNELS}/random_touch.c"\n#undef main\n'
        "int main(int argc, char **argv) { uint64_t seed = 11; for (int i = 0; argc > 1 && i < 2000; i++)"
        ' printf("%" PRIu32 "\\n", draw(&seed, (uint32_t)atoll(argv[1]))); return 0; }\n')
    binary = compiled(tmp_path / "draws.c", tmp_path / "draws")
    for bound in REJECTING:
        said = subprocess.run([binary, str(bound)], capture_output=True, text=True, check=True).stdout
        assert [int(word) for word in said.split()] == list(islice(java_ints(11, bound), 2000)), bound


# --- random_touch


def touching(size: int, pages: str = "4k") -> list[str]:
    return ["--pages", pages, "--lines", str(-(-size // 64)), "--bytes", str(size), "--seed", "7", "--region-ms", "1"]


def expected(size: int) -> str:
    return checksum(list(islice(java_ints(7, size), 4096)))


def parsed(out: str, engine: str, size: int) -> KernelReport:
    report = KernelReport.model_validate_json(out)
    lines = -(-size // 64)
    assert (report.engine, report.layout, report.order, report.lines) == (engine, "packed", "random", lines)
    assert report.options == (("bytes", size),) and report.working_set_bytes == 64 * lines
    assert report.accesses % (DRAWS * len(report.batch_ns_per_access)) == 0
    assert report.also.keys() == {"generator_ns_per_access"} and report.also["generator_ns_per_access"] > 0
    return report


def test_numba_reads_what_the_oracle_draws():
    done = run_twins([("random_touch", touching(size)) for size in BOUNDS])
    assert [(status, err) for status, _, err in done] == [(0, "")] * len(BOUNDS)
    found = {size: parsed(out, "numba", size).checksum for size, (_, out, _) in zip(BOUNDS, done, strict=True)}
    assert found == {size: expected(size) for size in BOUNDS}


@needs_c
def test_c_reads_what_the_oracle_draws():
    for size in BOUNDS:
        done = run_c("random_touch", touching(size))
        assert (done.returncode, done.stderr) == (0, "")
        report = parsed(done.stdout, "c", size)
        assert report.checksum == expected(size), size
        assert report.arena_bytes == -(-size // 4096) * 4096


@needs_c
def test_without_its_bytes_an_array_has_those_of_its_lines():
    done = run_c("random_touch", ["--lines", "100", "--seed", "7", "--region-ms", "1"])
    report = KernelReport.model_validate_json(done.stdout)
    assert (report.lines, report.options, report.checksum) == (100, (), expected(6400))


@needs_c
def test_reading_costs_more_than_drawing():
    """64 MiB: larger than what a core has of its own. The draws alone are a part of what is timed."""
    reports = (KernelReport.model_validate_json(run_c("random_touch", touching(1 << 26)).stdout) for _ in range(3))
    assert any(0 < report.also["generator_ns_per_access"] < report.ns_per_access for report in reports)


@needs_c
def test_no_page_of_the_array_is_faulted_in_while_time_runs():
    reports = (KernelReport.model_validate_json(run_c("random_touch", touching(10**6)).stdout) for _ in range(3))
    assert any((report.minor_faults, report.major_faults) == (0, 0) for report in reports)


BAD_TOUCHES = [["--bytes", "1000"], ["--bytes", "1000", "--lines", "15"], ["--bytes", "1025", "--lines", "16"],
               ["--bytes", "0"], ["--bytes", "-5"], ["--bytes", "1e6"], ["--bytes", str(2**31), "--lines", str(2**25)],
               ["--lines", str(2**25)], ["--layout", "spread"], ["--order", "cycle"], ["--mode", "touch"], ["--threads", "1"]]


def test_bytes_that_are_not_the_lines_and_other_bad_arguments_are_one_sentence():
    for bad, said in zip(BAD_TOUCHES, run_twins([("random_touch", bad) for bad in BAD_TOUCHES]), strict=True):
        assert_refused(bad, *said)
    for bad in BAD_TOUCHES if compiler() else []:
        done = run_c("random_touch", bad)
        assert_refused(bad, done.returncode, done.stdout, done.stderr)
    if compiler():
        assert "--lines 16" in run_c("random_touch", BAD_TOUCHES[0]).stderr


def changed(kernel: str, changes: dict[str, str], folder: Path) -> Path:
    """A kernel with places of its source changed, compiled."""
    source = (build.KERNELS / f"{kernel}.c").read_text()
    for before, after in changes.items():
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    (folder / f"{kernel}.c").write_text(source)
    (folder / "harness.h").write_text((build.KERNELS / "harness.h").read_text())
    return compiled(folder / f"{kernel}.c", folder / kernel)


READ = "draws--)\n        sum += base[draw(&s, bound)];"  # of touch(), without spare draws
TOUCH = "touch(const unsigned char *base, uint64_t *state, uint32_t bound, uint64_t draws)\n{"


@needs_c
@pytest.mark.parametrize("changes", [
    {TOUCH: TOUCH + " draws = 0;"}, {TOUCH: TOUCH + " draws /= 2;"}, {TOUCH: TOUCH + " draws -= 1;"},
    {READ: READ.replace("base", "0 * base")},
    {READ: READ.replace(")]", ") + bound]")},  # beyond the array: not 1 there
    {"memset(a.base, 1, a.bytes);": "memset(a.base, 1, bytes);", READ: READ.replace("bound", "bound + 1")},
], ids=["none", "half", "one short", "no load", "beyond", "one beyond"])
def test_reads_that_were_left_out_or_went_astray_are_kernel_garbage(changes: dict[str, str], tmp_path: Path):
    kernel = changed("random_touch", {"memset(a.base, 1, a.bytes);": "memset(a.base, 1, bytes);"} | changes, tmp_path)
    done = subprocess.run([kernel, *touching(1000)], capture_output=True, text=True, timeout=60)
    assert reason(done.returncode, done.stdout, done.stderr)[0] == "kernel-garbage"


BROKEN_TWIN = """
import sys
import numpy as np
from kernels import random_touch
real, fault = random_touch.touch, sys.argv.pop(1)
random_touch.touch = {"none": real, "idle": lambda memory, state, bound, draws: (state, 0),
                      "half": lambda memory, state, bound, draws: real(memory, state, bound, draws // 2)}[fault]
random_touch.main()
"""


@pytest.mark.parametrize("fault", ["idle", "half", "none"])
def test_numba_notices_reads_that_were_left_out(fault: str):
    done = subprocess.run([sys.executable, "-c", BROKEN_TWIN, fault, *touching(1000)], capture_output=True, text=True, cwd=ROOT,
                          timeout=120)
    if fault == "none":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert reason(done.returncode, done.stdout, done.stderr)[0] == "kernel-garbage"


@pytest.mark.needs("a C compiler", "objdump")
def test_both_loops_draw_alike_and_only_one_of_them_loads():
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *build.kernel("random_touch").command], capture_output=True, text=True,
                          check=True).stdout
    code = {}
    for symbol in ("touch", "generate"):
        body = re.search(rf"<{symbol}(?:\.\w+)*>:\n(.*?)\n\n", text + "\n\n", re.DOTALL)[1]
        code[symbol] = [line.split("\t", 1)[1].strip() for line in body.splitlines() if "\t" in line]
    found = {symbol: [sum(bool(re.match(kind, one)) for one in lines) for kind in (r"call|blr?\b", r"i?mul|madd", r"i?div|udiv|sdiv")]
             for symbol, lines in code.items()}
    calls, multiplications, divisions = found["touch"]
    assert found["generate"] == found["touch"] and calls == 0 and multiplications >= 2 and divisions >= 1
    bytes_read = {symbol: sum(bool(re.match(r"movzb|ldrb", one)) for one in lines) for symbol, lines in code.items()}
    assert bytes_read["touch"] >= 1 and bytes_read["generate"] == 0


def needs_thp() -> None:
    if setting(THP / "enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")


def unless_fragmented(status: int, out: str, err: str) -> KernelReport:
    if status == 3 and reason(status, out, err)[0] == "backing-partial":
        pytest.skip("memory is too fragmented for huge pages now")
    return KernelReport.model_validate_json(out)


def huge_page() -> int:
    return int((THP / "hpage_pmd_size").read_text())


@needs_c
def test_a_small_array_on_a_transparent_huge_page_has_one_of_its_own():
    needs_thp()
    done = run_c("random_touch", touching(1000, "thp"))
    report = unless_fragmented(done.returncode, done.stdout, done.stderr)
    assert (report.backing, report.arena_bytes, report.checksum) == ("thp", huge_page(), expected(1000))


def measured(point: Point, **how: object) -> Record:
    return measure.measure(point, state="0" * 12, usable_bytes=1 << 30, **how)


@pytest.mark.parametrize("engine", [pytest.param("c", marks=needs_c), "numba"])
def test_a_point_of_random_touch_is_measured_with_its_bytes(engine: str):
    point = Point(kernel="random_touch", engine=engine, layout="packed", order="random", lines=16, options={"bytes": 1000}, region_ms=1)
    record = measured(point)
    assert record.point == point and record.arena_bytes <= measure.arena_bytes(point)
    assert record.noisy != "faulted"


@needs_c
def test_a_point_whose_lines_are_not_its_bytes_is_a_bad_parameter():
    point = Point(kernel="random_touch", layout="packed", order="random", lines=17, options={"bytes": 1000}, region_ms=1)
    with pytest.raises(Unavailable, match="--lines 16") as why:
        measured(point)
    assert why.value.code == "bad-parameter"


# --- prefault


def prefault(*given: object, **how: object) -> subprocess.CompletedProcess[str]:
    return run_c("prefault", ["--region-ms", "1", *map(str, given)], **how)


def words(mode: str, pages: int) -> list[int]:
    """What stands at the beginning of each page afterwards."""
    return [{"touch": page + 1, "memset": 0x0101010101010101, "populate": 0}[mode] for page in range(pages)]


def made_ready(done: subprocess.CompletedProcess[str]) -> KernelReport:
    if done.returncode == 3 and reason(done.returncode, done.stdout, done.stderr)[0] == "no-populate":
        pytest.skip("this kernel has no MADV_POPULATE_WRITE")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.parametrize("threads", [None, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_every_page_is_made_ready_in_every_batch(mode: str, threads: int | None):
    if (threads or 1) > CPUS:
        pytest.skip("one CPU")
    for lines in (2, 3, 1000):
        report = made_ready(prefault("--mode", mode, "--lines", lines, *(["--threads", threads] if threads else [])))
        assert (report.mode, report.options) == (mode, (("threads", threads),) if threads else ())
        assert (report.layout, report.order, report.lines) == ("spread", "sequential", lines)
        assert report.arena_bytes == report.working_set_bytes == lines * 4096
        assert 5 <= len(report.batch_ns_per_access) <= 16 and report.accesses == lines * len(report.batch_ns_per_access)
        assert report.ns_per_access == pytest.approx(np.median(report.batch_ns_per_access), rel=1e-4)
        assert report.checksum == checksum(words(mode, lines))
        assert report.also["one_byte_resident_bytes"] == 4096
        assert report.also.keys() == {"one_byte_resident_bytes", "first_ns_per_access", "free_ns_per_access"}
        assert min(report.also.values()) > 0


@needs_c
@pytest.mark.parametrize("mode", MODES)
def test_each_page_of_4_kib_is_one_fault_in_every_batch(mode: str):
    report = made_ready(prefault("--mode", mode, "--lines", 2000))
    assert report.accesses <= report.minor_faults < 1.1 * report.accesses + 100  # above it: the program's own


@needs_c
@pytest.mark.parametrize("mode", MODES)
def test_a_transparent_huge_page_is_one_fault_and_what_a_single_byte_takes(mode: str):
    needs_thp()
    page = huge_page()
    done = prefault("--mode", mode, "--pages", "thp", "--lines", 5 * page // 4096 - 1)
    unless_fragmented(done.returncode, done.stdout, done.stderr)
    report = made_ready(done)
    batches = len(report.batch_ns_per_access)
    assert report.arena_bytes == 5 * page and report.accesses == batches * report.arena_bytes // 4096
    assert 5 * batches <= report.minor_faults < 5 * batches + 100
    assert report.also["one_byte_resident_bytes"] == page
    assert report.checksum == checksum(words(mode, 5 * page // 4096))


# In a small process of its own: a child starts with the peak of the process that it was split from.
PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=2, check=True); " \
       "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


@needs_c
def test_what_was_made_ready_is_given_back_before_the_next_batch():
    kernel = [*build.kernel("prefault").command, "--lines", str(2**14), "--region-ms", "1"]
    done = subprocess.run([sys.executable, "-c", PEAK, *kernel], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 64 << 10 <= int(done.stdout) < 96 << 10  # KiB at the most at once: an arena of 64 MiB, and the program


@needs_c
def test_the_threads_run_on_cpus_of_their_own(tmp_path: Path):
    if CPUS < 2:
        pytest.skip("one CPU")
    before = "    p->began_ns = now_ns();\n"
    kernel = changed("prefault", {before: before + '    fprintf(stderr, "%d\\n", sched_getcpu());\n'}, tmp_path)
    allowed = sorted(os.sched_getaffinity(0))
    done = subprocess.run([kernel, "--threads", "2", "--cpu", str(allowed[0]), "--region-ms", "1"], capture_output=True, text=True,
                          timeout=60)
    used = done.stderr.split()
    assert set(map(int, used)) == {allowed[0], allowed[-1]} and len(used) % 2 == 0
    assert KernelReport.model_validate_json(done.stdout).cpu == allowed[0]


BAD_PREFAULTS = [["--threads", "0"], ["--threads", "257"], ["--threads", "x"], ["--mode", "hope"], ["--mode"], ["--layout", "packed"],
                 ["--order", "cycle"], ["--stride-pages", "2"], ["--bytes", "5"], ["--lines", "0"]]


@needs_c
@pytest.mark.parametrize("bad", BAD_PREFAULTS, ids=" ".join)
def test_an_argument_that_prefault_cannot_take_is_one_sentence(bad: list[str]):
    done = run_c("prefault", bad)
    assert_refused(bad, done.returncode, done.stdout, done.stderr)


@needs_c
def test_more_threads_than_cpus_or_than_pages_are_refused():
    if CPUS < 256:
        done = prefault("--threads", CPUS + 1)
        assert_refused(["--threads"], done.returncode, done.stdout, done.stderr)
        assert f"may use {CPUS}." in done.stderr
    done = prefault("--threads", 2, "--lines", 1)
    assert_refused(["--lines"], done.returncode, done.stdout, done.stderr)


@needs_c
def test_pages_of_a_pool_that_is_too_small_are_said_to_lack():
    pool = POOLS / "hugepages-2048kB/free_hugepages"
    if pool.exists() and int((pool.parent / "nr_overcommit_hugepages").read_text()):
        pytest.skip("this pool grows by itself")
    free = int(pool.read_text()) if pool.exists() else 0
    done = prefault("--pages", "2m", "--lines", 512 * (free + 3))
    assert reason(done.returncode, done.stdout, done.stderr)[0] == ("pool-empty" if pool.exists() else "page-size-unsupported")


@needs_c
def test_pages_of_a_pool_are_made_ready_where_there_is_one():
    pool = POOLS / "hugepages-2048kB/free_hugepages"
    if not pool.exists() or int(pool.read_text()) < 4:
        pytest.skip("no pool of 2 MiB pages here")
    report = made_ready(prefault("--pages", "2m", "--lines", 2048))
    assert (report.backing, report.also["one_byte_resident_bytes"], report.checksum) == ("2m", 2 << 20, checksum(words("touch", 2048)))


ADVICE = "madvise(p->from, p->bytes, MADV_POPULATE_WRITE)"
TOUCHED = "at < bytes; at += stride)"
UNREADY = [
    ("populate", {ADVICE: ADVICE.replace("MADV_POPULATE_WRITE", "9999")}, "no-populate"),  # EINVAL, as a kernel before 5.14 says
    ("populate", {ADVICE: ADVICE.replace("p->from", "NULL")}, "memory-short"),  # ENOMEM
    ("populate", {ADVICE: ADVICE.replace("p->bytes", "4096")}, "backing-partial"),
    ("touch", {TOUCHED: "at < bytes / 2; at += stride)"}, "backing-partial"),
    ("touch", {TOUCHED: "at + stride < bytes; at += stride)"}, "backing-partial"),
    ("touch", {"= ++first;": "= first;"}, "kernel-garbage"),
    ("memset", {"memset(p->from, 1, p->bytes)": "memset(p->from, 1, p->bytes - 4096)"}, "backing-partial"),
    ("memset", {"memset(p->from, 1, p->bytes)": "memset(p->from, 2, p->bytes)"}, "kernel-garbage"),
    ("touch", {"pages * (i + 1) / threads * page;": "pages * (i + 1) / (threads + 1) * page;"}, "backing-partial"),
]


@needs_c
@pytest.mark.parametrize(("mode", "changes", "code"), UNREADY)
def test_pages_that_are_not_ready_give_no_number(mode: str, changes: dict[str, str], code: str, tmp_path: Path):
    kernel = changed("prefault", changes, tmp_path)
    done = subprocess.run([kernel, "--mode", mode, "--lines", "1000", "--region-ms", "1"], capture_output=True, text=True, timeout=60)
    assert reason(done.returncode, done.stdout, done.stderr)[0] == code


@needs_c
def test_a_small_limit_of_address_space_is_memory_short():
    limit = (256 << 20, 256 << 20)
    done = prefault(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert reason(done.returncode, done.stdout, done.stderr)[0] == "memory-short"


def test_prefault_is_in_c_alone():
    with pytest.raises(Unavailable) as why:
        measured(Point(kernel="prefault", engine="numba", order="sequential", lines=64))
    assert why.value.code == "engine-lacks"


@needs_c
@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_a_point_of_prefault_is_measured_and_its_many_faults_do_not_make_it_noisy(pages: str):
    if pages == "thp":
        needs_thp()
    point = Point(kernel="prefault", pages=pages, order="sequential", lines=1024, mode="touch", options={"threads": 1}, region_ms=1)
    try:
        record = measured(point)
    except Unavailable as why:
        if why.code != "backing-partial" or pages != "thp":
            raise
        pytest.skip("memory is too fragmented for huge pages now")
    assert record.point == point and record.arena_bytes <= measure.arena_bytes(point)
    assert record.minor_faults > 0 and record.noisy != "faulted"


@pytest.mark.needs("a C compiler", "perf that counts faults")
def test_perf_counts_the_faults_of_the_timed_batches_and_no_others():
    record = measured(Point(kernel="prefault", order="sequential", lines=5000, mode="touch", region_ms=1), plan=software_plan())
    counted = record.counters["minor_faults"].value
    assert counted is not None and record.accesses <= counted < 1.01 * record.accesses + 100


@needs_c
def test_the_timed_loop_of_touch_is_shown_from_the_source():
    assert "touch(char *from" in build.timed_source("prefault", "touch")


# --- the other architecture


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kernels for arm64, static, so that emulation needs no libraries."""
    folder = tmp_path_factory.mktemp("arm64")
    for kernel in ("random_touch", "prefault"):
        subprocess.run(["aarch64-linux-gnu-gcc", "-static", *build.FLAGS, "-o", folder / kernel, build.KERNELS / f"{kernel}.c"],
                       check=True)
    return folder


def emulated(*command: object) -> KernelReport:
    done = subprocess.run(["qemu-aarch64-static", *map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return KernelReport.model_validate_json(done.stdout)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has to emulate arm64")
@pytest.mark.needs("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
def test_the_arm64_builds_draw_and_make_ready_the_same_under_emulation(arm64: Path):
    for size in (1, 1000, 4096):
        assert emulated(arm64 / "random_touch", *touching(size)).checksum == expected(size)
    for mode in ("touch", "memset"):  # the emulator takes no notice of MADV_POPULATE_WRITE
        report = emulated(arm64 / "prefault", "--mode", mode, "--lines", 1000, "--threads", min(CPUS, 2), "--region-ms", 1)
        assert report.checksum == checksum(words(mode, 1000))


@needs_c
def test_spare_draws_are_thrown_away_and_every_read_is_still_made(tmp_path: Path):
    done = run_c("random_touch", [*touching(1000), "--spare_draws", "2"])
    report = KernelReport.model_validate_json(done.stdout)
    assert report.options == (("bytes", 1000), ("spare_draws", 2)) and report.checksum == expected(1000)
    last = "sum += base[draw(&s, bound)];\n    }"  # of touch_after()
    kernel = changed("random_touch", {last: last.replace("base", "0 * base")}, tmp_path)
    done = subprocess.run([kernel, *touching(1000), "--spare_draws", "2"], capture_output=True, text=True, timeout=60)
    assert reason(done.returncode, done.stdout, done.stderr)[0] == "kernel-garbage"


def test_numba_throws_spare_draws_away_too():
    (status, out, err), = run_twins([("random_touch", [*touching(1000), "--spare_draws", "2"])])
    assert status == 0, err
    report = KernelReport.model_validate_json(out)
    assert report.options == (("bytes", 1000), ("spare_draws", 2)) and report.checksum == expected(1000)
