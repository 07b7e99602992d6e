"""A kernel that leaves work out, or whose memory is not what was asked for, gives a reason and no
record.

Each fault is a change of the source: the text to replace, and what replaces it.
"""

import os
from pathlib import Path

import pytest
from support.graph_walk import MODES, walking
from support.kernels import changed, huge_page_bytes, needs_c, needs_thp, reason_of, run_program

pytestmark = [pytest.mark.measures, pytest.mark.measuring, needs_c]
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
IMPATIENT = {"#define PATIENCE_NS 5000000000ull": "#define PATIENCE_NS 50000000ull"}


def at(before: str, inserted: str) -> dict[str, str]:
    return {before: before + inserted}


def instead(before: str, old: str, new: str) -> dict[str, str]:
    """Replace `old` within the longer text `before`, which the sources have once."""
    assert old in before
    return {before: before.replace(old, new)}


DRAWS = "uint64_t draws, uint64_t loaded)\n{"
READ = "draws--)\n        sum += base[next_int(&s, bound)];"  # of touch()
SCATTER = "scatter(struct rows source, struct row *target, uint32_t *cursors, unsigned skip, unsigned bits)\n{\n"
MOVED = "i < source.n; i++)\n        target["
ADVICE = "madvise(p->from, p->bytes, MADV_POPULATE_WRITE)"
TOUCHED = "        *(volatile uint64_t *)(base + order[i] * stride) = order[i] + 1;"
JOINED = "madvise(j->memory + j->order[i] * j->large, j->large, MADV_COLLAPSE)"
JOIN = "--tuples 5000 --lines 7500"


def fault(kernel: str, arguments: str, changes: dict[str, str], code: str = "kernel-failed"):
    return kernel, arguments, changes, code


FAULTS: list[tuple[str, str, dict[str, str], str]] = [
    fault("page_chase", "--lines 1000", at("follow(void **p, uint64_t hops)\n{", " hops -= 1;")),
    fault("page_chase", "--lines 1000 --order random", at(DRAWS, " draws -= 1;")),
    fault(
        "page_chase", "--lines 1000 --layout alias", {"    return loaded + i;\n": "    return 0;\n"}
    ),
    fault(
        "page_gather",
        "--lines 1000",
        at("uint64_t lines, uint64_t rounds)\n{", " if (rounds > 1) lines -= 1;"),
    ),
    fault("page_gather", "--lines 1000", {"(unsigned char)base[index[i]]": "0 * base[index[i]]"}),
    fault(
        "page_store",
        "--lines 500 --mode load",
        instead("sum = load_each(a->base, index, c->lines)", "c->lines", "c->lines - 1"),
    ),
    fault("page_store", "--lines 500 --mode load-clean", {"MADV_FREE))": "MADV_DONTNEED))"}),
    fault(
        "random_touch",
        "--bytes 1000 --lines 16",
        at(
            "touch(const unsigned char *base, uint64_t *state, uint32_t bound, uint64_t draws)\n{",
            " draws /= 2;",
        ),
    ),
    fault("random_touch", "--bytes 1000 --lines 16", instead(READ, "base", "0 * base")),
    fault("radix_partition", f"--mode partition {JOIN}", instead(MOVED, "<", ">")),
    fault(
        "radix_partition",
        f"--mode partition {JOIN}",
        at(SCATTER, "    if (target[1].number) return;\n"),
    ),
    fault(
        "radix_partition",
        f"--mode partitioned {JOIN}",
        {"i < s.n && slots": "i < s.n / 2 && slots"},
    ),
    fault(
        "radix_partition",
        f"--mode naive {JOIN}",
        {"found.sum += table[at].number * s.at[i].number": "found.sum += i != 9"},
    ),
    fault(
        "code_chase",
        "--lines 64",
        {
            "list[r * (round + 1) + round] = (uint64_t)out;": "list[r * (round + 1) + round - (round > 1)] = (uint64_t)out;"
        },
    ),
    fault(
        "code_chase",
        "--lines 64",
        {"if (mprotect(at, bytes, PROT_READ | PROT_EXEC))": "errno = EACCES;\n    if (bytes)"},
        "not-permitted",
    ),
    fault(
        "page_chase",
        "--lines 64 --layout alias",
        {
            "memfd_create(name, MFD_CLOEXEC | flags)": "((void)name, (void)flags, errno = ENOSYS, -1)"
        },
        "memory-short",
    ),
    fault(
        "prefault",
        "--lines 1000 --mode populate",
        instead(ADVICE, "MADV_POPULATE_WRITE", "9999"),
        "linux-lacks",
    ),
    fault("prefault", "--lines 1000 --mode touch", {"= ++first;": "= first;"}),
    fault(
        "prefault",
        "--lines 1000 --mode touch",
        instead("pages * (i + 1) / threads * a->page;", "threads", "(threads + 1)"),
        "backing-partial",
    ),
    fault("page_fault", "--lines 64 --mode anonymous", {TOUCHED: f"        if (i)\n    {TOUCHED}"}),
    fault(
        "map_churn",
        "--lines 1792",
        instead("low += numbers[low + half] <= key ? half : 0;", "<=", "<"),
    ),
    fault("shootdown", "--mode unmap --lines 2", {"failed = munmap(from, bytes);": "failed = 0;"}),
    fault("fork_write", "--mode write --lines 8", {"write_each(a.base, &u, page, 2);": ";"}),
    fault(
        "fork_write",
        "--mode write --lines 2000",
        {"        while (getppid() == parent)\n": "        if (getppid() != parent)\n"},
        "kernel-failed",
    ),
    fault(
        "switch_chase",
        "--mode process --lines 64",
        {
            "    for (;;) {\n        wait_while(0, 1);": "    _exit(0);\n    for (;;) {\n        wait_while(0, 1);",
            "#define PATIENCE_S 5": "#define PATIENCE_S 1",
        },
        "kernel-failed",
    ),
    fault(
        "switch_chase",
        "--lines 64",
        {"got = follow_rounds(chase, 1)": "got = follow_rounds(chase, 1) + 1"},
    ),
    fault(
        "cold_chase",
        "--lines 64",
        {"    told->whole = 1;": "    kill(getpid(), SIGKILL);"},
        "kernel-failed",
    ),
]
BESIDE: list[tuple[str, str, dict[str, str], str]] = [
    fault(
        "neighbour_chase",
        "--mode other --lines 64",
        IMPATIENT | {"++*o->turns;": "pause();"},
        "kernel-failed",
    ),
    fault(
        "shootdown",
        "--threads 1 --apart 1",
        IMPATIENT | {"take_turns(o);": "_exit(0);"},
        "kernel-failed",
    ),
    fault("collapse_chase", "--mode address --lines {large}", {JOINED: "0"}),
    fault(
        "collapse_chase",
        "--mode address --lines {large}",
        {JOINED: "(errno = EAGAIN)"},
        "backing-partial",
    ),
    fault(
        "shootdown",
        "--mode collapse --lines {large}",
        {"failed = madvise(from, bytes, MADV_COLLAPSE)": "failed = -1, errno = EAGAIN"},
        "backing-partial",
    ),
    fault(
        "collapse_chase",
        "--mode address --lines {large}",
        IMPATIENT
        | {"    j->began_ns = now_ns();": "    pause();", "n < SLICES && (": "n < 4096 && ("},
        "kernel-failed",
    ),
]
TURNS = "uint64_t turns, const int walkers)\n{"
WALKS: list[tuple[str, dict[str, str]]] = [
    (
        "plain",
        {"edge[0] = stand(g, cyclic(g, v));": "edge[0] = stand(g, v == 77 ? 77 : cyclic(g, v));"},
    ),
    ("plain", instead("g->vertices * (i + 1) / threads", "threads", "(threads + 1)")),
    ("walkers", at(TURNS, " turns--;")),
    ("plain", instead("at[k] = line[at[k]].edge[random >> 2 * k & 3];", "& 3", "& 1")),
    (
        "prefetch",
        {"at = line[at].edge[draw(&state) & 3];": "at = line[ahead[i]].edge[draw(&state) & 3];"},
    ),
    (
        "per hop",
        {
            "for (; turns; turns--) {\n        const": "for (turns /= 2; turns; turns--) {\n        const"
        },
    ),
]


def why(kernel: str, arguments: list[str], changes: dict[str, str], folder: Path) -> str:
    code, detail = reason_of(
        run_program(changed(kernel, changes, folder), [*arguments, "--region-ms", "1"])
    )
    assert detail
    return code


@pytest.mark.parametrize(("kernel", "arguments", "changes", "code"), FAULTS)
def test_a_faulty_kernel_gives_its_reason(kernel, arguments, changes, code, tmp_path):
    assert why(kernel, arguments.split(), changes, tmp_path) == code


@two_cpus
@pytest.mark.parametrize(("kernel", "arguments", "changes", "code"), BESIDE)
def test_a_faulty_thread_on_another_cpu_gives_its_reason(
    kernel, arguments, changes, code, tmp_path
):
    if "{large}" in arguments:
        needs_thp()
        arguments = arguments.format(large=2 * huge_page_bytes() // os.sysconf("SC_PAGESIZE"))
    assert why(kernel, arguments.split(), changes, tmp_path) == code


@pytest.mark.endurance
@pytest.mark.parametrize(("mode", "changes"), WALKS)
def test_a_faulty_graph_or_walk_is_kernel_garbage(mode, changes, tmp_path):
    assert why("graph_walk", walking(2**14, *MODES[mode]), changes, tmp_path) == "kernel-failed"
