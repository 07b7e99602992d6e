"""The programs of other languages: how they are started, and toolchains that are missing or
broken."""

from pathlib import Path

import pytest
from support.common import refusal
from support.stand_ins import no_tools as no_tools

from tlb.measure import toolchains
from tlb.system.reasons import Unavailable


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("language", "package"),
    [("c", "gcc"), ("rust", "rustc"), ("go", "golang-go"), ("java", "default-jdk-headless")],
)
def test_without_its_toolchain_a_language_says_what_to_install(no_tools, language, package):
    with pytest.raises(Unavailable) as caught:
        toolchains.build_program(language)
    assert caught.value.code == "no-toolchain" and f"apt install {package}" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("No space left on device", "disk-refused"),
        ("write: no space left on device", "disk-refused"),
        ("Read-only file system (os error 30)", "disk-refused"),
    ],
)
def test_a_compiler_without_room_on_the_disk_is_not_a_missing_one(no_tools, words, expected):
    put(
        no_tools,
        "rustc",
        f'[ "$1" = --version ] && echo rustc 1 && exit 0\necho "error: {words}" >&2; exit 1',
    )
    assert refusal(toolchains.build_program, "rust") == expected
