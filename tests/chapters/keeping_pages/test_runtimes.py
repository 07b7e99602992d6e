"""Five languages, one verifier: what a program got is read from its smaps, and whatever goes wrong has its reason."""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.chapters.keeping_pages.languages import runtime_words, runtimes
from experiments.chapters.keeping_pages.languages.runtimes import RuntimeReport, Runtimes
from experiments.lab import build, toolchains, watched
from experiments.lab.toolchains import Program
from experiments.machine.compiler import compiler
from experiments.system import files, procfs, smaps
from experiments.words.reasons import Unavailable

MIB = 1 << 20
SIZE = 16 * MIB
HUGE = 2 * MIB
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


def test_javas_flags_are_those_of_its_recipes_and_each_in_its_variant_alone():
    program = Program("java", "javac 17", ("java", "-cp", "somewhere", "BigArray"))
    plain, huge, pool = (program.command(variant, SIZE) for variant in ("plain", "huge", "pool"))
    assert set(huge) - set(plain) == {"-XX:+UseTransparentHugePages", "huge"}
    assert set(pool) - set(plain) == {"-XX:+UseLargePages", "-XX:LargePageSizeInBytes=2m", "pool"}
    assert huge[0] == "java" and huge[-3:] == ["BigArray", "huge", str(SIZE)]


def test_settings_that_would_change_the_pages_do_not_reach_a_program(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseTransparentHugePages")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    seen = toolchains.environment()
    assert "JAVA_TOOL_OPTIONS" not in seen and seen["GOFLAGS"] == "" and seen["GOTOOLCHAIN"] == "local"
    assert seen["PATH"] == os.environ["PATH"]


# ---- toolchains that are missing or broken


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, no C compiler, and an empty place for binaries. Returns the folder that PATH names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchains, "compiler", compiler.__wrapped__)
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built"))
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("language", "package"), [("c", "gcc"), ("rust", "rustc"), ("go", "golang-go"),
                                                   ("java", "default-jdk-headless")])
def test_without_its_toolchain_a_language_says_what_to_install(no_tools: Path, language: str, package: str):
    with pytest.raises(Unavailable) as caught:
        toolchains.build(language)
    assert caught.value.code == "no-toolchain" and f"apt install {package}" in str(caught.value)


def test_python_is_always_there(no_tools: Path):
    program = toolchains.build("python")
    assert program.run[0] == sys.executable and Path(program.run[1]).exists() and "numba" in program.toolchain


@pytest.mark.parametrize("text", ["exit 1", "echo error: no default toolchain >&2; exit 1", "kill -9 $$"])
def test_a_toolchain_that_does_not_tell_its_version_is_none(no_tools: Path, text: str):
    put(no_tools, "rustc", text)
    assert code(toolchains.build, "rust") == "no-toolchain"


def test_a_compiler_that_fails_leaves_nothing_behind_and_is_quoted(no_tools: Path):
    put(no_tools, "go", 'if [ "$1" = version ]; then echo go version go1; exit 0; fi\necho "error: no space for it" >&2; exit 1')
    with pytest.raises(Unavailable) as caught:
        toolchains.build("go")
    assert caught.value.code == "no-toolchain" and "go: error: no space for it" in str(caught.value)
    assert list(build.build_folder().iterdir()) == []


@pytest.mark.parametrize(("words", "expected"), [("No space left on device", "disk-full"), ("write: no space left on device", "disk-full"),
                                                 ("Read-only file system (os error 30)", "disk-read-only")])
def test_a_compiler_without_room_on_the_disk_is_not_a_missing_one(no_tools: Path, words: str, expected: str):
    put(no_tools, "rustc", f'[ "$1" = --version ] && echo rustc 1 && exit 0\necho "error: {words}" >&2; exit 1')
    assert code(toolchains.build, "rust") == expected


def test_a_compiler_that_hangs_is_ended(no_tools: Path, monkeypatch):
    put(no_tools, "rustc", '[ "$1" = --version ] && echo rustc 1 && exit 0\nwhile :; do :; done')
    monkeypatch.setattr(toolchains, "BUILD_LIMIT_S", 0.5)
    assert code(toolchains.build, "rust") == "no-toolchain"


def test_java_needs_the_machine_beside_the_compiler(no_tools: Path):
    put(no_tools, "javac", "echo javac 17")
    with pytest.raises(Unavailable, match="java; Debian"):
        toolchains.build("java")


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


# ---- the verifier on synthetic smaps


def mapping(start: int, size: int, resident: int, thp: int = 0, pool: int = 0, head: str = "rw-p 00000000 00:00 0 ", **other: str) -> str:
    fields = {"Size": size >> 10, "KernelPageSize": 4, "Rss": resident >> 10, "AnonHugePages": thp >> 10, "ShmemPmdMapped": 0,
              "Shared_Hugetlb": 0, "Private_Hugetlb": pool >> 10} | other
    lines = [f"{start:x}-{start + size:x} {head}", *(f"{name}: {kb:>8} kB" for name, kb in fields.items() if kb is not None)]
    return "\n".join([*lines, "THPeligible:    1", "VmFlags: rd wr mr mw me ac sd hg "]) + "\n"


def checked(text: str, address: int | None = BASE, size: int = 100 * HUGE, refused: str = "backing-partial") -> smaps.Pages:
    found = smaps.pages(smaps.mappings(text), address, size)
    runtimes.verify(found, address, size, refused)
    return found


WHOLE = 100 * HUGE


def test_an_array_all_on_huge_pages_passes_and_what_else_is_huge_is_told_apart():
    text = (mapping(0x1000, 4096, 4096, head="r-xp 00000000 fe:00 12   /usr/bin/a program") + mapping(BASE, WHOLE, WHOLE, WHOLE)
            + mapping(BASE + WHOLE, 8 * HUGE, 8 * HUGE, 3 * HUGE))
    assert checked(text) == smaps.Pages(WHOLE, WHOLE, 3 * HUGE, WHOLE)


def test_pages_of_a_pool_count_although_they_are_not_in_rss():
    assert checked(mapping(BASE, WHOLE, 0, pool=WHOLE)).huge_bytes == WHOLE


@pytest.mark.parametrize(("share", "refused"), [(60, "backing-partial"), (98, "backing-partial"), (0, "thp-never"), (60, "pool-empty")])
def test_less_than_99_percent_is_refused(share: int, refused: str):
    assert code(checked, mapping(BASE, WHOLE, WHOLE, share * HUGE), refused=refused) == refused


def test_99_percent_pass():
    assert checked(mapping(BASE, WHOLE, WHOLE, 99 * HUGE)).sure_bytes == 99 * HUGE


def test_an_array_in_two_mappings_is_counted_in_both():
    text = mapping(BASE, 50 * HUGE, 50 * HUGE, 50 * HUGE) + mapping(BASE + 50 * HUGE, 50 * HUGE, 50 * HUGE, 50 * HUGE)
    assert checked(text) == smaps.Pages(WHOLE, WHOLE, 0, WHOLE)


def test_huge_pages_of_a_neighbour_in_the_same_mapping_prove_nothing():
    """Twice the array, half of it huge: all of the array may be on small pages."""
    assert code(checked, mapping(BASE, 2 * WHOLE, 2 * WHOLE, WHOLE)) == "backing-partial"


def test_only_the_aligned_inside_of_an_array_has_to_be_huge():
    assert checked(mapping(BASE, WHOLE, WHOLE, WHOLE - 2 * HUGE), address=BASE + 4096, size=WHOLE - 4096 - 8192).resident_bytes == WHOLE


def test_an_array_too_small_or_too_crooked_for_one_huge_page_proves_nothing():
    assert code(checked, mapping(BASE, 2 * HUGE, 2 * HUGE, HUGE), address=BASE + 4096, size=HUGE) == "backing-partial"


def test_without_an_address_the_array_is_in_the_largest_private_anonymous_mapping():
    text = (mapping(BASE, WHOLE, WHOLE, WHOLE) + mapping(BASE + WHOLE, 4 * WHOLE, 3 * WHOLE, head="rw-p 00000000 fe:00 99 /a/file")
            + mapping(BASE + 8 * WHOLE, 4 * WHOLE, 3 * WHOLE, head="rw-s 00000000 00:01 7 /dev/zero (deleted)")
            + mapping(BASE + 16 * WHOLE, 4 * WHOLE, 3 * WHOLE, head="r--p 00000000 00:00 0 "))
    assert checked(text, None) == smaps.Pages(WHOLE, WHOLE, 0, WHOLE)
    assert code(checked, mapping(BASE, WHOLE, WHOLE, head="r-xp 00000000 00:00 0 "), None) == "kernel-garbage"


def test_without_an_address_the_array_may_be_in_the_pool():
    text = (mapping(BASE, WHOLE, 0, pool=WHOLE, head="rw-p 00000000 00:0f 1234                     /anon_hugepage (deleted)")
            + mapping(BASE + 2 * WHOLE, WHOLE, WHOLE // 2))
    assert checked(text, None) == smaps.Pages(WHOLE, WHOLE, 0, WHOLE)


@pytest.mark.parametrize("address", [BASE - HUGE, BASE + 4096, 4096, BASE + 2 * WHOLE])
def test_an_address_that_is_not_mapped_is_garbage(address: int):
    assert code(checked, mapping(BASE, WHOLE, WHOLE, WHOLE), address) == "kernel-garbage"


def test_a_hole_in_the_array_is_garbage_and_what_is_not_resident_is_short():
    text = mapping(BASE, 50 * HUGE, 50 * HUGE, 50 * HUGE) + mapping(BASE + 51 * HUGE, 50 * HUGE, 50 * HUGE, 50 * HUGE)
    assert code(checked, text) == "kernel-garbage"
    assert code(checked, mapping(BASE, WHOLE, WHOLE - 4096, WHOLE - HUGE)) == "memory-short"


GOOD = mapping(BASE, WHOLE, WHOLE, WHOLE)


@pytest.mark.parametrize("text", [
    "", "\n", "garbage", GOOD + "garbage\n", "Rss: 4 kB\n" + GOOD, GOOD + GOOD, GOOD.replace("Rss", "Rsss"),
    GOOD.replace("AnonHugePages:", "AnonHugePages "), mapping(BASE, WHOLE, WHOLE, WHOLE, Private_Hugetlb=None),
    GOOD.replace("Rss:", "Rss: 4 kB\nRss:"), mapping(BASE, WHOLE, WHOLE - 4096, WHOLE), mapping(BASE, WHOLE, 2 * WHOLE),
    mapping(BASE + WHOLE, WHOLE, WHOLE) + mapping(BASE, WHOLE, WHOLE), GOOD.replace("rw-p", "rw?p"), GOOD.replace(" kB", " MB"),
    GOOD.replace(f"{WHOLE >> 10:>8}", "9" * 30), mapping(BASE, 0, 0), GOOD[:60], GOOD + "\n", GOOD.replace("Rss: ", "Rss: -"),
])
def test_smaps_that_are_not_smaps_prove_nothing(text: str):
    assert text != GOOD
    with pytest.raises(ValueError):
        smaps.mappings(text)


@given(st.text(), st.integers(0, len(GOOD)))
def test_no_text_is_more_than_a_value_error(text: str, at: int):
    for broken in (text, GOOD[:at] + text + GOOD[at:]):
        try:
            smaps.mappings(broken)
        except ValueError:
            continue
        assert "Rss" in broken


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
       st.integers(0, 60), st.integers(1, 60))
def test_what_is_sure_never_exceeds_what_can_be(parts: list[tuple[int, int, int]], first: int, count: int):
    """The oracle: whichever huge pages of a mapping are huge, and whichever part of it is resident, the array's own share."""
    text, at = "", BASE
    for size, resident, huge in parts:
        resident, huge = min(resident, size), min(huge, resident, size)
        text += mapping(at, size * HUGE, resident * HUGE, huge * HUGE)
        at += size * HUGE
    address, size = BASE + first * HUGE, count * HUGE
    try:
        found = smaps.pages(smaps.mappings(text), address, size)
    except Unavailable:
        return
    assert 0 <= found.sure_bytes <= min(found.huge_bytes, size)
    assert found.huge_bytes + found.rest_huge_bytes == sum(min(h, r, s) for s, r, h in parts) * HUGE


@linux
def test_the_smaps_of_this_very_process_are_read_whole():
    room = mmap.mmap(-1, SIZE)
    room.write(b"1" * SIZE)
    text = Path("/proc/self/smaps").read_text(errors="replace")
    found = smaps.mappings(text)
    assert len(found) == sum(line.startswith("VmFlags:") for line in text.splitlines())
    assert sum(m.resident_bytes for m in found) >= SIZE


@linux
def test_a_file_whose_name_has_odd_characters_is_one_mapping(tmp_path: Path):
    name = tmp_path / "a\x0cfile\rof\x1cone\u2028line\nRss: 4 kB"
    name.write_bytes(b"1" * 4096)
    with name.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as room:
        assert room[0] == ord("1")
        with open("/proc/self/smaps", newline="\n", errors="replace") as text:
            assert any(not m.private_anonymous and m.end - m.start == 4096 for m in smaps.mappings(text.read()))


@pytest.mark.parametrize(("every", "own", "process", "on"), [
    ("[madvise]", None, "", True), ("[always]", None, "", True), ("[never]", None, "", False), (None, None, "", False),
    ("[never]", "[madvise]", "", True), ("[always]", "[never]", "", False), ("[always]", "[inherit]", "", True),
    ("[never]", "[inherit]", "", False), ("[always]", None, "THP_enabled:\t0", False), ("[always]", None, "THP_enabled:\t1", True),
    ("nonsense", None, "", False)])
def test_whether_huge_pages_are_on_is_read_from_the_settings(tmp_path: Path, every, own, process: str, on: bool):
    folder = tmp_path / "sys/kernel/mm/transparent_hugepage"
    (folder / "hugepages-2048kB").mkdir(parents=True)
    for path, text in ((folder / "enabled", every), (folder / "hugepages-2048kB/enabled", own)):
        if text is not None:
            path.write_text(f"one {text} other\n")
    assert runtimes.huge_pages_on(tmp_path, f"Name:\ta\n{process}\n") is on


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
