"""GitHub's workflows: what their linters say."""

import re
import shutil
import subprocess

import pytest

from tlb.system.files import ROOT


@pytest.mark.endurance
@pytest.mark.needs("go")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", None),
        ("  pull_request:", "  pull_request_target:", "dangerous-triggers"),  # zizmor's
    ],
)
def test_the_workflows_are_linted_and_the_linters_find_what_is_wrong(tmp_path, old, new, says):
    for name in (".ci", ".github"):
        shutil.copytree(ROOT / name, tmp_path / name)
    subprocess.run(
        ["git", "init", "--quiet"], cwd=tmp_path, check=True
    )  # by which actionlint knows the repository's root
    tests = tmp_path / ".github" / "workflows" / "tests.yml"
    tests.write_text(tests.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = subprocess.run([tmp_path / ".ci" / "workflows"], capture_output=True, text=True)
    assert bool(done.returncode) == bool(says), done.stdout + done.stderr
    assert not says or re.search(says, done.stdout + done.stderr)
