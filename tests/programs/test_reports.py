"""What `tlb try`, `where`, `watch` and `doctor` write for other programs, by the published schema."""

import json

import jsonschema
import pytest
from support.common import ROOT, ended
from support.programs import look, made, trial

from tlb.machine import doctor, host
from tlb.programs import reports
from tlb.programs.trial_report import document

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "data" / "report.schema.json").read_text())
)


@pytest.mark.parametrize(
    ("pairs", "changed"), [(7, {}), (0, {}), (8, {"versus": ("other", "-x"), "lever": "none"})]
)
def test_a_trial_is_by_the_schema_whatever_it_found(pairs, changed):
    done = trial(made(2.0), made(1.0, looks=(look(huge_mib=90),)), pairs=pairs, **changed)
    written = json.loads(
        json.dumps(reports.document("try", document(done), host.inspect_machine()))
    )
    SCHEMA.validate(written)
    assert len(written["runs"]) == 2 + 2 * pairs
    del written["sides"][0]["cpu_s"]
    assert not SCHEMA.is_valid(written)


def test_doctor_is_by_the_schema_and_fails_as_it_is_asked_to(monkeypatch, capsys, tmp_path):
    found = [doctor.Advice("pool", "Empty.", "Run `tlb pool reserve`.", "note")]
    monkeypatch.setattr(doctor, "advice", lambda host: [*found])
    page = tmp_path / "page.html"
    assert ended(monkeypatch, "doctor", "--json", "--html", str(page), "--fail-on", "warning") == 0
    written = json.loads(capsys.readouterr().out)
    SCHEMA.validate(written)
    assert written["findings"][0]["command"] == "tlb pool reserve" and "Empty." in page.read_text()
    assert ended(monkeypatch, "doctor", "--fail-on", "note") == 1


def test_a_page_of_a_watched_program_leads_with_the_verdict_and_escapes_names():
    tables = {"Memory": (("page", "size"), [("4k", "<1 MiB>")])}
    page = reports.watch_page("<b>", ["Nothing to gain.", "Seen.", "tlb try -- x"], tables)
    assert "<h1>Nothing to gain.</h1>" in page and "<p>Seen.</p><pre>tlb try -- x</pre>" in page
    assert "&lt;1 MiB&gt;" in page and "<b>" not in page
