"""What others run of this repository: GitHub's workflows, the container of an editor, Binder. They
name what is here and may do little."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tlb.system.files import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# What a job may write, and why. All others read the repository, or nothing.
WRITES = {
    ("publish.yml", "site"): {"pages", "id-token"},  # puts the site on Pages
    ("publish.yml", "files"): {"contents"},  # drafts the release
    ("publish.yml", "index"): {"id-token"},  # puts the wheels on the index
    ("publish.yml", "image"): {"packages"},  # puts the image into the registry
    ("weekly.yml", "propose"): {"contents", "pull-requests"},  # proposes the new lock
}


def loaded(workflow: Path) -> dict[Any, Any]:
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (workflow.name, name, job)
        for workflow in WORKFLOWS
        for name, job in loaded(workflow)["jobs"].items()
    ]


def test_jobs_write_only_what_they_are_for_and_none_that_runs_a_pull_request():
    for workflow in WORKFLOWS:
        assert loaded(workflow)["permissions"] == {}, workflow.name
        assert "pull_request_target" not in workflow.read_text(encoding="utf-8")
    for workflow, name, job in jobs():
        written = (
            {scope for scope, level in job["permissions"].items() if level == "write"}
            if "permissions" in job
            else set()
        )
        assert written == WRITES.get((workflow, name), set()), (workflow, name)
        # True is what YAML 1.1 makes of the key `on`.
        assert not (
            written and "pull_request" in loaded(ROOT / ".github" / "workflows" / workflow)[True]
        ), workflow
        assert "timeout-minutes" in job, (workflow, name)


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
