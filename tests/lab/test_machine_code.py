"""Digests of code: of what a function runs, whatever stands around it, against the disassembler and
the symbol table of binutils."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tlb.lab import machine_code
from tlb.lab.build import FLAGS

COMPILERS = [name for name in ("gcc", "clang", "aarch64-linux-gnu-gcc") if shutil.which(name)]
pytestmark = pytest.mark.parametrize(
    "cc", COMPILERS or [pytest.param("gcc", marks=pytest.mark.needs("gcc"))]
)

# A timed loop that calls a function of its own file and one of another, and reads a table; a second
# function lies before it.
SOURCE = """#include <stdint.h>
#include <stdlib.h>
static const uint64_t table[4] = {1, 2, 4, 8};
ABOVE
__attribute__((noinline)) static uint64_t inner(uint64_t n) { return n * 3 + STEP; }
__attribute__((noinline, aligned(64))) static uint64_t timed(const uint64_t *at, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i += 8) { /* NOTE */
        sum += at[i] ^ table[inner(i) & 3];
        if (sum == n) abort();
    }
    return sum;
}
__attribute__((noinline)) static uint64_t other(const uint64_t *at, uint64_t n)
{
    return timed(at, n + OTHER);
}
int main(int argc, char **argv) { return (int)other((const uint64_t *)argv, (uint64_t)argc); }
"""
UNUSED = "__attribute__((noinline, used)) static int helper(int n) { return n * 7 + 1; }"


def compiled(cc: str, folder: Path, text: str = SOURCE, **words: str) -> tuple[Path, Path]:
    """An object and the program that is linked from it."""
    source, made, program = folder / "some.c", folder / "some.o", folder / "some"
    for word, replacement in ({"ABOVE": "", "STEP": "5", "NOTE": "", "OTHER": "1"} | words).items():
        text = text.replace(word, replacement)
    source.write_text(text)
    subprocess.run([cc, *FLAGS, "-c", "-o", made, source], check=True)
    subprocess.run([cc, *FLAGS, "-o", program, made], check=True)
    return made, program


def digest(cc: str, folder: Path, text: str = SOURCE, **words: str) -> str:
    return machine_code.digest(*compiled(cc, folder, text, **words), ["timed"])


def binutils(cc: str, tool: str, *arguments: object) -> str:
    prefix = cc.removesuffix("gcc") if cc.endswith("-gcc") else ""
    if shutil.which(prefix + tool) is None:
        pytest.skip(f"no {prefix}{tool}")
    return subprocess.run(
        [prefix + tool, *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout


def test_a_functions_bytes_and_relocations_are_those_that_the_disassembler_shows(cc, tmp_path):
    made, _ = compiled(cc, tmp_path, ABOVE=UNUSED)
    elf = machine_code._Elf(made)
    (timed,) = elf.functions("timed")
    code, relocations = elf.code_of(timed)
    text = binutils(cc, "objdump", "-dr", "-z", "-j", ".text.timed", made)
    shown = re.findall(r"^ +[0-9a-f]+:\t((?:[0-9a-f]{2,8} ?)+)", text, re.MULTILINE)
    words = " ".join(shown).split()
    assert code == b"".join(bytes.fromhex(word)[::-1] for word in words) and len(code) > 32
    assert [timed.value + offset for offset, *_ in relocations] == [
        int(at, 16) for at in re.findall(r"\t([0-9a-f]+): R_", text)
    ]
    assert len(relocations) >= 3  # the table, and two calls


@pytest.mark.parametrize(
    "change",
    [
        {"NOTE": "of another day"},
        {"ABOVE": UNUSED},
        {"OTHER": "1000"},
        {"ABOVE": "#define MORE 1\n\n\n"},
    ],
)
def test_what_stands_around_a_function_changes_no_digest(cc, tmp_path, change):
    assert digest(cc, tmp_path) == digest(cc, tmp_path, **change)


@pytest.mark.parametrize(
    ("old", "new"),
    [("i += 8", "i += 16"), ("STEP", "6"), ("at[i] ^", "at[i] +"), ("abort()", "exit(1)")],
)
def test_another_loop_another_callee_and_another_function_called_change_it(cc, tmp_path, old, new):
    assert digest(cc, tmp_path) != digest(cc, tmp_path, SOURCE.replace(old, new))


def test_the_address_counts_modulo_64(cc, tmp_path):
    """Room before a function that is not aligned moves it."""
    loose, seen = SOURCE.replace(", aligned(64)", ""), {}
    for room in range(0, 128, 16):
        made, program = compiled(
            cc,
            tmp_path,
            loose,
            ABOVE=f'__asm__(".pushsection .text\\n.skip {room}\\n.popsection");',
        )
        address = int(
            re.search(r"^([0-9a-f]+) t timed$", binutils(cc, "nm", program), re.MULTILINE)[1], 16
        )
        seen.setdefault(address % 64, set()).add(machine_code.digest(made, program, ["timed"]))
    assert all(len(digests) == 1 for digests in seen.values())
    assert len(set.union(*seen.values())) == len(seen) > 1
