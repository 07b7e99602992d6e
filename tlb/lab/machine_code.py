"""Digest the machine code of functions, so that changes elsewhere in their source do not count.

Read from the relocatable object: fields that the linker fills in are zero, and relocations name
what they refer to. ELF, 64 bits, little-endian, addends in relocations ("System V Application
Binary Interface", chapters 4 and 5, and the supplements for x86-64 and arm64).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import iter_unpack, unpack_from

X86_64 = 62  # e_machine
_SYMTAB, _RELA = 2, 4  # sh_type
_EXECUTABLE = 4  # sh_flags
_SECTION, _FILE = 3, 4  # st_info & 15
_PC_TO_END = 4  # x86-64 addresses count from the end of an instruction, four bytes after the field
_LINE = 64  # bytes that a core fetches together, at the least


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


class _Elf:
    """Sections and symbols of an object or a program. Raises ValueError for other files."""

    def __init__(self, path: Path):
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\2\1":
            raise ValueError(f"{path} is not an ELF file of 64 bits, little-endian")
        self.machine = unpack_from("<H", self.data, 18)[0]
        table, (count, names) = (
            unpack_from("<Q", self.data, 40)[0],
            unpack_from("<HH", self.data, 60),
        )
        self.sections = list(iter_unpack("<IIQQQQIIQQ", self.data[table : table + 64 * count]))
        self._section_names = self._bytes(self.sections[names])
        self.symbols = [
            symbol
            for section in self.sections
            if section[1] == _SYMTAB
            for symbol in self._symbols(section)
        ]

    def _bytes(self, section: tuple[int, ...]) -> bytes:
        return self.data[section[4] : section[4] + section[5]]

    def _symbols(self, section: tuple[int, ...]) -> Iterator[_Symbol]:
        names = self._bytes(self.sections[section[6]])
        for at, info, _, index, value, size in iter_unpack("<IBBHQQ", self._bytes(section)):
            kind = info & 15
            name = (
                _text(self._section_names, self.sections[index][0])
                if kind == _SECTION
                else _text(names, at)
            )
            yield _Symbol(name, kind, index, value, size)

    def functions(self, name: str) -> list[_Symbol]:
        """Return a function's symbols and its clones' (`name.constprop.0`), without rarely run
        parts (`name.cold`). Raises LookupError."""
        found = [
            s
            for s in self.symbols
            if s.size
            and s.name.split(".")[0] == name
            and ".cold" not in s.name
            and s.kind not in (_SECTION, _FILE)
        ]
        if not found:
            raise LookupError(f"no function {name}")
        return sorted(found, key=lambda symbol: symbol.name)

    def code_of(self, symbol: _Symbol) -> tuple[bytes, list[tuple[int, int, _Symbol, int]]]:
        """Return a function's bytes and relocations: offset, type, target, addend."""
        end = symbol.value + symbol.size
        relocations = [
            (offset - symbol.value, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
            for section in self.sections
            if section[1] == _RELA and section[7] == symbol.section
            for offset, info, addend in iter_unpack("<QQq", self._bytes(section))
            if symbol.value <= offset < end
        ]
        return self._bytes(self.sections[symbol.section])[symbol.value : end], relocations

    def function_at(self, target: _Symbol, addend: int) -> tuple[_Symbol, int] | None:
        """Return the function of this object that a relocation leads to, and the offset in it."""
        if (
            not 0 < target.section < len(self.sections)
            or not self.sections[target.section][2] & _EXECUTABLE
        ):
            return None
        at = target.value + addend + (_PC_TO_END if self.machine == X86_64 else 0)
        return next(
            (
                (s, at - s.value)
                for s in self.symbols
                if s.section == target.section and s.value <= at < s.value + s.size
            ),
            None,
        )


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(0, at)].decode()


def digest(compiled: Path, linked: Path, names: Sequence[str]) -> str:
    """Return 16 hex digits of functions, of what they call in the same object, and of their
    addresses modulo 64 in the linked program, which decide how a loop is fetched.

    Raises LookupError for a missing function, such as an inlined one, and ValueError.
    """
    elf, program = _Elf(compiled), _Elf(linked)
    called = [symbol for name in names for symbol in elf.functions(name)]
    whole = hashlib.sha256(
        repr([s.value % _LINE for name in names for s in program.functions(name)]).encode()
    )
    for symbol in called:  # which grows meanwhile
        code, relocations = elf.code_of(symbol)
        whole.update(len(code).to_bytes(8) + code)
        for offset, kind, target, addend in relocations:
            name: str | int = target.name
            # named by its turn, for a compiler numbers its clones
            if found := elf.function_at(target, addend):
                function, addend = found
                called += [] if function in called else [function]
                name = called.index(function)
            whole.update(f"{offset} {kind} {name} {addend}\n".encode())
    return whole.hexdigest()[:16]
