"""The CPUID instruction without a C compiler: who made the CPU, its caches, its paging, its
hypervisor.

`read` executes the instruction in 31 bytes of machine code of its own. Everything else is a pure
function of a reader (leaf, subleaf) -> Registers, so a recorded dump serves as well as the CPU
itself.

Sources, by the names used here and in tlb/machine/tlb.py:
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

from tlb.machine.facts import Facts
from tlb.system.reasons import Unavailable


class Registers(NamedTuple):
    """What CPUID returns: four 32-bit registers."""

    eax: int
    ebx: int
    ecx: int
    edx: int


Reader = Callable[[int, int], Registers]


class Cache(Facts):
    """One cache. `ways` is 0 where it is fully associative; None is what nothing states."""

    level: int
    kind: Literal["data", "instruction", "unified"]
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
    """Execute CPUID once, on whichever CPU this thread runs. Unavailable("no-cpuid") where that
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
        raise Unavailable("no-cpuid", platform.machine() or "unknown architecture")
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "mprotect")
    except OSError as error:
        raise Unavailable("no-cpuid", f"no memory may hold code: {error}") from error
    signature = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
    function = signature(address)
    function.memory = memory  # which the code lives in
    return function


def vendor(read: Reader) -> str:
    """The vendor string of leaf 0, such as "GenuineIntel" (SDM, leaf 00H; APM, Fn0000_0000)."""
    _, ebx, ecx, edx = read(0, 0)
    return _ascii(ebx, edx, ecx)


def family(read: Reader) -> int:
    """The family of leaf 1, its extension added where the base is 15 (SDM, leaf 01H; APM,
    Fn0000_0001)."""
    eax = read(1, 0).eax
    base = eax >> 8 & 0xF
    return base + (eax >> 20 & 0xFF) * (base == 0xF)


def cpuinfo(read: Reader) -> dict[str, str]:
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


def has_la57(read: Reader) -> bool:
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


def hypervisor(read: Reader) -> str:
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


def caches(read: Reader) -> tuple[Cache, ...]:
    """The caches, by Intel's leaf 4 (SDM, leaf 04H; also Centaur's and Zhaoxin's: Linux,
    arch/x86/kernel/cpu/zhaoxin.c) or AMD's Fn8000_001D (APM), which share one layout."""
    if vendor(read) in ("GenuineIntel", "CentaurHauls", "  Shanghai  "):
        leaf, exists = 4, has_basic(read, 4)
    else:  # Fn8000_001D is valid where the CPU has TopologyExtensions: Fn8000_0001 ecx bit 22
        leaf = 0x8000001D
        exists = has_extended(read, leaf) and read(0x80000001, 0).ecx >> 22 & 1
    return tuple(_deterministic_caches(read, leaf)) if exists else ()


def _deterministic_caches(read: Reader, leaf: int) -> Iterator[Cache]:
    # ends at the first of type 0; the bound is for a reader that never says so
    for subleaf in range(16):
        eax, ebx, ecx, _ = read(leaf, subleaf)
        kind = {1: "data", 2: "instruction", 3: "unified"}.get(eax & 0x1F)
        if kind is None:
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


def has_basic(read: Reader, leaf: int) -> bool:
    """Whether the basic leaf exists. Past the last one, Intel answers with the last one's data
    (SDM)."""
    return read(0, 0).eax >= leaf


def has_extended(read: Reader, leaf: int) -> bool:
    """Whether the extended leaf (0x80000000 and up) exists."""
    last = read(0x80000000, 0).eax
    return last >> 31 == 1 and last >= leaf


def _ascii(*registers: int) -> str:
    written = b"".join(register.to_bytes(4, "little") for register in registers)
    return written.decode("ascii", "replace")
