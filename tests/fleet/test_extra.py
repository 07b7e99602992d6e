"""What skips without the extra `fleet` is skipped by nobody in CI."""

import os
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from support.common import ROOT


@pytest.mark.skipif(not os.environ.get("CI"), reason="here `make fleet` is a choice")
def test_in_ci_all_that_a_fleet_takes_is_installed():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["fleet"]
    assert (
        all(version(asked.name) in asked.specifier for asked in map(Requirement, extra)) and extra
    )
