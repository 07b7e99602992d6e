"""Wrong arguments, files and surroundings of `tlb`: each ends with a sentence and the right exit
code, without a traceback, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from support.common import ROOT, ended

from tlb import cli
from tlb.cli import trial
from tlb.system import files

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux measures")
TLB = Path(sys.executable).with_name("tlb")
# Exit code, what the message names, and the arguments. {f}: a file of text, {d}: a folder, {x}: a script without its
# interpreter, {w}: one with the line ends of Windows, {n}: a name that is not there, {p}: a pipe; _ is a space.
WRONG = """
2 nope        nope
2 --color     --color blue doctor
2 extra       doctor extra
2 --nope      doctor --nope
2 --fail-on   doctor --fail-on x
2 --html      doctor --html {d}
2 kernel      measure
2 nope        measure nope
2 --pages     measure page_chase --pages 3m
2 --pages     measure page_chase --pages
2 --lines     measure page_chase --lines -1
2 --layout    measure page_chase --layout diagonal
2 --engine    measure page_chase --engine java
2 --cpu       measure page_chase --cpu 99999
2 --mode      measure page_chase --mode nope
2 --mode      measure page_gather --mode x
2 --nope      measure page_chase --nope 3
2 --guest-pages measure page_chase --guest-pages 4k
2 --guest-pages measure guest_chase --guest-pages 3m
2 --guest-pages measure guest_chase --mode 2m --guest-pages 4k
2 --bytes     measure random_touch --bytes -1
2 COMMAND     try
2 --only      try --only x -- true
2 --versus    try --versus _ -- true
2 --versus    try --versus "x -- true
2 --versus    try --versus true --lever malloc -- true
2 --setting   try --setting novalue -- true
2 --setting   try --setting ../../etc/passwd=x -- true
2 --setting   try --setting transparent_hugepage/enabled=x --env a=b -- true
2 --env       try --env novalue -- true
2 --minutes   try --minutes inf -- true
2 --within    try --within −5 -- true
2 --metric    try --metric ( -- true
2 --metric    try --metric (a)(b) -- true
2 --metric    try --quantile 0.5 -- true
2 --higher-is-better try --higher-is-better -- true
2 --sweep     try --sweep n=1 -- true
2 --input     try --input {d} -- true
2 --input     try --input {p} -- true
2 --markdown  try --markdown {f}/x -- true
2 --driver    try --ready x -- true
2 --driver    try --driver "x -- true
2 --prepare   try --prepare _ -- true
2 --pid       try --pid 1 -- true
2 --pid       try --pid 99999999 --driver true
2 --only      try --pid 1 --only 9-3 --driver true
1 {n}         try -- {n}
1 directory   try -- {d}
1 absent-sh   try -- {x}
1 sh\\r       try -- {w}
1 --driver    try --driver {n} -- true
1 --versus    try --versus {n} -- true
1 nope-no     try -- nope-no
1 directory   where -- {d}
2 --callgrind where --callgrind {n}/x -- true
2 PID         watch
2 PID         watch 99999999
2 --seconds   watch 1 --seconds 5
2 --all       watch --all 1
1 {n}         watch {n}
2 --pages     pool reserve
2 --size      pool reserve --pages 2m
2 --size      pool reserve --pages 2m --size lots
2 --pages     geometry --pages 3m
2 nope        run nope
2 minutes     run stlb_cliff -p minutes inf
2 -p          run stlb_cliff -p
2 --output    run stlb_cliff --output {f}/x
2 profile     book --profile x
2 nope        refresh nope
2 ../x        bundle make ../x
2 --output    bundle make --output {f}/x
1 {d}         bundle add {d}
2 own/reference compare own/reference this
2 --ssh       fleet
2 nope        fleet --local 1 --chapter nope
2 --baseline  where --baseline {f} -- true
2 --baseline  where --baseline {p} -- true
2 --baseline  where --baseline= -- true
2 --baseline  where --baseline /dev/zero -- true
2 --machine   where --save {n} --machine zen-99 -- true
2 --machine   where --save {n} --machine {f} -- true
2 --machine   where --save {n} --machine {d} -- true
2 --machine   where --machine zen-4 -- true
2 --prove     where --save {n} --prove -- true
2 --callgrind where --save {n} --callgrind {n} -- true
2 --fail-above where --fail-above 2% -- true
2 --fail-above where --baseline {n} --fail-above -1% -- true
2 --fail-above where --baseline {n} --fail-above 1e9% -- true
2 --markdown  where --save {n} --markdown {n} -- true
2 --junit     where --baseline {n} --junit {d} -- true
2 --runs      where --runs 3 -- true
2 --env       where --save {n} --env nothing -- true
1 absent      where --save {n} -- absent
"""
# What is found out only as a program runs.
RUN = """
4 code        try -- false
4 code        try -- sh -c exit\t7
4 Killed      try -- sh -c kill\t-9\t$$
4 code        try --prepare false -- sleep 0.1
1 --within    try --within 0.1 -- true
1 --metric    try --metric (x) -- echo y
1 --metric    try --metric (.) -- echo 0
1 --metric    try --metric (.*) -- echo inf
4 driver      try --driver true -- true
1 process     watch 4194303
4 code        where --save {n} -- false
1 --seconds   where --save {n} --seconds 1 -- sleep 60
"""


@pytest.fixture
def things(tmp_path) -> dict[str, str]:
    made = {name: tmp_path / f"a-{name}" for name in "fxwp"}
    made["f"].write_text("no program\n")
    made["x"].write_text("#!/absent-sh -e\n")
    made["w"].write_text("#!/bin/sh\r\necho\r\n")
    for name in "xw":
        made[name].chmod(0o755)
    os.mkfifo(made["p"])
    return {name: str(path) for name, path in made.items()} | {
        "d": str(tmp_path),
        "n": str(tmp_path / "absent"),
    }


def read(line: str, things: dict[str, str]) -> tuple[int, str, list[str]]:
    """Return a line's exit code, what its message names, and its arguments."""
    status, names, *words = filter(None, line.split(" "))  # a tab is a blank inside a word
    arguments = [" " if word == "_" else word.format(**things) for word in words]
    return int(status), names.format(**things), [word.replace("\t", " ") for word in arguments]


def has_remedy(message: str) -> bool:
    """Whether it ends with the command that explains the arguments, or with a reason's remedy."""
    last = message.rstrip("\n").splitlines()[-1]
    helps = last.endswith(("--help` lists its options.", "--help` lists all commands."))
    return helps or bool(re.search(r"\. [A-Z].+\.$", last))


@linux
@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_argument_is_named_with_its_remedy_before_anything_runs(
    line, things, monkeypatch, capsys
):
    def taken(*_: object, **__: object) -> None:
        raise AssertionError("the lock is taken for a command that cannot run")

    for module in ("trial", "measure"):
        monkeypatch.setattr(import_module(f"tlb.cli.{module}"), "measuring_lock", taken)
    monkeypatch.chdir("/")
    status, names, arguments = read(line, things)
    assert ended(monkeypatch, *arguments) == status
    said = capsys.readouterr()
    assert said.out == "" and "Traceback" not in said.err
    assert names in said.err and has_remedy(said.err), said.err


def options(command: object, name: str) -> list[tuple[str, object]]:
    """Return the parameters of a command and of those below it."""
    found = [(f"{name} {each.name}", each) for each in command.params]
    for word, below in getattr(command, "commands", {}).items():
        found += options(below, f"{name} {word}")
    return found


def test_each_number_has_bounds_that_the_help_states():
    loose = []
    for name, option in options(typer.main.get_command(cli.app), "tlb"):
        is_number = option.type_descriptor.annotation in (int, float)
        if is_number and None in (option.min, option.max):
            loose.append(name)
    assert loose == []


def ran(arguments: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    given = {"capture_output": True, "text": True, "cwd": "/"} | how
    return subprocess.run([str(TLB), *arguments], **given)


@linux
@pytest.mark.parametrize("line", RUN.strip().splitlines())
def test_a_program_that_cannot_be_compared_is_a_sentence(
    line, things, monkeypatch, capfd, tmp_path
):
    monkeypatch.setattr(
        trial, "measuring_lock", lambda _: files.measuring_lock(path=tmp_path / "lock")
    )
    status, names, arguments = read(line, things)
    assert ended(monkeypatch, *arguments) == status
    said = capfd.readouterr()
    assert said.out == "" and "Traceback" not in said.err
    assert names in said.err and has_remedy(said.err)
    assert 0 < len(said.err.splitlines()) <= 4, said.err


@pytest.mark.endurance
@linux
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


@pytest.mark.endurance
@linux
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


@pytest.mark.endurance
@linux
def test_nothing_is_left_in_the_checkout():
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    before = subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout
    ran(["doctor"], cwd=ROOT)
    assert subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout == before
