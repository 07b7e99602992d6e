"""The programs of this chapter answer the same with and without their lever; a document of them is
whole, whatever is missing."""

import os
import subprocess
import sys

import pytest
from support.programs import look, made, trial

from experiments.your_program import cases, programs
from experiments.your_program.cases import PROGRAM_CASES, ProgramCase
from tlb.machine.settings import HugePagePool
from tlb.measure.toolchains import Toolchain
from tlb.programs.trial import MIN_RUN_PAIRS
from tlb.system import files
from tlb.system.reasons import REASON_TEXTS, Unavailable

SMALL = {
    "fare-cache": ("4194304", "20000", "50"),
    "fare-cache-hot": ("4194304", "20000", "90"),
    "join": ("3000",),
    "join-parts": ("3000",),
    "sharded": ("4194304", "8", "1000"),
    "rules": ("4194304", "1000", "0"),
    "rules-beside": ("4194304", "1000", "1"),
    "go-map": ("4096", "1000", "2000"),
}


@pytest.fixture(autouse=True)
def built_here(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))


def answers(command: list[str], **environment: str) -> dict[str, float]:
    """The numbers that a program prints, by their names."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return {
        name: float(value)
        for name, _, value in (line.partition(": ") for line in done.stdout.splitlines())
    }


@pytest.mark.slow
@pytest.mark.needs("a C compiler", "go")
@pytest.mark.parametrize("name", SMALL)
def test_our_programs_answer_the_same_with_the_lever_and_without(name):
    case = PROGRAM_CASES[name]
    _, folder = programs.compiled(case.tool)
    command = [case.tool.run[0].replace("@", str(folder)), *SMALL[name]]
    variable, _, value = case.lever.partition("=")
    plain, changed = answers(command), answers(command, **({variable: value} if value else {}))
    assert plain.pop(case.metric) > 0 and changed.pop(case.metric) > 0
    assert plain == changed and len(plain) == 1


@pytest.mark.slow
@pytest.mark.needs("a C compiler")
def test_a_join_by_parts_joins_what_a_second_loop_joins():
    rows, bits = 999, (1 << 64) - 1

    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & bits
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & bits
        return z ^ (z >> 31)

    first = {1 + 2 * (i * 0x9E3779B1 % rows): i for i in range(rows)}
    second = [1 + mixed(i * 0x9E3779B97F4A7C15 & bits) % (2 * rows) for i in range(rows)]
    expected = sum(first[key] ^ i for i, key in enumerate(second) if key in first)
    _, folder = programs.compiled(PROGRAM_CASES["join"].tool)
    assert answers([f"{folder}/hash_join", str(rows)])["sum"] == expected != 0


@pytest.mark.slow
@pytest.mark.needs("a C compiler")
def test_a_clock_finds_the_chase_in_a_program_that_does_nothing_else():
    _, folder = programs.compiled(programs.PROFILE)
    done = subprocess.run(
        [f"{folder}/profiled_chase", str(4 << 20), "0.3"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = programs.SampledProfile.model_validate_json(done.stdout)
    assert 0 < found.most <= found.ticks


def test_a_trial_becomes_a_row():
    base, large = (
        made(2.0, looks=(look(resident_mib=100),)),
        made(1.0, looks=(look(resident_mib=120, huge_mib=60),)),
    )
    told = programs.summary("sort", "1.0", trial(base, large))
    assert told.ratio[0] == pytest.approx(0.5) and told.pairs == MIN_RUN_PAIRS and told.alike
    assert (told.without.value, told.with_lever.value, told.with_lever.huge_bytes) == (
        2.0,
        1.0,
        60 << 20,
    )
    assert not programs.summary("sort", "1.0", trial(made(out="a"), made(out="b"))).alike
    with pytest.raises(Unavailable) as why:  # of which no interval would be known
        programs.summary("sort", "1.0", trial(base, large, pairs=MIN_RUN_PAIRS - 1))
    assert why.value.code == "no-time"


@pytest.fixture
def started(monkeypatch, own_lock) -> list[str]:
    """Return the names of the programs started; of them only sort can be measured."""
    names: list[str] = []

    def measure(name: str, case: ProgramCase, minutes: float) -> programs.ProgramResult:
        names.append(name)
        if name != "sort":
            raise Unavailable("no-toolchain", name)
        return programs.summary(name, "1.0", trial(made(), made(0.5)))

    def profile(room_bytes: int) -> programs.SampledProfile:
        raise Unavailable("kernel-failed")

    monkeypatch.setattr(programs, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    monkeypatch.setattr(programs, "measure", measure)
    monkeypatch.setattr(programs, "profile", profile)
    return names


@pytest.mark.parametrize("room", [1 << 30, (9 << 30) - 1])
def test_a_program_that_holds_more_than_there_is_is_left_out(room, started, monkeypatch):
    monkeypatch.setattr(programs, "usable_bytes", lambda host: room)
    lacking = programs.make_programs_document(1.0, tell=lambda line: None)["lacking"]
    assert started == [name for name, case in PROGRAM_CASES.items() if case.holds_gib << 30 <= room]
    short = {name for name, code in lacking.items() if code == "memory-short"}
    assert short == set(PROGRAM_CASES) - set(started) >= {"jvm-start-8"}


def test_a_document_is_whole_whatever_is_missing(started):
    document = programs.ProgramsDocument.model_validate(
        programs.make_programs_document(1.0, tell=lambda line: None)
    )
    assert [each.case for each in document.told] == ["sort"]
    assert set(document.lacking) == set(PROGRAM_CASES) - {"sort"} | {"profile"}
    assert set(document.lacking.values()) <= set(REASON_TEXTS)


@pytest.mark.parametrize("free", [0, 511])
def test_a_slice_from_the_pool_is_a_reason_where_the_pool_has_no_room_for_it(free, monkeypatch):
    monkeypatch.setattr(
        programs.pools,
        "look",
        lambda: {"2m": HugePagePool(page="2m", total=600, free=free, reserved=0, surplus=0)},
    )
    with pytest.raises(Unavailable) as why:
        programs.measure("rules-pool", PROGRAM_CASES["rules-pool"], 0.01)
    assert why.value.code == "pool-empty" and "1 GiB" in why.value.detail


@pytest.mark.parametrize(("codes", "tries"), [([], 1), (["no-time"], 2), (["no-time"] * 2, 2)])
def test_a_program_that_did_not_end_is_tried_once_more(codes, tries, monkeypatch):
    aims: list[object] = []

    def attempt(aim: object) -> object:
        aims.append(aim)
        if len(aims) <= len(codes):
            raise Unavailable(codes[len(aims) - 1])
        return trial(made(), made(0.5))

    monkeypatch.setattr(programs, "run_trial", attempt)
    monkeypatch.setattr(cases, "inputs", dict)
    case = ProgramCase(
        "x", Toolchain("C", "", (sys.executable, "--version"), (), ("true",), "x"), "none", "x"
    )
    if len(codes) == tries:
        with pytest.raises(Unavailable):
            programs.measure("sort", case, 0.01)
    else:
        assert programs.measure("sort", case, 0.01).pairs == MIN_RUN_PAIRS
    assert len(aims) == tries
