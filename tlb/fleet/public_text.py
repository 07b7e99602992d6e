"""Which texts of a machine's description and documents may leave it, so that none names a host, a
user or a path.

The names of a compiler, a Linux release and a CPU are parsed into names that are listed here and
versions, as is what Linux says of mitigations. Any other text consists of words that are listed here
and short numbers, or is a choice of the field's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache, lru_cache
from typing import Any

from pydantic import BaseModel

from tlb.machine import background, microarchitecture
from tlb.machine.host import Host
from tlb.system.reasons import REASON_TEXTS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DISTRIBUTIONS = _words(
    "debian deb ubuntu fedora fc red hat el rhel rocky almalinux centos amzn al suse opensuse "
    "arch alpine gentoo nixos bpo "
)
_COMPILERS = (
    _words(
        "cc gcc gcc-real clang zig tcc icx icc llvm apple version release experimental python "
        "numpy numba llvmlite openjdk javac java rustc go cargo conda-forge homebrew buildroot "
        "linux amd64 arm64 gnu coreutils utils sort xz perl redis server sqlite node "
    )
    | _DISTRIBUTIONS
)
_FLAVOURS = (
    _words(
        "generic lowlatency hwe aws azure gcp gke oracle ibm kvm cloud amd64 arm64 x86_64 aarch64 "
        "default rt preempt lts zen hardened linux linuxkit microsoft standard pve xanmod "
        "liquorix raspi rpi v8 asahi tegra flatcar cos coreos talos gpu virt gki mainline rc git "
        "lp uek edge next wsl wsl2 v cip "
    )
    | _DISTRIBUTIONS
)
_CPU_NAMES = _words(
    "intel(r) intel xeon(r) xeon core(tm) core amd epyc ryzen threadripper pro processor cpu "
    "@ gold silver bronze platinum max ultra atom(tm) atom celeron(r) celeron pentium(r) "
    "pentium ampere altra(r) altra ampereone neoverse cortex graviton apple axion cobalt "
    "yitian kunpeng hygon dhyana zhaoxin qemu virtual common kvm version genuine gen with "
    "radeon graphics eng sample engineering rome milan genoa bergamo turin naples siena "
    "cascadelake icelake sapphirerapids graniterapids skylake haswell broadwell ivybridge "
    "sandybridge westmere nehalem server client arm "
)
# Linux, arch/x86/kernel/cpu/bugs.c, arch/arm64/kernel/proton-pack.c and Documentation/admin-guide/hw-vuln
_MITIGATION = _words(
    "not affected af affec vulnerable mitigation mitigated unknown vmx unsupported disabled "
    "conditional cache flushes smt host state pte inversion ept flush necessary clear buffers "
    "attempted no microcode dependent on hypervisor status speculative store bypass via prctl "
    "and seccomp usercopy swapgs barriers user pointer sanitization enhanced automatic ibrs "
    "ibrs_fw retpolines retpoline lfence ibpb fw stibp always forced rsb filling pbrsb eibrs "
    "sw sequence hw loop bhi dis_s untrained return thunk safe ret vmexit only tsx locked "
    "register file aligned branch thunks its stuffing load pti split huge pages full call "
    "depth tracking csv2 bhb csv3 unprivileged ebpf predictor hardening but lock entry exit "
    "kpti processor before kernel off ssbs __user "
)
_VULNERABILITIES = _words(
    "gather_data_sampling ghostwrite indirect_target_selection itlb_multihit l1tf mds "
    "meltdown mmio_stale_data old_microcode reg_file_data_sampling retbleed "
    "spec_rstack_overflow spec_store_bypass spectre_v1 spectre_v2 srbds tsa tsx_async_abort "
    "vmscape spectre_bhb "
)
# Of a description, a document or a counter: what Linux calls settings, file systems and events, and
# the words of tlb.machine's own sentences.
_WORDS = _words(
    # perf
    "derived itlb stlb l1d dtlb walk hit refill umask cmask edge inv any u k g ug pp event cycles "
    "instructions minor faults task clock page context switches cpu migrations core atom "
    # settings
    "always madvise never inherit within size advise deny force defer defrag enabled absent "
    "unknown none on off forceoff notsupported notimplemented performance powersave schedutil "
    "ondemand conservative userspace alloc sleep scan millisecs max ptes swap shared pages to "
    "no5lvl nopti pti kpti nopcid noinvpcid auto "
    # file systems
    "ext2 ext3 ext4 xfs btrfs tmpfs overlay overlayfs f2fs zfs nfs fuse vfat ramfs squashfs "
    "bcachefs erofs hugetlbfs "
    # tlb.machine.background
    "damon kdamond paddr vaddr fvaddr scheme willneed cold pageout hugepage nohugepage lru sort "
    "prio deprio migrate hot stat reclaim swappiness zswap device devices cpus of this process "
    "disabled by prctl but where advised user is the host s refuses and calls that are needed "
    "memory hugetlb limit in bytes high usage soft kib mib gib tib every ms for asks a huge may "
    "hold untouched base pidfd open getfd madvise eperm enosys "
    # tlb.machine.cpuid, cpus, kvm, memory
    "linux cpuid takes two entries so half as many fit memavailable cgroup memlock rlimit address "
    "space kvm pvm amd intel xen vmware qemu tcg virtualbox bhyve acrn hyper v pv hvm pvh "
    "x86 64 aarch64 arm64 armv8 armv9 cortex neoverse pmuv3 "
    # documents
    "java uselargepages usetransparenthugepages usehugetlbfs uselargepagesindividualallocation "
    "c go python rust javac mvn rustc cc pool free thp "
)
UNKNOWN = "unknown"  # in the place of a text that may not leave
_NAMES = {
    *REASON_TEXTS,
    *_VULNERABILITIES,
    *(task.name for task in background.TASKS),
    *microarchitecture.VENDORS,
    *microarchitecture.ARM_IMPLEMENTERS.values(),
}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_STATUS = re.compile(r"Not affected|Vulnerable|Mitigation|Unknown")
_WORD = re.compile(r"[^\W_]+")
# 4096, 128k, 0x80000005, 12th, 5.15 by parts: no serial number is as short, no address has one part.
_NUMBER = re.compile(r"[0-9]{1,8}|[0-9]{1,5}[a-z]{1,3}|0x[0-9a-f]{1,8}|[a-z][0-9]{1,2}")
_ADDRESS = re.compile(
    r"(?:[0-9]{1,3}[.-]){3}[0-9]{1,3}|[0-9a-f]{2}(?::[0-9a-f]{0,4}){3,}|[a-z]{2,}-[0-9]|@|[/\\]{2}|~/"
)
_MODEL = re.compile(
    r"[0-9]{2,5}[A-Z]{0,3}[0-9]{0,2}(?:-Core)?|[A-Z]{1,2}-?[0-9]{1,5}[A-Z]{0,2}(?:-[0-9]{3,5}[A-Z]{0,2})?"
    r"|i[3579]-[0-9]{3,5}[A-Z]{0,3}|v[2-9]|[0-9]{1,2}\.[0-9]{1,2}\+?(?:GHz)?|[0-9]{1,2}(?:th|st|nd|rd)|[0-9]-[0-9]{3,4}[A-Z]?"
    r"|[0-9][A-Z][0-9]{2}|[3579]"
    r"|Neoverse-[A-Z][0-9]|Cortex-[A-Z][0-9]{1,3}[A-Z]{0,2}"
)
_TAG = rf"(?:{'|'.join(sorted(_DISTRIBUTIONS, key=len, reverse=True))}|u|rc|git|r|p|build|b)"
_VERSION = re.compile(
    rf"(?:go)?[0-9]{{1,8}}(?:\.[0-9]{{1,5}}){{0,2}}(?:{_TAG}[0-9]{{1,8}})*"
    rf"(?:[-+~]{_TAG}?[0-9]{{1,8}}(?:{_TAG}[0-9]{{1,4}})*(?:\.[0-9]{{1,4}})?)*"
)
# Of microsoft, four numbers.
_RELEASE = re.compile(r"[2-9]\.[0-9]{1,3}(?:\.[0-9]{1,4}){0,2}(?![.0-9])")
_RELEASE_TAIL = re.compile(r"([-+.~])([A-Za-z0-9_]+)")
_RELEASE_NUMBER = re.compile(
    rf"[0-9]{{1,6}}|(?:{_TAG}|v|lp|aws|gcp|azure|generic|kali)[0-9]{{1,5}}(?:_[0-9]{{1,3}})?"
)
_FOUR_NUMBERS = re.compile(r"(?:[0-9]{1,3}[.-]){3}[0-9]{1,3}(?![0-9])")
_HEX = re.compile(r"([0-9a-f]{12}|[0-9a-f]{16})?")


@lru_cache(256)
def compiler(text: str) -> str:
    """Return a compiler's or a program's description as it is if all of it is known names and
    versions, else its first known name with its last version, or "unknown"."""
    words = [word for word in re.split(r"[\s(),:\"/]+", text) if word]
    names = [word for word in words if word.lower() in _COMPILERS]
    versions = [word for word in words if _VERSION.fullmatch(word)]
    if len(names) + len(versions) == len(words):
        return text
    dotted = [word for word in versions if "." in word]
    return f"{names[0]} {(dotted or versions)[-1]}" if names and versions else UNKNOWN


def linux_release(text: str) -> str:
    """Return a release of Linux up to the first part that is neither a number nor a known
    flavour."""
    number = _RELEASE.match(text)
    if number is None:
        return UNKNOWN
    end = number.end()
    if address := _FOUR_NUMBERS.search(text, end):
        text = text[: address.start()]
    while tail := _RELEASE_TAIL.match(text, end):
        part = tail[2].lower()
        if part not in _FLAVOURS and not _RELEASE_NUMBER.fullmatch(part):
            break
        end = tail.end()
    return text[:end]


def cpu_model(text: str) -> str:
    """Return the known words and the model number of a CPU's name; "other" without any."""
    words = [word for word in text.split() if word.lower() in _CPU_NAMES or _MODEL.fullmatch(word)]
    return " ".join(words) or "other"


def mitigation(text: str) -> str:
    """Return what Linux says against a vulnerability, or only the status if a word of it is not
    known."""
    words = re.split(r"[\s;,:/()\[\]-]+", text.lower())
    if all(word in _MITIGATION or not word for word in words):
        return text
    status = _STATUS.match(text)
    return status[0] if status else "Unknown"


_VERSIONS = dict.fromkeys(("c_compiler", "toolchain", "jvm", "version"), compiler)
_PARSED: dict[str, Callable[[str], str]] = {
    **_VERSIONS,
    "cpu_model": cpu_model,
    "kernel_release": linux_release,
    "measured_at": lambda text: text if _TIME.fullmatch(text) else UNKNOWN,
    "microarchitecture": lambda text: (
        text if text in microarchitecture.names() else microarchitecture.UNKNOWN_MICROARCHITECTURE
    ),
    **dict.fromkeys(_VULNERABILITIES, mitigation),
}


def public_versions(content: Any, key: str = "") -> Any:
    """Return a JSON document in which the names of programs are reduced to known names and
    versions."""
    if isinstance(content, dict):
        return {name: public_versions(value, name) for name, value in content.items()}
    if isinstance(content, list):
        return [public_versions(value, key) for value in content]
    return compiler(content) if key in _VERSIONS and isinstance(content, str) else content


@lru_cache(1 << 12)
def is_known(text: str) -> bool:
    """Return whether a text is a digest, a reason's code, or known words and short numbers."""
    if _HEX.fullmatch(text) or text in _NAMES:
        return True
    if _ADDRESS.search(text):
        return False
    words = _WORD.findall(text.replace("_", " ").lower())
    return all(word in _WORDS or _NUMBER.fullmatch(word) for word in words)


def public_host(host: Host) -> Host:
    """Return a description as it may leave its machine."""
    return Host.model_validate(public(host.model_dump(mode="json"), schema_texts(Host)))


def public(content: Any, allowed: Collection[str], key: str = "") -> Any:
    """Return a JSON document whose texts may leave: others become "unknown", and fields with other
    names go. allowed: texts beside the known ones, such as `schema_texts`."""
    if isinstance(content, dict):
        return {
            name: public(value, allowed, name)
            for name, value in content.items()
            if name in allowed or is_known(name)
        }
    if isinstance(content, list):
        return [public(value, allowed, key) for value in content]
    if not isinstance(content, str) or content in allowed:
        return content
    if key in _PARSED:
        return _PARSED[key](content)
    return content if is_known(content) else UNKNOWN


@cache
def schema_texts(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of fields and the texts to choose from that a model's schema has."""
    return frozenset(_texts(model.model_json_schema()))


def _texts(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        choices = [*schema.get("enum", ()), schema.get("const")]
        yield from (text for text in choices if isinstance(text, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _texts(part)
