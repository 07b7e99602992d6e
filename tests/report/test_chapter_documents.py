"""What a chapter keeps beside its rows: made once, and again where the machine or its means are
others."""

from collections.abc import Callable

import pytest
from support.chapter import CHAPTER, DEFAULTS, this
from support.common import refusal
from support.synthetic import Stated

from tlb.machine import host
from tlb.report import chapter as chapters
from tlb.report.chapter import begin


@pytest.fixture
def making(world) -> Callable[[str], dict]:
    """What makes a document: `made` has the profiles that it was asked with, `trouble` what it
    raises."""
    world |= {"made": [], "trouble": None}

    def make(profile: str) -> dict:
        if world["trouble"]:
            raise world["trouble"]
        world["made"].append(profile)
        return {"state": host.state_digest(world["host"]), "made": len(world["made"])}

    return make


def test_a_document_is_made_once_and_read_from_then_on(world, making, capsys):
    first = this(profile="smoke")
    assert (
        first.document("runtimes", making)
        == first.document("runtimes", making)
        == this().document("runtimes", making)
    )
    assert world["made"] == ["smoke"] and capsys.readouterr().err.count("runtimes: ") == 1
    assert first.store.read_document(first.machine, "runtimes")["made"] == 1


def test_a_document_of_another_state_of_the_machine_is_made_again(world, making):
    assert this().document("runtimes", making)["made"] == 1
    world["host"] = Stated(changes={"kernel_release": "6.2.0"}).host()
    assert host.machine_id(world["host"]) == host.machine_id(Stated().host())
    assert [this().document("runtimes", making)["made"] for _ in range(2)] == [2, 2]


def test_a_document_is_made_again_where_there_is_a_program_or_a_pool_more(
    world, making, monkeypatch
):
    monkeypatch.setattr(chapters.shutil, "which", lambda tool: None)
    assert this().document("runtimes", making)["made"] == 1
    monkeypatch.setattr(
        chapters.shutil, "which", lambda tool: "/usr/bin/go" if tool == "go" else None
    )
    assert [this().document("runtimes", making)["made"] for _ in range(2)] == [2, 2]
    world["host"] = Stated(
        changes={"pools": [{"page": "2m", "total": 8, "free": 8, "reserved": 0, "surplus": 0}]}
    ).host()
    assert this().document("runtimes", making)["made"] == 3


def test_a_document_on_request_is_read_in_its_own_state_and_never_made(world):
    chapter = this()
    assert refusal(lambda: chapter.document("housekeeping", None)) == "no-data"
    chapter.store.write_document(
        chapter.machine, "housekeeping", {"state": host.state_digest(world["host"])}
    )
    assert this().document("housekeeping", None) == {"state": host.state_digest(world["host"])}
    world["host"] = Stated(changes={"kernel_release": "6.2.0"}).host()
    assert refusal(lambda: this().document("housekeeping", None)) == "no-data"


@pytest.mark.parametrize("machine", ["reference", "made-up"])
def test_a_document_of_committed_data_is_read_whatever_its_state_and_never_made(
    committed, world, making, machine
):
    chapter = begin(CHAPTER, DEFAULTS | {"machine": machine})
    assert refusal(lambda: chapter.document("runtimes", making)) == "no-data"
    committed.write_document("made-up", "runtimes", {"state": "of long ago"})
    assert chapter.document("runtimes", making) == {"state": "of long ago"} and world["made"] == []
