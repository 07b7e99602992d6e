"""`tlb where` on a computer that lacks the tool, Valgrind or a compiler."""

import json
import re
import sys

import pytest
from support.common import LONG_S, needs_c
from support.where import GEOMETRY, SECOND, line_of

from tlb.cli import where as command
from tlb.programs.reports import where_page
from tlb.programs.where import proof, simulation, valgrind
from tlb.programs.where.valgrind import Levels, SimulatedTlb
from tlb.system.reasons import Unavailable

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("code", "module", "function"),
    [("no-toolchain", valgrind, "build_valgrind_tool"), ("program-unfit", simulation, "simulate")],
)
def test_what_cannot_be_simulated_is_timed(code, module, function, known_walks, monkeypatch):
    def lacking(*given: object) -> None:
        raise Unavailable(code)

    monkeypatch.setattr(module, function, lacking)
    if code == "no-toolchain":
        monkeypatch.setattr(command.shutil, "which", lambda name: None)  # nor Cachegrind
    monkeypatch.setattr(command, "_extra_ns", lambda rig, lines: 30.0)
    monkeypatch.setattr(proof, "MOST_ROUNDS", 2)
    arguments = [known_walks, "chase", "2048", "1"], LONG_S, 5.0, False
    made = command.simulate_or_time(*arguments, False)
    origins = {re.search(r"allocate_\w+|small", site.origin)[0] for site in made.sites}
    assert origins >= {"allocate_chased", "allocate_gathered", "small"}
    assert {(site.id,) for site in made.sites} < {*made.proof.tried}
    assert any(str(Unavailable(code)) in sentence for sentence in made.sentences())
    heads = {word for head, _ in made.tables().values() for word in head}
    assert {"site", "ratio"} < heads and not {"all walks", "left with 2 MiB pages"} & heads
    assert json.dumps(made.document()) and "Not simulated" in where_page(made)
    with pytest.raises(Unavailable) as why:
        command.simulate_or_time(*arguments, True)  # a file of walks
    assert why.value.code == code


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_without_the_tool_cachegrind_counts_the_walks_of_lines(known_walks, monkeypatch):
    def lacking() -> None:
        raise Unavailable("no-toolchain")

    monkeypatch.setattr(valgrind, "build_valgrind_tool", lacking)
    monkeypatch.setattr(valgrind, "geometry", lambda host, surveyed: GEOMETRY)
    monkeypatch.setattr(command, "_extra_ns", lambda rig, lines: 30.0)
    monkeypatch.setattr(proof, "MOST_ROUNDS", 2)
    pages, passes = 4 * SECOND, 20
    arguments = [known_walks, "chase", str(pages), str(passes)], LONG_S, 5.0
    found = command.simulate_or_time(*arguments, False, False)
    walks = {line.line: found.found.lines[line].walks for line in found.lines}
    assert abs(walks[line_of("CHASED")] / (pages * passes) - 1) < 0.005
    assert abs(walks[line_of("GATHERED")] / (2 * pages * passes) - 1) < 0.005
    assert not found.sites and not [*found.commands()]
    ((heading, (head, _)),) = found.tables().items()
    assert heading == "Lines of code" and head == ("line", "all walks")
    proven = command.simulate_or_time(*arguments, True, False)
    assert any("allocate_chased" in site.origin for site in proven.sites)
    assert str(Unavailable("no-toolchain")) in "".join(proven.sentences())


@pytest.mark.parametrize(("second", "ways", "simulated"), [(3072, 12, 3072), (1536, 8, 1024)])
def test_cachegrind_s_caches_have_a_power_of_two_of_sets(second, ways, simulated):
    geometry = simulation.rounded_for_cachegrind(
        SimulatedTlb(4096, 2 << 20, Levels(64, second, ways), Levels(64, 64, 8))
    )
    *_, last = simulation.cachegrind_options(geometry)
    assert last == f"--LL={simulated * 4096},{ways},4096"
