"""Why a number could not be measured: each reason's code, its sentence and its remedy.

A number is there or a reason is; there is no third way. Codes go into data/, so a code is never
renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Some = TypeVar("Some", bound=Sized)


class ReasonText(NamedTuple):
    """What a person reads: one sentence that says what is lacking, and what to do about it."""

    sentence: str
    remedy: str


_DETAIL_CHARS = 300  # a compiler's first error line fits; a core dump of text does not

REASONS: dict[str, ReasonText] = {
    # --- the compiler
    "no-compiler": ReasonText(
        "There is no C compiler.",
        "Install one (Debian, Ubuntu: apt install gcc libc6-dev), or measure with --engine numba.",
    ),
    "compile-failed": ReasonText(
        "The C compiler could not build the kernel.",
        "Install the C library's headers (Debian, Ubuntu: apt install libc6-dev), or measure with --engine numba.",
    ),
    "no-toolchain": ReasonText(
        "A toolchain that this program needs is not installed.",
        "Install what the brackets name; the rest is measured without it.",
    ),
    "maven-failed": ReasonText(
        "Maven could not build the JVM benchmark.",
        "Run `mvn -f kernels/jmh/pom.xml package` by hand and mend what it says; it takes a JDK of 17 or later and, for the "
        "first time, a repository that Maven reaches.",
    ),
    # --- perf and the counters
    "no-perf": ReasonText(
        "The perf program for this Linux kernel is not installed.",
        "Install it (Debian: apt install linux-perf; Ubuntu: apt install linux-tools-$(uname -r)).",
    ),
    "perf-denied": ReasonText(
        "The kernel does not let this user count events.",
        "Allow it with `sudo sysctl kernel.perf_event_paranoid=2`; in a container, allow the system call perf_event_open too.",
    ),
    "perf-failed": ReasonText(
        "perf did not finish a measurement.",
        "Run `perf stat true` by hand and mend what it says; until then times are measured without counters.",
    ),
    "no-pmu": ReasonText(
        "This computer shows no hardware counters.",
        "Most virtual machines hide them: use bare metal, or a machine type whose hypervisor passes the PMU on.",
    ),
    "event-unknown": ReasonText(
        "This CPU or this version of perf does not know the event.",
        "Use a newer perf; where the CPU lacks the event there is no remedy but another CPU.",
    ),
    "not-counted": ReasonText(
        "perf asked for the event, and the CPU never counted it.",
        "Stop other users of the counters (other perf runs, profilers, the NMI watchdog: `sudo sysctl kernel.nmi_watchdog=0`); in "
        "a virtual machine, whose hypervisor may filter the event, use bare metal or another machine type.",
    ),
    "multiplexed": ReasonText(
        "The event counted only part of the time, because events shared too few counters.",
        "Count fewer events at once, or free a counter with `sudo sysctl kernel.nmi_watchdog=0`.",
    ),
    "no-walk-cycle-event": ReasonText(
        "This CPU has no event that counts the cycles of a page walk.",
        "Take the time of a walk from the price of translation, where it is labelled as inferred.",
    ),
    "no-nested-walk-event": ReasonText(
        "This CPU has no event that counts the second dimension of a guest's page walk.",
        "Compare a guest with bare metal of the same CPU; Intel counted it from Haswell to Cooper Lake.",
    ),
    "no-clock": ReasonText(
        "No core clock was measured here, so times cannot be given in cycles.",
        "Measure with --engine c, which times a chain of additions beside each point.",
    ),
    "other-repeat": ReasonText(
        "This quantity is counted in another repeat, because a CPU counts few events at once.",
        "Measure two or more repeats: each counts the next group of events.",
    ),
    "counts-disagree": ReasonText(
        "Two counts contradict each other: a part is larger than its whole.",
        "Measure again with nothing else counting; where it stays so, an erratum of this CPU is likely.",
    ),
    "no-topdown": ReasonText(
        "This CPU or this version of perf has no top-down metric for misses of the data TLB.",
        "Use an Intel core from Haswell on and a perf that lists tma_dtlb_load; elsewhere compare walk cycles with cycles.",
    ),
    "not-supported": ReasonText(
        "perf reports the event as not supported here.",
        "Use bare metal, or a machine type whose hypervisor passes this event on.",
    ),
    # --- page sizes
    "pool-empty": ReasonText(
        "The pool of huge pages is empty or too small.",
        "Reserve pages of that size, such as 1 GiB of 2m pages with `tlb pool reserve --pages 2m --size 1GiB`; `tlb pool "
        "restore` gives them back.",
    ),
    "pool-denied": ReasonText(
        "Only root may change the pools of huge pages.",
        "Run the command in brackets; from a container whose /sys is read-only, run it on the host.",
    ),
    "pool-short": ReasonText(
        "The kernel cannot give all the huge pages.",
        "Ask for less, or free memory (end programs, `echo 1 | sudo tee /proc/sys/vm/compact_memory`) and ask again; 1g pages "
        "are there for certain only at boot (hugepagesz=1G hugepages=4).",
    ),
    "pool-changed": ReasonText(
        "The pool was changed by somebody else since, so it stays as it is, and what we had changed is forgotten.",
        "Write the number that it should have to nr_hugepages in its folder under /sys/kernel/mm/hugepages.",
    ),
    "pool-held": ReasonText(
        "The pool's old size is set, but programs still hold pages beyond it.",
        "They go back as those programs end; `tlb pool restore` then says so.",
    ),
    "pool-journal": ReasonText(
        "The journal of what was changed in the pools cannot be read or written.",
        "Compare nr_hugepages in the folders of /sys/kernel/mm/hugepages with what you want, mend it by hand, remove the journal "
        "if there is one, and see that root can write its folder.",
    ),
    "setting-absent": ReasonText(
        "This kernel has not the setting that this takes.",
        "Take a kernel that has it, with CONFIG_TRANSPARENT_HUGEPAGE, CONFIG_KSM or CONFIG_ZRAM (a module: `sudo modprobe zram`).",
    ),
    "setting-denied": ReasonText(
        "Only root may change the kernel's settings.",
        "Run it as root, on the host where a container's /sys is read-only.",
    ),
    "setting-refused": ReasonText(
        "The kernel did not take the value.", "Write it by hand and see what the kernel's log says."
    ),
    "setting-changed": ReasonText(
        "The setting was changed by somebody else since, so it stays as it is, and what we had changed is forgotten.",
        "Write the value that it should have.",
    ),
    "setting-held": ReasonText(
        "A setting could not be put back yet.",
        "Run `tlb housekeeping restore` again once programs that hold memory have ended.",
    ),
    "setting-journal": ReasonText(
        "The journal of what was changed in the kernel's settings cannot be read or written.",
        "Compare the settings with what you want, mend them by hand, remove the journal if there is one, and see that root can write "
        "its folder.",
    ),
    "housekeeping-not-asked": ReasonText(
        "What changes the kernel's settings is measured on request alone.",
        "Run `sudo tlb housekeeping measure`: it says what it changes and for how long, and puts all of it back.",
    ),
    "memory-whole": ReasonText(
        "Memory could not be fragmented within what may be taken of it.",
        "Free memory, or let it take more with a smaller --leave.",
    ),
    "zram-busy": ReasonText(
        "The device zram0 is in use.",
        "Let it be: swapping is measured on a computer where it is free.",
    ),
    "no-merging": ReasonText(
        "The kernel merged no equal pages in time.", "Measure again on an idle computer."
    ),
    "thp-never": ReasonText(
        "Transparent huge pages are switched off.",
        "Allow them on request: `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`; where the setting of "
        "their own size (hugepages-2048kB/enabled beside it) says never, write it there.",
    ),
    "mthp-off": ReasonText(
        "Transparent pages of this size, between the base page and the huge page, are switched off.",
        "Allow them on request, a file a size: `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled`.",
    ),
    "mount-refused": ReasonText(
        "This process may not mount a file system, not even in a namespace of its own.",
        "Run the same command as root, who may.",
    ),
    "page-size-unsupported": ReasonText(
        "This CPU or this kernel does not offer the page size.",
        "Ask for another page size; 64k needs Linux 6.8, 1g needs the CPU flag pdpe1gb on x86-64.",
    ),
    "backing-partial": ReasonText(
        "The kernel gave only part of the memory in the page size asked for.",
        "Free or defragment memory (`echo 1 | sudo tee /proc/sys/vm/compact_memory`) and measure again.",
    ),
    "no-populate": ReasonText(
        "This kernel does not fault memory in on request (MADV_POPULATE_WRITE).",
        "Use Linux 5.14 or newer, or measure with --mode touch and --mode memset.",
    ),
    "no-collapse": ReasonText(
        "This kernel does not join pages of this kind into large ones on request.",
        "Use Linux 6.1 or newer for MADV_COLLAPSE, with CONFIG_READ_ONLY_THP_FOR_FS for files on a disk; shmem_enabled other than deny for "
        "shared memory.",
    ),
    # --- the guest
    "not-x86": ReasonText(
        "The guest that measures itself is written for x86-64.",
        "Run it on an x86-64 computer, or read the reference machine's results.",
    ),
    "no-kvm": ReasonText(
        "This computer offers no KVM, so no guest can run here.",
        "Load the module (`sudo modprobe kvm_intel` or `kvm_amd`) and switch virtualization on in the firmware; in a virtual "
        "machine use a type with nested virtualization, in a container pass the device on (docker: --device /dev/kvm).",
    ),
    "kvm-permission": ReasonText(
        "This user may not open /dev/kvm.",
        "Join the group in brackets (`sudo usermod -aG GROUP $USER`) and log in again; in a container, pass the device and the "
        "group on (docker: --device /dev/kvm --group-add GROUP).",
    ),
    "kvm-refused": ReasonText(
        "KVM refused a part of the virtual machine.",
        "End other hypervisors and virtual machines, see that memory is free, and measure again; `dmesg | grep -i kvm` may say "
        "more.",
    ),
    "no-la57": ReasonText(
        "The CPU that KVM shows its guests has no page tables of five levels.",
        "Measure with four: leave --levels out.",
    ),
    "guest-crashed": ReasonText(
        "The guest ended otherwise than by saying that it is done.",
        "Run the same point by hand with `tlb measure` and report what it prints; `dmesg | grep -i kvm` may say more.",
    ),
    "guest-emulated": ReasonText(
        "KVM emulates the guest's instructions here, so a time inside would be the emulator's.",
        "Use a computer whose CPU runs guests by itself (VMX or SVM, on bare metal or nested).",
    ),
    "emulated": ReasonText(
        "An emulator runs this computer, so what is timed is that program and no processor.",
        "Measure on a computer whose CPU runs it, or in a guest that a hypervisor runs on one.",
    ),
    # --- memory
    "memory-short": ReasonText(
        "There is not enough memory for this working set.",
        "Ask for a smaller max_working_set, or raise the limit that `tlb inspect` names.",
    ),
    "code-refused": ReasonText(
        "This computer lets no program make memory executable that it has written.",
        "Allow it for this program: SELinux's boolean deny_execmem, a systemd unit's MemoryDenyWriteExecute, sysctl vm.memfd_noexec.",
    ),
    "memlock": ReasonText(
        "The limit on locked memory is too low.",
        "Raise it for this shell with `ulimit -l`, or in /etc/security/limits.conf (memlock).",
    ),
    "oom-killed": ReasonText(
        "The kernel ended the measuring process because memory ran out.",
        "Ask for a smaller max_working_set, or raise the memory limit of this container or login.",
    ),
    # --- the computer
    "not-linux": ReasonText(
        "Measuring needs Linux.",
        "Read the committed results here (`make site`), and measure on a Linux computer.",
    ),
    "other-arch": ReasonText(
        "The statement is about x86-64, and this computer is of another kind.",
        "Measure on an x86-64 computer, or read the reference machine's results.",
    ),
    "arch-unsupported": ReasonText(
        "The kernels are written for x86-64 and arm64.",
        "Measure on one of those, or with --engine numba where numba runs.",
    ),
    "no-cpuid": ReasonText(
        "This computer has no readable CPUID instruction, so nothing states the geometry of its TLB.",
        "Take the geometry from the vendor's manual, or from the steps that the measurement shows.",
    ),
    "no-geometry": ReasonText(
        "Nothing states the TLB of this CPU: CPUID is silent, as under many hypervisors, or there is no CPUID.",
        "Take the geometry from the vendor's manual, or from the steps that the measurement shows.",
    ),
    "one-level": ReasonText(
        "One level of the TLB is known here, and this compares two.",
        "Read the reference machine's results; where a second level is hidden, `tlb geometry` may find it.",
    ),
    "bare-metal": ReasonText(
        "What this compares a guest with is a program on bare metal, and this computer is a guest.",
        "Measure on the bare metal of a host of this kind, where guests run on large pages of the host.",
    ),
    "two-dimensions": ReasonText(
        "A walk in a guest goes through the host's tables too, and says nothing of one that does not.",
        "Measure on bare metal.",
    ),
    "splintered": ReasonText(
        "The host backs this guest's large pages with base pages, so they miss as base pages do and are no control.",
        "Measure on bare metal, or in a guest whose host has large pages for it.",
    ),
    "single-node": ReasonText(
        "This computer has one memory node, so there is no remote memory to measure.",
        "Measure on a computer with two or more NUMA nodes.",
    ),
    "one-cpu": ReasonText(
        "What this compares runs on two CPUs at once, and this process may use one.",
        "Give it more (a wider mask with taskset, a larger machine type), and measure again.",
    ),
    "no-sibling": ReasonText(
        "This process may use no second hardware thread of the core that it measures on.",
        "Measure where a core has two threads and SMT is on; many virtual machines hide the second.",
    ),
    "neighbour-gone": ReasonText(
        "What was to run beside the measurement on another CPU, or in turns with it, ended or did not run.",
        "Measure with less load on the computer, and see whether something ends its processes (memory limits, `dmesg`).",
    ),
    "no-flush-count": ReasonText(
        "This kernel does not count the flushes that its CPUs ask of each other.",
        "Read the times: x86-64 has a line TLB in /proc/interrupts; arm64 broadcasts flushes in hardware, and counts nothing.",
    ),
    "node-refused": ReasonText(
        "Memory could not be held on the NUMA node asked for.",
        "Name a CPU of another node with --cpu, widen the cpuset (cpuset.mems), stop what moves pages between nodes; in a "
        "container, allow the system calls mbind, set_mempolicy and move_pages (docker: --cap-add SYS_NICE).",
    ),
    "no-namespaces": ReasonText(
        "A process cannot be put into fresh user, mount, pid and network namespaces here.",
        "Install unshare (Debian, Ubuntu: apt install util-linux) and allow user namespaces (`sudo sysctl "
        "user.max_user_namespaces=10000`); in a container, allow the system calls unshare and mount too.",
    ),
    "cpu-gone": ReasonText(
        "The CPU that was to measure is no longer there for this process.",
        "Bring it back (`echo 1 | sudo tee /sys/devices/system/cpu/cpuN/online`, or a wider mask with taskset), or name another "
        "with --cpu. Then run the same command again: what is stored stays, and where none is named, it takes one that is there.",
    ),
    "no-five-levels": ReasonText(
        "This CPU shows no page tables of five levels.",
        "Use a CPU that has them: Intel's servers since Ice Lake, AMD's since Zen 4; in a virtual machine, one whose hypervisor passes "
        "la57 on.",
    ),
    "no-memory-group": ReasonText(
        "No memory cgroup could be made below the root of its hierarchy and entered.",
        "Run as root where /sys/fs/cgroup is mounted from the host's root, and the kernel was not booted with cgroup_disable=memory.",
    ),
    "tmp-refused": ReasonText(
        "The folder for temporary files does not take the file that is to be mapped.",
        "Free some space there, or name another folder in TMPDIR.",
    ),
    "no-tracefs": ReasonText(
        "The kernel's tracepoints cannot be read here.",
        "As root, mount them: `mount -t tracefs tracefs /sys/kernel/tracing`; in a container, do so on the host and pass the folder on.",
    ),
    "no-symbols": ReasonText(
        "The kernel's functions have no names in a profile here.",
        "Allow them as root: `sysctl kernel.kptr_restrict=0`, and `kernel.perf_event_paranoid=1` for what runs in the kernel.",
    ),
    # --- the measuring process
    "kernel-crashed": ReasonText(
        "The measuring process crashed.",
        "Run the same point by hand with `tlb measure` and report what it prints.",
    ),
    "kernel-hung": ReasonText(
        "The measuring process did not finish in its time.",
        "Measure with less load on the computer; report the point if it hangs again.",
    ),
    "kernel-garbage": ReasonText(
        "The measuring process printed something that is not a record.",
        "Run the same point by hand with `tlb measure` and report what it prints.",
    ),
    "engine-lacks": ReasonText(
        "The engine has not all that another one has.",
        "Measure with another one: --engine numba, or --engine c, which takes a C compiler (Debian, Ubuntu: apt install gcc "
        "libc6-dev).",
    ),
    "state-changed": ReasonText(
        "A setting of this computer was switched while it was measured (THP, NUMA balancing, the governor, boost "
        "or SMT).",
        "Run the same command again: what is stored is of the setting before, and counts again when that is back.",
    ),
    "interrupted": ReasonText(
        "The measurement was interrupted.",
        "Run the same command again: it goes on where it stopped.",
    ),
    "measuring-already": ReasonText(
        "Another measurement is running on this computer.",
        "Wait until it ends; two at once would spoil both.",
    ),
    "no-time": ReasonText(
        "For this there was no time left.",
        "Go on with the same command, or with more minutes (`make book MINUTES=40`, `-p minutes=40`); what is there stays.",
    ),
    # --- other people's programs
    "program-missing": ReasonText(
        "The program could not be started.",
        "Name a program that is there and may be executed; what a shell would do for it (pipes, globs, redirections) goes into a script.",
    ),
    "program-endless": ReasonText(
        "One run of the program did not end in the time that all of them may take.",
        "Give it less to do, or more time with --minutes; a server takes a --driver.",
    ),
    "program-killed": ReasonText(
        "The program was ended by a signal.",
        "Run it by hand until it ends by itself; where memory ran out, give it less to do.",
    ),
    "server-ended": ReasonText(
        "The server ended before its driver had.",
        "Run both by hand until they work together; the server stays as long as its driver runs.",
    ),
    "server-silent": ReasonText(
        "The server was not ready in the time that all runs may take.",
        "Name what it writes once it is ready with --ready; without, it is ready once one of its processes listens on a socket.",
    ),
    "program-short": ReasonText(
        "The program ends too soon: its start takes as long as any difference that could be measured.",
        "Give it more to do, so that it runs for a second or more, or name a number that it prints with --metric.",
    ),
    "no-metric": ReasonText(
        "The program did not print a number above zero where --metric looks for one.",
        "Give a regular expression with one group around the number; looked at are the first and the last 64 KiB of each stream.",
    ),
    "pid-gone": ReasonText(
        "There is no such process, or it has ended.",
        "Name one that runs, by its number in `ps`; for a program that ends, `tlb try -- COMMAND` starts it.",
    ),
    "pid-denied": ReasonText(
        "This user may not look into that process.",
        "Run the same command as that user with the capability CAP_SYS_NICE, or as root.",
    ),
    "pid-refused": ReasonText(
        "This process has no memory that could be put on large pages for a measurement.",
        "Name the process that does the work, as `ps` lists it.",
    ),
    "lever-absent": ReasonText(
        "The lever did nothing: it was seen in none of the program's processes.",
        "Use a lever that needs nothing of the program, such as --lever collapse.",
    ),
    "collapse-denied": ReasonText(
        "This user may not put another process' memory on large pages.",
        "Run the same command as root, or with the capability CAP_SYS_NICE; --lever advise needs neither.",
    ),
    "process-gone": ReasonText(
        "There is no such process, or it ended before it was looked at.",
        "Name one that runs (`pgrep NAME`; in a container, its number there), or let it be started: `tlb watch -- COMMAND`.",
    ),
    "process-denied": ReasonText(
        "This user may not look at that process.",
        "Run the same command as the user whose process it is; as root where it is another user's, or runs with another user's rights.",
    ),
    "process-kernel": ReasonText(
        "That process is a thread of the Linux kernel, which has no pages of its own.",
        "Name a program's process.",
    ),
    "no-referenced": ReasonText(
        "This kernel does not say which pages a process touches.",
        "Use a Linux that is built with CONFIG_PROC_PAGE_MONITOR, as those of distributions are.",
    ),
    "frames-denied": ReasonText(
        "Only root may see in which folios base pages lie.",
        "Run the same command as root, on the host where it is a container's process; where root is refused too, the kernel has no "
        "/proc/kpageflags (CONFIG_PROC_PAGE_MONITOR).",
    ),
    "not-seen": ReasonText(
        "Linux does not say of such pages whether they are touched.",
        "Count their misses where there are counters, or put the same memory on transparent pages while you watch.",
    ),
    # --- a fleet
    "no-book": ReasonText(
        "This needs the book, which only a clone of the repository has.",
        "Clone it and run `make` there.",
    ),
    "no-fleet": ReasonText(
        "What a fleet takes beside the book is not installed.",
        "Run `make fleet`, which adds it to .venv, on this computer and on each that measures.",
    ),
    "fleet-insecure": ReasonText(
        "This address is without TLS: anyone on the way can read what is sent and run programs on both ends.",
        "Use tls://, whose certificate is made on first use; only on a network where all may do all, say --insecure.",
    ),
    "fleet-certificates": ReasonText(
        "There is no certificate of a fleet that can be used.",
        "Copy fleet.pem from the computer that asks, mode 0600, and name it with --certificate; there, removing it makes a new one.",
    ),
    "fleet-garbage": ReasonText(
        "What a worker sent is no bundle, so none of it was kept.",
        "Run `tlb run` and `tlb bundle` on that computer by hand and report what differs; then start its worker again.",
    ),
    "fleet-twice": ReasonText(
        "This is a computer that is there under another name already.",
        "Name each computer once; copies of one disk image need an /etc/machine-id of their own (`systemd-machine-id-setup`).",
    ),
    "fleet-gone": ReasonText(
        "Nothing was heard from it for as long as --patience allows.",
        "Start it again, then run the same command again: it goes on where it stopped.",
    ),
    # --- the data
    "no-data": ReasonText(
        "There are no results of this experiment for this machine yet.",
        "Measure them with `tlb run`, or read another machine's results.",
    ),
    "no-atlas": ReasonText(
        "This folder is no atlas that can be read.",
        "Build one with `tlb atlas build`; what is of another version is built again from its inputs.",
    ),
    "atlas-broken": ReasonText(
        "A part of the atlas is gone or damaged.", "Build it again from its inputs."
    ),
    "bad-query": ReasonText(
        "This question cannot be answered.",
        "Ask one SELECT of rows, machines, profile or verdicts (`DESCRIBE rows` lists columns); `tlb atlas ask` lists questions that have "
        "names.",
    ),
    "nothing-common": ReasonText(
        "The two have no point in common: none of one kernel with the same parameters.",
        "Measure the same chapters of both with one profile, as `tlb run CHAPTER -p profile quick` or `make book` does.",
    ),
    "other-kernels": ReasonText(
        "What both have measured is of other versions of the kernels, or of another compiler.",
        "Measure one of the two again with the checkout and the compiler of the other.",
    ),
    "measured-differently": ReasonText(
        "One of the two was measured with an earlier version of the kernels: its times do not compare.",
        "Measure it again with the checkout of the other; its earlier rows stay.",
    ),
    "too-few-points": ReasonText(
        "There are too few results for this statement.",
        "Measure with a larger profile or more repeats.",
    ),
    "sweep-short": ReasonText(
        "The sweep ends below the sizes that this statement is about.",
        "Measure further, as with `-p max_working_set=16GiB`; it takes twice as much free memory.",
    ),
    "reach-in-cache": ReasonText(
        "The last-level cache holds more than the TLB reaches.",
        "Measure on a CPU whose TLB reaches past its caches, such as one with base pages of 64 KiB.",
    ),
    "no-step": ReasonText(
        "The data show no step where this statement looks for one.",
        "Compare with `tlb inspect`: this TLB may be larger than CPUID states, or the sweep may end before it.",
    ),
    "control-elsewhere": ReasonText(
        "The packed control lies in a nearer cache than the spread lines, so their difference is not the price "
        "of translation.",
        "Read the price at a larger or a smaller size.",
    ),
    "out-of-reach": ReasonText(
        "The chase would span more address space than its visits can name.",
        "Measure it with smaller pages (--pages 4k): a page table is left by as many of them.",
    ),
    "unstable": ReasonText(
        "The repeats differ by more than 5 percent.",
        "Let `tlb doctor` look for noise, quiet the computer, and measure again.",
    ),
    "bad-parameter": ReasonText(
        "A parameter has a value that cannot be measured.",
        "Correct it; `papermill --help-notebook` and `tlb --help` list what each one takes.",
    ),
    # --- bundles
    "no-bundle": ReasonText(
        "There is no bundle that can be opened.",
        "Name a file that `tlb bundle` wrote, itself and not a link to it; `tlb atlas build` takes machines' folders too, and folders of "
        "either.",
    ),
    "bundle-private": ReasonText(
        "The description of this computer has words that may name somebody or something of yours.",
        "Read them, and allow those that identify nobody: `tlb bundle --allow WORD`, once for each.",
    ),
    "bundle-unsafe": ReasonText(
        "This file is not built as `tlb bundle` builds a bundle.",
        "Take the file that the command wrote, not one that was packed again or added to on the way.",
    ),
    "bundle-broken": ReasonText(
        "The digests of this bundle are of other content.",
        "Have it sent again, or packed again where it was measured.",
    ),
    "bundle-foreign": ReasonText(
        "This bundle holds what no bundle of this version of the book holds.",
        "Bring both checkouts to the same version, and pack it again where it was measured.",
    ),
    "bundle-impossible": ReasonText(
        "This bundle holds what no kernel and no computer could have printed.",
        "Accept nothing of it, and ask its sender to measure again with an unchanged checkout.",
    ),
    "bundle-known": ReasonText(
        "What this bundle holds is in data/ already.",
        "There is nothing to add; rows of another machine are no rows of this one, so measure again on the computer that it is to be of.",
    ),
    "disk-full": ReasonText(
        "There is no room on the disk for what is to be written.",
        "Free some space or raise the quota, then run the same command again: nothing measured is lost.",
    ),
    "disk-read-only": ReasonText(
        "The folder for what is to be written is read-only.",
        "Name a writable folder in TLB_DATA (results) or TLB_BUILD (binaries), then run the same command again.",
    ),
}


def explain(code: str, detail: str = "") -> str:
    """One line for people: the reason's sentence, with `detail` in brackets, and its remedy.

    KeyError for a code that REASONS does not hold.
    """
    sentence, remedy = REASONS[code]
    detail = " ".join(detail.split())
    if len(detail) > _DETAIL_CHARS:
        detail = detail[:_DETAIL_CHARS] + "…"
    return (
        f"{sentence.removesuffix('.')} ({detail}). {remedy}" if detail else f"{sentence} {remedy}"
    )


# Why a page size may have no rows.
PAGE_REASONS = frozenset(
    {
        "pool-empty",
        "thp-never",
        "mthp-off",
        "page-size-unsupported",
        "backing-partial",
        "memory-short",
    }
)


# Why what was measured does not decide a claim. Codes go into data/, as those of REASONS do.
UNDECIDED: dict[str, str] = {
    "few": "Too few processes were measured.",
    "crosses": "The interval crosses an end of the band.",
    "widened": "An interval that is one of several compared has to be wider than printed, and then crosses an end of the band.",
    "bistable": "The processes fall into two groups, and the interval over both crosses an end of the band.",
    "conditions": "The conditions differ from those of the source.",
    "ambiguous": "The result fits more than one explanation.",
}


@dataclass(frozen=True)
class Undecided:
    """Why a claim is left open. text: a sentence; by default that of the code."""

    code: str
    text: str = ""

    def __post_init__(self) -> None:
        default = UNDECIDED[self.code]  # an unknown code fails where it is made
        object.__setattr__(self, "text", self.text or default)


class Note(NamedTuple):
    """What a run could not measure, in a sentence; and the reason's code, "" where it is none of
    REASONS."""

    text: str
    code: str = ""


class Unavailable(Exception):
    """Something cannot be measured here. `code` is a key of REASONS; str() is one line with the
    remedy."""

    def __init__(self, code: str, detail: str = "") -> None:
        self.text = explain(code, detail)  # first, so that an unknown code fails where it is raised
        super().__init__(
            code, detail
        )  # both as args, so that it survives pickling between processes
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.text

    @property
    def note(self) -> Note:
        return Note(self.text, self.code)

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback: the sentence is all that helps whoever reads
        it."""
        return [f"Unavailable: {self.text}"]


def if_available(make: Callable[..., Any], *given: Any) -> Any:
    """What `make` gives; None where it raises Unavailable: for what a sentence or a figure can do
    without."""
    try:
        return make(*given)
    except Unavailable:
        return None


def required(rows: Some | None, lacking: str, code: str = "too-few-points") -> Some:
    """Return `rows`, of which there are some. Raises Unavailable(code) with what is lacking where
    there are none."""
    if rows is None or not len(rows):
        raise Unavailable(code, lacking)
    return rows
