"""The commands that execute and publish chapters: parameters as Papermill takes them, and which
rows go where."""

from pathlib import Path

import pytest
from support.campaigns import put
from support.common import ROOT, ended, make_record
from support.synthetic import Stated

from experiments.overview import campaign
from tlb.machine import host
from tlb.measure.store import PUBLISHED_ROWS, Store, write_published_rows
from tlb.report import publish
from tlb.report.card import card
from tlb.system import files
from tlb.system.units import MINUTES_PER_DAY

# --- parameters as Papermill takes them


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ([], {}),
        (["-p", "repeats", "3"], {"repeats": 3}),
        (["-p", "max_working_set", "256MiB"], {"max_working_set": "256MiB"}),
    ],
)
def test_a_pair_is_read_in_either_form_and_has_the_type_that_the_chapter_declares(
    given, read, monkeypatch, capsys
):
    executed: list[tuple[str, Path, dict]] = []
    monkeypatch.setattr(publish, "execute", lambda *what: executed.append(what))
    monkeypatch.setattr(publish, "keep_own_quantities", lambda path: None)
    monkeypatch.setattr(
        campaign, "book", lambda given: executed.append(given) or publish.Book(Path("index.html"))
    )
    assert ended(monkeypatch, "run", "stlb_cliff", *given) == 0
    assert executed == [
        ("stlb_cliff", ROOT / "_build/runs/stlb_cliff.ipynb", {"machine": "this"} | read)
    ]
    assert ended(monkeypatch, "book", "--profile", "smoke", *given) == 0
    assert executed[1] == {"machine": "this", "profile": "smoke", "minutes": MINUTES_PER_DAY} | read


# --- committed chapters


def test_bundle_add_adds_own_rows_to_published_ones_and_writes_the_card_anew(
    tmp_path, monkeypatch, capsys, own_lock
):
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    monkeypatch.setattr(publish, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    monkeypatch.setattr(host, "inspect_machine", Stated().host)
    store, name = Store(tmp_path), host.machine_id(Stated().host())
    (tmp_path / name).mkdir()
    write_published_rows(tmp_path / name / PUBLISHED_ROWS, [(make_record(lines=16), ["walks"])])
    put(store.own, name, "walks", make_record(lines=32))
    store.own.write_machine(name, Stated().host().model_dump(mode="json"))
    for _ in range(2):
        assert ended(monkeypatch, "bundle", "add", "this", "--no-quantities") == 0
        assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / name)
        assert store.load(name, "walks")["lines"].tolist() == [16, 32]
        assert (tmp_path / name / "README.md").read_text() == card(store, name, Stated().host())
    with files.measuring_lock(path=own_lock):
        assert ended(monkeypatch, "bundle", "add", "this") == 3  # a campaign appends
