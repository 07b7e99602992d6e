"""What skips without the packages of `make fleet` is skipped by nobody in CI."""

import os
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from support.common import ROOT


@pytest.mark.skipif(not os.environ.get("CI"), reason="here `make fleet` is a choice")
def test_in_ci_all_that_a_fleet_takes_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    group = project["dependency-groups"]["fleet"]
    assert group and all(
        version(asked.name) in asked.specifier for asked in map(Requirement, group)
    )
