"""Building kernels: a binary is named by all that decides what it does, and what cannot be built
says why."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tlb.lab import build, namespaces
from tlb.lab.kernels import CATALOGUE
from tlb.lab.record import Point
from tlb.machine.compiler import Compiler
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


# A kernel in C and in numba; what it includes or imports, and what that does in turn; and what it
# has nothing to do with.
SOURCES = {
    "ask.c": '#include <stdio.h>\n#include "shared.h"\n'
    'int main(void) { printf("%d", ANSWER); return 0; }\n',
    "shared.h": '#include "deeper.h"\n',
    "deeper.h": "#define ANSWER 42\n",
    "other.h": "#define QUESTION\n",
    "twins/ask.py": "from kernels.twins import shared\n\n\ndef main():\n    print(shared.ANSWER)\n",
    "twins/shared.py": "from kernels.twins.deeper import ANSWER\n",
    "twins/deeper.py": "ANSWER = 42\n",
    "twins/other.py": "",
}


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small kernels in the place of the real one, and an empty place for binaries."""
    folder = tmp_path / "kernels"
    (folder / "twins").mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(build, "KERNELS", folder)
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built here"))
    return folder


def use_compiler(monkeypatch: pytest.MonkeyPatch, found: Compiler | None) -> None:
    monkeypatch.setattr(build, "compiler", lambda: found)


def script(tmp_path: Path, text: str) -> Compiler:
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


def test_a_kernel_of_one_engine_is_lacking_in_the_other_and_auto_takes_the_one_that_has_it(
    kernels: Path, monkeypatch
):
    (kernels / "ask.c").unlink()
    use_compiler(monkeypatch, Compiler(("cc",), "cc 1.0"))
    assert (
        build.kernel_names() == ["ask"]
        and build.kernel("ask", "numba").command[-1] == "kernels.twins.ask"
    )
    monkeypatch.setattr(build, "ROOT", kernels.parent)
    assert why().code == "engine-lacks" and "kernels/ask.c" in why().detail
    assert [build.engine_for(asked, "ask") for asked in ("auto", "c", "numba")] == [
        "numba",
        "c",
        "numba",
    ]
    (kernels / "twins/ask.py").rename(kernels / "twins/tell.py")
    (kernels / "ask.c").touch()
    assert (
        build.kernel_names() == ["ask", "tell"]
        and "kernels/twins/ask.py" in why(engine="numba").detail
    )
    assert (
        why(engine="numpy").code == "engine-lacks" and build.engine_for("numpy", "ask") == "numpy"
    )
    assert [build.engine_for("auto", name) for name in ("ask", "tell", "unknown", "")] == [
        "c",
        "numba",
        "c",
        "c",
    ]


@pytest.mark.needs("a C compiler")
def test_a_kernel_is_compiled_once_and_runs(kernels: Path):
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
    [("ask.c", "/* more */"), ("shared.h", "#define MORE\n"), ("deeper.h", "#define MORE\n")],
)
def test_a_change_of_the_source_is_another_kernel(kernels: Path, name: str, more: str):
    before = build.kernel("ask")
    (kernels / name).write_text((kernels / name).read_text() + more)
    after = build.kernel("ask")
    assert after.digest != before.digest and after.command != before.command


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("kill -9 $$", "no message"),
        ("echo 'ld: cannot find crt1.o' >&2; exit 1", "find crt1.o"),
        ('echo "error: in $LC_ALL" >&2; exit 1', "in C"),
    ],
)
def test_a_compiler_that_fails_in_any_way_leaves_no_binary(
    kernels: Path, tmp_path: Path, monkeypatch, text: str, detail: str
):
    use_compiler(monkeypatch, script(tmp_path, text))
    assert why().code == "compile-failed" and detail in why().detail
    assert list(build.build_folder().iterdir()) == []


# --- sessions


SHARING = [
    Point(
        kernel=name, engine=engine, mode=mode, layout=layout, order=order, lines=64, options=options
    )
    for name, kernel in CATALOGUE.items()
    if kernel.session
    for engine in ("c", "numba", "numpy")
    if build.source(name, engine).exists()
    for mode in kernel.modes or ("",)
    if mode not in kernel.played
    for layout, order in {(kernel.layout, kernel.order), ("alias", "cycle"), ("spread", "random")}
    for options in (
        {},
        *(
            {option: 4}
            for option in ("spare_draws", "walkers", "per_hop")
            if option in kernel.options
        ),
    )
]


@pytest.mark.needs("a C compiler")
def test_each_session_times_the_machine_code_that_its_kernels_own_programs_time():
    has_session = build.sessions()
    assert len(SHARING) > 30 and [point for point in SHARING if not has_session(point)] == []
    alone = [
        Point(kernel="page_chase", lines=64, mode=namespaces.MODE),
        Point(kernel="table_chase", layout="alias", lines=64),
    ]
    assert not any(map(has_session, alone))


@pytest.mark.needs("a C compiler")
def test_a_kernel_whose_timed_function_is_another_one_in_the_session_is_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(
        build.KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(build, "KERNELS", tmp_path / "kernels")
    monkeypatch.setattr(build, "_PATCHED", {})
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    gather, loop = tmp_path / "kernels/page_gather.c", "    for (; rounds; rounds--)"
    assert loop in gather.read_text()
    gather.write_text(
        gather.read_text().replace(
            loop, f'#ifdef SESSION\n    __asm__ volatile("nop");\n#endif\n{loop}'
        )
    )

    def shares() -> list[str]:
        return [
            name
            for name in ("page_chase", "page_gather", "page_store")
            if build.sessions()(Point(kernel=name, lines=64))
        ]

    assert shares() == ["page_chase", "page_store"]
    build.patch(
        "page_store", "int main(", "extern int environ_of;\nint main("
    )  # whose timed loop is the same
    assert shares() == ["page_chase"]
