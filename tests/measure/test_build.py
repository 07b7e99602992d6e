"""Building kernels: a binary is named by all that decides what it does, and what cannot be built
says why."""

import os
import subprocess
from pathlib import Path

import pytest

from tlb.machine.host import Compiler
from tlb.measure import build
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


# A kernel; what it includes, and what that does in turn; and what it
# has nothing to do with.
SOURCES = {
    "ask.c": '#include <stdio.h>\n#include "shared.h"\n'
    'int main(void) { printf("%d", ANSWER); return 0; }\n',
    "shared.h": '#include "deeper.h"\n',
    "deeper.h": "#define ANSWER 42\n",
    "other.h": "#define QUESTION\n",
}


@pytest.fixture
def kernels(tmp_path, monkeypatch) -> Path:
    """A folder of small kernels in the place of the real one, and an empty place for binaries."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(build, "KERNELS_FOLDER", folder)
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built here"))
    return folder


def use_compiler(monkeypatch, found: Compiler | None) -> None:
    monkeypatch.setattr(build, "compiler_or_prebuilt", lambda: found)


def script(tmp_path, text: str) -> Compiler:
    """A shell script in the place of the compiler."""
    path = tmp_path / "cc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Compiler((str(path),), "cc 1.0")


def why(name: str = "ask", engine: str = "c") -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        build.kernel(name, engine)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_a_kernel_that_an_engine_does_not_measure_has_its_reason():
    assert build.kernel("page_gather", "numba").command[-1] == "kernels.chase_numba"
    assert why("shootdown", "numba").code == "no-compiler"
    assert why("page_chase", "numpy").code == "engine-lacks"
    closure = {path.name for path in build.source_files("page_gather", "numpy")}
    assert closure == {"page_gather.py", "plan.py"}


def test_auto_is_c_where_there_is_a_compiler(monkeypatch):
    engines = ("auto", "c", "numba", "numpy")
    use_compiler(monkeypatch, Compiler(("cc",), "cc 1.0"))
    assert [build.engine_for(asked) for asked in engines] == ["c", "c", "numba", "numpy"]
    use_compiler(monkeypatch, None)
    assert [build.engine_for(asked) for asked in engines if asked != "c"] == [
        "numba",
        "numba",
        "numpy",
    ]
    with pytest.raises(Unavailable, match="no C compiler"):
        build.engine_for("c")


@pytest.mark.needs("a C compiler")
def test_a_kernel_is_compiled_once_and_runs(kernels):
    first = build.kernel("ask")
    assert subprocess.run(first.command, capture_output=True, text=True).stdout == "42"
    made = os.stat(first.command[0]).st_mtime_ns
    assert build.kernel("ask") == first and os.stat(first.command[0]).st_mtime_ns == made
    assert sorted(path.name for path in build.build_folder().iterdir()) == [
        f"ask-{first.digest}",
        f"ask-{first.digest}.o",
    ]


@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("ask.c", "int more;"),
        ("ask.c", "#define MORE\n"),
        ("shared.h", "#define MORE\n"),
        ("deeper.h", "#define MORE\n"),
    ],
)
def test_a_change_of_the_source_is_another_kernel(kernels, name, more):
    before = build.kernel("ask")
    (kernels / name).write_text((kernels / name).read_text() + more)
    after = build.kernel("ask")
    assert after.digest != before.digest and after.command != before.command


# Pairs of C texts, and whether they are the same code.
TEXTS = [
    ("int a;  // one\nint b;\n", "int a;\n\n/* two */ int b;", True),
    ("f(1, /* \" */ 'x');", "f(1,\n  'x');", True),
    ('puts("/* a  b */");', 'puts("/* a b */");', False),
    ('puts("//");', "puts(", False),
    ("c = '\"'; /* \" */", "c = '\"';", True),
    ("#define A \\\n 1\nint b;", "#define A 1 /* one */\n  int b;", True),
    ("#define A\nint b;", "#define A int b;", False),
    ("int a/**/b;", "int ab;", False),
    ("a - -b;", "a--b;", False),
]


@pytest.mark.parametrize(("one", "other", "alike"), TEXTS)
def test_bare_text_is_that_of_the_same_code(one, other, alike):
    assert (build.without_comments(one) == build.without_comments(other)) == alike


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("kill -9 $$", "compile-failed", "no message"),
        ("echo 'ld: cannot find crt1.o' >&2; exit 1", "compile-failed", "find crt1.o"),
        ('echo "error: in $LC_ALL" >&2; exit 1', "compile-failed", "in C"),
        ("echo 'ld: final link failed: No space left on device' >&2; exit 1", "disk-refused", ""),
    ],
)
def test_a_compiler_that_fails_in_any_way_leaves_no_binary(
    kernels, tmp_path, monkeypatch, text, code, detail
):
    use_compiler(monkeypatch, script(tmp_path, text))
    assert why().code == code and detail in why().detail
    assert list(build.build_folder().iterdir()) == []
