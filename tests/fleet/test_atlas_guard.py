"""What nobody may ask of an atlas, an atlas that is none, and the command."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path

from support.common import ended, refusal

from tlb.fleet.ask import QUESTIONS, VERSION_FILE, ask, opened

REFUSED = """
;
SELECT
SELEKT 1
SELECT nothing FROM rows
FROM nowhere
SELECT 1; SELECT 2
SELECT 1; DROP VIEW rows
FROM read_text('/etc/passwd')
FROM '/etc/passwd'
FROM read_csv('/etc/passwd')
FROM glob('/etc/*')
FROM parquet_metadata('/etc/passwd')
FROM read_blob('ATLAS/version')
FROM read_parquet('http://127.0.0.1:1/x.parquet')
FROM read_csv('s3://bucket/x')
COPY (SELECT 1) TO 'ATLAS/x.csv'
COPY rows TO 'ATLAS/x' (FORMAT parquet)
EXPORT DATABASE 'ATLAS/x'
ATTACH 'ATLAS/x.db'
ATTACH ':memory:' AS other
INSTALL httpfs
LOAD httpfs
FORCE INSTALL httpfs FROM 'http://127.0.0.1:1'
SET memory_limit = '100GB'
PRAGMA memory_limit = '100GB'
PRAGMA enable_external_access
SET enable_external_access = true
RESET lock_configuration
SET allowed_directories = ['/']
SET threads = 64
CREATE TABLE x AS SELECT 1
CREATE SECRET (TYPE s3)
EXPLAIN ANALYZE COPY rows TO 'ATLAS/x'
CALL pragma_version()
SELECT * FROM query('COPY rows TO ''ATLAS/x''')
FROM duckdb_secrets()
FROM data
SELECT getenv('HOME')
INSERT INTO ranks VALUES (1, 1, 1)
VACUUM
CHECKPOINT
BEGIN
PREPARE x AS SELECT 1
SELECT error('no')
SELECT 'x'::INT FROM rows
SELECT list(range) FROM range(1000000000)
SELECT '\ud800'
"""


def test_what_may_not_be_asked_is_one_sentence(whole, tmp_path):
    atlas = shutil.copytree(whole, tmp_path / "atlas")
    before = sorted(path for path in tmp_path.rglob("*"))
    with opened(atlas, memory="64MiB") as connection:
        for sql in ["", *REFUSED.strip().splitlines()]:
            asked = sql.replace("ATLAS", str(atlas))
            assert refusal(lambda asked=asked: [*ask(connection, asked)]) == "bad-query", sql
        assert [*ask(connection, "SELECT count(*) > 500 FROM rows")] == [(True,)]  # it stays usable
        limit = "SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'"
        assert [*ask(connection, limit)] == [("64.0 MiB",)]
    assert sorted(path for path in tmp_path.rglob("*")) == before


def answers(atlas: Path) -> list[tuple]:
    with opened(atlas) as connection:
        return [*ask(connection, "SELECT * FROM rows")]


def test_a_file_that_is_no_parquet_is_a_reason_and_so_is_an_atlas_of_another_version(
    whole, tmp_path
):
    spoilt = {"cut": lambda content: content[:-9], "zeros": lambda content: bytes(len(content))}
    spoilt["torn"] = lambda content: content[:4] + bytes(len(content) - 100) + content[-96:]
    for name, spoil in spoilt.items():
        atlas = shutil.copytree(whole, tmp_path / name)
        for path in atlas.rglob("*.parquet"):
            path.write_bytes(spoil(path.read_bytes()))
        assert refusal(answers, atlas) == "atlas-broken"
    gone = shutil.copytree(whole, tmp_path / "gone")
    (gone / "profile.parquet").unlink()
    other = shutil.copytree(whole, tmp_path / "other")
    (other / VERSION_FILE).write_text("0")
    for atlas, code in ((gone, "atlas-broken"), (other, "no-atlas"), (tmp_path, "no-atlas")):
        assert refusal(answers, atlas) == code


def run(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    return ended(monkeypatch, "atlas", *arguments), *capsys.readouterr()


def test_the_command_answers_as_a_table_as_json_and_as_csv(
    whole, data, tmp_path, capsys, monkeypatch
):
    status, out, _ = run(capsys, monkeypatch, "ask")
    assert status == 0 and all(name in out for name in QUESTIONS)
    told = {
        how: run(capsys, monkeypatch, "ask", "gain", "--atlas", str(whole), *how)[1]
        for how in ((), ("--json",), ("--csv",))
    }
    expected = json.loads(told["--json",])
    assert [
        {name: row[name] for name in ("cpu_model", "pages")}
        for row in csv.DictReader(io.StringIO(told["--csv",]))
    ] == [{name: row[name] for name in ("cpu_model", "pages")} for row in expected]
    assert len(told[()].splitlines()) >= 1 + len(expected) > 2
    assert run(capsys, monkeypatch, "ask", "SELECT 1 WHERE false", "--json", "--atlas", str(whole))[
        :2
    ] == (0, "[]\n")
    odd = "SELECT chr(27) || '[31m' AS a, 'nan'::DOUBLE AS b, [1.5], '[red]' AS c FROM rows LIMIT 1"
    assert (
        json.loads(run(capsys, monkeypatch, "ask", odd, "--json", "--atlas", str(whole))[1])[0]["b"]
        is None
    )
    _, out, _ = run(capsys, monkeypatch, "ask", odd, "--atlas", str(whole))
    assert "\x1b" not in out and "[red]" in out


def test_the_command_builds_and_says_in_a_line_what_cannot_be(data, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "data"
    shutil.copytree(data / "cpu-00000000", folder / "cpu-00000000")
    status, out, _ = run(
        capsys, monkeypatch, "build", str(folder), "--output", str(tmp_path / "atlas")
    )
    assert status == 0 and out == f"{tmp_path / 'atlas'}: 4 rows of 1 machines.\n"
    for arguments in (
        ["ask", "nothing", "--atlas", str(tmp_path / "atlas")],
        ["ask", "gain", "--atlas", str(tmp_path)],
        ["build", str(tmp_path / "none")],
    ):
        status, out, err = run(capsys, monkeypatch, *arguments)
        assert (status, out, len(err.splitlines())) == (1, "", 1)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "tlb.fleet.ask")
    status, _, err = run(capsys, monkeypatch, "ask", "gain")
    assert status == 1 and "clone" in err
