"""Pages that the machine lacks have their reason; those that it gives are verified, as seen from
outside too."""

import re
import resource
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from support.common import needs_c
from support.kernels import POOLS, THP, compiled, reason_of, run_c, setting

from tlb.measure import build

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- what the machine lacks


@needs_c
@pytest.mark.parametrize(("pages", "kib"), [("2m", 2048), ("1g", 1048576)])
def test_a_pool_that_is_too_small_says_how_many_pages_are_needed_and_free(pages, kib):
    pool = POOLS / f"hugepages-{kib}kB"
    if not pool.exists():
        assert reason_of(run_c("page_chase", ["--pages", pages]))[0] == "page-size-unsupported"
        return
    if int((pool / "nr_overcommit_hugepages").read_text()):
        pytest.skip("this pool grows by itself")
    free = int((pool / "free_hugepages").read_text())
    needed = free + 3
    lines = str(needed * kib // 4)  # a line a page of 4 KiB
    code, detail = reason_of(run_c("page_chase", ["--pages", pages, "--lines", lines]))
    assert code == "pool-empty"
    assert f"{needed} pages of {pages} needed" in detail and f"{free} free" in detail


MTHP_PROBE = """
int main(int argc, char **argv)
{
    (void)argc;
    return printf("%d\\n", mthp_on(strtoull(argv[1], NULL, 10) << 10)) < 0;
}
"""
# The setting of all sizes, that of 64 kB (None: no such file), and whether a page of 64 kB may
# form.
MTHP = [
    ("never", "inherit", False),
    ("madvise", "inherit", True),
    ("always", "inherit", True),
    ("never", "madvise", True),
    ("never", "always", True),
    ("always", "never", False),
    ("always", None, False),
    (None, "inherit", False),
]


@needs_c
def test_a_size_that_inherits_is_on_where_transparent_huge_pages_are(tmp_path):
    text, path = (
        (build.KERNELS_FOLDER / "pages.h").read_text(),
        '#define THP "/sys/kernel/mm/transparent_hugepage/"',
    )
    assert text.count(path) == 1
    (tmp_path / "probe.c").write_text(
        "#include <stdlib.h>\n" + text.replace(path, f'#define THP "{tmp_path}/"') + MTHP_PROBE
    )
    probe = compiled(tmp_path / "probe.c", tmp_path / "probe", "-w")
    for size in (64, 2048):
        (tmp_path / f"hugepages-{size}kB").mkdir()

    def write(path: Path, selected: str | None) -> None:
        words = ("always", "inherit", "madvise", "never")
        path.unlink(missing_ok=True)
        if selected:
            path.write_text(
                " ".join(f"[{word}]" if word == selected else word for word in words) + "\n"
            )

    def is_on(size: int) -> bool:
        done = subprocess.run([probe, str(size)], capture_output=True, text=True, check=True)
        return bool(int(done.stdout))

    for of_all, own, on in MTHP:
        write(tmp_path / "enabled", of_all)
        write(tmp_path / "hugepages-64kB/enabled", own)
        write(
            tmp_path / "hugepages-2048kB/enabled", "never" if on else "always"
        )  # another size's, which decides nothing
        assert is_on(64) == on, (of_all, own)


PIECES_PROBE = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
static int told(void *at, size_t bytes, int advice)
{
    return advice == MADV_DONTDUMP ? printf("%zu %zu\\n", (size_t)at, bytes) < 0 : 0;
}
#define madvise told
#include "arena.h"
int main(int argc, char **argv)
{
    (void)argc;
    struct arena a = {.base = 0, .bytes = strtoull(argv[2], NULL, 10), .page = strtoull(argv[1], NULL, 10) << 10};
    ask_for_mthp(&a);
    return 0;
}
"""


@pytest.mark.parametrize(
    ("kib", "on"), [(64, [64, 2048]), (64, [64, 256]), (16, [16, 64, 1024]), (1024, [1024, 2048])]
)
@needs_c
def test_a_range_is_cut_so_that_its_page_size_is_the_largest_that_is_on_and_fits(kib, on, tmp_path):
    for size in (16, 32, 64, 128, 256, 512, 1024, 2048):
        (tmp_path / f"hugepages-{size}kB").mkdir()
        (tmp_path / f"hugepages-{size}kB/enabled").write_text(
            "[madvise] never\n" if size in on else "madvise [never]\n"
        )
    total = 5 << 20
    for header in build.KERNELS_FOLDER.glob("*.h"):
        (tmp_path / header.name).write_text(
            header.read_text().replace('"/sys/kernel/mm/transparent_hugepage/"', f'"{tmp_path}/"')
        )
    (tmp_path / "probe.c").write_text(PIECES_PROBE)
    probe = compiled(tmp_path / "probe.c", tmp_path / "probe", "-w")
    out = subprocess.run(
        [probe, str(kib), str(total)], capture_output=True, text=True, check=True
    ).stdout
    cut = [tuple(map(int, line.split())) for line in out.splitlines()]
    edges = sorted({0, total, *(edge for at, size in cut for edge in (at, at + size))})
    pieces = list(pairwise(edges))  # advised and not, by turns
    assert {at: at + size for at, size in cut} == dict(pieces[::2])

    def fits(size: int) -> int:
        return sum(max(0, end // size - -(-begin // size)) for begin, end in pieces)

    assert fits(kib << 10) * (kib << 10) == total and not any(
        fits(size << 10) for size in on if size > kib
    )
    assert (
        len(pieces)
        <= total // min(1 << 20, min((size for size in on if size > kib), default=2048) << 9) + 1
    )


def memory_kb(pid: int) -> dict[str, int]:
    """A process's memory as the kernel sums it up from outside; empty once it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return {}
    return {name: int(kb) for name, kb in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}


@needs_c
@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_the_pages_of_the_arena_are_those_asked_for_as_seen_from_outside(pages):
    if pages == "thp" and setting(THP / "enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")
    arena_kb = 16 << 10
    kernel = subprocess.Popen(
        [
            *build.kernel("page_chase").command,
            "--pages",
            pages,
            "--lines",
            str(arena_kb // 4),
            "--region-ms",
            "60000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        seen: dict[str, int] = {}
        while kernel.poll() is None and seen.get("Rss", 0) < arena_kb:
            seen = memory_kb(kernel.pid)
    finally:
        kernel.kill()
        _, err = kernel.communicate()
    if "backing-partial" in err and pages == "thp":
        pytest.skip("memory is too fragmented for huge pages now")
    assert seen.get("Rss", 0) >= arena_kb, err
    assert seen["AnonHugePages"] == (arena_kb if pages == "thp" else 0)


@needs_c
def test_a_small_limit_of_address_space_is_memory_short():
    limit = (256 << 20, 256 << 20)
    done = run_c("page_chase", [], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    code, detail = reason_of(done)
    assert code == "memory-short" and "address space" in detail
