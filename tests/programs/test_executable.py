"""Whether a program's file says why no library is loaded before its own."""

import pytest
from support.common import needs_c
from support.programs import built

from tlb.programs.executable import is_static, reason_against_preload


@pytest.mark.measures
@needs_c
@pytest.mark.parametrize(
    ("flags", "static"),
    [((), False), (("-static",), True), (("-static-pie", "-fPIE"), True), (("-no-pie",), False)],
)
def test_a_static_program_is_told_by_its_file_and_so_is_the_interpreter_of_a_script(
    tmp_path, flags, static
):
    program = built(tmp_path, *flags)
    script = tmp_path / "script"
    script.write_bytes(b"#!" + bytes(program) + b" argument\n")
    assert is_static(program.read_bytes()) is static
    assert [("statically" in reason_against_preload(str(path))) for path in (program, script)] == [
        static,
        static,
    ]
