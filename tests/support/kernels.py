"""What the tests of kernels share: running one, an independent account of the orders,
refusals, and changed sources."""

import json
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import common
from support.common import needs_c as needs_c
from tlb.measure import build
from tlb.measure.perf_stat import NO_COUNTERS, EventPlan
from tlb.measure.plan import measure
from tlb.measure.record import KernelOutput, Point, Record
from tlb.system.reasons import Unavailable

STATE = "00112233aabb"
THP = Path("/sys/kernel/mm/transparent_hugepage")
POOLS = Path("/sys/kernel/mm/hugepages")
on_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86-64 has to emulate arm64, or runs the guest"
)
needs_emulator = pytest.mark.needs("aarch64-linux-gnu-gcc", "qemu-aarch64-static")


# --- running one


def arguments(order: str, layout: str, lines: int, seed: int = 7) -> list[str]:
    """Of the shortest possible measurement."""
    words = f"--order {order} --layout {layout} --lines {lines} --seed {seed} --region-ms 1"
    return words.split()


def run_program(
    program: object, given: list[str], **how: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *given], capture_output=True, text=True, **how)


def run_c(kernel: str, given: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    return run_program(*build.kernel(kernel, "c").command, given, **how)


def measured(point: Point, usable_bytes: int = 2**60, plan: EventPlan = NO_COUNTERS) -> Record:
    return measure(point, state=STATE, usable_bytes=usable_bytes, plan=plan)


def why_not(point: Point, code: str, usable_bytes: int = 2**60) -> str:
    """Nothing is measured, for this reason, said in one line that ends with its remedy; the detail."""
    with pytest.raises(Unavailable) as caught:
        measured(point, usable_bytes)
    assert caught.value.code == code, caught.value
    assert (
        str(caught.value).endswith(caught.value.remedy) and len(str(caught.value).splitlines()) == 1
    )
    return caught.value.detail


# --- the order of visits, by an independent account of it


def splitmix64(seed: int) -> Iterator[int]:
    """Steele, Lea and Flood's generator, from their paper."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        yield z ^ z >> 31


def draws(seed: int, limits: list[int]) -> list[int]:
    """One number below each limit: the generator's high 32 bits, scaled."""
    return [(z >> 32) * limit >> 32 for z, limit in zip(splitmix64(seed), limits, strict=False)]


def shuffled(lines: int, seed: int, itself: bool) -> list[int]:
    """The numbers below `lines`, each swapped with one at or below it (Fisher-Yates), or strictly
    below it (Sattolo)."""
    order, down = list(range(lines)), range(lines - 1, 0, -1)
    for i, j in zip(down, draws(seed, [i + itself for i in down]), strict=True):
        order[i], order[j] = order[j], order[i]
    return order


def visits(kernel: str, order: str, lines: int, seed: int, layout: str = "spread") -> list[int]:
    """The lines that a kernel visits in one round, in their order."""
    if order == "sequential":
        return list(range(lines))
    if order == "random":
        return draws(
            seed, [lines] * max(2**16 if layout == "alias" else 2**18, -(-4 * lines // 16) * 16)
        )
    if kernel == "page_gather" or layout == "alias":
        return shuffled(lines, seed, itself=True)
    successor, walk = shuffled(lines, seed, itself=False), [0]
    while len(walk) < lines:
        walk.append(successor[walk[-1]])
    return walk


def checksum(lines: list[int]) -> str:
    folded = 0xCBF29CE484222325  # FNV-1a's offset basis and, below, its prime
    for line in lines:
        folded = (folded ^ line) * 0x100000001B3 % 2**64
    return f"{folded:016x}"


# --- what a kernel refuses


def assert_refused(bad: list[str], status: int, out: str, err: str) -> None:
    assert (status, out) == (2, ""), bad
    assert len(err.splitlines()) == 1 and err.strip(), (bad, err)


def refused_by_c(kernel: str, bad: list[str], **how: object) -> str:
    """The one sentence that C says of these arguments."""
    done = run_c(kernel, bad, **how)
    assert_refused(bad, done.returncode, done.stdout, done.stderr)
    return done.stderr


def reason(status: int, out: str, err: str) -> tuple[str, str]:
    """The code and the detail that a kernel gives in place of a report."""
    assert (status, out) == (3, ""), err
    assert len(err.splitlines()) == 1
    said = json.loads(err)
    assert said.keys() == {"reason", "detail"}
    return said["reason"], said["detail"]


def reason_of(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    return reason(done.returncode, done.stdout, done.stderr)


# --- which pages there are here


def setting(path: Path) -> str:
    """The word in brackets; "" where there is no such file."""
    found = re.search(r"\[(\w+)\]", path.read_text()) if path.exists() else None
    return found[1] if found else ""


def needs_thp() -> None:
    if setting(THP / "enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")


def huge_page_bytes() -> int:
    return int((THP / "hpage_pmd_size").read_text())


def unless_fragmented(status: int, out: str, err: str) -> KernelOutput:
    if status == 3 and reason(status, out, err)[0] == "backing-partial":
        pytest.skip("memory is too fragmented for huge pages now")
    return KernelOutput.model_validate_json(out)


# --- sources and binaries


def compiled(source: Path, binary: Path, *flags: str) -> Path:
    return common.compiled(source, binary, *build.COMPILER_FLAGS, *flags)


def changed(kernel: str, changes: dict[str, str], folder: Path) -> Path:
    """A kernel with places of its sources changed, each of which stands there once, compiled."""
    texts = {
        path.name: path.read_text()
        for path in build.source_closure(build.KERNELS_FOLDER / f"{kernel}.c")
    }
    for before, after in changes.items():
        (name,) = (name for name, text in texts.items() for _ in range(text.count(before)))
        texts[name] = texts[name].replace(before, after)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return compiled(folder / f"{kernel}.c", folder / kernel)


def for_arm64(kernel: str, folder: Path, sources: Path = build.KERNELS_FOLDER) -> Path:
    """A kernel for arm64, static, so that emulation needs no libraries."""
    gcc = ["aarch64-linux-gnu-gcc", "-static", *build.COMPILER_FLAGS]
    subprocess.run([*gcc, "-o", folder / kernel, sources / f"{kernel}.c"], check=True)
    return folder / kernel


def emulated(program: Path, *given: object) -> KernelOutput:
    done = run_program("qemu-aarch64-static", [str(program), *map(str, given)])
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


NOT_IN_A_TIMED_LOOP = re.compile(
    r"^(call|i?div|bl|blr|[us]div|fdiv|divs|syscall|svc|rdtsc|mrs)", re.IGNORECASE
)


def disassembled(kernel: str, symbol: str) -> list[str]:
    """The instructions of a function of a kernel."""
    objdump = ["objdump", "-d", "--no-show-raw-insn", *build.kernel(kernel).command]
    text = subprocess.check_output(objdump, text=True)
    body = re.search(rf"<{symbol}(?:\.\w+)*>:\n(.*?)\n\n", text + "\n\n", re.DOTALL)[1]
    return [line.split("\t", 1)[1].strip() for line in body.splitlines() if "\t" in line]
