"""Pools, settings, limits and files of /proc: what they lack is a reason, and all else is measured."""

from __future__ import annotations

import ctypes
import resource
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.common import lacking, needs_c
from support.kernels import measured
from support.lab import MACHINE, NAME, POINTS, VICTIM, says
from support.stand_ins import in_a_child, put_before

from experiments.article import parameters
from experiments.article.chapter import Chapter
from experiments.chapters.stlb_cliff import grid
from experiments.lab import kernels, noise, perf
from experiments.lab.campaign import Outcome
from experiments.lab.record import Point
from experiments.lab.rig import usable_bytes
from experiments.lab.store import Store
from experiments.machine import doctor, host, memory
from experiments.system import procfs
from experiments.words.reasons import REASONS, Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring]
MIB = 2**20

# --- pool empty or partial; THP never; 1g unsupported (test_kernels.py)

SYS = Path("/sys/kernel/mm")


@pytest.fixture
def laid_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kernels see other files in the place of those of /sys, in a mount namespace of each one's own: nobody else does."""

    def lay(*replaced: tuple[Path, str | None]) -> None:
        if shutil.which("unshare") is None:
            lacking("unshare")
        mounts = []
        for number, (path, content) in enumerate(replaced):
            if not path.exists():
                pytest.skip(f"this kernel has no {path}")
            other = tmp_path / f"other{number}"
            other.mkdir() if content is None else other.write_text(content)
            mounts.append(f"mount --bind {shlex.quote(str(other))} {path}")
        inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$0" "$@"']))
        if subprocess.run([*inside, "true"], capture_output=True).returncode:
            pytest.skip("needs the right to mount, in a namespace")
        put_before(monkeypatch, *inside)

    return lay


def on_pages(pages: str, **changes: object) -> list[Point]:
    """The victim on these pages, the others on 4k."""
    return [point.model_copy(update={"pages": pages, **changes} if point == VICTIM else {}) for point in POINTS]


def lacks(outcome: Outcome, code: str) -> str:
    """The detail of the one point that could not be measured."""
    (why,) = outcome.lacking.values()
    says(why, code)
    assert outcome.measured == 2
    return why.detail


@needs_c
@pytest.mark.parametrize(("pages", "kib"), [("2m", 2048), ("1g", 1048576)])
def test_an_empty_pool_is_a_reason_and_points_without_it_are_measured(run, pages: str, kib: int):
    pool = SYS / f"hugepages/hugepages-{kib}kB"
    lines = 2**32  # 16 TiB of pages, which no pool has
    outcome = run(on_pages(pages, lines=lines), usable_bytes=2**60)
    detail = lacks(outcome, "pool-empty" if pool.exists() else "page-size-unsupported")
    assert not pool.exists() or f"{lines * 4 // kib} pages of {pages} needed, " in detail


@needs_c
def test_a_pool_that_holds_only_a_part_says_how_many_are_there(run):
    pool = SYS / "hugepages/hugepages-2048kB"
    if not pool.exists() or int((pool / "nr_overcommit_hugepages").read_text()):
        pytest.skip("no pool of 2 MiB pages here, or one that grows by itself")
    free = int((pool / "free_hugepages").read_text())
    detail = lacks(run(on_pages("2m", lines=512 * (free + 2)), usable_bytes=2**60), "pool-empty")
    assert f"{free + 2} pages of 2m needed, {free} free" in detail


@needs_c
def test_thp_never_is_a_reason_and_points_without_it_are_measured(laid_over, run):
    laid_over((SYS / "transparent_hugepage/enabled", "always madvise [never]\n"))
    lacks(run(on_pages("thp")), "thp-never")


@needs_c
def test_thp_forbidden_to_this_process_alone_never_passes_for_thp(own_lock, store, run):
    if procfs.chosen(SYS / "transparent_hugepage/enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")

    def work() -> tuple[int, str, bool]:
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
        outcome = run(on_pages("thp"))
        (why,) = outcome.lacking.values()
        return outcome.measured, why.code, REASONS[why.code].remedy in str(why)

    count, code, remedy = in_a_child(work)
    assert count == 2 and code in ("backing-partial", "thp-never") and remedy


@needs_c
def test_a_gigabyte_page_that_kernel_or_cpu_lacks_is_a_reason(laid_over, run):
    laid_over((SYS / "hugepages", None))
    lacks(run(on_pages("1g"), usable_bytes=2**31), "page-size-unsupported")


@needs_c
@pytest.mark.parametrize("code", ["pool-empty", "thp-never", "mthp-off", "backing-partial", "page-size-unsupported", "memory-short"])
def test_what_a_kernel_says_is_lacking_reaches_whoever_asked_with_its_remedy(befall, run, store, code: str):
    befall(f"""echo '{{"reason": "{code}", "detail": "3 needed, 0 free"}}' >&2; exit 3""")
    outcome = run(POINTS, 2)
    assert outcome.lacking[VICTIM].detail == "3 needed, 0 free"
    assert list(outcome.lacking) == [VICTIM] and outcome.measured == 4
    says(outcome.lacking[VICTIM], code)


# --- RLIMIT_MEMLOCK, RLIMIT_AS, cgroup v1 and v2 (test_host.py)


@needs_c
def test_a_limit_on_locked_memory_takes_nothing_away_since_kernels_lock_nothing(run, store):
    def work() -> tuple[int, int | None]:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        return run(plan=perf.plan("no table has a row for this")).measured, host.inspect().memory.memlock_bytes

    assert in_a_child(work) == (3, 0)
    assert len(store.load(MACHINE, NAME)) == 3


ADDRESS_SPACE = 5 << 28  # 1.25 GiB, of which a kernel takes 1 to align its arena


@pytest.fixture
def little_address_space(monkeypatch: pytest.MonkeyPatch) -> host.Host:
    """Kernels run under a real RLIMIT_AS; this computer, inspected under it."""
    put_before(monkeypatch, "sh", "-c", f'ulimit -v {ADDRESS_SPACE >> 10} && exec "$0" "$@"')
    return host.inspect(computer=host.Platform(rlimits=memory.Rlimits(address_space_bytes=ADDRESS_SPACE)))


@needs_c
def test_a_limit_on_address_space_sizes_the_run_so_that_all_it_takes_is_measured(little_address_space, run, store):
    if little_address_space.memory.limit_source != "RLIMIT_AS":
        pytest.skip("less than 256 MiB of memory is free here")
    half = usable_bytes(little_address_space)
    most = half // (4096 + kernels.SIDE_BYTES_PER_LINE)
    outcome = run([Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (64, most, most + 1)], usable_bytes=half)
    assert {point.lines for point in outcome.lacking} == {most + 1} and sorted(store.load(MACHINE, NAME)["lines"]) == [64, most]
    says(*outcome.lacking.values(), "memory-short")
    (advice,) = (advice for advice in doctor.advice(little_address_space) if advice.topic == "memory")
    assert advice.finding.startswith("RLIMIT_AS leaves 256 MiB") and "ulimit" in advice.remedy


@needs_c
def test_address_space_that_is_short_all_the_same_is_a_reason_and_no_crash(little_address_space, run, store):
    outcome = run([*POINTS, Point(kernel="page_chase", lines=ADDRESS_SPACE // 4096, region_ms=1)], usable_bytes=2**60)
    assert outcome.measured == 3
    says(*outcome.lacking.values(), "memory-short")


V1 = {"proc/self/cgroup": "5:memory:/job\n", "proc/self/mountinfo": "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n",
      "cg/memory.limit_in_bytes": str(2**40), "cg/job/memory.limit_in_bytes": str(6 * MIB), "cg/job/memory.usage_in_bytes": str(2 * MIB)}
V2 = {"proc/self/cgroup": "0::/a/job\n", "proc/self/mountinfo": "31 23 0:28 / /cg rw - cgroup2 none rw\n",
      "cg/a/memory.max": str(6 * MIB), "cg/a/memory.current": str(2 * MIB), "cg/a/job/memory.max": str(64 * MIB)}


@needs_c
@pytest.mark.parametrize(("files", "source"), [pytest.param(V1, "cgroup v1 memory.limit_in_bytes", id="v1"),
                                               pytest.param(V2, "cgroup v2 memory.max", id="v2")])
def test_a_chapter_takes_half_at_most_of_what_the_smallest_cgroup_limit_leaves(tmp_path, monkeypatch, own_lock, files, source):
    root = tmp_path / "root"
    for name, content in ({"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 9999999 kB\n"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    limited = host.inspect(root)
    assert (limited.memory.usable_bytes, limited.memory.limit_source) == (4 * MIB, source)
    monkeypatch.setattr(host, "inspect", lambda: limited)
    values = parameters.check("stlb_cliff", {"machine": "this", "profile": "smoke", "repeats": 1, "engine": "c"})
    chapter = Chapter("stlb_cliff", values, Store(tmp_path / "data"))
    frame = chapter.measure(grid.points(chapter.scope))
    assert frame["arena_bytes"].max() <= 2 * MIB == chapter.profile.max_working_set
    assert len(frame) > 20 and any("2 MiB, half of the memory that is free" in note.text for note in chapter.notes)
    (advice,) = (advice for advice in doctor.advice(limited) if advice.topic == "memory")
    assert source in advice.finding and "half of it" in advice.remedy


# --- /proc and /sys fields absent, localised, enormous, not UTF-8 (test_host.py)

PROC = ["proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/loadavg", "proc/self/cgroup", "proc/self/mountinfo", "etc/machine-id",
        "proc/sys/kernel/perf_event_paranoid", "sys/devices/system/cpu/present", "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "sys/devices/system/cpu/cpu0/cache/index0/size", "sys/devices/system/cpu/smt/control"]
LOCALISED = "Speicher gesamt: 16.777.216 kB\nverfügbar: 1,5 GB\n[immer] auf Anfrage nie\ncpu0 1.000 2,5 ３ ٤ 5 6 7 8\n"


@pytest.mark.parametrize("content", [
    pytest.param(None, id="absent"),
    pytest.param(LOCALISED.encode(), id="localised"),
    pytest.param(b"MemTotal: " + b"9" * 3 * MIB + b" kB\n", id="enormous"),
    pytest.param(b"MemAvailable: 99999999999999999999999999 kB\ncpu0 " + b"9" * 99 + b"\n", id="of enormous numbers"),
    pytest.param(b"\xff\xfe\x00MemTotal: \xe9 kB\n\x80\x81[\xc3]\n", id="not UTF-8"),
    pytest.param(b"", id="empty"),
])
def test_fields_of_proc_and_sys_may_be(tmp_path: Path, content: bytes | None):
    for name in PROC if content is not None else []:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    here = host.inspect(tmp_path, host.Platform(os="Linux"))
    assert host.Host.model_validate_json(here.model_dump_json()) == here
    assert (here.memory.usable_bytes, here.memory.limit_source) == (0, "unknown") or here.memory.limit_source.startswith("RLIMIT")
    assert noise.stolen_ms(tmp_path) == {}
    if here.memory.limit_source == "unknown":
        assert "Mount /proc in this container; no working set can be chosen without it." in [a.remedy for a in doctor.advice(here)]
    with pytest.raises(Unavailable) as why:
        measured(VICTIM, min(here.memory.usable_bytes, 1))
    says(why.value, "memory-short")


@needs_c
@pytest.mark.usefixtures("no_steal")
def test_without_a_statement_of_steal_a_row_has_none_and_no_zero(run, store):
    run()
    assert store.load(MACHINE, NAME)["steal_ms"].isna().all()
