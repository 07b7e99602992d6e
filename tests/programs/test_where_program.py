"""How `tlb where` treats the program that it runs: as if it ran by itself, bounded in time, and ended
with the command."""

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.common import (
    LONG_S,
    STRICT,
    SUPPORT,
    compiled,
    descendants_with,
    lacking,
    living,
    needs_c,
    wait_until,
)
from support.programs import TLB_SCRIPT
from support.where import GEOMETRY, SOURCE

from tlb.cli import where as command
from tlb.programs.executable import reason_against_preload, sanitizer_of
from tlb.programs.levers import allocation_sites_lever
from tlb.programs.runs import run_program
from tlb.programs.where import proof, simulation
from tlb.programs.where.proof import ALL_ALLOCATION_SITES, NO_ALLOCATION_SITES, Timed
from tlb.programs.where.simulation import HEAP
from tlb.system.reasons import Unavailable

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> str:
    target = tmp_path_factory.mktemp("odd") / "odd_programs"
    return str(compiled(SUPPORT / "odd_programs.c", target, "-O1", "-g", *STRICT))


def simulated(*words: str, status: int = 0) -> simulation.SimulationResult:
    return simulation.simulate([*words], GEOMETRY.option, LONG_S, status)


@pytest.mark.needs("valgrind")
def test_an_instruction_that_a_program_does_without_leaves_the_simulation(odd):
    assert simulated(odd, "illegal").instructions > 10_000


@pytest.mark.needs("valgrind")
def test_an_exit_code_is_the_program_s_if_it_has_it_by_itself_too(odd):
    assert simulated(odd, "grep", status=1).instructions > 10_000
    with pytest.raises(Unavailable) as why:
        simulated(odd, "grep")
    assert why.value.code == "program-unfit"


@pytest.mark.needs("valgrind")
def test_what_valgrind_has_no_room_for_is_said_and_the_program_not_blamed(odd):
    with pytest.raises(Unavailable) as why:
        simulated(odd, "reserve")
    assert why.value.code == "program-unfit" and "1 TiB" in str(why.value)


@pytest.mark.needs("valgrind")
def test_the_size_of_a_heap_is_what_the_program_touches(odd):
    full, empty = (simulated(odd, name).sites[HEAP].size_bytes >> 20 for name in ("heap", ""))
    assert full in (7, 8) and empty == 0  # 8,192,000 bytes and their headers


@pytest.mark.needs("valgrind")
def test_lines_have_the_folder_of_their_source(known_walks):
    found = simulated(known_walks, "stream", "600", "1")
    line = next(line for line in found.lines if line.function == "main")
    assert Path(line.file) == SOURCE and line.place == f"{SOURCE.name}:{line.line}"
    assert f"fl={SOURCE}\n" in found.callgrind()


@pytest.mark.parametrize("name", ["address", "thread"])
def test_a_sanitizer_is_seen_in_the_file_and_named(name, tmp_path):
    source = SUPPORT / "odd_programs.c"
    try:
        program = compiled(source, tmp_path / "sanitized", f"-fsanitize={name}")
    except subprocess.CalledProcessError:
        lacking(f"libsanitizer ({name})")
    sanitizer = sanitizer_of(str(program))
    assert sanitizer.lower() == f"{name}sanitizer" and sanitizer in reason_against_preload(
        str(program)
    )
    with pytest.raises(Unavailable) as why:
        command.simulate_or_time([str(program)], 60, 5, False, False)
    assert why.value.code == "program-unfit" and sanitizer in str(why.value)


ALLOCATORS = "libjemalloc.so.2", "libmimalloc.so.2.0", "libtcmalloc_minimal.so.4"


@pytest.mark.parametrize("library", ALLOCATORS)
@pytest.mark.parametrize("is_preloaded", [False, True])
def test_a_program_with_another_allocator_runs_as_by_itself(
    library, is_preloaded, tmp_path, monkeypatch
):
    flags = [] if is_preloaded else ["-Wl,--no-as-needed", f"-l:{library}"]
    source = SUPPORT / "allocations.c"
    try:
        program = compiled(source, tmp_path / "allocations", "-pthread", *flags)
        compiled(source, tmp_path / "unused", "-pthread", f"-l:{library}")
    except subprocess.CalledProcessError:
        lacking(library)
    if is_preloaded:
        monkeypatch.setenv("LD_PRELOAD", library)
    for kind in ("small", "realloc", "posix_memalign", "thread"):
        done = run_program(
            [str(program), kind],
            allocation_sites_lever(ALL_ALLOCATION_SITES),
            limit_s=LONG_S,
            share=0.05,
        )
        assert (done.status, done.last_lines) == (0, "")
    if shutil.which("valgrind"):
        assert simulated(str(program), "thread").instructions > 10_000


# --- proofs of runs that never were


def proven(
    monkeypatch, saves: dict[str, float], noise: float, seed: int, limit_s: float = math.inf
):
    draws = random.Random(seed)

    def timed(command, file, limit_s, status, sites, padding):
        chosen = saves if sites == ALL_ALLOCATION_SITES else sites
        return Timed((1 - sum(saves[site] for site in chosen)) * draws.lognormvariate(0, noise))

    @contextmanager
    def scratch():
        yield None, "none"

    monkeypatch.setattr(proof, "_timed", timed)
    monkeypatch.setattr(proof.sampling, "scratch", scratch)
    return proof.prove(["x"], [*saves], 1.0, limit_s)


def test_a_proof_of_what_changes_nothing_seldom_names_a_set(monkeypatch):
    """In one of 40 proofs by its confidence, since half of the wrong sets would be losses."""
    monkeypatch.setattr(proof, "MOST_ROUNDS", 8)
    saves, proofs = dict.fromkeys("ABCD", 0.0), 200
    named = sum(
        proven(monkeypatch, saves, 0.03, seed).smallest != NO_ALLOCATION_SITES
        for seed in range(proofs)
    )
    assert named <= proofs * 0.05


@pytest.mark.parametrize(
    ("saves", "smallest"),
    [
        ({"C": 0.0, "B": 0.1, "A": 0.3}, {"A", "B"}),
        ({"C": 0.0, "B": 0.0, "A": 0.3}, {"A"}),
        ({"A": 0.2, "B": -0.28}, {"A"}),  # all of them together gain nothing
    ],
)
def test_the_smallest_set_that_keeps_the_gain_is_found(saves, smallest, monkeypatch):
    done = proven(monkeypatch, saves, 0.005, 1)
    assert {*done.smallest} == smallest and done.gain(done.smallest) > 0.15


def test_a_proof_that_ctrl_c_ends_keeps_its_rounds(monkeypatch):
    rounds = []

    def tell(made):
        rounds.append(made)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(proof, "_timed", lambda *given: Timed(1.0))
    done = proof.prove(["x"], ["A"], 1.0, math.inf, tell)
    assert done.is_interrupted and len(done.rounds) == 3 and not done.is_decisive


@pytest.mark.parametrize("sites", [proof.NO_ALLOCATION_SITES, proof.ALL_ALLOCATION_SITES])
def test_a_program_that_fails_under_the_lever_alone_is_not_blamed(sites):
    command = ["sh", "-c", 'test -z "$TLB_ONLY$NUMPY_MADVISE_HUGEPAGE"']  # ends with 0 by itself
    with pytest.raises(Unavailable) as why:
        proof._timed(command, None, time.monotonic() + LONG_S, 0, sites, 0)
    assert why.value.code == "lever-failed"


def test_no_run_of_a_proof_outlives_its_limit():
    begin = time.monotonic()
    done = proof.prove(["sleep", "88.25"], ["A"], 0.1, begin + 1)
    assert not done.rounds and done.smallest == NO_ALLOCATION_SITES
    assert not descendants_with("88.25", os.getpid())


# --- the end of the command


def test_a_killed_command_leaves_no_program_running(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", TLB_SCRIPT, str(tmp_path / "lock"), "where", "sleep", "213.75"],
        env=os.environ | {"TLB_DATA": str(tmp_path / "data")},
        stderr=subprocess.DEVNULL,
    )
    while not (running := descendants_with("213.75", process.pid)):
        assert process.poll() is None
        time.sleep(0.05)
    programs = [psutil.Process(getattr(each, "pid", each)) for each in running]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: not any(map(living, programs)))
