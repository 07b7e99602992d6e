"""What is installed without a clone: which packages the core commands import, what they say without
one, and the wheels themselves."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.common import ROOT, ended, in_turn, needs_c, needs_root, refusal
from support.copies import copy_of_checkout

from tlb import cli
from tlb.machine import host
from tlb.measure import build
from tlb.system import files
from tlb.system.reasons import LazyModule, Unavailable

CORE = ["doctor", "inspect", "measure", "try", "where", "watch", "pool"]
# Of the extras, and of none.
HEAVY = "numpy pandas scipy yaml altair IPython jupyter_client papermill numba llvmlite"
MOST_PACKAGES, MOST_WHEEL_BYTES, MOST_INSTALLED_BYTES = 15, 1_600_000, 25_000_000


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_core_commands_import_no_package_of_an_extra():
    code = f"""
import sys
from tlb import cli
for name in {CORE}:
    cli.ENTRIES[name].load()
from tlb.programs import before_after, host_watch, trial, trial_report, walk_price, watch
print(*{{module.partition(".")[0] for module in sys.modules}} & {{*{HEAVY.split()}}})
"""
    assert python(code).split() == []


@needs_c
def test_a_worker_of_a_fleet_measures_without_the_packages_of_the_book(tmp_path):
    code = f"""
import os, sys
from importlib import metadata
os.environ["TLB_DATA"] = {str(tmp_path)!r}
for name in {{*{HEAVY.split()}, "pyarrow", "experiments"}} - {{"yaml"}}:  # which Dask takes
    sys.modules[name] = None
def version(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = version
from tlb.fleet import worker
from tlb.measure.outcome import CampaignProgress
from tlb.measure.record import Point
worker.EventProgress = lambda machine: CampaignProgress(machine, quiet=True)
worker.campaign.measuring_lock = lambda wait: worker.contextmanager(lambda: (yield None))()
points = [Point(kernel="page_chase", lines=64, engine=engine) for engine in ("c", "numba")]
task = worker.Task(points={{"stlb_cliff": points}}, compared=set(), repeats=1, shape_repeats=1, seconds=60)
sent = worker.measure(task)
print(sent.code, dict(sent.lacking), len(sent.contents.rows))
"""
    lines = python(code).split()
    assert lines == ["{'no-extra':", "1}", "1"]


def test_help_imports_no_command():
    code = "import sys; sys.argv = ['tlb', '--help']; from tlb import cli\n"
    code += (
        "try: cli.main()\nexcept SystemExit: print(*sorted(m for m in sys.modules if 'tlb.' in m))"
    )
    loaded = python(code).splitlines()[-1].split()
    assert [name for name in loaded if name.startswith("tlb.cli.")] == []


def completion(line: str) -> dict[str, str]:
    """Return the variables by which bash asks for the completion of a line's last word."""
    return {
        "_TLB_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }


COMPLETIONS = [
    ("tlb wh", {"where"}),
    ("tlb try --lev", {"--lever"}),
    ("tlb pool rest", {"restore"}),
    ("tlb try --lever jvm", {"jvm", "jvm-pool"}),
    ("tlb where --machine zen-4", {"zen-4"}),
]
COMPLETED = ["command", "option", "inner command", "lever", "machine"]


@pytest.mark.parametrize(("line", "words"), COMPLETIONS, ids=COMPLETED)
def test_a_shell_completes_commands_and_options(line, words, monkeypatch):
    for name, value in completion(line).items():
        monkeypatch.setenv(name, value)
    assert set(python("from tlb import cli; cli.main()").split()) == words


@pytest.mark.parametrize("name", cli.ENTRIES)
def test_the_list_of_commands_says_what_a_command_says_itself(name):
    entry = cli.ENTRIES[name]
    assert entry.load().get_short_help_str(200) == entry.help


def test_a_package_that_is_missing_is_one_sentence_with_the_line_that_installs_it(
    monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "scipy", None)  # which makes its import fail
    with pytest.raises(Unavailable) as why:
        _ = LazyModule("scipy").stats
    assert why.value.code == "no-extra" and "(scipy is of the extra analysis)" in str(why.value)

    def geometry() -> None:
        raise ModuleNotFoundError(name="pandas")

    monkeypatch.setattr(cli, "app", lambda **how: geometry())
    assert ended(monkeypatch, "geometry") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "pip install" in said


@pytest.mark.parametrize("name", ["run", "compare", "bundle", "fleet"])
def test_a_command_of_the_book_says_that_it_needs_a_clone(name, monkeypatch, capsys):
    monkeypatch.setattr(cli, "IS_REPOSITORY_CLONE", False)
    assert ended(monkeypatch, name) == 1
    assert "the book, which only a clone of the repository has" in capsys.readouterr().err


def test_outside_a_clone_rows_and_binaries_are_the_users(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "IS_REPOSITORY_CLONE", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert files.default_data_root() == tmp_path / ".local/share/tlb"
    assert files.build_root() == tmp_path / "cache/tlb"
    assert files.build_root().stat().st_mode & 0o777 == 0o700
    files.build_root().chmod(0o777)
    assert refusal(files.build_root) == "disk-refused"


@pytest.fixture
def archive(monkeypatch, tmp_path) -> Path:
    """An archive of one kernel, for a computer that has no compiler: made by the compiler here,
    called as `make dist` calls zig."""
    zig = tmp_path / "zig"
    zig.write_text('#!/bin/sh\nshift 4\nexec cc "$@"\n')
    zig.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "made"))
    path = tmp_path / files.PREBUILT_ARCHIVE.name
    with monkeypatch.context() as at_dist:
        machine = path.name.partition(".")[0]
        at_dist.setattr(build, "compiler_or_prebuilt", lambda: build.zig(machine))
        made = Path(build.kernel("page_chase").command[0])
    with tarfile.open(path, "w:xz") as packed:
        for each in (made, made.with_name(f"{made.name}.o")):
            packed.add(each, each.name)
    monkeypatch.setattr(host, "compiler_on_path", lambda: None)
    monkeypatch.setattr(build, "PREBUILT_ARCHIVE", path)
    monkeypatch.setattr(files, "PREBUILT_ARCHIVE", path)
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "cache"))
    build._archive.cache_clear()
    yield path
    build._archive.cache_clear()


@needs_c
def test_a_kernel_of_the_wheel_is_the_one_that_was_compiled_for_it(archive):
    kernel = build.kernel("page_chase")
    program, made = Path(kernel.command[0]), archive.parent / "made" / "kernels"
    assert kernel.build.compiler == f"zig: zig cc {build.ZIG}" and build.engine_for("auto") == "c"
    assert program.read_bytes() == (made / program.name).read_bytes()
    program.write_bytes(b"#!/bin/sh\n")  # another program in the cache is replaced, not run
    again = Path(build.kernel("page_chase").command[0])
    assert again == program and again.read_bytes() == (made / program.name).read_bytes()
    assert refusal(build.kernel, "page_gather") == "no-compiler"


@needs_c
def test_a_damaged_archive_is_a_sentence(archive):
    archive.write_bytes(archive.read_bytes()[:-200])
    assert refusal(build.kernel, "page_chase") == "file-damaged"


def new_environment(folder: Path) -> Path:
    """Make an empty environment in a folder; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def install(python: Path, package: str | Path) -> None:
    """Install a package into an environment. Without PYTHONPATH, which may name a checkout that pip
    takes for installed."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, package], check=True, env=others, cwd="/")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> list[Path]:
    """The wheels of both architectures, as `make dist` makes them in a fresh checkout, which takes
    the environment of this one for its own."""
    checkout = copy_of_checkout(tmp_path_factory.mktemp("dist") / "a checkout").path
    made = [f"--old-file=.venv/.{name}-installed" for name in ("packages", "project")]
    make = ["make", "dist", f"RUN={sys.executable}", *made]
    # a `make` around the tests has words of its own for the one inside
    environment = {name: text for name, text in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(make, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return sorted((checkout / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def core(wheels, tmp_path_factory) -> Path:
    """An environment with the wheel of this computer and nothing else."""
    folder = tmp_path_factory.mktemp("core")
    (wheel,) = (path for path in wheels if path.stem.endswith(os.uname().machine))
    install(new_environment(folder), wheel)
    return folder


def variables(core: Path, home: Path) -> dict[str, str]:
    """All that a command there has in its environment: no other program, and bytecode that all
    commands share, outside of what was installed."""
    return {
        "PATH": "/nonexistent",
        "HOME": str(home),
        "PYTHONPYCACHEPREFIX": str(core.with_name(f"{core.name}-bytecode")),
    }


COMMANDS = [
    ["--help"],
    ["doctor"],
    ["inspect"],
    ["pool"],
    ["measure", "page_chase", "--region-ms", "1", "--lines", "256"],
    ["measure", "graph_walk", "--vertices", "4096", "--region-ms", "1"],
    ["try", "--minutes", "0.1", "--lever", "none", "--", "/bin/sleep", "0.2"],
    ["try", "--minutes", "0.1", "--", "/bin/sleep", "0.2"],
    ["watch", "--seconds", "2", "--", "/bin/sleep", "9"],
]


@pytest.mark.endurance
@pytest.mark.measures
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_core_commands_work_from_an_empty_environment(words, core, tmp_path):
    before = sorted(core.rglob("*"))
    tlb, given = [core / "bin" / "tlb", *words], variables(core, tmp_path)
    done = in_turn(tlb, cwd="/", env=given)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    if words[0] == "measure":
        assert "zig cc" in json.loads(done.stdout)["compiler"]
    assert sorted(core.rglob("*")) == before  # nothing is written beside the package


@pytest.mark.endurance
@pytest.mark.measures
def test_without_valgrind_where_proves_allocations_by_name(core, tmp_path):
    program = [core / "bin" / "python", "-c", "bytearray(64 << 20)"]
    tlb = [core / "bin" / "tlb", "where", "--json", "--minutes", "1", "--", *program]
    done = in_turn(tlb, cwd="/", env=variables(core, tmp_path))
    assert done.returncode == 0, done.stderr
    assert {site["how"] for site in json.loads(done.stdout)["sites"]} >= {"malloc", "mmap"}


@pytest.mark.endurance
def test_man_pages_are_of_the_commands_that_work_without_a_clone(core, tmp_path):
    pages = {path.stem: path.read_text() for path in (core / "share/man/man1").iterdir()}
    assert pages.keys() == {"tlb", *(f"tlb-{name}" for name in [*CORE, "geometry"])}
    assert "--versus CMD" in pages["tlb-try"] and "fleet" not in pages["tlb"]
    tlb, given = [core / "bin" / "tlb", "--help"], variables(core, tmp_path)
    done = subprocess.run(tlb, cwd="/", env=given, capture_output=True, text=True)
    assert all(f"  {name} " in done.stdout for name in CORE) and "fleet" not in done.stdout


def test_links_of_a_wheel_are_absolute_where_the_repository_has_an_address(monkeypatch, tmp_path):
    make = f"from setuptools import build_meta as b; b.prepare_metadata_for_build_wheel({str(tmp_path)!r})"
    monkeypatch.setenv("TLB_ADDRESS", "https://example.org/o/r/")
    python(make)
    (text,) = (path.read_text() for path in tmp_path.glob("*.dist-info/METADATA"))
    version = re.search(r"(?m)^Version: (.*)$", text)[1]
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) > 5 and all(target.startswith(("https:", "#")) for target in targets)
    assert f"https://example.org/o/r/blob/v{version}/LICENSE" in targets


SIZES = {  # or a mode, for kernels that have to be told one
    "graph_walk": ["--vertices", "4096"],
    "page_fault": ["--mode", "anonymous", "--lines", "3072"],
    "radix_partition": ["--tuples", "4096"],
    "random_touch": ["--bytes", "100000"],
    "stride_sum": ["--bytes", "100000"],
    "touch_again": [],
}


@pytest.mark.endurance
@pytest.mark.measures
@needs_c
@pytest.mark.parametrize("name", ["page_chase", "page_gather", "page_store", "code_chase", *SIZES])
def test_kernels_of_the_wheel_compute_what_those_compiled_here_do(name, core, tmp_path):
    words = ["measure", name, "--region-ms", "1", "--engine", "c", *SIZES.get(name, [])]
    theirs = in_turn([core / "bin" / "tlb", *words], cwd="/", env=variables(core, tmp_path))
    ours = in_turn([sys.executable, "-c", "from tlb.cli import main; main()", *words])
    assert json.loads(theirs.stdout)["checksum"] == json.loads(ours.stdout)["checksum"]


@pytest.mark.endurance
@needs_root
def test_programs_of_the_wheel_run_where_there_is_no_libc(wheels, tmp_path):
    """As on Alpine, or in an image of nothing: a folder with one program is the whole system."""
    (wheel,) = (path for path in wheels if path.stem.endswith(os.uname().machine))
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(files.PREBUILT_ARCHIVE.name))
        content = io.BytesIO(packed.read(name))
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(tmp_path, filter="data")
    programs = [path for path in tmp_path.iterdir() if not path.suffix]
    assert {"page_chase", "page_gather"} <= {path.name.partition("-")[0] for path in programs}
    for program in programs:
        assert runs_alone(program, tmp_path / "root") not in NOT_EXECUTED, program.name


NOT_EXECUTED = (126, 127)  # what chroot(1) exits with


def runs_alone(program: Path, root: Path) -> int:
    """Return the exit code of a program whose system is a folder with it alone."""
    root.mkdir(exist_ok=True)
    shutil.copy(program.resolve(), root / "program")
    words = ["chroot", root, "/program", "--no-such-option"]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True).returncode


@pytest.mark.endurance
@pytest.mark.measures
def test_geometry_works_with_the_extra_analysis(wheels, tmp_path_factory):
    (wheel,) = (path for path in wheels if path.stem.endswith(os.uname().machine))
    folder = tmp_path_factory.mktemp("analysis")
    install(new_environment(folder), f"every-load-is-two-loads[analysis] @ {wheel.as_uri()}")
    tlb = [folder / "bin" / "tlb", "geometry"]
    done = in_turn(tlb, cwd="/", env=variables(folder, folder))
    assert done.returncode == 0 and "L1 dTLB" in done.stdout, done.stderr


@pytest.mark.endurance
def test_the_core_is_small(wheels, core):
    assert {path.stat().st_size < MOST_WHEEL_BYTES for path in wheels} == {True}
    (site,) = core.glob("lib/python*/site-packages")
    packages = {path.name for path in site.glob("*.dist-info")}
    assert 1 < len(packages) <= MOST_PACKAGES, packages
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size <= MOST_INSTALLED_BYTES
