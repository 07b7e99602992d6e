"""code_chase jumps to the lines that a second loop names, in their order, from memory that is never
writable and executable at once."""

import pytest
from support.kernels import changed, checksum, draws, needs_c, run_c, run_program, shuffled

from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def given(lines: int, *more: str) -> list[str]:
    return ["--lines", str(lines), "--seed", "7", "--region-ms", "1", *more]


def cycle(lines: int) -> list[int]:
    successor, walk = shuffled(lines, 7, itself=False), [0]
    while len(walk) < lines:
        walk.append(successor[walk[-1]])
    return walk


WAYS = {
    ("--mode", "direct"): cycle,
    ("--mode", "listed", "--order", "cycle"): lambda lines: shuffled(lines, 7, itself=True),
    ("--mode", "listed", "--order", "random"): lambda lines: draws(
        7, [lines] * max(4 * lines, 1 << 16)
    ),
}


@needs_c
@pytest.mark.parametrize("lines", [1, 2, 63, 256, 5000])
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_it_jumps_where_a_second_loop_says(way, lines):
    for layout in ("spread", "packed", "alias") if "listed" in way else ("spread", "packed"):
        done = run_c("code_chase", given(lines, *way, "--layout", layout))
        assert (done.returncode, done.stderr) == (0, "")
        report = KernelOutput.model_validate_json(done.stdout)
        assert (
            report.checksum == checksum(order := WAYS[way](lines))
            and report.accesses % len(order) == 0 < report.ns_per_access
        )


@needs_c
def test_a_long_list_is_gone_through_in_parts_after_the_caches_are_warm():
    report = KernelOutput.model_validate_json(
        run_c("code_chase", given(1 << 18, "--order", "random", "--layout", "packed")).stdout
    )
    assert report.accesses >= 1 << 17 and dict(report.also)["warm_hops"] >= 1


@needs_c
@pytest.mark.parametrize("every", [2, 5, 64])
def test_of_every_group_of_lines_one_is_hot(every):
    done = run_c(
        "code_chase",
        given(1 << 12, "--order", "random", "--layout", "packed", "--every", str(every)),
    )
    lines = (1 << 12) // every
    drawn = draws(7, [lines] * max(4 * lines, 1 << 16))
    places = [n * every + (n * 0x9E3779B97F4A7C15 % 2**64 >> 32) % every for n in drawn]
    assert KernelOutput.model_validate_json(done.stdout).checksum == checksum(places)
    groups = [place // every for place in set(places)]
    assert len(set(groups)) == len(groups) and max(places) < 1 << 12


@needs_c
def test_no_page_is_writable_and_executable_at_once(tmp_path):
    program = changed(
        "code_chase",
        {
            "struct work work = {": """{
        char line[512], flags[5];
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            if (sscanf(line, "%*s %4s", flags) == 1 && flags[1] == 'w' && flags[2] == 'x')
                unavailable("kernel-failed", "%s", line);
        fclose(maps);
    }
    struct work work = {"""
        },
        tmp_path,
    )
    for way in (("--mode", "direct"), ("--layout", "alias"), ("--layout", "packed")):
        assert run_program(program, given(64, *way)).returncode == 0
