"""pyproject.toml, environment.yml, requirements.lock and the Makefile describe one environment."""

import re
import tomllib

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tlb.system.files import ROOT

# The minor versions of Python that `make` looks for by name.
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def by_name(lines: list[str]) -> dict[str, SpecifierSet]:
    requirements = [Requirement(line) for line in lines]
    specifiers = {canonicalize_name(r.name): r.specifier for r in requirements}
    assert len(specifiers) == len(requirements), "a requirement is named twice"
    return specifiers


TEST = project()["project"]["optional-dependencies"]["test"]
FLEET = project()["dependency-groups"]["fleet"]


def project_requirements(*more: str) -> dict[str, SpecifierSet]:
    about = project()["project"]
    extras = [about["optional-dependencies"][name] for name in ("analysis", "book")]
    return by_name([*about["dependencies"], *sum(extras, []), *more])


def conda() -> tuple[dict[str, SpecifierSet], dict[str, SpecifierSet]]:
    """What environment.yml takes from conda-forge and what from its pip section."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    return (
        by_name([entry for entry in entries if isinstance(entry, str)]),
        by_name([line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]),
    )


def locked() -> list[tuple[str, Version, Marker | None, list[str]]]:
    """Each pin of the lock: name, version, marker, hashes."""
    text = LOCK.replace("\\\n", " ")
    pins = []
    for line in (line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"):
        pin, *hashes = re.split(r"\s+--hash=", line)
        requirement = Requirement(pin)
        (exactly,) = requirement.specifier
        assert exactly.operator == "==", f"{pin} is not pinned"
        name, version = canonicalize_name(requirement.name), Version(exactly.version)
        pins.append((name, version, requirement.marker, hashes))
    return pins


def on_linux(python: str, architecture: str) -> dict[str, str]:
    version = {"python_version": python, "python_full_version": f"{python}.9"}
    cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    linux = {"os_name": "posix", "platform_system": "Linux", "sys_platform": "linux"}
    return {"platform_machine": architecture, **version, **cpython, **linux}


def test_conda_and_pip_ask_for_the_same_packages_in_the_same_versions():
    from_forge, from_pip = conda()
    assert not set(from_forge) & set(from_pip)
    python, pip = from_forge.pop("python"), from_forge.pop("pip")
    build = by_name(project()["build-system"]["requires"])
    assert from_forge | from_pip == project_requirements(*TEST) | build
    on_top = (
        re.search(r"conda install (.+)", (ROOT / "environment.yml").read_text(encoding="utf-8"))[1]
        .replace("'", "")
        .split()
    )
    assert by_name(on_top) == by_name(FLEET)
    assert python == SpecifierSet(project()["project"]["requires-python"])
    assert pip == SpecifierSet("")


def installed(computer: dict[str, str]) -> dict[str, list[Version]]:
    """What the lock installs on a computer."""
    pins: dict[str, list[Version]] = {}
    for name, version, marker, _ in locked():
        if marker is None or marker.evaluate(computer):
            pins.setdefault(name, []).append(version)
    return pins


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_one_fitting_version_of_every_requirement(python, architecture):
    # `wheel` as well: with --no-build-isolation nothing but the lock may build the project.
    build = by_name(project()["build-system"]["requires"]) | by_name(["wheel"])
    wanted = project_requirements(*TEST, *FLEET) | build
    pins = installed(on_linux(python, architecture))
    assert [name for name, versions in pins.items() if len(versions) != 1] == []
    assert [name for name in wanted if name not in pins] == []
    assert [
        f"{n} {pins[n][0]} against {spec}" for n, spec in wanted.items() if pins[n][0] not in spec
    ] == []


def test_every_locked_package_is_checked_by_hash():
    pins = locked()
    assert len(pins) > len(project_requirements(*TEST))
    assert [name for name, _, _, hashes in pins if not hashes] == []
    assert all(
        re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for *_, hashes in pins for digest in hashes
    )


def test_mutation_and_check_name_files_that_are_there():
    about = project()["tool"]["mutmut"]
    named = about["only_mutate"] + about["pytest_add_cli_args_test_selection"] + about["also_copy"]
    named += re.search("^PURE := (.*)", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert [name for name in named if not (ROOT / name).exists()] == []
