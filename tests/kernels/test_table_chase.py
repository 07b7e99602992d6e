"""table_chase visits the pages that a second loop places, in its order, and through as many tables
as were asked for."""

from collections.abc import Iterator

import pytest
from support.kernels import checksum, needs_c, reason_of, run_c, splitmix64

from tlb.machine.host import base_page_bytes
from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring]

# (pages, tables of each level): one table; one to a page; eight lines to a table; many of each
# level; of the third as well
SHAPES = [(32, 1, 1, 1), (64, 64, 1, 1), (512, 64, 8, 1), (256, 256, 32, 2), (256, 128, 16, 16)]


def given(pages: int, *tables: int, mode: str = "random") -> list[str]:
    levels = [word for level, n in enumerate(tables, 1) for word in (f"--tables_{level}", str(n))]
    return ["--lines", str(pages), *levels, "--mode", mode, "--seed", "7", "--region-ms", "1"]


def placed(pages: int, *tables: int, page: int, is_even: bool, hot: int = 0) -> list[int]:
    """The numbers of the pages in the order of their visits, counted from where the room for tables
    of the third level begins."""
    numbers, fanout = splitmix64(7), page // 8

    def below(limit: int) -> int:
        return (next(numbers) >> 32) * limit >> 32

    def rooms() -> Iterator[int]:
        left = tables[-1]
        for room in range(2 * tables[-1]):
            if left and (room % 2 == 0 if is_even else below(2 * tables[-1] - room) < left):
                left -= 1
                yield room

    parents = list(rooms())
    for level, children in zip((3, 2, 1), (tables[1], tables[0], pages), strict=True):
        is_alone = level == 1 and not is_even
        entries, a_line = [], 1 if is_alone else 8
        for parent in parents:
            lines = list(range(fanout // 8))
            for child in range(children // len(parents)):
                line = child // a_line
                if child % a_line == 0 and not is_even:
                    other = line + below(len(lines) - line)
                    lines[line], lines[other] = lines[other], lines[line]
                entries.append(
                    parent * fanout + lines[line] * 8 + (below(8) if is_alone else child % 8)
                )
        parents = entries
    if hot:
        return [parents[below(hot if below(2) else pages)] for _ in range(max(4 * pages, 1 << 16))]
    order = list(range(pages))
    for i in range(pages - 1, 0, -1):
        j = below(i + 1)
        order[i], order[j] = order[j], order[i]
    return [parents[i] for i in order]


def through(numbers: list[int], page: int) -> tuple[int, ...]:
    """How many tables of each level those pages go through."""
    fanout = page // 8
    return tuple(len({number // fanout**level for number in numbers}) for level in (1, 2, 3))


@needs_c
@pytest.mark.parametrize("mode", ["random", "even"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_visits_what_a_second_loop_places_through_as_many_tables(shape, mode):
    done = run_c("table_chase", given(*shape, mode=mode))
    assert (done.returncode, done.stderr) == (0, "")
    report, numbers = (
        KernelOutput.model_validate_json(done.stdout),
        placed(*shape, page=base_page_bytes(), is_even=mode == "even"),
    )
    assert report.checksum == checksum(numbers) and len(set(numbers)) == shape[0]
    assert through(numbers, base_page_bytes()) == shape[1:]
    assert report.ns_per_access > 0 and report.accesses % shape[0] == 0


@needs_c
@pytest.mark.parametrize("hot", [8, 64, 256])
def test_drawn_visits_are_those_of_a_second_loop(hot):
    done = run_c("table_chase", [*given(256, 32, 1, 1), "--order", "random", "--hot", str(hot)])
    report, numbers = (
        KernelOutput.model_validate_json(done.stdout),
        placed(256, 32, 1, 1, page=base_page_bytes(), is_even=False, hot=hot),
    )
    assert report.checksum == checksum(numbers) and report.accesses % len(numbers) == 0


@needs_c
def test_more_mappings_than_a_process_may_have_are_a_reason():
    code, detail = reason_of(run_c("table_chase", given(65536, 65536, 1024, 2)))
    assert code == "memory-short" and "max_map_count" in detail
