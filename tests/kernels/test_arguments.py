"""Arguments that cannot be: one sentence on stderr and exit 2, in C and in numba."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from support.common import needs_c
from support.kernels import assert_refused, compiled, reason_of, refused_by_c, run_c, run_program, run_twins

from experiments.lab import build, measure
from experiments.lab.record import Point
from experiments.machine.compiler import compiler
from experiments.words.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- arguments that cannot be

BAD = [["--pages", "9k"], ["--pages", ""], ["--pages", "8k"], ["--pages", "2048k"], ["--pages", "1"],
       ["--warm-hops", "0"],
       ["--layout", "loose"], ["--order", "zigzag"], ["--lines", "0"], ["--lines", "-1"],
       ["--lines", "+5"], ["--lines", " 5"], ["--lines", "12x"], ["--lines", ""], ["--lines", "4294967297"],
       ["--lines", "99999999999999999999"], ["--seed", "-1"], ["--seed", "9223372036854775808"], ["--seed", "x"],
       ["--cpu", "-1"], ["--cpu", "x"], ["--cpu", "1023"], ["--cpu", "1000000"], ["--region-ms", "0"], ["--region-ms", "60001"],
       ["--region-ms", "1.5"], ["--perf-fds", "3"], ["--perf-fds", "3,4,5"], ["--perf-fds", "a,b"], ["--frobnicate"],
       ["--lines"], ["surplus"]]


@needs_c
@pytest.mark.parametrize("bad", BAD, ids=" ".join)
def test_a_bad_argument_is_one_sentence_on_stderr_and_exit_2(bad: list[str]):
    refused_by_c("page_chase", bad)


def test_numba_refuses_what_c_refuses():
    for bad, said in zip(BAD, run_twins([("page_chase", bad) for bad in BAD]), strict=True):
        assert_refused(bad, *said)


@needs_c
def test_an_order_that_only_the_other_kernel_has_is_refused():
    assert "cycle, sequential" in refused_by_c("page_gather", ["--order", "random"])


def test_random_draws_beyond_their_32_bits_are_refused_before_anything_is_mapped():
    bad = ["--order", "random", "--lines", str(2**26 + 1)]  # 256 GiB and a page
    (said,) = run_twins([("page_chase", bad)])
    assert_refused(bad, *said)
    if compiler():
        refused_by_c("page_chase", bad)


ONLY_SPREAD_AND_ALIAS_TAKE_STRIDES = [
    ["--layout", "packed", "--stride-pages", "2"], ["--pages", "64k", "--stride-pages", "2"], ["--pages", "thp", "--stride-pages", "2"]]


@needs_c
@pytest.mark.parametrize(("bad", "words"), [
    *((bad, "--stride-pages above 1 takes") for bad in ONLY_SPREAD_AND_ALIAS_TAKE_STRIDES),
    (["--stride-pages", "0"], "from 1 to 1048576"), (["--stride-pages", "1048577"], "from 1 to 1048576"),
    (["--stride-pages", "x"], "from 1 to 1048576"), (["--stride-pages"], "Usage:"),
    (["--layout", "alias", "--order", "sequential"], "--layout alias takes"),
    (["--layout", "alias", "--pages", "64k"], "--layout alias takes"), (["--layout", "alias", "--pages", "thp"], "--layout alias takes"),
    (["--layout", "alias", "--pages", "1g"], "--layout alias takes"),
], ids=lambda given: " ".join(given) if isinstance(given, list) else "")
def test_a_stride_or_an_alias_that_cannot_be_is_one_sentence(bad: list[str], words: str):
    assert words in refused_by_c("page_chase", bad)


@needs_c
def test_a_gather_has_no_aliased_pages():
    assert "spread, packed" in refused_by_c("page_gather", ["--layout", "alias"])


@needs_c
@pytest.mark.parametrize("bad", [
    ["--layout", "alias", "--lines", str(2**26 + 1)], ["--layout", "alias", "--lines", str(2**20 + 1), "--stride-pages", "64"],
    ["--order", "random", "--lines", str(2**20 + 1), "--stride-pages", "64"],
    ["--layout", "alias", "--lines", str(2**32), "--stride-pages", "1048576"],
], ids=" ".join)
def test_pages_beyond_the_32_bits_of_a_visit_are_refused_before_anything_is_mapped(bad: list[str]):
    limit = (256 << 20, 256 << 20)  # room for the program, and for no arena
    assert "256 GiB" in refused_by_c("page_chase", bad, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))


@needs_c
def test_a_span_that_overflows_64_bits_is_memory_short():
    for lines in (2**32, 2**32 - 1, 2**31 + 1):
        done = run_c("page_chase", ["--lines", str(lines), "--stride-pages", str(2**20)])
        assert reason_of(done)[0] == "memory-short"


def test_numba_has_neither_strides_nor_aliased_pages():
    bad = [["--layout", "alias"], ["--stride-pages", "2"], ["--layout", "alias", "--stride-pages", "2"]]
    for one, said in zip(bad, run_twins([("page_chase", one) for one in bad]), strict=True):
        assert_refused(one, *said)


@pytest.mark.parametrize("asked", [{"layout": "alias"}, {"stride_pages": 2}, {"layout": "alias", "stride_pages": 64}])
def test_a_point_that_numba_cannot_measure_says_that_the_engine_lacks_it(asked: dict, monkeypatch):
    monkeypatch.setattr(measure.perf, "run", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(Unavailable, match=str(asked.get("layout", "spread"))) as why:
        measure.measure(Point(kernel="page_chase", engine="numba", lines=64, **asked), state="0" * 12, usable_bytes=1 << 30)
    assert why.value.code == "engine-lacks"


# --- what the machine lacks, said in JSON


@needs_c
@pytest.mark.parametrize("detail", ["its group is CORP\\kvm", 'says "no"', "a\tb\nc\x1b", "größer", "\\u0041", ""])
def test_a_detail_is_json_whatever_stands_in_it(detail: str, tmp_path: Path):
    (tmp_path / "lacks.c").write_text(f'#include "{build.KERNELS}/arguments.h"\n'
                                      'int main(int argc, char **argv) { unavailable("kvm-permission", "%s", argv[argc - 1]); }\n')
    lacks = compiled(tmp_path / "lacks.c", tmp_path / "lacks", "-Wno-unused-function")
    assert reason_of(run_program(lacks, [detail])) == ("kvm-permission", detail)
