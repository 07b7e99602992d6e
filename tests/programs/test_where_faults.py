"""Programs that `tlb where` meets badly, and its end in each phase: a reason, and nothing left."""

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.common import LONG_S, ROOT, descendants_with, living, needs_c, needs_root, wait_until
from support.programs import TLB_SCRIPT
from support.where import GEOMETRY, SOURCE, built

from tlb.programs.where import sampling, simulation, valgrind
from tlb.system.reasons import Unavailable

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="programs of 32 bits are x86's")


def begun(folder: Path, *arguments: str) -> subprocess.Popen:
    """`tlb where` without a ledger, whose temporary files are in a folder of their own."""
    environment = {"TMPDIR": str(folder / "tmp"), "TLB_DATA": str(folder / "data")}
    (folder / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", TLB_SCRIPT, str(folder / "lock"), "where", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def left_of(process: subprocess.Popen, folder: Path) -> list[object]:
    """What a command has left: processes and temporary files."""
    mine = str(folder)
    running = [
        each
        for each in psutil.process_iter(["cmdline"])
        if mine in " ".join(each.info["cmdline"] or "")
    ]
    return [*filter(living, running), *(folder / "tmp").iterdir()]


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Path:
    """A folder with programs that a simulation meets badly."""
    folder = tmp_path_factory.mktemp("odd")
    bare = folder / "bare.c"
    bare.write_text('void _start(void) { __asm__("mov $1, %eax; xor %ebx, %ebx; int $0x80"); }\n')
    built(folder, SOURCE, "-static")
    built(folder, bare, "-m32", "-static", "-nostdlib")
    script = folder / "script"
    script.write_text("#!/bin/sh\necho done\n")
    script.chmod(0o755)
    shutil.copy("/bin/true", folder / "setuid")
    with suppress(PermissionError):
        os.chown(folder / "setuid", 1, 1)
        (folder / "setuid").chmod(0o4755)
    return folder


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("sh -c 'echo oops >&2; exit 7'", 4),
        ("sh -c 'kill -SEGV $$'", 4),
        ("--ignore-failure -- sh -c 'exit 1'", 0),
        ("{odd}/missing", 1),
        ("{odd}/script", 0),
        ("{odd}/known_walks chase 512 1", 0),  # static
        pytest.param("--prove -- {odd}/known_walks chase 512 1", 1, id="nothing to preload"),
        pytest.param("{odd}/bare", 1, marks=x86),  # 32 bits
        pytest.param("{odd}/setuid", 1, marks=needs_root),
        ("--seconds 2 -- sh -c 'while :; do :; done'", 0),
        ("--seconds 2 --prove -- sleep 91.5", 1),
        ("sh -c 'for i in $(seq 200); do (:) & done; wait'", 0),
        ("head -c 200M /dev/zero", 0),
        ("--html {odd}/no/folder -- true", 2),
    ],
)
def test_a_program_that_cannot_be_simulated_has_a_reason(command, status, odd, tmp_path):
    process = begun(tmp_path, *shlex.split(command.format(odd=odd)))
    out, err = process.communicate()
    assert process.returncode == status, err
    assert bool(out) == (status == 0) and "Traceback" not in err
    assert not left_of(process, tmp_path)


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
@pytest.mark.parametrize(
    ("number", "stage"),
    [(signal.SIGINT, ""), (signal.SIGHUP, "Simulating"), (signal.SIGINT, "Timing")],
)
def test_a_signal_in_each_phase_leaves_nothing(number, stage, tmp_path):
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\nsleep 2.25\n")
    script.chmod(0o755)
    process = begun(tmp_path, "--prove", str(script))
    while stage and not process.stderr.readline().startswith(stage):
        assert process.poll() is None
    assert wait_until(lambda: descendants_with("2.25", process.pid))
    process.send_signal(number)
    out, _ = process.communicate()
    # The simulation is finished once runs are timed, and is shown.
    assert (process.returncode, "page walks" in out) == (128 + number, stage == "Timing")
    assert not left_of(process, tmp_path)


@pytest.mark.needs("valgrind")
def test_an_instruction_that_valgrind_does_not_know_is_said(tmp_path):
    source = tmp_path / "unknown.c"
    undefined = "udf #0" if platform.machine() == "aarch64" else "ud2"
    source.write_text(f'int main(void) {{ __asm__("{undefined}"); return 0; }}\n')
    with pytest.raises(Unavailable) as why:
        simulation.simulate([built(tmp_path, source)], GEOMETRY.option, LONG_S)
    assert why.value.code == "program-unfit"


def test_what_is_not_installed_is_named(monkeypatch):
    with monkeypatch.context() as changed, pytest.raises(Unavailable) as why:
        changed.setattr(shutil, "which", lambda name: None)
        with sampling.scratch() as (file, reason):
            assert file is None and "perf" in reason
        valgrind.build_valgrind_tool()
    assert why.value.code == "no-toolchain"
