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
    """One sentence on what is lacking, and what to do about it."""

    sentence: str
    remedy: str


_DETAIL_CHARS = 300  # a compiler's first error line fits; a core dump of text does not

# A line "code: sentence", continued by lines indented by two; then the remedy, indented by four.
_TABLE = """
# The compiler
no-compiler: There is no C compiler.
    Install one (Debian, Ubuntu: apt install gcc libc6-dev), or measure with --engine numba.
compile-failed: The C compiler could not build the kernel.
    Install the C library's headers (Debian, Ubuntu: apt install libc6-dev), or measure with
    --engine numba.
no-toolchain: A toolchain that this program needs is not installed.
    Install what the brackets name; the rest is measured without it.
maven-failed: Maven could not build the JVM benchmark.
    Run `mvn -f kernels/jmh/pom.xml package` and fix what it reports; it needs JDK 17 or later and,
    the first time, a repository within reach.

# perf and the counters
no-perf: The perf program for this Linux kernel is not installed.
    Install it (Debian: apt install linux-perf; Ubuntu: apt install linux-tools-$(uname -r)).
perf-denied: This user may not count events.
    Run `sudo sysctl kernel.perf_event_paranoid=2`; in a container, also allow the system call
    perf_event_open.
perf-failed: perf did not finish a measurement.
    Run `perf stat true` and fix what it reports; until then times are measured without counters.
no-pmu: This computer shows no hardware counters.
    Most virtual machines hide them: use bare metal, or a machine type whose hypervisor passes the
    PMU on.
event-unknown: This CPU or this version of perf does not know the event.
    Use a newer perf; if the CPU lacks the event, only another CPU helps.
not-counted: perf requested the event, and the CPU never counted it.
    Stop other users of the counters (perf, profilers, `sudo sysctl kernel.nmi_watchdog=0`); in a
    virtual machine, whose hypervisor may filter the event, use another machine type or bare metal.
multiplexed: The event counted only part of the time, because events shared too few counters.
    Count fewer events at once, or free a counter with `sudo sysctl kernel.nmi_watchdog=0`.
no-walk-cycle-event: This CPU has no event that counts the cycles of a page walk.
    Take the time of a walk from the price of translation, where it is labelled as inferred.
no-nested-walk-event: This CPU has no event that counts the second dimension of a guest's page walk.
    Compare a guest with bare metal of the same CPU; Intel counted it from Haswell to Cooper Lake.
no-clock: No core clock was measured here, so times cannot be given in cycles.
    Measure with --engine c, which times a chain of additions beside each point.
other-repeat: This quantity is counted in another repeat, because a CPU counts few events at once.
    Measure two or more repeats: each counts the next group of events.
counts-disagree: Two counts contradict each other: a part is larger than its whole.
    Measure again with nothing else counting; if it happens again, suspect an erratum of this CPU.
no-topdown: This CPU or this version of perf has no top-down metric for misses of the data TLB.
    Use an Intel core from Haswell on and a perf that lists tma_dtlb_load, or compare walk cycles
    with cycles.
not-supported: perf reports the event as not supported here.
    Use bare metal, or a machine type whose hypervisor passes this event on.

# Page sizes and settings
pool-empty: The pool of huge pages is empty or too small.
    Reserve pages, for example with `tlb pool reserve --pages 2m --size 1GiB`; `tlb pool restore`
    gives them back.
pool-limited: The cgroup of this process may not use so many pages of the pool.
    Raise the hugetlb limit in the settings of this container or service.
pool-denied: Only root may change the pools of huge pages.
    Run the command in brackets; if a container's /sys is read-only, run it on the host.
pool-short: Linux cannot provide that many huge pages.
    Reserve fewer, or free memory (end programs, `echo 1 | sudo tee /proc/sys/vm/compact_memory`)
    and
    try again; 1g pages are certain only at boot (hugepagesz=1G hugepages=4).
setting-absent: This Linux kernel lacks the required setting.
    Use one with CONFIG_TRANSPARENT_HUGEPAGE, CONFIG_KSM or CONFIG_ZRAM (`sudo modprobe zram`).
setting-denied: Only root may change this setting.
    Run the command as root; if a container's /sys is read-only, run it on the host.
setting-foreign: This process runs in a user namespace, and the setting is the host's.
    Run the command on the host, outside the namespace.
setting-refused: Linux did not accept the value.
    Write it by hand and look at the kernel's log.
setting-changed: Somebody else has changed the setting since, so it was not restored.
    Write the value that it should have; our change is no longer recorded.
setting-held: A setting could not be restored yet.
    Run the same command again once the programs that hold memory have ended.
setting-journal: The journal of changed settings cannot be read or written.
    Compare the settings with what you want and correct them by hand; then remove the journal, and
    make sure that root can write its folder.
housekeeping-not-asked: Experiments that change settings of Linux run only on request.
    Run `sudo tlb housekeeping measure`: it shows what it changes and for how long, and restores it.
memory-whole: Memory could not be fragmented within the amount that may be used.
    Free memory, or let it use more with a smaller --leave.
zram-busy: The device zram0 is in use.
    Measure swapping on a computer where it is free.
no-merging: Linux merged no equal pages in time.
    Measure again on an idle computer.
thp-never: Transparent huge pages are switched off.
    Run `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`; if
    hugepages-2048kB/enabled beside it says never, change that too.
mthp-off: Transparent pages of this size, between base page and huge page, are switched off.
    Allow them, one file a size: `echo madvise | sudo tee
    /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled`.
mount-refused: This process may not mount a file system, not even in a namespace of its own.
    Run the same command as root.
page-size-unsupported: This CPU or this Linux kernel does not offer the page size.
    Choose another one; 64k needs Linux 6.8, 1g needs the CPU flag pdpe1gb on x86-64.
backing-partial: Only part of the memory got the requested page size.
    Free or defragment memory (`echo 1 | sudo tee /proc/sys/vm/compact_memory`) and measure again.
no-populate: This Linux kernel does not fault memory in on request (MADV_POPULATE_WRITE).
    Use Linux 5.14 or newer, or measure with --mode touch and --mode memset.
no-collapse: This kernel does not join pages of this kind into large ones on request.
    Use Linux 6.1 or newer for MADV_COLLAPSE, with CONFIG_READ_ONLY_THP_FOR_FS for files on a disk;
    shmem_enabled other than deny for shared memory.

# The guest
not-x86: The guest that measures itself is written for x86-64.
    Run it on an x86-64 computer, or read the reference machine's results.
no-kvm: This computer offers no KVM, so no guest can run here.
    Run `sudo modprobe kvm_intel` (or `kvm_amd`) and enable virtualization in the firmware; in a
    virtual machine use a type with nested virtualization, in a container pass on --device /dev/kvm.
kvm-permission: This user may not open /dev/kvm.
    Join the group in brackets (`sudo usermod -aG GROUP $USER`) and log in again; in a container,
    use
    docker's --device /dev/kvm --group-add GROUP.
kvm-refused: KVM refused a part of the virtual machine.
    End other virtual machines, free memory, and measure again; see `dmesg | grep -i kvm`.
no-la57: The CPU that KVM shows its guests has no page tables of five levels.
    Measure with four: leave --levels out.
guest-crashed: The guest ended before it reported that it was done.
    Run the same point with `tlb measure` and report its output; see `dmesg | grep -i kvm`.
guest-emulated: KVM emulates the guest's instructions here, so times would be the emulator's.
    Use a computer whose CPU runs guests by itself (VMX or SVM, on bare metal or nested).
emulated: An emulator runs this computer, so times are those of a program and not of a processor.
    Measure on a real computer, or in a guest that a hypervisor runs on one.

# Memory
memory-short: There is not enough memory for this working set.
    Ask for a smaller max_working_set, or raise the limit that `tlb inspect` names.
code-refused: Programs may not make memory executable that they have written.
    Allow it for this program: SELinux's deny_execmem, systemd's MemoryDenyWriteExecute, or sysctl
    vm.memfd_noexec.
oom-killed: Linux ended the measuring process because memory ran out.
    Choose a smaller max_working_set, or raise the memory limit of this container or login.

# The computer
not-linux: Measuring needs Linux.
    Read the committed results here (`make site`), and measure on a Linux computer.
other-arch: The statement is about x86-64, and this computer is of another kind.
    Measure on an x86-64 computer, or read the reference machine's results.
arch-unsupported: The kernels are written for x86-64 and arm64.
    Measure on one of those, or with --engine numba if numba runs here.
no-cpuid: This computer has no readable CPUID, so nothing states the geometry of its TLB.
    Take it from the vendor's manual, or from the steps in the measurement.
no-geometry: CPUID does not state the TLB of this CPU, as under many hypervisors.
    Take it from the vendor's manual, or from the steps in the measurement.
one-level: Only one level of the TLB is known here, and this compares two.
    Read the reference machine's results; if a second level is hidden, `tlb geometry` may find it.
bare-metal: What this compares a guest with is a program on bare metal, and this computer is a
  guest.
    Measure on the bare metal of a host of this kind, where guests run on large pages of the host.
two-dimensions: A walk in a guest goes through the host's tables too, and says nothing of one that
  does not.
    Measure on bare metal.
splintered: The host backs this guest's large pages with base pages, so they miss the TLB as often
  as base pages and cannot serve as a control without misses.
    Measure on bare metal, or in a guest whose host has large pages for it.
single-node: This computer has one memory node, so there is no remote memory to measure.
    Measure on a computer with two or more NUMA nodes.
one-cpu: This comparison needs two CPUs at once, and this process may use one.
    Give it more (a wider mask with taskset, a larger machine type), and measure again.
no-sibling: This process may use no second hardware thread of the core that it measures on.
    Measure where a core has two threads and SMT is on; many virtual machines hide the second.
neighbour-gone: The program beside the measurement, or in turns with it, ended or did not run.
    Reduce the load, and check whether something ends its processes (memory limits, `dmesg`).
no-flush-count: This Linux kernel does not count the TLB flushes between its CPUs.
    Use the times: x86-64 has a line TLB in /proc/interrupts; arm64 broadcasts flushes in hardware.
node-refused: Memory could not be kept on the requested NUMA node.
    Name a CPU of another node with --cpu, widen cpuset.mems, stop what moves pages; in a container,
    allow mbind, set_mempolicy and move_pages (docker: --cap-add SYS_NICE).
no-namespaces: A process cannot have user, mount, pid and network namespaces of its own here.
    Install unshare (apt install util-linux) and run `sudo sysctl user.max_user_namespaces=10000`;
    in
    a container, allow the system calls unshare and mount.
cpu-gone: The CPU that was to measure is no longer available to this process.
    Bring it back (`echo 1 | sudo tee /sys/devices/system/cpu/cpuN/online`, or a wider mask with
    taskset) or name another with --cpu, and run the same command again: stored results remain.
no-five-levels: This CPU shows no page tables of five levels.
    Use a CPU that has them: Intel's servers since Ice Lake, AMD's since Zen 4; in a virtual
    machine,
    one whose hypervisor passes la57 on.
no-memory-group: No memory cgroup could be created and entered.
    Run as root on a host whose /sys/fs/cgroup is mounted from its root, booted without
    cgroup_disable=memory.
tmp-refused: The folder for temporary files cannot hold the file to be mapped.
    Free some space there, or name another folder in TMPDIR.
no-tracefs: The kernel's tracepoints cannot be read here.
    As root, mount them: `mount -t tracefs tracefs /sys/kernel/tracing`; in a container, do so on
    the
    host and pass the folder on.
no-symbols: Functions of Linux have no names in a profile here.
    As root, run `sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`.

prebuilt-damaged: The compiled kernels that `tlb` was installed with cannot be read.
    Install it again, or install a C compiler.
noexec: No program may run from the folder of binaries.
    Name another folder in TLB_BUILD, on a file system mounted without noexec.
cache-unsafe: Another user may write into the folder of binaries.
    Remove it or its write permissions, or name a folder of your own in TLB_BUILD.
machine-unknown: This computer cannot be identified, because nothing states its CPU or its memory.
    Mount /proc in this container without subset=pid.

# The measuring process
kernel-crashed: The measuring process crashed.
    Run the same point with `tlb measure` and report its output.
kernel-hung: The measuring process did not finish in time.
    Reduce the load on the computer; report the point if it hangs again.
kernel-garbage: The measuring process printed something that is not a record.
    Run the same point with `tlb measure` and report its output.
engine-lacks: This engine lacks something that another one has.
    Measure with --engine numba, or with --engine c, which needs a C compiler (Debian, Ubuntu: apt
    install gcc libc6-dev).
state-changed: A setting changed during the measurement (THP, NUMA balancing, governor, boost, SMT).
    Run the same command again; stored results belong to the old setting and count when it is back.
interrupted: The measurement was interrupted.
    Run the same command again: it continues where it stopped.
measuring-already: Another measurement is running on this computer.
    Wait until it ends; two at once would spoil both.
no-time: There was no time left for this.
    Run the same command again, or give it more minutes (`make book MINUTES=40`, `-p minutes=40`).

# Other people's programs
program-missing: The program could not be started.
    Name an executable file; put pipes, globs and redirections into a script.
program-endless: One run of the program did not end in the time for all of them.
    Give it less to do, or more time with --minutes; a server needs a --driver.
program-failed: The program failed.
    Correct its command; `tlb try --ignore-failure` compares its runs all the same.
prepare-failed: The command that prepares each run failed.
    Run it by hand until it ends with exit code 0; put pipes and redirections into a script.
program-killed: The program was ended by a signal.
    Run it by hand until it ends by itself; if memory ran out, give it less to do.
server-ended: The server ended before its driver.
    Run both by hand until they work together; the server must outlive its driver.
server-silent: The server was not ready in the time for all runs.
    Give the text that it prints when ready with --ready; without it, a listening socket counts.
no-valgrind: The simulation takes Valgrind with its libraries and headers.
    Install it (Debian, Ubuntu: apt install valgrind).
no-simulation: The program could not be simulated.
    Run it under `valgrind --tool=none` to see why; instructions that Valgrind does not know
    (AVX-512) end it.
program-short: The program ends too soon for a difference to be measured.
    Give it work for a second or more, or name a number that it prints with --metric.
no-metric: The program did not print a number above zero where --metric looks for one.
    Give a regular expression with one group around the number, within 64 KiB of either end of a
    stream.
pid-refused: This process has no memory that large pages could hold.
    Name the process that does the work, as `ps` lists it.
lever-absent: The lever had no effect in any of the program's processes.
    Use one that needs no cooperation, such as --lever collapse.
collapse-denied: This user may not move another process's memory to large pages.
    Run the same command as root or with the capabilities CAP_SYS_NICE and CAP_SYS_PTRACE, where a
    container's seccomp profile allows process_madvise; or use --lever advise.
no-pidfd: This process may not refer to a process by a file descriptor (pidfd_open).
    Use Linux 5.3 or newer; in a container, a seccomp profile that allows the call.
thp-disabled: Transparent huge pages are switched off for this process and what it starts (prctl).
    Start the command from a shell or service that does not set PR_SET_THP_DISABLE.
no-rollup: Memory cannot be seen here, because /proc has no smaps_rollup.
    Use Linux 4.14 or newer with CONFIG_PROC_PAGE_MONITOR; times are compared without it.
process-gone: There is no such process, or it ended before it was read.
    Name a running one (`pgrep NAME`; in a container, its number there), or use `tlb watch --
    COMMAND`.
process-denied: This user may not inspect that process.
    Run the same command as the owner of the process, or as root.
process-kernel: That process is a thread of the Linux kernel, which has no pages of its own.
    Name a program's process.
no-referenced: This Linux kernel does not report which pages a process touches.
    Use one with CONFIG_PROC_PAGE_MONITOR, as distributions have.
frames-denied: Only root may see which folios hold base pages.
    Run the same command as root, on the host for a container's process; if root is refused too, the
    kernel lacks /proc/kpageflags (CONFIG_PROC_PAGE_MONITOR).
not-seen: Linux does not report whether such pages are touched.
    Count their misses if there are counters, or use transparent pages while you watch.

# A fleet
no-book: This needs the book, which only a clone of the repository has.
    Clone it and run `make` there.
no-extra: This needs a package that the core of `tlb` does without.
    Install it with an extra, as in `pip install "every-load-is-two-loads[analysis]"`; `make` in a
    clone of the repository installs all.
no-fleet: The packages for a fleet are not installed.
    Run `make fleet` on this computer and on each that measures.
fleet-insecure: Without TLS anyone on the way can read the traffic and run programs on both ends.
    Use tls://, whose certificate is made on first use; on a trusted network, add --insecure.
fleet-certificates: There is no usable certificate of a fleet.
    Copy fleet.pem from the client, mode 0600, and name it with --certificate; the client makes a
    new
    one if it is removed.
fleet-garbage: A worker did not send a bundle, so nothing of it was kept.
    Run `tlb run` and `tlb bundle` on that computer and report what differs; then restart its
    worker.
fleet-twice: This computer is already present under another name.
    Name each computer once; copies of a disk image need their own /etc/machine-id
    (`systemd-machine-id-setup`).
fleet-gone: A worker sent nothing for as long as --patience allows.
    Start it again, then run the same command again: it continues where it stopped.

# The data
no-data: There are no results of this experiment for this machine yet.
    Measure them with `tlb run`, or read another machine's results.
no-atlas: This folder is no readable atlas.
    Build one with `tlb atlas build`; rebuild an atlas of another version from its inputs.
atlas-broken: A part of the atlas is missing or damaged.
    Build it again from its inputs.
bad-query: This question cannot be answered.
    Ask one SELECT of rows, machines, profile or verdicts (`DESCRIBE rows` lists columns); `tlb
    atlas
    ask` lists named questions.
nothing-common: The two have no point in common: no kernel with the same parameters.
    Measure the same chapters of both with one profile, as `make book` does.
other-kernels: The two were measured with different kernels or compilers.
    Measure one of them again with the checkout and the compiler of the other.
measured-differently: One of the two was measured with an earlier version of the kernels.
    Measure it again with the checkout of the other; its earlier rows remain.
too-few-points: There are too few results for this statement.
    Measure with a larger profile or more repeats.
sweep-short: The sweep ends below the sizes that this statement is about.
    Measure further, as with `-p max_working_set=16GiB`; it takes twice as much free memory.
reach-in-cache: The last-level cache holds more than the TLB reaches.
    Measure on a CPU whose TLB reaches past its caches, such as one with base pages of 64 KiB.
no-step: The data show no step where this statement looks for one.
    Compare with `tlb inspect`: this TLB may be larger than CPUID states, or the sweep may end
    before it.
control-elsewhere: The packed control lies in a nearer cache than the spread lines, so their
  difference is not the price of translation.
    Read the price at a larger or a smaller size.
out-of-reach: The chase would span more address space than its visits can name.
    Measure it with smaller pages (--pages 4k): as many of them leave a page table.
unstable: The repeats differ by more than 5 percent.
    Let `tlb doctor` look for noise, quiet the computer, and measure again.
bad-parameter: A parameter has a value that cannot be measured.
    Correct it; `papermill --help-notebook` and `tlb --help` list what each one takes.

# Bundles
no-bundle: There is no bundle that can be opened.
    Name a file that `tlb bundle` wrote, and no link to it; `tlb atlas build` also takes folders of
    machines.
bundle-private: The description of this computer contains words that may identify you.
    Read them, and allow those that identify nobody: `tlb bundle --allow WORD`, once for each.
bundle-unsafe: This file is not built as `tlb bundle` builds a bundle.
    Use the file that the command wrote, not one that was repacked or extended.
bundle-broken: The digests of this bundle do not match its content.
    Send it again, or pack it again where it was measured.
bundle-foreign: This bundle holds something that no bundle of this version holds.
    Update both checkouts to the same version, and pack it again where it was measured.
bundle-impossible: This bundle holds values that no kernel and no computer can print.
    Accept nothing of it, and ask its sender to measure again with an unchanged checkout.
bundle-known: data/ already holds everything in this bundle.
    Nothing was added; for rows of another machine, measure on that machine.
disk-full: The disk is full.
    Free some space or raise the quota, then run the same command again: nothing measured is lost.
disk-read-only: The folder to write to is read-only.
    Name a writable folder in TLB_DATA (results) or TLB_BUILD (binaries), and run the command again.
"""


def _parsed(table: str) -> dict[str, ReasonText]:
    texts: dict[str, list[str]] = {}
    for line in table.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            code, _, sentence = line.partition(": ")
            texts[code] = [sentence, ""]
        else:
            part = 1 if line.startswith("    ") else 0
            texts[code][part] = f"{texts[code][part]} {line.strip()}".strip()
    return {code: ReasonText(*text) for code, text in texts.items()}


REASONS = _parsed(_TABLE)


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
PAGE_REASONS = {"pool-empty", "thp-never", "mthp-off", "page-size-unsupported"}
PAGE_REASONS |= {"backing-partial", "memory-short"}


# Why what was measured does not decide a claim. Codes go into data/, as those of REASONS do.
UNDECIDED: dict[str, str] = {
    "few": "Too few processes were measured.",
    "crosses": "The interval crosses an end of the band.",
    "widened": "An interval that is one of several compared has to be wider than printed, and then "
    "crosses an end of the band.",
    "bistable": "The processes fall into two groups, and the interval over both crosses an end of "
    "the band.",
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
        super().__init__(code, detail)  # both, so that it survives pickling between processes
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
