"""The programs of other languages: how they are started, and toolchains that are missing or broken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.stand_ins import no_tools as no_tools

from experiments.lab import build, toolchains
from experiments.lab.toolchains import Program
from experiments.words.reasons import Unavailable

SIZE = 16 << 20


def code(call, *arguments) -> str:
    with pytest.raises(Unavailable) as caught:
        call(*arguments)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value.code


def test_javas_flags_are_those_of_its_recipes_and_each_in_its_variant_alone():
    program = Program("java", "javac 17", ("java", "-cp", "somewhere", "BigArray"))
    plain, huge, pool = (program.command(variant, SIZE) for variant in ("plain", "huge", "pool"))
    assert set(huge) - set(plain) == {"-XX:+UseTransparentHugePages", "huge"}
    assert set(pool) - set(plain) == {"-XX:+UseLargePages", "-XX:LargePageSizeInBytes=2m", "pool"}
    assert huge[0] == "java" and huge[-3:] == ["BigArray", "huge", str(SIZE)]


def test_settings_that_would_change_the_pages_do_not_reach_a_program(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseTransparentHugePages")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    seen = toolchains.environment()
    assert "JAVA_TOOL_OPTIONS" not in seen and seen["GOFLAGS"] == "" and seen["GOTOOLCHAIN"] == "local"
    assert seen["PATH"] == os.environ["PATH"]


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("language", "package"), [("c", "gcc"), ("rust", "rustc"), ("go", "golang-go"),
                                                   ("java", "default-jdk-headless")])
def test_without_its_toolchain_a_language_says_what_to_install(no_tools: Path, language: str, package: str):
    with pytest.raises(Unavailable) as caught:
        toolchains.build(language)
    assert caught.value.code == "no-toolchain" and f"apt install {package}" in str(caught.value)


def test_python_is_always_there(no_tools: Path):
    program = toolchains.build("python")
    assert program.run[0] == sys.executable and Path(program.run[1]).exists() and "numba" in program.toolchain


@pytest.mark.parametrize("text", ["exit 1", "echo error: no default toolchain >&2; exit 1", "kill -9 $$"])
def test_a_toolchain_that_does_not_tell_its_version_is_none(no_tools: Path, text: str):
    put(no_tools, "rustc", text)
    assert code(toolchains.build, "rust") == "no-toolchain"


def test_a_compiler_that_fails_leaves_nothing_behind_and_is_quoted(no_tools: Path):
    put(no_tools, "go", 'if [ "$1" = version ]; then echo go version go1; exit 0; fi\necho "error: no space for it" >&2; exit 1')
    with pytest.raises(Unavailable) as caught:
        toolchains.build("go")
    assert caught.value.code == "no-toolchain" and "go: error: no space for it" in str(caught.value)
    assert list(build.build_folder().iterdir()) == []


@pytest.mark.parametrize(("words", "expected"), [("No space left on device", "disk-full"), ("write: no space left on device", "disk-full"),
                                                 ("Read-only file system (os error 30)", "disk-read-only")])
def test_a_compiler_without_room_on_the_disk_is_not_a_missing_one(no_tools: Path, words: str, expected: str):
    put(no_tools, "rustc", f'[ "$1" = --version ] && echo rustc 1 && exit 0\necho "error: {words}" >&2; exit 1')
    assert code(toolchains.build, "rust") == expected


def test_a_compiler_that_hangs_is_ended(no_tools: Path, monkeypatch):
    put(no_tools, "rustc", '[ "$1" = --version ] && echo rustc 1 && exit 0\nwhile :; do :; done')
    monkeypatch.setattr(toolchains, "BUILD_LIMIT_S", 0.5)
    assert code(toolchains.build, "rust") == "no-toolchain"


def test_java_needs_the_machine_beside_the_compiler(no_tools: Path):
    put(no_tools, "javac", "echo javac 17")
    with pytest.raises(Unavailable, match="java; Debian"):
        toolchains.build("java")
