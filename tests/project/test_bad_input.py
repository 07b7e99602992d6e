"""Wrong arguments, files and surroundings of `tlb`: each ends with a sentence and the right exit
code, without a traceback, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT

pytestmark = [
    pytest.mark.endurance,
    pytest.mark.measuring,  # a held lock would be another reason, with another exit code
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux measures"),
]
TLB = Path(sys.executable).with_name("tlb")
# Exit code, then the arguments; {f}: a file of text, {d}: a folder, {x}: an executable of nonsense,
# {n}: a name that is not there.
WRONG = """
2 nope
2 --color blue doctor
2 doctor extra
2 inspect --json extra
2 doctor --nope
2 measure
2 measure nope
2 measure page_chase --pages 3m
2 measure page_chase --pages
2 measure page_chase --lines -1
2 measure page_chase --lines many
2 measure page_chase --lines 99999999999999999999
2 measure page_chase --layout diagonal
2 measure page_chase --engine java
2 measure page_chase --cpu 99999
2 measure page_chase --region-ms 0
2 measure page_chase --region-ms 999999999
2 measure page_chase --stride-pages 0
2 measure page_chase --mode nope
2 measure page_chase --nope 3
2 measure page_chase --guest-pages 4k
2 measure random_touch --bytes -1
2 try
2 try --lever nope -- true
2 try --env novalue -- true
2 try --minutes -1 -- true
2 try --within 0 -- true
2 try --metric ( -- true
2 try --metric x -- true
2 try --metric (a)(b) -- true
2 try --quantile 0.5 -- true
2 try --quantile 2 --metric (x) -- true
2 try --higher-is-better -- true
2 try --wait -1 -- true
2 try --sweep n=1 -- true
2 try --input {n} -- true
2 try --input {d} -- true
2 try --html {d} -- true
2 try --ready x -- true
2 try --driver "x -- true
2 try --pid 1 -- true
2 try --pid -1
4 try -- false
4 try -- sh -c exit\t7
4 try -- sh -c kill\t-9\t$$
4 try --prepare false -- sleep 0.1
1 try -- {n}
1 try -- {f}
1 try -- {x}
1 try -- true
1 try --metric (x) -- echo y
1 try --metric (.) -- echo 0
4 try --driver true -- true
2 watch
2 watch 0
2 watch 99999999
2 watch --seconds -1 1
2 watch --overhead 0 1
2 watch --prometheus x -- sleep 1
1 watch 4194303
1 watch {n}
2 pool reserve
2 pool reserve --pages 2m
2 pool reserve --pages 3x --size 1GiB
2 pool reserve --pages 2m --size lots
2 pool nope
2 housekeeping nope
2 housekeeping measure --leave lots
2 geometry --pages 3m
2 geometry nope
"""


@pytest.fixture
def things(tmp_path) -> dict[str, str]:
    text, nonsense = tmp_path / "text", tmp_path / "nonsense"
    text.write_text("no program\n")
    nonsense.write_bytes(b"\x7fELF nonsense")
    nonsense.chmod(0o755)
    return {"f": str(text), "d": str(tmp_path), "x": str(nonsense), "n": str(tmp_path / "absent")}


def ran(arguments: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    given = {"capture_output": True, "text": True, "cwd": "/"} | how
    return subprocess.run([str(TLB), *arguments], **given)


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_argument_is_a_sentence(line, things):
    status, *words = line.split(" ")
    arguments = [word.format(**things) for word in words]
    done = ran(arguments)
    assert done.returncode == int(status), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert 0 < len(done.stderr.splitlines()) <= 4, done.stderr


@pytest.mark.parametrize(
    ("redirection", "status"),
    [(">&-", 0), ("> /dev/full", 1), ("2>&-", 0), ("| head -c 1", 0), (">&- 2>&-", 0)],
)
@pytest.mark.parametrize("command", ["doctor", "inspect", "--help", "pool"])
def test_an_output_that_takes_nothing_is_no_traceback(command, redirection, status):
    script = f"set -o pipefail; {TLB} {command} {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert done.returncode == status or "head" in redirection


@pytest.mark.parametrize(
    "surroundings",
    [
        {"COLUMNS": "40"},
        {"LC_ALL": "C", "LANG": "C"},
        {"LC_ALL": "xx_YY.nope"},
        {"TERM": "dumb", "NO_COLOR": "1"},
        {"PYTHONIOENCODING": "ascii"},
        {"HOME": "/nonexistent"},
        {"PATH": "/nonexistent"},
        {"TMPDIR": "/nonexistent"},
    ],
    ids=str,
)
def test_a_command_works_in_odd_surroundings(surroundings):
    for command in (["doctor"], ["inspect", "--json"]):
        done = ran(command, env=os.environ | surroundings)
        assert done.returncode == 0 and done.stdout and "Traceback" not in done.stderr, done.stderr


def test_nothing_is_left_in_the_checkout():
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    before = subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout
    ran(["doctor"], cwd=ROOT)
    assert subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout == before
