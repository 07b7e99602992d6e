"""The JVM benchmark: what JMH's JSON has, which pages its heap must prove, and every way in which
there is no number."""

import json
import statistics
import sys
from pathlib import Path

import pytest
from support.common import lacking, refusal
from support.host import plant

from experiments.hugepages import jmh
from experiments.hugepages.jmh import JmhDocument, MissingScores, Score
from tlb.system import files
from tlb.system.reasons import Unavailable

# JMH 1.37 under JDK 17 wrote this of two forks of two iterations; shortened.
REAL = """[{"benchmark": "tlb.ByteArrayTouch.draw", "mode": "avgt", "threads": 1,
"params": {"bound": "1000"}, "primaryMetric": {"score": 9.388369422433158,
"scoreError": 33.55426167042421, "scoreUnit": "ns/op",
"rawData": [[17.075336067220668, 7.0784869747915815], [7.701446209658398, 5.69820843806198]]}},
{"benchmark": "tlb.ByteArrayTouch.touch", "mode": "avgt", "threads": 1,
"params": {"size": "1000"}, "primaryMetric": {"score": 5.4181514445277426,
"scoreError": 14.088939325639577, "scoreUnit": "ns/op",
"rawData": [[7.907758085529365, 6.587533814939271], [3.6126603957648755, 3.5646534818774573]]}}]"""
LOG = "[0.007s][debug][gc,heap,coops] Heap address: 0x00000000f4000000, size: 192 MB, 32-bit\n"
LOW, MIB = 0xF4000000, 1 << 20
FORK, BAD_OPTION = "# Fork: 1 of 1\n", "Unrecognized VM option 'No'"
NO_HEAP = "java.lang.OutOfMemoryError: Java heap"


def mapping(low: int, mib: int, rss: int = 0, thp: int = 0, pool: int = 0, page_kb: int = 4) -> str:
    """Return one mapping as Linux 6 prints it in smaps; sizes in MiB, from an address."""
    return (
        f"{low:08x}-{low + mib * MIB:08x} rw-p 00000000 00:00 0 \nSize: {mib << 10:15} kB\n"
        f"KernelPageSize: {page_kb:8} kB\nRss: {rss << 10:16} kB\nAnonHugePages: {thp << 10:9} kB\n"
        f"ShmemPmdMapped: 0 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: {pool << 10:7} kB\n"
    )


ELSEWHERE = mapping(0x7F22_3000_0000, 64, 64, 64) + mapping(0x7F22_4000_0000, 48, 0, 0, 48, 2048)
SMAPS = {
    "4k": mapping(LOW, 192, rss=192),
    "thp": mapping(LOW, 192, rss=192, thp=192),
    "2m": mapping(LOW, 192, pool=192, page_kb=2048),
}
SPLIT = mapping(LOW, 192, rss=192, thp=116)


# --- JMH's JSON


def test_the_scores_are_the_means_of_what_jmh_measured():
    for score, result in zip(jmh.parsed_scores(REAL, "4k", (1000,)), json.loads(REAL), strict=True):
        mean = statistics.mean(sum(result["primaryMetric"]["rawData"], []))
        assert score.ns_per_access == pytest.approx(mean)
        assert (score.iterations_count, score.forks, score.array_bytes) == (4, 2, 1000)


# --- which pages the heap lies on


@pytest.mark.parametrize("asked", jmh.HEAP_PAGES)
@pytest.mark.parametrize("got", jmh.HEAP_PAGES)
def test_no_page_size_passes_for_another(asked, got):
    if asked == got:
        jmh.prove_heap(SMAPS[got] + ELSEWHERE, LOG, asked)
    else:
        expected = "pool-empty" if asked == "2m" else "backing-partial"
        assert refusal(jmh.prove_heap, SMAPS[got] + ELSEWHERE, LOG, asked) == expected


@pytest.mark.parametrize(
    ("asked", "smaps"),
    [
        ("thp", SPLIT),
        ("4k", mapping(LOW, 192, rss=192, thp=2)),
        ("2m", mapping(LOW, 116, pool=116, page_kb=2048) + mapping(LOW + 116 * MIB, 76, rss=76)),
        ("2m", mapping(LOW, 192, pool=192, page_kb=1 << 20)),
    ],
)
def test_a_heap_partly_on_other_pages_is_refused(asked, smaps):
    assert refusal(jmh.prove_heap, smaps, LOG, asked) == "backing-partial"


# --- before a JVM is started

THP = "sys/kernel/mm/transparent_hugepage/enabled"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"


@pytest.fixture
def root(tmp_path) -> Path:
    """A Linux with 2 GiB of free memory that has all pages."""
    memory = "MemTotal: 2097152 kB\nMemAvailable: 2097152 kB\n"
    has = {"proc/meminfo": memory, THP: "always [madvise] never\n", POOL: "512\n"}
    return plant(tmp_path / "root", has)


@pytest.mark.parametrize(
    ("pages", "file", "text", "code"),
    [
        ("thp", THP, "always madvise [never]\n", "thp-never"),
        ("2m", POOL, "80\n", "pool-empty"),  # enough for the heap without the JVM's code
        ("2m", "proc/meminfo", "MemAvailable: 262144 kB\n", "memory-short"),
    ],
)
def test_what_the_system_lacks_has_its_reason(pages, file, text, code, root):
    plant(root, {file: text})
    assert refusal(jmh.check_heap, pages, jmh.SIZES, root) == code


# --- a stand-in for the JVM

FAKE = """#!{python}
import pathlib, sys, time
args = sys.argv[1:]
if args == ["-version"]:
    print('openjdk version "17.0.0" 2021-09-14', file=sys.stderr)
    sys.exit()
{first}
proc = pathlib.Path("/proc/self/status")
status = proc.read_text() if proc.exists() else ""
pathlib.Path({seen!r}).write_text("\\n".join([*args, status]))
for pid in (101, 102):
    pathlib.Path(f"heap-{{pid}}.log").write_text({log!r})
    for when, smaps in {smaps!r}.items():
        pathlib.Path(f"1000-{{pid}}-{{when}}.smaps").write_text(smaps)
pathlib.Path("scores.json").write_text({scores!r})
print({stdout!r})
sys.exit({status})
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that puts a `java` on PATH, alone there. It writes what it is given, and
    its arguments and status into the file that is returned."""

    def make(
        before: str, after: str = "", stdout: str = "", status: int = 0, first: str = ""
    ) -> Path:
        seen = tmp_path / "seen"
        smaps = {"before": before, "after": after or before}
        known = {"python": sys.executable, "seen": str(seen), "log": LOG, "scores": REAL}
        text = FAKE.format(**known, smaps=smaps, stdout=stdout, status=status, first=first)
        plant(tmp_path / "bin", {"java": text})
        (tmp_path / "bin/java").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        return seen

    return make


def run(pages: jmh.HeapPages, root: Path) -> list[Score]:
    effort = {"warmup_s": 0.01, "measure_s": 0.01, "iterations": 2, "forks": 2}
    return jmh.run_jmh(Path("benchmark.jar"), pages, (1000,), **effort, root=root)


def test_a_jvm_that_fell_back_to_small_pages_or_whose_pages_were_split_is_refused(fake, root):
    fake(SMAPS["4k"])
    assert refusal(run, "2m", root) == "pool-empty"
    fake(SMAPS["thp"], after=SPLIT)  # while the time ran
    assert refusal(run, "thp", root) == "backing-partial"


@pytest.mark.parametrize(
    ("stdout", "code", "detail"),
    [  # the words are JMH's and OpenJDK 17's own
        (f"{FORK}{BAD_OPTION}\n", "kernel-failed", BAD_OPTION),
        (f"{FORK}# Warmup Iteration   1: <failure>\n\n{NO_HEAP}\n", "memory-short", NO_HEAP),
        (f"{FORK}<forked VM failed with exit code 137>\n", "oom-killed", "the JVM"),
        ("", "kernel-failed", "exit status 1"),
    ],
)
def test_a_jvm_that_fails_says_why(stdout, code, detail, fake, root):
    fake(SMAPS["4k"], stdout=stdout, status=1)
    with pytest.raises(Unavailable) as why:
        run("4k", root)
    assert (why.value.code, why.value.detail) == (code, detail)


def test_a_jvm_that_hangs_is_ended(fake, root, monkeypatch):
    monkeypatch.setattr(jmh, "HANG_S", 1.0)
    monkeypatch.setattr(jmh, "START_S", 0.0)
    fake(SMAPS["4k"], first="time.sleep(600)")
    assert refusal(run, "4k", root) == "kernel-failed"


# --- the benchmark itself


@pytest.mark.endurance
@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("mvn", "javac", "java")
def test_the_benchmark_is_built_and_measures_on_base_pages(tmp_path, monkeypatch):
    monkeypatch.setenv("TLB_BUILD", str(tmp_path))
    effort = {"warmup_s": 0.1, "measure_s": 0.1, "iterations": 2, "forks": 1}
    try:
        jar = jmh.build()
        with files.measuring_lock(wait=True):
            scores = jmh.run_jmh(jar, "4k", (1000, 100_000), **effort)
    except Unavailable as why:
        if why.code in ("no-toolchain", "memory-short"):
            lacking(str(why))
        raise
    measured = [(score.quantity, score.array_bytes) for score in scores]
    assert measured == [("draw", 100_000), ("touch", 1000), ("touch", 100_000)]
    assert all(
        (score.pages, score.iterations_count, score.forks) == ("4k", 2, 1) for score in scores
    )
    assert not (jmh.PROJECT / "target").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ns/op", "us/op"),
        ('"size": "1000"', '"size": "10"'),
        ('"score": 5.4181514445277426', '"score": "NaN"'),
        ('"params"', '"parms"'),
        ("}]", "}"),
    ],
)
def test_json_that_is_not_of_this_benchmark_is_garbage(old, new):
    assert old in REAL
    assert refusal(jmh.parsed_scores, REAL.replace(old, new), "4k", (1000,)) == "kernel-failed"


def test_a_survey_keeps_the_reason_of_each_page_size_that_it_could_not_have(monkeypatch, tmp_path):
    def fake_run(jar: Path, pages: jmh.HeapPages, sizes: tuple[int, ...], **effort: object):
        if pages == "2m":
            raise Unavailable("pool-empty", "105 pages needed")
        common = {"error_ns": 0.1, "iterations_count": 15, "forks": 3}
        made = {"pages": pages, "quantity": "touch", "ns_per_access": 4.0}
        return [Score(array_bytes=size, **made, **common) for size in sizes]

    monkeypatch.setattr(jmh, "build", lambda: Path("x"))
    monkeypatch.setattr(jmh, "java_version", lambda: "openjdk 17")
    monkeypatch.setattr(jmh, "run_jmh", fake_run)
    theirs = files.measuring_lock
    monkeypatch.setattr(files, "measuring_lock", lambda: theirs(path=tmp_path / "lock"))
    found = jmh.measure_java_heaps((1000,))
    assert {score.pages for score in found.scores} == {"4k", "thp"}
    assert found.lacking == {"2m": MissingScores(code="pool-empty", detail="105 pages needed")}
    assert JmhDocument.model_validate_json(found.model_dump_json()) == found
    with theirs(path=tmp_path / "lock"):
        assert refusal(jmh.measure_java_heaps, (1000,)) == "measuring-already"
