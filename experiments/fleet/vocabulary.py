"""Which words of a computer's description may leave it: those that stand here, and numbers as versions and models have them.

A description has texts that their owner may have written: a kernel's release, a compiler's line, a hypervisor's name for its CPU. No
pattern tells the host `alma` from the distribution `alma`. So a word goes only where it is known beforehand, and of the rest its owner is
asked, word by word. The words are those of Linux (arch/x86/kernel/cpu/bugs.c, mm/, Documentation/admin-guide), of vendors' brand strings,
of distributions' releases, of the toolchains that are asked, and of this project's own documents.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from experiments.machine import microarchitecture

_WORD = re.compile(r"[^\W_]+")
# 5.15, 8375C, 7R13, 0x1000065, E5, v4, i7, 128k, 64b, and what distributions count: no serial is as short, no address has one part.
_NUMBER = re.compile(r"[0-9]{1,5}[a-z]{0,3}[0-9]{0,2}|0x[0-9a-f]{1,8}|[a-z][0-9]{1,4}[a-z]{0,2}[0-9]{0,2}"
                     r"|(?:deb|el|fc|fips|rc|al|amzn|lp|gen|cm|sp|uek|wsl|csv|x86|arch|aarch|armv)[0-9]{1,3}(?:u[0-9]{1,2})?"
                     r"|[0-9]{1,3}ubuntu[0-9]{1,2}")
# Numbers that are more than a version together: IPv4 in dots or dashes, IPv6, MAC, UUID, somebody@somewhere.
_ADDRESS = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])|(?<![0-9])(?:[0-9]{1,3}[-_]){3}[0-9]{1,3}(?![0-9])"
                      r"|[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:.]*|(?:[0-9a-f]{2}[-:.]){5}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}"
                      r"|[0-9a-f]{8}-[0-9a-f]{4}|\w@\w", re.IGNORECASE)
_RELEASE = re.compile(r"[2-9]\.[0-9]{1,3}\.[0-9]{1,4}(?:\.[0-9]{1,4})?(?=-[A-Za-z])")  # 5.15.167.4-microsoft looks like an address

_KERNELS = """generic lowlatency aws azure gcp gke gkeop oracle ibm kvm cloud amd amd64 arm arm64 aarch x86 default rt realtime preempt
lts hwe oem edge zen hardened arch linux fc el amzn al uek microsoft standard wsl tumbleweed pve cachyos xanmod liquorix raspi rpi debug
asahi tegra bluefield flatcar cos cosmos container coreos talos nixos gentoo alpine virt bottlerocket android gki linuxkit mainline rc
git lp smp bpo debian ubuntu fedora suse opensuse red hat rhel rocky almalinux centos mariner photon vanilla custom unknown absent none"""
_COMPILERS = """gcc cc clang version release prerelease experimental llvm apple gnu buildroot homebrew toolchain python numpy numba
rustc go javac java openjdk jdk perl node xz utils sort coreutils sqlite redis server v sha malloc jemalloc bits build"""
_CPUS = """intel r xeon tm core amd epyc ryzen threadripper processor cpu ghz mhz gold silver bronze platinum max ultra atom celeron
pentium pro ampere altra one neoverse cortex graviton m axion cobalt yitian kunpeng hygon dhyana zhaoxin centaur qemu virtual common
genuine gen th with radeon graphics eng sample engineering rome milan genoa bergamo turin naples siena cascadelake icelake
sapphirerapids emeraldrapids graniterapids skylake haswell broadwell ivybridge sandybridge westmere nehalem penryn conroe denverton
snowridge opteron phenom athlon fx nm genuineintel authenticamd hygongenuine part arm fujitsu hisilicon nvidia qualcomm apple ibrs noTSX
server client knm knl ex ep d e g h k p u s"""
_LINUX = """always madvise never inherit within size advise deny force defer defrag enabled absent unknown on off forceoff notsupported
notimplemented not affected vulnerable mitigation mitigated vmx unsupported disabled conditional cache flushes smt host state pte
inversion ept flush necessary clear buffers attempted no microcode dependent on hypervisor status speculative store bypass via prctl and
seccomp usercopy swapgs barriers user pointer sanitization enhanced automatic ibrs retpolines retpoline lfence ibpb fw stibp forced rsb
filling pbrsb eibrs sw sequence hw loop bhi dis s untrained return thunk safe ret vmexit only tsx locked register file aligned branch
thunks its stuffing load pti split huge pages full call depth tracking csv bhb unprivileged ebpf predictor hardening but lock entry exit
af affec cl before kernel performance powersave schedutil ondemand conservative userspace alloc sleep millisecs max ptes shared swap to
scan none gather data sampling ghostwrite indirect target selection l1tf mds meltdown mmio stale old reg rfds retbleed spec rstack
overflow srbds tsa tsx async abort vmscape itlb multihit spectre srso no5lvl nopti pti kpti nopcid noinvpcid auto memavailable memfree
rlimit as cgroup memory high limit in bytes pv hvm pvh kvm intel amd pvm hv xen hyper vmware qemu tcg virtualbox bhyve acrn ept npt
shadow cpuid subleaf descriptor a mib page takes two entries so half many fit cpu core atom lowpower armv pmuv cortex counters software
timing data instruction unified linux x86 nr anonymous page advised ext xfs btrfs tmpfs overlay overlayfs f2fs zfs nfs fuse vfat ramfs
squashfs bcachefs erofs p damon kdamond vaddr fvaddr paddr scheme willneed cold pageout hugepage nohugepage prio deprio migrate hot stat
reclaim sort lru ksm khugepaged numa balancing swappiness zswap device devices pages shared every ms a may hold untouched base but for
that asks hugetlb cgroup kb mb gb b"""
_EVENTS = """event umask cmask edge inv any config u k g ug uG h pp cycles instructions minor faults task clock derived cpu armv pmuv
l1d tlb refill itlb dtlb walk stlb hit miss pending nested"""
_DOCUMENTS = """free fragments memfd pool collapsed file shared arena dropped tmpfs hugetlbfs huge plain touch draw always go1 thp jvm
usetransparenthugepages usehugetlbfs uselargepagesindividualallocation cc go java mvn rustc c rust python must tell statistics deflate
when short hints poison reports profiles traced profile helps hurts cannot tell difference no differs main write"""
_FUNCTIONS = """do handle mm fault exc user folio folios batch add move remove new anon rmap ptes pte offset map lock unlock raw spin
irqrestore irqsave callee save queued pv alloc allocate frozen pages mpol noprof charge uncharge try memcg memcg1 commit mem cgroup get
put from count events lruvec stat state mod node zone free unref tail prepare list del entry valid report or rcu read under vma mas walk
unmap range normal page set isra constprop policy nodemask freelist zero clear erms rep highpage cond resched syscall entry call safe
stack d lookup kernfs dop revalidate iop permission link path error return sync regs asm native flush tlb one multi pmd pud p4d pgd
populate pmdp collapse copy present deferred lru cache swap vm area iter next find finish fast slow path rmqueue bulk pcp up down write
trylock update hiwater rss inc dec refcount filemap xas load store unlock_page xarray mapping shmem ext4 fs perf event task tick sched
clock hrtimer timer interrupt apic timer irq exit restore switch mm context cpu this preempt disable enable per mas state store gfp
memset memcpy fault around xa start end dup zap tear gather mmu anonymous wp huge memory kmem slab obj"""

WORDS = frozenset(_WORD.findall(" ".join(
    [_KERNELS, _COMPILERS, _CPUS, _LINUX, _EVENTS, _DOCUMENTS, _FUNCTIONS, *microarchitecture.names()]).replace("_", " ").lower()))


def unknown(text: str, allowed: Collection[str] = ()) -> list[tuple[int, str]]:
    """The words of a text that may name somebody, each with where it begins: those in no list, and what looks like an address.

    allowed: those that their owner lets go, in lower case.
    """
    release = _RELEASE.match(text)
    addresses = [(found.start(), found[0]) for found in _ADDRESS.finditer(text, release.end() if release else 0)]
    words = [(found.start(), found[0]) for found in _WORD.finditer(text)]
    return sorted([*((at, word) for at, word in addresses if word.lower() not in allowed), *(
        (at, word) for at, word in words if not _is_known(word.lower()) and word.lower() not in allowed)])


def _is_known(word: str) -> bool:
    return word in WORDS or bool(_NUMBER.fullmatch(word))
