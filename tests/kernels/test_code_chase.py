"""code_chase jumps to the lines that a second loop names, in their order, from memory that is never writable and executable at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.kernels import (
    changed,
    checksum,
    draws,
    emulated,
    for_arm64,
    needs_c,
    needs_emulator,
    on_x86,
    reason_of,
    refused_by_c,
    run_c,
    run_program,
    shuffled,
)

from experiments.lab.record import KernelReport

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def given(lines: int, *more: str) -> list[str]:
    return ["--lines", str(lines), "--seed", "7", "--region-ms", "1", *more]


def cycle(lines: int) -> list[int]:
    successor, walk = shuffled(lines, 7, itself=False), [0]
    while len(walk) < lines:
        walk.append(successor[walk[-1]])
    return walk


WAYS = {("--mode", "direct"): cycle, ("--mode", "listed", "--order", "cycle"): lambda lines: shuffled(lines, 7, itself=True),
        ("--mode", "listed", "--order", "random"): lambda lines: draws(7, [lines] * max(4 * lines, 1 << 16))}


@needs_c
@pytest.mark.parametrize("lines", [1, 2, 63, 256, 5000])
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_it_jumps_where_a_second_loop_says(way: tuple[str, ...], lines: int):
    for layout in ("spread", "packed", "alias") if "listed" in way else ("spread", "packed"):
        done = run_c("code_chase", given(lines, *way, "--layout", layout))
        assert (done.returncode, done.stderr) == (0, "")
        report = KernelReport.model_validate_json(done.stdout)
        assert report.checksum == checksum(order := WAYS[way](lines)) and report.accesses % len(order) == 0 < report.ns_per_access


@needs_c
def test_a_long_list_is_gone_through_in_parts_after_the_caches_are_warm():
    report = KernelReport.model_validate_json(run_c("code_chase", given(1 << 18, "--order", "random", "--layout", "packed")).stdout)
    assert report.accesses >= 1 << 17 and dict(report.also)["warm_hops"] >= 1


@needs_c
@pytest.mark.parametrize("every", [2, 5, 64])
def test_of_every_group_of_lines_one_is_hot(every: int):
    done = run_c("code_chase", given(1 << 12, "--order", "random", "--layout", "packed", "--every", str(every)))
    lines = (1 << 12) // every
    drawn = draws(7, [lines] * max(4 * lines, 1 << 16))
    places = [n * every + (n * 0x9E3779B97F4A7C15 % 2**64 >> 32) % every for n in drawn]
    assert KernelReport.model_validate_json(done.stdout).checksum == checksum(places)
    groups = [place // every for place in set(places)]
    assert len(set(groups)) == len(groups) and max(places) < 1 << 12


@needs_c
def test_a_jump_that_leads_elsewhere_is_no_record(tmp_path: Path):
    program = changed("code_chase", {"list[r * (round + 1) + round] = (uint64_t)out;":
                                     "list[r * (round + 1) + round - (round > 1)] = (uint64_t)out;"}, tmp_path)
    code, _ = reason_of(run_program(program, given(64)))
    assert code == "kernel-garbage"


@needs_c
def test_no_page_is_writable_and_executable_at_once(tmp_path: Path):
    program = changed("code_chase", {"struct work work = {": """{
        char line[512], flags[5];
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            if (sscanf(line, "%*s %4s", flags) == 1 && flags[1] == 'w' && flags[2] == 'x')
                unavailable("kernel-garbage", "%s", line);
        fclose(maps);
    }
    struct work work = {"""}, tmp_path)
    for way in (("--mode", "direct"), ("--layout", "alias"), ("--layout", "packed")):
        assert run_program(program, given(64, *way)).returncode == 0


@needs_c
def test_where_executing_is_refused_it_says_so(tmp_path: Path):
    program = changed("code_chase", {"if (mprotect(at, bytes, PROT_READ | PROT_EXEC))": "errno = EACCES;\n    if (bytes)"}, tmp_path)
    code, detail = reason_of(run_program(program, given(64)))
    assert code == "code-refused" and re.search("[Pp]ermission", detail)


@needs_c
@pytest.mark.parametrize("bad", [
    given(64, "--mode", "direct", "--order", "random"), given(64, "--mode", "direct", "--layout", "alias"),
    given(64, "--order", "sequential"), given(64, "--layout", "alias", "--pages", "2m"), given(0), given(64, "--mode", "indirect"),
    given(64, "--every", "2"), given(64, "--every", "0", "--layout", "packed"), given(4, "--every", "5", "--layout", "packed"),
    given(64, "--every", "2", "--layout", "packed", "--mode", "direct")])
def test_bad_arguments_are_one_sentence(bad: list[str]):
    refused_by_c("code_chase", bad)


@on_x86
@needs_emulator
@pytest.mark.slow
def test_the_arm64_build_jumps_to_the_same_lines_under_emulation(tmp_path: Path):
    program = for_arm64("code_chase", tmp_path)
    for way, order in WAYS.items():
        assert emulated(program, *given(64, *way)).checksum == checksum(order(64)), way
