"""Five languages, one verifier: what a program got is read from its smaps, and whatever goes wrong
has its reason."""

import mmap
import sys
from functools import cache
from pathlib import Path

import pytest
from support.common import LONG_S, alive, refusal
from support.stand_ins import no_tools as no_tools

from experiments.keeping_pages import documents
from experiments.keeping_pages.documents import RuntimeReport
from tlb.measure import granted_pages, toolchains
from tlb.measure.toolchains import BuiltProgram
from tlb.system import files, procfs
from tlb.system.reasons import Unavailable

MIB = 1 << 20
SIZE = 16 * MIB
HUGE = 2 * MIB
NEEDS = {
    "c": "a C compiler",
    "rust": "rustc",
    "go": "go",
    "java": "javac",
    "python": sys.executable,
}
BASE = 0x7F0000000000


# ---- the real programs


program_of = cache(toolchains.build_program)
EACH = [pytest.param(language, marks=pytest.mark.needs(what)) for language, what in NEEDS.items()]


def memory_gives_huge_pages() -> bool:
    """Whether this process gets them for as much memory now, by the kernel's sum of its own
    pages."""

    def huge() -> int:
        return (
            procfs.kib(procfs.fields(Path("/proc/self/smaps_rollup").read_text())["AnonHugePages"])
            or 0
        )

    before = huge()
    with mmap.mmap(-1, SIZE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.madvise(mmap.MADV_HUGEPAGE)
        room.write(b"1" * (SIZE + HUGE))
        return huge() - before >= SIZE


@pytest.mark.measures
@pytest.mark.parametrize("language", EACH)
def test_a_recipe_puts_its_array_on_huge_pages_or_says_why_not(language):
    """What may be said follows from the setting, read here by other code than the one under
    test."""
    thp = Path("/sys/kernel/mm/transparent_hugepage")
    words = [
        path.read_text() if path.exists() else "[never]"
        for path in (thp / "hugepages-2048kB/enabled", thp / "enabled")
    ]
    word = (
        words[1]
        if "[inherit]" in words[0] or not (thp / "hugepages-2048kB/enabled").exists()
        else words[0]
    )
    off = "[never]" in word or "THP_enabled:\t0" in Path("/proc/self/status").read_text()
    try:
        report = documents.measure_runtime(program_of(language), "huge", SIZE)
    except Unavailable as why:
        if why.code == "backing-partial" and not off and not memory_gives_huge_pages():
            pytest.skip("memory is too fragmented for huge pages now")
        assert (why.code, off) == ("thp-never", True)
    else:
        assert not off and report.huge_bytes >= SIZE
        if language != "java":  # whose flag is for the whole heap
            assert report.resident_bytes == SIZE


# ---- a program that misbehaves


ANSWER = {
    "language": "c",
    "variant": "plain",
    "array_bytes": SIZE,
    "address": BASE,
    "accesses": 1000,
    "sum": 9000,
    "batch_ns": [5000] * 9,
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A program in Python with a real array, written, that prints what `change` makes of a valid
    line, and then runs `after`."""
    monkeypatch.setattr(granted_pages, "TIME_LIMIT_S", LONG_S)

    def make(
        change: str = "",
        after: str = "sys.stdin.readline()",
        show: str = "print(json.dumps(answer), flush=True)",
    ) -> BuiltProgram:
        path = tmp_path / "program.py"
        path.write_text(
            f"import ctypes, json, mmap, os, signal, sys, time\nsize = {SIZE}\n"
            "room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
            "room.madvise(mmap.MADV_NOHUGEPAGE)\n"
            "room.write(b'1' * size)\n"
            f"answer = {ANSWER!r} | "
            f"{{'address': ctypes.addressof(ctypes.c_char.from_buffer(room))}}\n"
            f"{change}\n{show}\n{after}\n"
        )
        return BuiltProgram("c", "cc 1", (sys.executable, str(path)))

    return make


linux = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="there is no smaps here")


@linux
def test_a_program_that_answers_well_is_reported_from_its_smaps(fake):
    report = documents.measure_runtime(fake(), "plain", SIZE, repeat=2)
    assert (report.huge_bytes, report.ns_per_access, report.repeat) == (0, 5.0, 2)
    assert report.resident_bytes >= SIZE


@linux
@pytest.mark.parametrize(
    "change",
    [
        "answer['address'] = 'x'",
        "answer['sum'] -= 1",
        "answer['batch_ns'] = [200] * 9",
        "answer['address'] = 4096",
    ],
)
def test_anything_but_a_true_answer_is_garbage(fake, change):
    assert refusal(documents.measure_runtime, fake(change), "plain", SIZE) == "kernel-failed"


@linux
@pytest.mark.parametrize(
    ("signal", "expected"), [("SIGSEGV", "kernel-failed"), ("SIGKILL", "oom-killed")]
)
def test_a_program_that_dies_is_a_reason(fake, signal, expected):
    program = fake(show="", after=f"os.kill(os.getpid(), signal.{signal})")
    assert refusal(documents.measure_runtime, program, "plain", SIZE) == expected


@linux
def test_a_hang_is_ended_with_all_that_it_started(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(granted_pages, "TIME_LIMIT_S", 2.0)
    pids = tmp_path / "pids"
    hang = f"open({str(pids)!r}, 'a').write(str(os.fork()) + '\\n'); time.sleep(600)"
    program = fake(after=hang)
    assert refusal(documents.measure_runtime, program, "plain", SIZE) == "kernel-failed"
    assert len(pids.read_text().split()) == 2 and alive(program.run[1]) == []


# ---- the survey


@pytest.fixture
def quick(tmp_path, monkeypatch) -> Path:
    """A lock of the test's own, and Python alone as the language: it is always there."""
    monkeypatch.setattr(
        documents, "measuring_lock", lambda: files.measuring_lock(path=tmp_path / "lock")
    )
    monkeypatch.setattr(documents, "TOOLCHAINS", {"python": toolchains.TOOLCHAINS["python"]})
    return tmp_path


def report(language: str, variant: str, repeat: int = 0) -> RuntimeReport:
    return RuntimeReport(
        language=language,
        toolchain=f"{language} 1",
        variant=variant,
        repeat=repeat,
        array_bytes=SIZE,
        resident_bytes=SIZE,
        huge_bytes=0,
        rest_huge_bytes=0,
        ns_per_access=10.0,
    )


@pytest.mark.measures
def test_a_variant_that_failed_is_not_tried_again_and_the_others_go_on(quick, monkeypatch):
    asked = []

    def measured(program, variant, size, repeat, pass_fds):
        asked.append(variant)
        if variant == "huge" and repeat == 1:
            raise Unavailable("kernel-failed")
        return report(program.language, variant, repeat=repeat)

    monkeypatch.setattr(documents, "measure_runtime", measured)
    found = documents.measure_all_runtimes(SIZE, 4)
    assert (asked.count("plain"), asked.count("huge")) == (4, 2) and found.lacking == {
        "python huge": "kernel-failed"
    }


@pytest.mark.measures
def test_a_language_without_a_toolchain_is_lacking_and_the_others_are_measured(
    quick, monkeypatch, no_tools
):
    monkeypatch.setattr(documents, "TOOLCHAINS", toolchains.TOOLCHAINS)
    monkeypatch.setattr(
        documents,
        "measure_runtime",
        lambda program, variant, size, repeat, pass_fds: report(program.language, variant),
    )
    found = documents.measure_all_runtimes(SIZE, 1)
    assert found.lacking == dict.fromkeys(["c", "rust", "go", "java"], "no-toolchain")
    assert {r.language for r in found.reports} == {"python"}
