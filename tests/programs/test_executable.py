"""Whether a program's file says why no library is loaded before its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from support.common import needs_c
from support.programs import built

from experiments.programs.executable import is_static, unreached


@pytest.mark.measures
@needs_c
@pytest.mark.parametrize(("flags", "static"), [((), False), (("-static",), True), (("-static-pie", "-fPIE"), True), (("-no-pie",), False)])
def test_a_static_program_is_told_by_its_file_and_so_is_the_interpreter_of_a_script(tmp_path: Path, flags: tuple[str, ...], static: bool):
    program = built(tmp_path, *flags)
    script = tmp_path / "script"
    script.write_bytes(b"#!" + bytes(program) + b" argument\n")
    assert is_static(program.read_bytes()) is static
    assert [("statically" in unreached(str(path))) for path in (program, script)] == [static, static]


def test_what_is_no_program_of_64_bits_is_not_called_static(tmp_path: Path):
    shell = Path(shutil.which("sh") or sys.executable).resolve().read_bytes()
    for head in (b"", b"#!", b"\x7fELF", b"\x7fELF\x01" + bytes(100), b"\x7fELF\x02\x01" + bytes(100), shell[:60]):
        assert not is_static(head)
    assert unreached(str(tmp_path / "nothing")) == ""
    (tmp_path / "script").write_text("#!\n")
    assert unreached(str(tmp_path / "script")) == ""
