"""Build the Valgrind tool of `tool/`, and say which TLB it simulates.

It is built once, from the libraries of Debian's package valgrind, on the computer that uses it:
they are under the GPL, version 2 or later.
"""

from __future__ import annotations

import json
import mmap
import platform
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tlb.machine.cpuid import Tlb, tlb_associativity
from tlb.machine.host import Host, data_tlbs
from tlb.measure import build
from tlb.measure.build import compiler_or_prebuilt
from tlb.system.files import read_small_file
from tlb.system.page_sizes import BASE_PAGES, page_bytes
from tlb.system.reasons import Unavailable

VALGRIND_TOOL_SOURCE_FILE = Path(__file__).parent / "tool" / "walks.c"
MAX_GEOMETRY_FILE_BYTES = 1 << 22  # of a geometry
# The published machines' geometries by short names, made from data/ by tests/programs/test_baseline.py.
MACHINES = Path(__file__).parent / "machines.json"
LACKS_VALGRIND = "Valgrind with its libraries and headers; Debian, Ubuntu: apt install valgrind"
_HEADERS = "/usr/include/valgrind"
_FOLDERS = ("libexec/valgrind", "lib/{}-linux-gnu/valgrind", "lib/valgrind", "lib64/valgrind")
# Valgrind's name, and an address where no program is loaded.
_ARCHITECTURES = {"x86_64": ("amd64", "0x58000000"), "aarch64": ("arm64", "0x38000000")}
# A tool has no C library and replaces no function of one. What Valgrind calls has more parameters
# than it needs.
_FLAGS = (
    "-O2 -g -fno-stack-protector -fno-strict-aliasing -fno-builtin -fomit-frame-pointer -fno-pie "
    "-Wall -Wextra -Wno-unused-parameter -Werror -isystem {headers} -DVGO_linux=1 -DVGA_{arch}=1 "
    "-DVGP_{arch}_linux=1 -DVGPV_{arch}_linux_vanilla=1 -static -nodefaultlibs -nostartfiles "
    "-no-pie -u _start -Wl,--build-id=none -Wl,-Ttext-segment={address}"
)
# Instructions that a core may have under way, which CPUID does not state: taken large, so that no
# walk counts as alone that another one may hide.
WINDOW = 512
MOST_FIRST, MOST_SECOND, MOST_BLOCK_PAGES = 512, 16384, 8192  # tool/tlb.h, tool/regions.h
USUAL_WAYS = 8  # of a second level of which CPUID states none
SAME = 0.1  # A survey whose entries are so near to CPUID's confirms these, which are exact.


class Levels(NamedTuple):
    """Entries of the first level, and entries and ways of the second."""

    first: int
    second: int
    ways: int

    @classmethod
    def of(cls, entries: Sequence[int], stated: Sequence[Tlb]) -> Levels:
        """Return two levels of so many entries, in whole sets of the ways that CPUID states."""
        ways = tlb_associativity(stated[-1]) if len(stated) > 1 else None
        ways = USUAL_WAYS if ways is None else ways or entries[1]
        return cls(entries[0], max(round(entries[1] / ways), 1) * ways, ways)

    @property
    def can_be_simulated(self) -> bool:
        fits = 0 < self.first <= MOST_FIRST and 0 < self.ways <= self.second <= MOST_SECOND
        return fits and self.second % self.ways == 0


class SimulatedTlb(NamedTuple):
    """A simulated TLB. page_bytes: of a base page; huge_page_bytes: of a transparent huge page;
    source: of the entries for base pages."""

    page_bytes: int
    huge_page_bytes: int
    base: Levels
    large: Levels
    source: str = "CPUID"

    @property
    def option(self) -> str:
        shifts = self.page_bytes.bit_length() - 1, self.huge_page_bytes.bit_length() - 1
        numbers = *shifts, WINDOW, *self.base, *self.large
        return f"--machine={','.join(map(str, numbers))}"

    def document(self) -> dict[str, Any]:
        """Return the geometry as JSON has it."""
        return self._asdict() | {"base": self.base._asdict(), "large": self.large._asdict()}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> SimulatedTlb:
        """Return the geometry of a document, or of one that `tlb geometry --json` prints. Raises
        ValueError for anything else, and for what the tool cannot simulate."""
        try:
            if "levels" in document:
                return cls._of_survey(document)
            levels = (Levels(**document[name]) for name in ("base", "large"))
            made = cls(**document | dict(zip(("base", "large"), levels, strict=True)))
            pages = made.huge_page_bytes // made.page_bytes
            sizes = {made.page_bytes.bit_count(), made.huge_page_bytes.bit_count()}
            fits = sizes == {1} and 1 < pages <= MOST_BLOCK_PAGES
            fits = fits and made.base.can_be_simulated and made.large.can_be_simulated
        except (AttributeError, KeyError, TypeError, ZeroDivisionError):
            raise ValueError("it describes no TLB") from None
        if not fits:
            raise ValueError("its TLB has sizes that cannot be simulated")
        return made

    @classmethod
    def _of_survey(cls, document: dict[str, Any]) -> SimulatedTlb:
        """Return what a survey of base pages found: both page sizes with its entries."""
        entries = [round(level["entries"]["value"]) for level in document["levels"]]
        if len(entries) < 2 or document["pages"] != BASE_PAGES:
            raise ValueError(f"it has not two levels for {BASE_PAGES} pages")
        levels = Levels.of(entries, [])._asdict()
        sizes = {"page_bytes": mmap.PAGESIZE, "huge_page_bytes": page_bytes("thp", mmap.PAGESIZE)}
        return cls.of_document({**sizes, "base": levels, "large": levels, "source": "measured"})


def geometry(host: Host, surveyed: Sequence[int] = ()) -> SimulatedTlb:
    """Return this computer's TLB: the entries for base pages that a survey has found, else those
    that CPUID states. Raises Unavailable("no-geometry") without two levels of either."""
    stated, large = data_tlbs(host, BASE_PAGES), data_tlbs(host, "2m")
    entries, source = [level.entries for level in stated], "CPUID"
    if len(surveyed) > 1:
        pairs = list(zip(surveyed, entries, strict=False))
        is_same = len(pairs) > 1 and all(abs(found / word - 1) < SAME for found, word in pairs)
        source = "CPUID, and measured here" if is_same else "measured here"
        entries = entries if is_same else list(surveyed)
    if len(entries) < 2:
        raise Unavailable("no-geometry")
    base = Levels.of(entries, stated)
    huge = Levels.of([level.entries for level in large], large) if len(large) > 1 else base
    base_bytes = host.base_page_bytes
    huge_bytes = host.thp.page_bytes or page_bytes("thp", base_bytes)
    return SimulatedTlb(base_bytes, huge_bytes, base, huge, source)


def machines() -> dict[str, SimulatedTlb]:
    """Return the geometries of the published machines, by short names."""
    documents = json.loads(MACHINES.read_text(encoding="utf-8"))
    return {name: SimulatedTlb.of_document(document) for name, document in documents.items()}


def named_geometry(name: str) -> SimulatedTlb:
    """Return the geometry of a published machine, or of a file. Raises
    Unavailable("bad-parameter")."""
    published = machines()
    if name in published:
        return published[name]
    try:
        return SimulatedTlb.of_document(
            json.loads(read_small_file(Path(name), MAX_GEOMETRY_FILE_BYTES))
        )
    except FileNotFoundError:
        known = ", ".join(published)
        why = f"there is no such file, and the published machines are {known}"
    except (OSError, ValueError, RecursionError) as error:  # no JSON, no text, a NUL in the name
        why = str(getattr(error, "strerror", None) or error)
    raise Unavailable("bad-parameter", f"--machine {name}: {why}")


def build_valgrind_tool() -> Path:
    """Build the tool where it is not yet; return the folder that Valgrind takes it from. Raises
    Unavailable: no-toolchain, no-compiler, compile-failed."""
    machine = platform.machine()
    arch, address = _ARCHITECTURES.get(machine, ("", ""))
    folders = [Path("/usr", folder.format(machine)) for folder in _FOLDERS]
    library, runtime = (
        next((folder for folder in folders if (folder / file).exists()), None)
        for file in (f"libvex-{arch}-linux.a", "default.supp")
    )
    has_headers = Path(_HEADERS, "libvex.h").exists()
    if not (library and runtime and has_headers and shutil.which("valgrind")):
        raise Unavailable("no-toolchain", LACKS_VALGRIND)
    if (cc := compiler_or_prebuilt()) is None:
        raise Unavailable("no-compiler")
    flags = _FLAGS.format(headers=_HEADERS, arch=arch, address=address).split()
    archives = [library / f"lib{name}-{arch}-linux.a" for name in ("coregrind", "vex", "gcc-sup")]
    # Another version of Valgrind has other archives.
    made = [str(archive.stat().st_mtime_ns) for archive in archives]
    words = [*flags, *cc.command, cc.version, *made]
    folder = (
        build.build_folder()
        / f"valgrind-{build.sources_digest(build.source_closure(VALGRIND_TOOL_SOURCE_FILE), words)}"
    )
    program = folder / f"walks-{arch}-linux"
    folder.mkdir(exist_ok=True)
    if not program.exists():
        build.compile_source(
            cc, VALGRIND_TOOL_SOURCE_FILE, program, flags, [*map(str, archives), "-lgcc"]
        )
    for file in runtime.iterdir():
        with suppress(FileExistsError):
            (folder / file.name).symlink_to(file)
    return folder
