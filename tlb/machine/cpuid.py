"""The CPUID instruction without a C compiler: who made the CPU, its caches, its paging, its
hypervisor, its TLBs.

`read` executes the instruction in 31 bytes of machine code of its own. Everything else is a pure
function of a reader (leaf, subleaf) -> Registers, so a recorded dump serves as well as the CPU
itself.

What CPUID states of TLBs is the vendor's word, not a measurement; hypervisors may hide or invent it.

Sources, by the names used here:
  SDM   Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, instruction CPUID
  APM   AMD64 Architecture Programmer's Manual, volume 3 (24594), appendix E; functions are named
        Fn8000_0005
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from tlb.machine import FrozenModel
from tlb.system.reasons import Unavailable


class Registers(NamedTuple):
    """What CPUID returns: four 32-bit registers."""

    eax: int
    ebx: int
    ecx: int
    edx: int


CpuidReader = Callable[[int, int], Registers]
CacheKind = Literal["data", "instruction", "unified"]
TlbKind = Literal["data", "instruction", "unified", "load", "store"]


class Cache(FrozenModel):
    """One cache. `ways` is 0 where it is fully associative; None is what nothing states."""

    level: int
    kind: CacheKind
    size_bytes: int
    line_bytes: int | None = None
    ways: int | None = None
    sets: int | None = None
    shared_cpus: tuple[int, ...] = ()  # as the kernel numbers them; empty where CPUID was asked


def available() -> bool:
    """Whether `read` works here: Linux on an x86-64 CPU, and leave to run code of our own."""
    with contextlib.suppress(Unavailable):
        return bool(_code())
    return False


def read(leaf: int, subleaf: int = 0) -> Registers:
    """Execute CPUID once, on whichever CPU this thread runs. Unavailable("no-geometry") where that
    cannot be."""
    out = (ctypes.c_uint32 * 4)()
    _code()(leaf, subleaf, ctypes.addressof(out))
    return Registers(*out)


# void run(uint32_t leaf, uint32_t subleaf, uint32_t out[4]), by the System V calling convention.
_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "53"  # push rbx, which is the caller's
    "89f8"  # mov eax, edi
    "89f1"  # mov ecx, esi
    "4989d0"  # mov r8, rdx
    "0fa2"  # cpuid
    "418900"  # mov [r8], eax
    "41895804"  # mov [r8 + 4], ebx
    "41894808"  # mov [r8 + 8], ecx
    "4189500c"  # mov [r8 + 12], edx
    "5bc3"  # pop rbx; ret
)


@functools.cache
def _code() -> Callable[[int, int, int], None]:
    """Return the machine code as a function. It is written first and made executable then: a policy
    may refuse either (SELinux's execmem), and no page is ever both."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise Unavailable(
            "no-geometry", f"no CPUID on {platform.machine() or 'an unknown architecture'}"
        )
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "mprotect")
    except OSError as error:
        raise Unavailable(
            "no-geometry", f"no CPUID, as no memory may hold code: {error}"
        ) from error
    signature = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
    function = signature(address)

    def run(leaf: int, subleaf: int, out: int, code: mmap.mmap = memory) -> None:
        function(leaf, subleaf, out)  # lies in `code`, which is kept as long as this function

    return run


def vendor(read: CpuidReader) -> str:
    """The vendor string of leaf 0, such as "GenuineIntel" (SDM, leaf 00H; APM, Fn0000_0000)."""
    _, ebx, ecx, edx = read(0, 0)
    return _ascii(ebx, edx, ecx)


def family(read: CpuidReader) -> int:
    """The family of leaf 1, its extension added where the base is 15 (SDM, leaf 01H; APM,
    Fn0000_0001)."""
    eax = read(1, 0).eax
    base = eax >> 8 & 0xF
    return base + (eax >> 20 & 0xFF) * (base == 0xF)


def cpuinfo(read: CpuidReader) -> dict[str, str]:
    """Who the CPU is, in the words of /proc/cpuinfo: leaves 0 and 1, and the brand string of leaves
    0x80000002 to 0x80000004. The model has its extension from family 6 on, as Linux adds it
    (arch/x86/lib/cpu.c)."""
    signature, number = read(1, 0).eax, family(read)
    model = (signature >> 4 & 0xF) + (signature >> 12 & 0xF0) * (number >= 6)
    brand = [read(leaf, 0) for leaf in range(0x80000002, 0x80000005) if has_extended(read, leaf)]
    return {
        "vendor_id": vendor(read),
        "cpu family": str(number),
        "model": str(model),
        "stepping": str(signature & 0xF),
        "model name": "".join(_ascii(*registers) for registers in brand).rstrip("\0"),
    }


def has_la57(read: CpuidReader) -> bool:
    """Whether the CPU can walk five levels: leaf 7, ecx bit 16 (SDM, leaf 07H; APM,
    Fn0000_0007)."""
    return has_basic(read, 7) and bool(read(7, 0).ecx >> 16 & 1)


# Signatures of leaf 0x40000000, as each hypervisor documents its own; Linux reads them in
# arch/x86/kernel/cpu/hypervisor.c and the files beside it.
_HYPERVISORS = {
    "KVMKVMKVM": "kvm",
    "XenVMMXenVMM": "xen",
    "VMwareVMware": "vmware",
    "TCGTCGTCGTCG": "qemu-tcg",
    "VBoxVBoxVBox": "virtualbox",
    "bhyve bhyve ": "bhyve",
    "ACRNACRNACRN": "acrn",
    "Microsoft Hv": "hyper-v",
}


def hypervisor(read: CpuidReader) -> str:
    """`none`, a name such as `kvm`, or `unknown`: leaf 1 ecx bit 31, then the signature of leaf
    0x40000000.

    Both vendors leave the bit to hypervisors (APM, Fn0000_0001; X86_FEATURE_HYPERVISOR in Linux).
    """
    if not read(1, 0).ecx >> 31 & 1:
        return "none"
    # A hypervisor that imitates Hyper-V at 0x40000000 gives its own name one block further on.
    for leaf in (0x40000100, 0x40000000):
        _, ebx, ecx, edx = read(leaf, 0)
        if name := _HYPERVISORS.get(_ascii(ebx, ecx, edx).rstrip("\0")):
            return name
    return "unknown"


def caches(read: CpuidReader) -> tuple[Cache, ...]:
    """The caches, by Intel's leaf 4 (SDM, leaf 04H; also Centaur's and Zhaoxin's: Linux,
    arch/x86/kernel/cpu/zhaoxin.c) or AMD's Fn8000_001D (APM), which share one layout."""
    if vendor(read) in ("GenuineIntel", "CentaurHauls", "  Shanghai  "):
        leaf, exists = 4, has_basic(read, 4)
    else:  # Fn8000_001D is valid where the CPU has TopologyExtensions: Fn8000_0001 ecx bit 22
        leaf = 0x8000001D
        exists = has_extended(read, leaf) and bool(read(0x80000001, 0).ecx >> 22 & 1)
    return tuple(_deterministic_caches(read, leaf)) if exists else ()


def _deterministic_caches(read: CpuidReader, leaf: int) -> Iterator[Cache]:
    # ends at the first of type 0; the bound is for a reader that never says so
    for subleaf in range(16):
        eax, ebx, ecx, _ = read(leaf, subleaf)
        kinds: dict[int, CacheKind] = {1: "data", 2: "instruction", 3: "unified"}
        if (kind := kinds.get(eax & 0x1F)) is None:
            return
        ways, partitions = (ebx >> 22) + 1, (ebx >> 12 & 0x3FF) + 1
        line_bytes, sets = (ebx & 0xFFF) + 1, ecx + 1
        yield Cache(
            level=eax >> 5 & 7,
            kind=kind,
            size_bytes=ways * partitions * line_bytes * sets,
            line_bytes=line_bytes,
            ways=0 if eax >> 9 & 1 else ways,
            sets=sets,
        )


def has_basic(read: CpuidReader, leaf: int) -> bool:
    """Whether the basic leaf exists. Past the last one, Intel answers with the last one's data
    (SDM)."""
    return read(0, 0).eax >= leaf


def has_extended(read: CpuidReader, leaf: int) -> bool:
    """Whether the extended leaf (0x80000000 and up) exists."""
    last = read(0x80000000, 0).eax
    return last >> 31 == 1 and last >= leaf


def _ascii(*registers: int) -> str:
    written = b"".join(register.to_bytes(4, "little") for register in registers)
    return written.decode("ascii", "replace")


# --- TLBs: leaves 2 and 0x18 of Intel, Fn8000_xxxx of AMD, of which VIA, Centaur and Zhaoxin have the first


class Tlb(FrozenModel):
    """One translation buffer, or the part of one that holds a page size.

    `ways` is 0 for fully associative, and None where CPUID states no single number; `ways_between`
    then holds the least and the most that its code allows, if it has one. A "load" TLB serves loads
    only, a "store" TLB stores only.
    """

    level: int
    kind: TlbKind
    pages: tuple[str, ...]
    entries: int
    ways: int | None = None
    ways_between: tuple[int, int] | None = None
    source: str
    note: str = ""


_SIZES = ("4k", "2m", "4m", "1g")  # in the order of the bits of leaf 0x18


def tlbs_stated_by_cpuid(read: CpuidReader) -> tuple[tuple[Tlb, ...], tuple[int, ...]]:
    """The TLBs that CPUID states, by level, and the leaf-2 descriptors it used that the table below
    lacks.

    Both empty where CPUID is silent: another vendor, or a hypervisor that hides the leaves.
    """
    stated: list[Tlb] = []
    unknown: list[int] = []
    match vendor(read):
        case "GenuineIntel":
            for code in _leaf_2_descriptors(read):
                stated += _described(code)
                if code not in _LEAF_2 and code not in _LEAF_2_SILENT:
                    unknown.append(code)
            stated += _leaf_18(read)
        case "AuthenticAMD" | "HygonGenuine":
            stated += _amd(read)
        # Leaf 2, which they have as well, lists other buffers: descriptors of Intel's caches.
        case "CentaurHauls" | "  Shanghai  ":
            stated += (tlb.model_copy(update={"note": ""}) for tlb in _first_level(read))
    stated.sort(key=lambda tlb: (tlb.level, tlb.kind, [_SIZES.index(page) for page in tlb.pages]))
    return tuple(stated), tuple(unknown)


# --- Intel

_LARGE = ("2m", "4m")

# Leaf 2: what a one-byte descriptor stands for. SDM, table 3-12 "Encoding of CPUID Leaf 2
# Descriptors", cross-checked with Linux, arch/x86/kernel/cpu/cpuid_0x2_table.c. Columns: level,
# kind, pages, entries, ways (0 fully associative, None not stated). "TLB0" and plain "TLB" are
# level 1, "TLB1" and "2nd-level" level 2. Missing on purpose, so reported as unknown: 0xC2, whose
# page sizes differ between editions of the manual; 0x64, 0x6A to 0x6D and 0xA0, whose level the
# manual does not state.
_LEAF_2: dict[int, list[tuple[int, TlbKind, tuple[str, ...], int, int | None]]] = {
    0x01: [(1, "instruction", ("4k",), 32, 4)],
    0x02: [(1, "instruction", ("4m",), 2, 0)],
    0x03: [(1, "data", ("4k",), 64, 4)],
    0x04: [(1, "data", ("4m",), 8, 4)],
    0x05: [(2, "data", ("4m",), 32, 4)],
    0x0B: [(1, "instruction", ("4m",), 4, 4)],
    0x4F: [(1, "instruction", ("4k",), 32, None)],
    0x50: [(1, "instruction", ("4k", *_LARGE), 64, None)],
    0x51: [(1, "instruction", ("4k", *_LARGE), 128, None)],
    0x52: [(1, "instruction", ("4k", *_LARGE), 256, None)],
    0x55: [(1, "instruction", _LARGE, 7, 0)],
    0x56: [(1, "data", ("4m",), 16, 4)],
    0x57: [(1, "data", ("4k",), 16, 4)],
    0x59: [(1, "data", ("4k",), 16, 0)],
    0x5A: [(1, "data", _LARGE, 32, 4)],
    0x5B: [(1, "data", ("4k", "4m"), 64, None)],
    0x5C: [(1, "data", ("4k", "4m"), 128, None)],
    0x5D: [(1, "data", ("4k", "4m"), 256, None)],
    0x61: [(1, "instruction", ("4k",), 48, 0)],
    0x63: [(1, "data", _LARGE, 32, 4), (1, "data", ("1g",), 4, 4)],
    0x76: [(1, "instruction", _LARGE, 8, 0)],
    0xB0: [(1, "instruction", ("4k",), 128, 4)],
    0xB1: [(1, "instruction", ("2m",), 8, 4)],  # or 4 entries of 4 MiB
    0xB2: [(1, "instruction", ("4k",), 64, 4)],
    0xB3: [(1, "data", ("4k",), 128, 4)],
    0xB4: [(2, "data", ("4k",), 256, 4)],
    0xB5: [(1, "instruction", ("4k",), 64, 8)],
    0xB6: [(1, "instruction", ("4k",), 128, 8)],
    0xBA: [(2, "data", ("4k",), 64, 4)],
    0xC0: [(1, "data", ("4k", "4m"), 8, 4)],
    0xC1: [(2, "unified", ("4k", "2m"), 1024, 8)],
    # Measured, 0xC3 has twelve ways (TLB;DR, USENIX Security 2022). Six is what the manual states.
    0xC3: [(2, "unified", ("4k", "2m"), 1536, 6), (2, "unified", ("1g",), 16, 4)],
    0xC4: [(1, "data", _LARGE, 32, 4)],
    0xCA: [(2, "unified", ("4k",), 512, 4)],
}

# Descriptors of the same table that say nothing of a TLB: null, caches, prefetch sizes, and the two
# that point to leaf 0x18 (0xFE) and leaf 4 (0xFF).
_LEAF_2_SILENT = frozenset(
    bytes.fromhex(
        "00 06 08 09 0a 0c 0d 0e 1d 21 22 23 24 25 29 2c 30 40 41 42 43 44 45 46 47 48 49 4a 4b "
        "4c 4d 4e 60 66 67 68 70 71 72"
        "78 79 7a 7b 7c 7d 7f 80 82 83 84 85 86 87 d0 d1 d2 d6 d7 d8 dc dd de e2 e3 e4 ea eb ec "
        "f0 f1 fe ff"
    )
)


def _described(code: int) -> Iterator[Tlb]:
    for level, kind, pages, entries, ways in _LEAF_2.get(code, []):
        source = f"CPUID 0x2, descriptor {code:#04x}"
        yield Tlb(level=level, kind=kind, pages=pages, entries=entries, ways=ways, source=source)


def _leaf_2_descriptors(read: CpuidReader) -> Iterator[int]:
    """SDM, leaf 02H: a descriptor a byte; bit 31 voids a register; the low byte of eax is to be
    ignored."""
    if not has_basic(read, 2):
        return
    for index, register in enumerate(read(2, 0)):
        if not register >> 31:
            yield from register.to_bytes(4, "little")[1 if index == 0 else 0 :]


def _leaf_18(read: CpuidReader) -> Iterator[Tlb]:
    """SDM, leaf 18H: a structure a subleaf; eax of the first names the last; type 0 is a gap, not
    the end."""
    if not has_basic(read, 0x18):
        return
    kinds: dict[int, TlbKind] = {1: "data", 2: "instruction", 3: "unified", 4: "load", 5: "store"}
    # bounded, should a hypervisor invent the last
    for subleaf in range(min(read(0x18, 0).eax, 63) + 1):
        _, ebx, sets, edx = read(0x18, subleaf)
        kind, ways = kinds.get(edx & 0x1F), ebx >> 16
        if kind and ways and sets:
            pages = tuple(page for bit, page in enumerate(_SIZES) if ebx >> bit & 1)
            yield Tlb(
                level=edx >> 5 & 7,
                kind=kind,
                pages=pages,
                entries=ways * sets,
                ways=0 if edx >> 8 & 1 else ways,
                source=f"CPUID 0x18, subleaf {subleaf}",
            )


# --- AMD

# The four bits of associativity in Fn8000_0006 and Fn8000_0019 (APM, table E-4). Most codes stand
# for a range: Zen 4 states 3072 entries under code 6, which 8 ways would not divide into a power of
# two of sets. Code 0 is disabled; 7, 9 and 14 give no number.
_AMD_WAYS: dict[int, int | tuple[int, int]] = {
    **{1: 1, 2: 2, 3: 3, 4: (4, 5), 5: (6, 7), 6: (8, 15), 8: (16, 31)},
    **{10: (32, 47), 11: (48, 63), 12: (64, 95), 13: (96, 127), 15: 0},
}
ZEN_5 = 0x1A  # the family, and of what came after it
_NOTE_4M = "a 4 MiB page takes two entries, so half as many fit"  # APM, Fn8000_0005 and Fn8000_0006


def _first_level(read: CpuidReader) -> Iterator[Tlb]:
    """Fn8000_0005: eight bits each of entries and ways; 0xFF ways is fully associative."""
    if has_extended(read, 0x80000005):
        registers = read(0x80000005, 0)
        for page, register in (("4k", registers.ebx), ("2m", registers.eax)):
            halves: tuple[tuple[TlbKind, int], ...] = (
                ("data", register >> 16),
                ("instruction", register & 0xFFFF),
            )
            for kind, half in halves:
                entries, ways = half & 0xFF, half >> 8
                if entries and ways:
                    ways = 0 if ways == 0xFF else ways
                    yield _amd_tlb(1, kind, page, entries, ways, "CPUID 0x80000005")


def _amd(read: CpuidReader) -> Iterator[Tlb]:
    yield from _first_level(read)
    gigabyte = read(0x80000019, 0) if has_extended(read, 0x80000019) else None
    if gigabyte:
        yield from _amd_halves(1, "1g", gigabyte.eax, 1, "CPUID 0x80000019")
    # L2TlbSizeX32 (Fn8000_0021 eax bit 14): since Zen 5 the second level counts its entries in 32s.
    # Hypervisors were seen that pass the count on and hide the bit, so the family says it too:
    # twelve bits cannot hold that level's 4096 entries otherwise.
    says_so = has_extended(read, 0x80000021) and read(0x80000021, 0).eax >> 14 & 1
    unit = 32 if says_so or family(read) >= ZEN_5 else 1
    if has_extended(read, 0x80000006):
        registers = read(0x80000006, 0)
        for page, register in (("4k", registers.ebx), ("2m", registers.eax)):
            yield from _amd_halves(2, page, register, unit, "CPUID 0x80000006")
    if gigabyte:
        yield from _amd_halves(2, "1g", gigabyte.ebx, unit, "CPUID 0x80000019")


def _amd_halves(level: int, page: str, register: int, unit: int, source: str) -> Iterator[Tlb]:
    """Each half has four bits of ways over twelve of entries: data above, instructions below.

    In Fn8000_0006 an empty upper half over a filled lower one means one TLB for both (APM).
    """
    is_shared = page != "1g" and not register >> 16
    lower: TlbKind = "unified" if is_shared else "instruction"
    halves: tuple[tuple[TlbKind, int], ...] = (("data", register >> 16), (lower, register & 0xFFFF))
    for kind, half in halves:
        entries, code = half & 0xFFF, half >> 12
        if entries and code:
            yield _amd_tlb(level, kind, page, entries * unit, _AMD_WAYS.get(code), source)


def _amd_tlb(
    level: int,
    kind: TlbKind,
    page: str,
    entries: int,
    ways: int | tuple[int, int] | None,
    source: str,
) -> Tlb:
    return Tlb(
        level=level,
        kind=kind,
        pages=(page,),
        entries=entries,
        ways=None if isinstance(ways, tuple) else ways,
        ways_between=ways if isinstance(ways, tuple) else None,
        source=source,
        note=_NOTE_4M if page == "2m" else "",
    )


def tlb_associativity(tlb: Tlb) -> int | None:
    """The associativity: as stated, or the one in the stated range that makes the number of sets a
    power of two.

    AMD's Fn8000_0006 codes 12 ways as "8 to 15". Sets are chosen by address bits or an exclusive-or
    of them, so their number is a power of two. 0 is fully associative, None unknown.
    """
    if tlb.ways is not None or tlb.ways_between is None:
        return tlb.ways
    least, most = tlb.ways_between
    divisors = (ways for ways in range(least, most + 1) if tlb.entries % ways == 0)
    fit = [ways for ways in divisors if (tlb.entries // ways).bit_count() == 1]
    return fit[0] if len(fit) == 1 else None
