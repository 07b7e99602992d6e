"""Five languages, one verifier: what a program got is read from its smaps, and whatever goes wrong has its reason."""

from __future__ import annotations

import json
import math
import mmap
import re
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.stand_ins import no_tools as no_tools

from experiments.chapters.keeping_pages.languages import runtime_words, runtimes
from experiments.chapters.keeping_pages.languages.runtimes import RuntimeReport, Runtimes
from experiments.lab import build, toolchains, watched
from experiments.lab.toolchains import Program
from experiments.system import files, procfs
from experiments.words.reasons import Unavailable

MIB = 1 << 20
SIZE = 16 * MIB
HUGE = 2 * MIB
WHOLE = 100 * HUGE
NEEDS = {"c": "a C compiler", "rust": "rustc", "go": "go", "java": "javac", "python": sys.executable}
BASE = 0x7F0000000000


def code(call, *arguments, **named) -> str:
    with pytest.raises(Unavailable) as caught:
        call(*arguments, **named)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value.code


# ---- the real programs


program_of = cache(toolchains.build)
EACH = [pytest.param(language, marks=pytest.mark.needs(what)) for language, what in NEEDS.items()]


@pytest.mark.measures
@pytest.mark.parametrize("language", EACH)
def test_a_plain_array_is_measured_whatever_pages_it_got(language: str):
    report = runtimes.measure(program_of(language), "plain", SIZE)
    assert (report.language, report.variant, report.array_bytes) == (language, "plain", SIZE)
    assert 0 <= report.huge_share <= 1 and report.resident_bytes >= SIZE


def memory_gives_huge_pages() -> bool:
    """Whether this process gets them for as much memory now, by the kernel's sum of its own pages."""
    def huge() -> int:
        return procfs.kib(procfs.fields(Path("/proc/self/smaps_rollup").read_text())["AnonHugePages"]) or 0

    before = huge()
    with mmap.mmap(-1, SIZE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.madvise(mmap.MADV_HUGEPAGE)
        room.write(b"1" * (SIZE + HUGE))
        return huge() - before >= SIZE


@pytest.mark.measures
@pytest.mark.parametrize("language", EACH)
def test_a_recipe_puts_its_array_on_huge_pages_or_says_why_not(language: str):
    """What may be said follows from the setting, read here by other code than the one under test."""
    thp = Path("/sys/kernel/mm/transparent_hugepage")
    words = [path.read_text() if path.exists() else "[never]" for path in (thp / "hugepages-2048kB/enabled", thp / "enabled")]
    word = words[1] if "[inherit]" in words[0] or not (thp / "hugepages-2048kB/enabled").exists() else words[0]
    off = "[never]" in word or "THP_enabled:\t0" in Path("/proc/self/status").read_text()
    try:
        report = runtimes.measure(program_of(language), "huge", SIZE)
    except Unavailable as why:
        if why.code == "backing-partial" and not off and not memory_gives_huge_pages():
            pytest.skip("memory is too fragmented for huge pages now")
        assert (why.code, off) == ("thp-never", True)
    else:
        assert not off and report.huge_bytes >= SIZE
        if language != "java":  # whose flag is for the whole heap
            assert report.resident_bytes == SIZE


@pytest.mark.measures
@pytest.mark.parametrize("language", EACH)
def test_from_the_pool_an_array_is_all_of_it_or_the_pool_is_empty(language: str):
    try:
        report = runtimes.measure(program_of(language), "pool", SIZE)
    except Unavailable as why:
        free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        assert why.code == "pool-empty" and (not free.exists() or int(free.read_text()) < (2 * SIZE + 64 * MIB) // HUGE)
    else:
        assert report.huge_bytes >= SIZE


@pytest.mark.measures
@pytest.mark.parametrize("language", EACH)
@pytest.mark.parametrize("arguments", [[], ["plain"], ["huge"], ["other", "16777216"], ["plain", "0"], ["pool", "x"]])
def test_bad_arguments_end_a_program_without_a_line(language: str, arguments: list[str], monkeypatch):
    monkeypatch.setattr(Program, "command", lambda self, variant, size: [*self.run, *arguments])
    assert code(runtimes.measure, program_of(language), "plain", SIZE) == "kernel-crashed"


@pytest.mark.parametrize("language", EACH[:4])  # Python is not compiled
def test_a_program_is_built_once_and_under_its_digest(language: str):
    first = program_of(language)
    made = {path: path.stat().st_mtime_ns for path in build.build_folder().glob(f"runtime-{language}-*/*")}
    assert made and toolchains.build(language) == first
    assert {path: path.stat().st_mtime_ns for path in build.build_folder().glob(f"runtime-{language}-*/*")} == made
    assert not list(build.build_folder().glob(f".runtime-{language}-*"))


def test_the_kernels_of_the_laboratory_are_not_disturbed():
    assert "big_array" not in build.kernel_names()


# ---- the recipes


@pytest.mark.parametrize("language", NEEDS)
def test_each_source_marks_a_recipe_that_asks_for_huge_pages(language: str):
    source = (toolchains.SOURCES / toolchains.TOOLS[language].source).read_text()
    recipe = re.search(r"^\s*(?:/\*|//|#) \[recipe\](?: \*/)?\n(.+?)^\s*(?:/\*|//|#) \[end\]", source, re.MULTILINE | re.DOTALL)[1]
    assert ("-xx:+usetransparenthugepages" if language == "java" else "madvise") in recipe.lower()
    pool = re.search(r"^\s*(?:/\*|//|#) \[pool\](?: \*/)?\n(.+?)^\s*(?:/\*|//|#) \[end\]", source, re.MULTILINE | re.DOTALL)[1]
    assert ("-xx:+uselargepages" if language == "java" else "hugetlb") in pool.lower()


# ---- a program that misbehaves


ANSWER = {"language": "c", "variant": "plain", "array_bytes": SIZE, "address": BASE, "accesses": 1000, "sum": 9000,
          "batch_ns": [5000] * 9}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A program in Python with a real array, written, that prints what `change` makes of a valid line, and then runs `after`."""
    monkeypatch.setattr(watched, "TIME_LIMIT_S", 60.0)

    def make(change: str = "", after: str = "sys.stdin.readline()", show: str = "print(json.dumps(answer), flush=True)") -> Program:
        path = tmp_path / "program.py"
        path.write_text(f"import ctypes, json, mmap, os, signal, sys, time\nsize = {SIZE}\n"
                        "room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
                        "room.madvise(mmap.MADV_NOHUGEPAGE)\n"
                        "room.write(b'1' * size)\n"
                        f"answer = {ANSWER!r} | {{'address': ctypes.addressof(ctypes.c_char.from_buffer(room))}}\n"
                        f"{change}\n{show}\n{after}\n")
        return Program("c", "cc 1", (sys.executable, str(path)))

    return make


linux = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="there is no smaps here")


@linux
def test_a_program_that_answers_well_is_reported_from_its_smaps(fake):
    report = runtimes.measure(fake(), "plain", SIZE, repeat=2)
    assert (report.huge_bytes, report.ns_per_access, report.repeat) == (0, 5.0, 2)
    assert report.resident_bytes >= SIZE


@linux
def test_a_huge_variant_on_small_pages_is_refused(fake):
    """The fake tells the kernel that it wants none, so this holds under any setting."""
    got = code(runtimes.measure, fake("answer['variant'] = 'huge'"), "huge", SIZE)
    assert got == ("backing-partial" if runtimes.huge_pages_on(status=procfs.text(Path("/proc/self/status"))) else "thp-never")


@linux
@pytest.mark.parametrize("change", [
    "answer = {}", "answer = []", "answer['surplus'] = 1", "del answer['sum']", "answer['address'] = 'x'", "answer['address'] = -1",
    "answer['batch_ns'] = [1e400] * 9", "answer['batch_ns'] = []", "answer['batch_ns'] = [5000.5] * 9", "answer['language'] = 'go'",
    "answer['variant'] = 'huge'", "answer['array_bytes'] += 1", "answer['sum'] -= 1", "answer['batch_ns'] = [200] * 9",
    "answer['address'] = 4096"])
def test_anything_but_a_true_answer_is_garbage(fake, change: str):
    assert code(runtimes.measure, fake(change), "plain", SIZE) == "kernel-garbage"


@linux
@pytest.mark.parametrize("show", ["print('hello', flush=True)", "print(flush=True)", "print('x' * 200_000, flush=True)",
                                  "print(json.dumps(answer)); print('more', flush=True)", "sys.stdout.buffer.write(b'\\xff\\n')",
                                  "print('[' * 60_000, flush=True)"])
def test_another_text_than_one_line_is_garbage(fake, show: str):
    assert code(runtimes.measure, fake(show=show, after=""), "plain", SIZE) == "kernel-garbage"


@linux
def test_an_array_that_was_not_written_is_refused(fake):
    change = "room.madvise(mmap.MADV_DONTNEED)"
    assert code(runtimes.measure, fake(change), "plain", SIZE) == "memory-short"


@linux
@pytest.mark.parametrize(("show", "after", "expected"), [
    ("", "os.kill(os.getpid(), signal.SIGSEGV)", "kernel-crashed"), ("", "sys.exit(1)", "kernel-crashed"),
    ("", "", "kernel-crashed"), ("", "sys.exit(3)", "kernel-crashed"), ("", "os.kill(os.getpid(), signal.SIGKILL)", "oom-killed"),
    ("print(json.dumps(answer), flush=True)", "sys.exit(1)", "kernel-crashed"),
    ("print(json.dumps(answer), flush=True)", "os.kill(os.getpid(), signal.SIGABRT)", "kernel-crashed"),
])
def test_a_program_that_dies_is_a_reason_even_after_its_line(fake, show: str, after: str, expected: str):
    assert code(runtimes.measure, fake(show=show, after=after), "plain", SIZE) == expected


@linux
def test_exit_3_is_a_kernel_that_refuses_huge_pages(fake):
    assert code(runtimes.measure, fake(show="", after="sys.exit(3)"), "huge", SIZE) == "thp-never"


@linux
def test_exit_3_from_the_pool_is_a_pool_that_is_empty(fake):
    assert code(runtimes.measure, fake(show="", after="sys.exit(3)"), "pool", SIZE) == "pool-empty"


@linux
def test_last_words_are_quoted(fake):
    with pytest.raises(Unavailable, match="exit status 1; no room"):
        runtimes.measure(fake(show="", after="sys.exit('first\\nno room')"), "plain", SIZE)


def lives(pid: int) -> bool:
    """A zombie is dead too: who is to reap an orphan differs from computer to computer."""
    return procfs.fields(procfs.text(Path(f"/proc/{pid}/status"))).get("State", "gone")[0] not in "ZXg"


@linux
@pytest.mark.parametrize("show", ["", "print(json.dumps(answer), flush=True)"])
def test_a_hang_is_ended_with_all_that_it_started(fake, monkeypatch, tmp_path: Path, show: str):
    monkeypatch.setattr(watched, "TIME_LIMIT_S", 3.0)
    pids = tmp_path / "pids"
    hang = f"open({str(pids)!r}, 'a').write(str(os.fork()) + '\\n'); time.sleep(600)"
    assert code(runtimes.measure, fake(show=show, after=hang), "plain", SIZE) == "kernel-hung"
    grandchild = max(int(pid) for pid in pids.read_text().split())
    assert grandchild > 0
    deadline = time.monotonic() + 30  # a kill is on its way when it is sent, no more
    while lives(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@linux
def test_a_program_that_cannot_be_started_is_a_crash():
    assert code(runtimes.measure, Program("c", "cc", ("/nonexistent/program",)), "plain", SIZE) == "kernel-crashed"


# ---- the survey


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of the test's own, and Python alone as the language: it is always there."""
    monkeypatch.setattr(runtimes, "measuring_lock", lambda: files.measuring_lock(path=tmp_path / "lock"))
    monkeypatch.setattr(runtimes, "TOOLS", {"python": toolchains.TOOLS["python"]})
    return tmp_path


def report(language: str = "c", variant: str = "plain", huge: int = 0, ns: float = 10.0, repeat: int = 0, rest: int = 0) -> RuntimeReport:
    return RuntimeReport(language=language, toolchain=f"{language} 1", variant=variant, repeat=repeat, array_bytes=WHOLE,
                         resident_bytes=WHOLE, huge_bytes=huge, rest_huge_bytes=rest, ns_per_access=ns)


def document(*reports: RuntimeReport, thp: str = "madvise", **lacking: str) -> Runtimes:
    return Runtimes(measured_at="2025-01-31T12:00:00Z", state="00112233aabb", thp=thp, array_bytes=WHOLE, reports=list(reports),
                    lacking={name.replace("_", " "): code for name, code in lacking.items()})


@pytest.mark.measures
def test_a_survey_survives_json_and_asks_for_each_variant_in_turn(quick: Path, monkeypatch):
    asked = []

    def measured(program, variant, size, repeat, pass_fds):
        asked.append((variant, repeat))
        assert len(pass_fds) == 1
        return report(program.language, variant, repeat=repeat)

    monkeypatch.setattr(runtimes, "measure", measured)
    found = runtimes.survey(SIZE, 3)
    assert sorted(asked, key=lambda one: one[1]) == asked and len(set(asked)) == 9
    assert found.lacking == {} and [r.variant for r in found.reports] == ["plain"] * 3 + ["huge"] * 3 + ["pool"] * 3
    assert Runtimes.model_validate_json(json.dumps(found.model_dump(mode="json"))) == found


@pytest.mark.measures
def test_a_variant_that_failed_is_not_tried_again_and_the_others_go_on(quick: Path, monkeypatch):
    asked = []

    def measured(program, variant, size, repeat, pass_fds):
        asked.append(variant)
        if variant == "huge" and repeat == 1:
            raise Unavailable("kernel-hung")
        return report(program.language, variant, repeat=repeat)

    monkeypatch.setattr(runtimes, "measure", measured)
    found = runtimes.survey(SIZE, 4)
    assert (asked.count("plain"), asked.count("huge")) == (4, 2) and found.lacking == {"python huge": "kernel-hung"}
    assert any("was not measured to the end" in text for text in runtime_words.sentences(found))


@pytest.mark.measures
def test_a_language_without_a_toolchain_is_lacking_and_the_others_are_measured(quick: Path, monkeypatch, no_tools: Path):
    monkeypatch.setattr(runtimes, "TOOLS", toolchains.TOOLS)
    monkeypatch.setattr(runtimes, "measure", lambda program, variant, size, repeat, pass_fds: report(program.language, variant))
    found = runtimes.survey(SIZE, 1)
    assert found.lacking == dict.fromkeys(["c", "rust", "go", "java"], "no-toolchain")
    assert {r.language for r in found.reports} == {"python"}
    assert sum("apt install" in text for text in runtime_words.sentences(found)) == 4


@pytest.mark.measures
def test_more_than_half_of_the_free_memory_is_not_taken(quick: Path, monkeypatch):
    inspected = runtimes.host.inspect()
    needed = 2 * SIZE + runtimes.SPARE_BYTES
    monkeypatch.setattr(runtimes, "measure", lambda program, variant, size, repeat, pass_fds: report(program.language, variant))
    for usable, lacking in ((2 * needed - 1, {"python": "memory-short"}), (2 * needed, {})):
        memory = inspected.memory.model_copy(update={"usable_bytes": usable})
        monkeypatch.setattr(runtimes.host, "inspect", lambda memory=memory: inspected.model_copy(update={"memory": memory}))
        assert runtimes.survey(SIZE, 1).lacking == lacking


def test_another_system_or_base_page_lacks_all_languages(monkeypatch, quick: Path):
    inspected = runtimes.host.inspect()
    for change, expected in (({"os": "Darwin"}, "not-linux"), ({"os": "Linux", "base_page_bytes": 65536}, "page-size-unsupported")):
        monkeypatch.setattr(runtimes.host, "inspect", lambda change=change: inspected.model_copy(update=change))
        assert runtimes.survey(SIZE, 1).lacking == {"python": expected}


@pytest.mark.parametrize(("size", "repeats"), [(SIZE + 4096, 1), (HUGE, 1), (0, 1), (-SIZE, 1), (1 << 31, 1), (SIZE, 0)])
def test_a_size_or_a_number_of_repeats_that_cannot_be_is_refused(size: int, repeats: int):
    assert code(runtimes.survey, size, repeats) == "bad-parameter"


def test_a_survey_waits_for_nobody(quick: Path):
    with files.measuring_lock(path=quick / "lock"):
        assert code(runtimes.survey, SIZE, 1) == "measuring-already"


# ---- the document, the table and the sentences


@pytest.mark.parametrize("change", [{"language": "perl"}, {"variant": "other"}, {"huge_bytes": WHOLE + 1}, {"huge_bytes": -1},
                                    {"resident_bytes": WHOLE - 1}, {"ns_per_access": math.nan}, {"ns_per_access": 0.0}, {"surplus": 1},
                                    {"array_bytes": "1"}, {"toolchain": ""}, {"repeat": True}])
def test_a_report_that_cannot_be_is_no_report(change: dict):
    with pytest.raises(ValidationError):
        RuntimeReport(**(report().model_dump() | change))


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"state": "x"}, {"measured_at": "today"}, {"lacking": {"perl": "no-toolchain"}},
                                    {"lacking": {"go": "no such code"}}, {"lacking": {"go other": "no-toolchain"}}, {"surplus": 1},
                                    {"reports": [{}]}, {"thp": "A word"}])
def test_a_document_that_cannot_be_is_no_document(change: dict):
    with pytest.raises(ValidationError):
        Runtimes.model_validate(document(report()).model_dump() | change)


def test_the_table_has_medians_and_the_gain_of_each_language():
    doc = document(*(report("go", "plain", 0, ns, i) for i, ns in enumerate([19, 21, 90.0])),
                   *(report("go", "huge", WHOLE, ns, i, 4 * MIB) for i, ns in enumerate([7.0, 6, 5])), report("java", "huge", WHOLE))
    table = runtime_words.table(doc)
    assert list(table["language"]) == ["Go", "Go", "Java"] and list(table["on_huge_pages_percent"]) == [0, 100, 100]
    assert list(table["ns_per_access"]) == [21, 6, 10] and list(table["elsewhere_huge_bytes"]) == [0, 4 * MIB, 0]
    assert table["plain_over_this"][1] == 21 / 6 and table["plain_over_this"].isna().tolist() == [True, False, True]


def test_an_empty_document_has_an_empty_table_and_its_reasons():
    doc = document(c="memory-short", go="no-toolchain")
    assert runtime_words.table(doc).empty and "plain_over_this" in runtime_words.table(doc)
    assert [text.partition(" ")[0] for text in runtime_words.sentences(doc)] == ["C", "Go"]
    assert "apt install golang-go" in runtime_words.sentences(doc)[1]


def test_the_languages_whose_plain_array_got_nothing_stand_in_one_sentence():
    first = runtime_words.sentences(document(report("c"), report("go"), report("java"), report("python", huge=WHOLE)))[0]
    assert "200 MiB" in first and "C, Go and Java" in first and "Python" not in first


@pytest.mark.parametrize(("language", "thp", "why"), [
    ("python", "madvise", "NumPy"), ("go", "madvise", "older versions"), ("c", "madvise", "`madvise`"),
    ("c", "always", "`always`"), ("c", "unknown", "")])
def test_a_plain_array_on_huge_pages_is_explained_by_the_setting(language: str, thp: str, why: str):
    (told,) = runtime_words.sentences(document(report(language, huge=WHOLE // 2), thp=thp))
    assert "50 % of" in told and why in told and ("`" in told) == (thp != "unknown")


def test_a_gain_is_told_only_where_the_repeats_tell_the_two_apart():
    def told(plain: list[float], huge: list[float]) -> str:
        return runtime_words.sentences(document(*(report("c", "plain", 0, ns, i) for i, ns in enumerate(plain)),
                                                *(report("c", "huge", WHOLE, ns, i) for i, ns in enumerate(huge))))[-1]

    assert "5.0 ns instead of 10.0 ns" in told([9, 10, 11], [4, 5, 6.0])
    assert "10.0 ns instead of 5.0 ns" in told([4, 5, 6.0], [9, 10, 11])
    for plain, huge in (([9, 10, 11], [4, 5, 9.5]), ([10, 11], [5, 6.0]), ([10.0], [5.0])):
        assert "instead" not in told(plain, huge)
    assert " ns" not in told([], [5.0])


def test_javas_sentence_says_that_the_flag_is_for_the_whole_heap():
    told = runtime_words.sentences(document(report("java", "huge", WHOLE, rest=6 * MIB)))[0]
    assert "100 % of Java's whole heap" in told and "6 MiB elsewhere" in told


@pytest.mark.parametrize(("profile", "size", "repeats"), [("smoke", 16 * MIB, 1), ("quick", 256 * MIB, 3), ("full", 256 * MIB, 3)])
def test_a_profile_says_how_much_is_surveyed(monkeypatch, profile: str, size: int, repeats: int):
    asked = []
    monkeypatch.setattr(runtimes, "survey", lambda size, repeats: asked.append((size, repeats)) or document(report()))
    assert Runtimes.model_validate(runtimes.make(profile)) == document(report()) and asked == [(size, repeats)]
