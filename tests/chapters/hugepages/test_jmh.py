"""The JVM benchmark: what JMH's JSON says, which pages its heap must prove, and every way in which
there is no number."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import pytest
from support.common import lacking

from experiments.hugepages.languages import jmh, jvm, maven
from experiments.hugepages.languages.jmh import Jmh, Lack
from experiments.hugepages.languages.jvm import Score
from tlb.reasons import Unavailable
from tlb.system import files, procfs

# JMH 1.37 under JDK 17 wrote this of two forks of two iterations; its white space and percentiles
# are left out.
REAL = """[{"jmhVersion": "1.37", "benchmark": "tlb.ByteArrayTouch.draw", "mode": "avgt", "threads": 1, "forks": 2,
"jvm": "java", "jvmArgs": ["-Djava.io.tmpdir=.", "-XX:+UseSerialGC"], "jdkVersion": "17.0.15",
"vmName": "OpenJDK 64-Bit Server VM", "vmVersion": "17.0.15+6-Debian-1deb12u1", "warmupIterations": 1, "warmupTime": "200 ms",
"warmupBatchSize": 1, "measurementIterations": 2, "measurementTime": "200 ms", "measurementBatchSize": 1,
"params": {"bound": "1000"}, "primaryMetric": {"score": 9.388369422433158, "scoreError": 33.55426167042421,
"scoreConfidence": [-24.165892247991053, 42.94263109285737], "scoreUnit": "ns/op",
"rawData": [[17.075336067220668, 7.0784869747915815], [7.701446209658398, 5.69820843806198]]}, "secondaryMetrics": {}},
{"jmhVersion": "1.37", "benchmark": "tlb.ByteArrayTouch.touch", "mode": "avgt", "threads": 1, "forks": 2,
"jvm": "java", "jvmArgs": ["-Djava.io.tmpdir=.", "-XX:+UseSerialGC"], "jdkVersion": "17.0.15",
"vmName": "OpenJDK 64-Bit Server VM", "vmVersion": "17.0.15+6-Debian-1deb12u1", "warmupIterations": 1, "warmupTime": "200 ms",
"warmupBatchSize": 1, "measurementIterations": 2, "measurementTime": "200 ms", "measurementBatchSize": 1,
"params": {"size": "1000"}, "primaryMetric": {"score": 5.4181514445277426, "scoreError": 14.088939325639577,
"scoreConfidence": [-8.670787881111835, 19.50709077016732], "scoreUnit": "ns/op",
"rawData": [[7.907758085529365, 6.587533814939271], [3.6126603957648755, 3.5646534818774573]]}, "secondaryMetrics": {}}]"""
LOG = "[0.007s][debug][gc,heap,coops] Heap address: 0x00000000f4000000, size: 192 MB, Compressed Oops mode: 32-bit\n"
LOW, MIB = 0xF4000000, 1 << 20
FORKED = {"warmup_s": 0.01, "measure_s": 0.01, "iterations": 2, "forks": 2}


def code_of(call, *args, **how) -> str:
    with pytest.raises(Unavailable) as why:
        call(*args, **how)
    return why.value.code


def mapping(
    low: int, size_mib: int, rss: int = 0, thp: int = 0, hugetlb: int = 0, page_kb: int = 4
) -> str:
    """One mapping as Linux 6 prints it in smaps; sizes in MiB, from an address."""
    return (
        f"{low:08x}-{low + size_mib * MIB:08x} rw-p 00000000 00:00 0 \nSize: {size_mib << 10:15} kB\n"
        f"KernelPageSize: {page_kb:8} kB\nMMUPageSize: {page_kb:11} kB\nRss: {rss << 10:16} kB\nAnonHugePages: {thp << 10:9} kB\n"
        f"ShmemPmdMapped: {0:8} kB\nShared_Hugetlb: {0:8} kB\nPrivate_Hugetlb: {hugetlb << 10:7} kB\nVmFlags: rd wr mr mw me ac \n"
    )


ELSEWHERE = mapping(0x7F22_3000_0000, 64, rss=64, thp=64) + mapping(
    0x7F22_4000_0000, 48, hugetlb=48, page_kb=2048
)
SMAPS = {
    "4k": mapping(LOW, 192, rss=192),
    "thp": mapping(LOW, 192, rss=192, thp=192),
    "2m": mapping(LOW, 192, hugetlb=192, page_kb=2048),
}


# --- what JMH wrote
# --------------------------------------------------------------------------------------


def test_the_scores_are_the_means_of_what_jmh_measured():
    for score, result in zip(jvm.parse(REAL, "4k", (1000,)), json.loads(REAL), strict=True):
        values = sum(result["primaryMetric"]["rawData"], [])
        assert score.ns_per_access == pytest.approx(statistics.mean(values))
        assert (score.iterations_count, score.forks, score.array_bytes, score.pages) == (
            4,
            2,
            1000,
            "4k",
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ns/op", "us/op"),
        ("ByteArrayTouch.touch", "ByteArrayTouch.other"),
        ('"size": "1000"', '"size": "10"'),
        ('"score": 5.4181514445277426', '"score": "NaN"'),
        ('"score": 5.4181514445277426', '"score": -1'),
        (
            "[[7.907758085529365, 6.587533814939271], [3.6126603957648755, 3.5646534818774573]]",
            "[]",
        ),
        ('"params"', '"parms"'),
        ("}]", "}"),
    ],
)
def test_json_that_is_not_of_this_benchmark_is_garbage(old: str, new: str):
    assert old in REAL
    assert code_of(jvm.parse, REAL.replace(old, new), "4k", (1000,)) == "kernel-garbage"


# --- which pages the heap lies on
# ------------------------------------------------------------------------


@pytest.mark.parametrize("pages", jvm.HEAP_PAGES)
def test_a_heap_that_lies_on_the_pages_asked_for_is_accepted(pages: jvm.HeapPages):
    heap = jvm.heap_of(SMAPS[pages] + ELSEWHERE, LOG)
    assert heap.size == heap.resident == 192 * MIB
    jvm.refuse(heap, pages)


@pytest.mark.parametrize("asked", jvm.HEAP_PAGES)
@pytest.mark.parametrize("got", jvm.HEAP_PAGES)
def test_no_page_size_passes_for_another(asked: jvm.HeapPages, got: jvm.HeapPages):
    if asked != got:
        expected = "pool-empty" if asked == "2m" else "backing-partial"
        assert code_of(jvm.refuse, jvm.heap_of(SMAPS[got] + ELSEWHERE, LOG), asked) == expected


@pytest.mark.parametrize(
    ("asked", "smaps"),
    [
        ("thp", mapping(LOW, 192, rss=192, thp=116)),  # 60 %
        (
            "thp",
            mapping(LOW, 192, rss=116, thp=116),
        ),  # all of what is there, and the rest comes while the time runs
        ("4k", mapping(LOW, 192, rss=192, thp=2)),
        ("4k", mapping(LOW, 192, rss=116)),
        ("2m", mapping(LOW, 116, hugetlb=116, page_kb=2048) + mapping(LOW + 116 * MIB, 76, rss=76)),
        (
            "2m",
            mapping(LOW, 192, hugetlb=192, page_kb=1 << 20),
        ),  # gigabyte pages, where they are the system's own size
        ("4k", mapping(LOW, 192, rss=192, page_kb=16)),
        ("4k", ELSEWHERE),
        ("thp", ELSEWHERE),
    ],
)
def test_a_heap_partly_on_other_pages_is_refused(asked: jvm.HeapPages, smaps: str):
    assert code_of(jvm.refuse, jvm.heap_of(smaps, LOG), asked) == "backing-partial"


# --- before a JVM is started
# -----------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A Linux with 2 GiB of free memory that has all pages."""
    for name, text in {
        "proc/meminfo": "MemTotal: 2097152 kB\nMemAvailable: 2097152 kB\n",
        "proc/self/status": "THP_enabled:\t1\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "512\n",
    }.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("pages", "file", "text", "code"),
    [
        (
            "thp",
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]\n",
            "thp-never",
        ),
        ("thp", "sys/kernel/mm/transparent_hugepage/enabled", None, "thp-never"),
        ("thp", "proc/self/status", "THP_enabled:\t0\n", "thp-never"),
        ("2m", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n", "pool-empty"),
        (
            "2m",
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "80\n",
            "pool-empty",
        ),  # the heap, and no code
        (
            "2m",
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            None,
            "page-size-unsupported",
        ),
        (
            "4k",
            "proc/meminfo",
            "MemAvailable: 786432 kB\n",
            "memory-short",
        ),  # of which half is too little
        ("2m", "proc/meminfo", "MemAvailable: 262144 kB\n", "memory-short"),
    ],
)
def test_what_the_system_lacks_has_its_reason(
    pages: jvm.HeapPages, file: str, text: str | None, code: str, root: Path
):
    if text is None:
        (root / file).unlink()
    else:
        (root / file).write_text(text)
    assert code_of(jvm.check, pages, jmh.SIZES, root) == code


# --- a JVM that is not one
# -------------------------------------------------------------------------------

FAKE = """#!{python}
import os, pathlib, subprocess, sys, time
args = sys.argv[1:]
if args == ["-version"]:
    print('openjdk version "17.0.0" 2021-09-14', file=sys.stderr)
    sys.exit()
if {hang}:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path({seen!r}).write_text(str(child.pid))
    time.sleep(600)
status = pathlib.Path("/proc/self/status").read_text() if os.path.exists("/proc/self/status") else ""
pathlib.Path({seen!r}).write_text("\\n".join([*args, *os.environ, status]))
for pid in (101, 102):
    pathlib.Path(f"heap-{{pid}}.log").write_text({log!r})
    for when, smaps in {smaps!r}.items():
        pathlib.Path(f"1000-{{pid}}-{{when}}.smaps").write_text(smaps)
pathlib.Path("scores.json").write_text({scores!r})
print({stdout!r})
sys.exit({status})
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a `java` on PATH, alone there, that writes what it is told and keeps its arguments in
    the file that is returned."""

    def make(
        before: str = "",
        after: str | None = None,
        *,
        scores: str = REAL,
        stdout: str = "",
        status: int = 0,
        log: str = LOG,
        hang: bool = False,
    ) -> Path:
        folder, seen = tmp_path / "bin", tmp_path / "seen"
        folder.mkdir(exist_ok=True)
        smaps = {"before": before, "after": before if after is None else after} if before else {}
        (folder / "java").write_text(
            FAKE.format(
                python=sys.executable,
                seen=str(seen),
                log=log,
                smaps=smaps,
                scores=scores,
                stdout=stdout,
                status=status,
                hang=hang,
            )
        )
        (folder / "java").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return seen

    return make


def run(pages: jvm.HeapPages, root: Path, sizes: tuple[int, ...] = (1000,)) -> list[Score]:
    return jvm.run(Path("benchmark.jar"), pages, sizes, **FORKED, root=root)


def test_a_jvm_that_fell_back_to_small_pages_without_a_word_is_refused(fake, root: Path):
    """Status 0, and scores: what OpenJDK 17 does with -XX:+UseLargePages and no pool."""
    fake(SMAPS["4k"])
    assert code_of(run, "2m", root) == "pool-empty"


def test_pages_that_were_split_while_the_time_ran_are_refused(fake, root: Path):
    fake(SMAPS["thp"], after=mapping(LOW, 192, rss=192, thp=116))
    assert code_of(run, "thp", root) == "backing-partial"


@pytest.mark.parametrize(
    ("stdout", "code", "detail"),
    [
        # The three texts are JMH's and OpenJDK 17's own.
        (
            "# Run progress: 0.00%\n# Fork: 1 of 1\nUnrecognized VM option 'NoSuch'\nError: Could not create the Java Virtual Machine.\n",
            "kernel-crashed",
            "Unrecognized VM option 'NoSuch'",
        ),
        (
            "# Fork: 1 of 1\n# Warmup Iteration   1: <failure>\n\njava.lang.OutOfMemoryError: Java heap space\n\tat tlb.Byte",
            "memory-short",
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            "# Fork: 1 of 1\nError occurred during initialization of VM\nCould not reserve enough space for 8388608KB object heap\n",
            "memory-short",
            "Could not reserve enough space for 8388608KB object heap",
        ),
        ("# Fork: 1 of 1\n<forked VM failed with exit code 137>\n", "oom-killed", "the JVM"),
        ("", "kernel-crashed", "exit status 1"),
    ],
)
def test_a_jvm_that_fails_says_why_in_its_own_words(
    stdout: str, code: str, detail: str, fake, root: Path
):
    fake(stdout=stdout, status=1)
    with pytest.raises(Unavailable) as why:
        run("4k", root)
    assert (why.value.code, why.value.detail) == (code, detail)


def test_a_jvm_that_hangs_is_ended_with_its_forks(
    fake, root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jvm, "HANG_S", 1.0)
    monkeypatch.setattr(jvm, "START_S", 0.0)
    seen = fake(hang=True)
    assert code_of(run, "4k", root) == "kernel-hung"
    fork = Path(f"/proc/{seen.read_text()}/stat")
    for _ in range(100):  # a killed orphan is there until its new parent has read its status
        if not fork.exists() or fork.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the fork outlived the runner")


def test_without_java_there_is_a_reason_and_no_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_of(run, "4k", root) == code_of(jmh.survey) == "no-toolchain"


@pytest.mark.parametrize(
    ("pages", "flags"),
    [
        ("4k", {"-XX:-UseTransparentHugePages", "-XX:-UseLargePages"}),
        ("thp", {"-XX:+UseTransparentHugePages"}),
        ("2m", {"-XX:+UseLargePages", "-XX:LargePageSizeInBytes=2m"}),
    ],
)
def test_each_page_size_has_the_published_flag_and_a_fixed_heap(
    pages: jvm.HeapPages, flags: set[str], fake, root: Path
):
    seen = fake(SMAPS[pages])
    run(pages, root)
    said = set(seen.read_text().split())
    assert {word for word in said if re.search(r"(LargePage|HugePage)", word)} == flags
    assert {"size=1000", "bound=1000", "-Xms66m", "-Xmx66m", "-XX:+AlwaysPreTouch"} <= said


@pytest.mark.skipif(
    "THP_enabled" not in procfs.text(Path("/proc/self/status")),
    reason="Linux tells of THP here from 5.0 on",
)
def test_the_forks_for_base_pages_may_have_no_huge_ones_even_where_all_programs_get_them(
    fake, root: Path
):
    """Nothing of the machine's changes: the setting is the process's own, and this one keeps what
    it had."""
    before = procfs.fields(procfs.text(Path("/proc/self/status")))["THP_enabled"]
    allowed = {}
    for pages in ("4k", "thp"):
        seen = fake(SMAPS[pages])
        run(pages, root)
        allowed[pages] = re.search(r"THP_enabled:\s*([01])", seen.read_text())[1]
    assert allowed == {"4k": "0", "thp": before}
    assert procfs.fields(procfs.text(Path("/proc/self/status")))["THP_enabled"] == before


# --- the build
# -------------------------------------------------------------------------------------------


@pytest.fixture
def fake_maven(fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an `mvn` beside the fake `java`; a line of `calls` is the arguments of one of its runs."""

    def make(body: str) -> Path:
        fake()
        for name, text in {
            "javac": "#!/bin/sh\n",
            "mvn": f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{body}\n',
        }.items():
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
        return tmp_path / "calls"

    return make


# The reset of colours before the first line is Debian's Maven 3.8.7, whatever it is told.
OFFLINE = "\x1b[0m[ERROR] Plugin x could not be resolved: Cannot access central in offline mode and it has not been downloaded. -> [Help 1]"
WRITES_A_JAR = 'for word in "$@"; do case $word in -DbuildDirectory=*) : > "${word#*=}/jmh-kernels.jar";; esac; done'


def test_a_jar_is_built_once_and_without_the_network_where_that_is_enough(fake_maven):
    calls = fake_maven(WRITES_A_JAR)
    jar = maven.build()
    assert jar.exists() and maven.build() == jar
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == ["-o"]
    assert list(jar.parent.iterdir()) == [jar] and list(jar.parent.parent.iterdir()) == [jar.parent]


@pytest.mark.parametrize(
    ("said", "detail", "tries"),
    [
        (
            f"[ERROR] COMPILATION ERROR :\n[ERROR] {maven.PROJECT}{os.sep}ByteArrayTouch.java:[64,57] cannot find symbol",
            "ByteArrayTouch.java:[64,57] cannot find symbol",
            1,
        ),
        (OFFLINE, OFFLINE.partition("[ERROR] ")[2], 2),
        (
            "\x1b[0m[ERROR] Could not transfer artifact a:b:pom:1 from/to x (https://mirror.example/repo): Connect to mirror.example failed",
            "no repository was reached for a:b:pom:1",
            1,
        ),
        ("", "exit status 1", 1),
    ],
)
def test_a_build_that_fails_gives_mavens_own_reason_and_leaves_nothing(
    said: str, detail: str, tries: int, fake_maven, tmp_path: Path
):
    calls = fake_maven(f'echo "{said}"; exit 1')
    with pytest.raises(Unavailable) as why:
        maven.build()
    assert (why.value.code, why.value.detail) == ("maven-failed", detail)
    assert len(calls.read_text().splitlines()) == tries
    assert list((tmp_path / "build" / "kernels").iterdir()) == []


# --- the document
# ---------------------------------------------------------------------------------------


def made(
    pages: str, ns: dict[int, float], error: float | None = 0.1, draw: float = 3.0
) -> list[Score]:
    common = {"pages": pages, "error_ns": error, "iterations_count": 15, "forks": 3}
    return [
        Score(array_bytes=max(ns), quantity="draw", ns_per_access=draw, **common),
        *(
            Score(array_bytes=size, quantity="touch", ns_per_access=value, **common)
            for size, value in ns.items()
        ),
    ]


def document(*scores: list[Score], **lack: Lack) -> Jmh:
    have = {score.pages for score in sum(scores, [])}
    none = {pages: Lack(code="interrupted") for pages in jvm.HEAP_PAGES if pages not in have}
    return Jmh(
        measured_at="2025-01-31T12:00:00Z",
        state="00112233aabb",
        jvm="openjdk 17",
        jmh="1.37",
        scores=sum(scores, []),
        lacking=none | lack,
    )


def test_a_survey_keeps_the_reason_of_each_page_size_that_it_could_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def fake_run(
        jar: Path, pages: jvm.HeapPages, sizes: tuple[int, ...], **effort: object
    ) -> list[Score]:
        if pages == "2m":
            raise Unavailable("pool-empty", "105 pages needed, 0 free")
        return made(pages, dict.fromkeys(sizes, 4.0))

    for name, value in {
        "build": lambda: Path("x"),
        "java_version": lambda: "openjdk 17",
        "run": fake_run,
    }.items():
        monkeypatch.setattr(jmh, name, value)
    lock = tmp_path / "lock"
    theirs = files.measuring_lock
    monkeypatch.setattr(files, "measuring_lock", lambda: theirs(path=lock))
    found = jmh.survey((1000,))
    assert {score.pages for score in found.scores} == {"4k", "thp"}
    assert found.lacking == {"2m": Lack(code="pool-empty", detail="105 pages needed, 0 free")}
    assert Jmh.model_validate_json(found.model_dump_json()) == found
    with theirs(path=lock):
        assert code_of(jmh.survey, (1000,)) == "measuring-already"


@pytest.mark.parametrize(("error", "apart"), [(0.1, [10**8]), (50.0, []), (None, [])])
def test_scores_differ_where_jmhs_intervals_leave_a_gap(error: float | None, apart: list[int]):
    doc = document(
        made("4k", {1000: 3.5, 10**8: 30.0}, error), made("2m", {1000: 3.5, 10**8: 20.0}, error)
    )
    assert [(base.pages, huge.pages, huge.array_bytes) for base, huge in jmh.differing(doc)] == [
        ("4k", "2m", size) for size in apart
    ]
    assert len(jmh.paired(doc)) == 2
    assert [score.ns_per_access for score in jmh.smallest(doc)] == [3.5, 3.0]
    assert (
        code_of(jmh.smallest, document(made("thp", {1000: 3.5}))) == "too-few-points"
        and jmh.paired(document()) == []
    )


@pytest.mark.endurance
@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("mvn", "javac", "java")
def test_the_benchmark_is_built_and_measures_on_base_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TLB_BUILD", str(tmp_path))
    try:
        jar = maven.build()
        with files.measuring_lock(wait=True):
            scores = jvm.run(
                jar, "4k", (1000, 100_000), warmup_s=0.1, measure_s=0.1, iterations=2, forks=1
            )
    except Unavailable as why:
        if why.code in ("maven-failed", "memory-short"):
            lacking(str(why))
        raise
    assert [(score.quantity, score.array_bytes) for score in scores] == [
        ("draw", 100_000),
        ("touch", 1000),
        ("touch", 100_000),
    ]
    assert {(score.pages, score.iterations_count, score.forks) for score in scores} == {
        ("4k", 2, 1)
    }
    assert (
        list((tmp_path / "kernels").iterdir()) == [jar.parent]
        and not (maven.PROJECT / "target").exists()
    )
