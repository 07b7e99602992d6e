/* other_kvm: a KVM that is not here. Loaded before libc (LD_PRELOAD), so that guest_chase is run as it is.
 *
 * Each address that the guest's program will use is first translated by a software walker on the guest's own page tables, from CR3
 * down: what is not mapped, not the user's, or not in the memory slot is a triple fault. Then the program runs, as it is, on this
 * CPU, since its addresses are the host's. $OTHER_KVM has words, each NAME=NUMBER:
 *
 *   open, create_vm, tss, slot, vcpu, cpuid, set_cpuid, sregs, regs, mmap      the errno of that call
 *   api             the version of the interface
 *   group           the group of /dev/kvm
 *   pdpe1gb, la57   0: not in the CPUID of guests
 *   from            the first KVM_RUN (they count from 0) of which the rest is true:
 *   run             its errno; with times, of so many only
 *   exit, port      its exit reason; the port that is written to
 *   endless         1: it does not end, and an hour of the kernel's timer takes a second
 *   slow_ms         it takes so long more
 *   hops            so many hops are left out
 *   tsc             the guest's TSC counts so many times too fast
 *   code            with real=1, the computer's own KVM is asked; these bytes, last first, replace the first of the program */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static int kvm = -1, vm = -1, vcpu = -1, runs;
static struct kvm_run *run;
static struct kvm_userspace_memory_region slots[2];
static struct kvm_sregs special;
static struct kvm_regs registers;

static long word(const char *name, long if_absent)
{
    size_t n = strlen(name);
    for (const char *at = getenv("OTHER_KVM"); at && (at = strstr(at, name)); at += n)
        if (at[n] == '=' && (at == getenv("OTHER_KVM") || at[-1] == ' '))
            return strtol(at + n + 1, NULL, 0);
    return if_absent;
}

static int fails(const char *name)
{
    errno = (int)word(name, 0);
    return errno ? -1 : 0;
}

static int place_of(void) { return open("/dev/null", O_RDWR | O_CLOEXEC); }

/* ---- the guest --------------------------------------------------------------------------------------------- */

static char *in_slot(uint64_t physical)
{
    for (int i = 0; i < 2; i++)
        if (physical >= slots[i].guest_phys_addr && physical - slots[i].guest_phys_addr < slots[i].memory_size)
            return (char *)slots[i].userspace_addr + (physical - slots[i].guest_phys_addr);
    return NULL;
}

/* Where the host has the byte that the guest calls `address`; NULL for a fault. As the manuals' figures have it, a level a line. */
static char *translated(uint64_t address)
{
    static uint64_t page_of, host_of; /* a TLB of one entry: a chase in one page is no walk a hop */
    if (host_of && address >> 12 == page_of)
        return (char *)(host_of | (address & 0xFFF));
    uint64_t entry = special.cr3 & 0xFFFFFFFFFF000;
    int top = special.cr4 >> 12 & 1 ? 48 : 39;
    if ((int64_t)(address << (16 - (top - 39))) >> (16 - (top - 39)) != (int64_t)address)
        return NULL;
    for (int shift = top; shift >= 12; shift -= 9) {
        char *table = in_slot(entry & 0xFFFFFFFFFF000);
        if (!table)
            return NULL;
        entry = *(uint64_t *)(table + (address >> shift & 511) * 8);
        if ((entry & 5) != 5)
            return NULL;
        int large = entry >> 7 & 1;
        if (large && shift != 21 && shift != 30)
            return NULL;
        if (shift == 12 || large) {
            uint64_t offset = address & ((1ull << shift) - 1), frame = entry & 0xFFFFFFFFFF000;
            if (frame & ((1ull << shift) - 1))
                return NULL;
            char *host = in_slot(frame | offset);
            page_of = address >> 12;
            host_of = host ? (uint64_t)host & ~0xFFFull : 0;
            return host;
        }
    }
    return NULL;
}

/* Whether it could run at all: 64-bit mode at CPL 3, a program at rip, and `out` to port 16 allowed by the map of its TSS. */
static int could_run(void)
{
    char *task = translated(special.tr.base), *map = task && *(uint16_t *)(task + 102) >= 104 ? task + *(uint16_t *)(task + 102) : NULL;
    return (special.cr0 & 0x80000001) == 0x80000001 && special.cr4 & 32 && (special.efer & 0x500) == 0x500 && special.cs.l &&
           special.cs.dpl == 3 && special.ss.dpl == 3 && translated(registers.rip) && map && !map[2] && special.tr.limit >= 104 + 3;
}

static sigjmp_buf outside;
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    const unsigned char *at = NULL;
#if defined __x86_64__
    at = (const unsigned char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#endif
    siglongjmp(outside, at && at[0] == 0xE6 ? 256 + at[1] : 1); /* out %al, $port */
}

/* The guest's program itself, on this CPU, in a page where it may be executed: until `out`, which faults here. The port, or -1. */
static int port_of(const char *program, uint64_t *talk)
{
    static char *page;
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    if (!page)
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, program, 4096);
    sigaction(SIGSEGV, &fault, &before);
    int jumped = sigsetjmp(outside, 1);
#if defined __x86_64__
    if (!jumped)
        __asm__ volatile("mov %0, %%rbx; jmp *%1" : : "r"(talk), "r"(page) : "rbx", "memory");
#endif
    sigaction(SIGSEGV, &before, NULL);
    return jumped >= 256 ? jumped - 256 : -1;
}

/* What the guest does, on the structure that guest.h calls talk: start, blocks, singles, begin, end. 0 for a fault. */
static int guest_runs(void)
{
    uint64_t *talk = (uint64_t *)translated(registers.rbx), tsc = (uint64_t)word("tsc", 1);
    if (!talk || !could_run())
        return 0;
    uint64_t hops = talk[1] * 16 + talk[2] - (uint64_t)word("hops", 0), at = talk[0];
    for (uint64_t i = 0; i <= hops; i++) {
        char *host = translated(at);
        if (!host || (uint64_t)host != at) /* the program will use the address itself */
            return 0;
        at = *(uint64_t *)host;
    }
    talk[1] = hops / 16;
    talk[2] = hops % 16;
    int port = port_of(translated(registers.rip), talk);
    talk[3] *= tsc;
    talk[4] *= tsc;
    run->io.port = (uint16_t)port;
    return port >= 0;
}

static int run_once(void)
{
    int from = (int)word("from", 0), due = runs++ >= from;
    if (due && word("run", 0) && runs <= from + word("times", 1 << 30))
        return fails("run");
    if (due && word("endless", 0))
        return pause();
    struct timespec more = {word("slow_ms", 0) / 1000, word("slow_ms", 0) % 1000 * 1000000};
    if (due && word("slow_ms", 0))
        nanosleep(&more, NULL);
    run->exit_reason = guest_runs() ? KVM_EXIT_IO : KVM_EXIT_SHUTDOWN;
    run->io.direction = KVM_EXIT_IO_OUT;
    if (due)
        run->io.port = (uint16_t)word("port", run->io.port), run->exit_reason = (uint32_t)word("exit", run->exit_reason);
    return 0;
}

static int give_cpuid(struct kvm_cpuid2 *all)
{
    memset(all->entries, 0, 2 * sizeof *all->entries);
    all->nent = 2;
    all->entries[0].function = 7;
    all->entries[0].ecx = (uint32_t)word("la57", 1) << 16;
    all->entries[1].function = 0x80000001;
    all->entries[1].edx = (uint32_t)word("pdpe1gb", 1) << 26;
    return fails("cpuid");
}

static int give_slot(const struct kvm_userspace_memory_region *given)
{
    if (given->slot > 1 || given->userspace_addr % 4096 || given->guest_phys_addr % 4096 || given->memory_size % 4096)
        return errno = EINVAL, -1;
    slots[given->slot] = *given;
    return 0;
}

/* ---- the calls --------------------------------------------------------------------------------------------- */

static int answered(unsigned long request, void *argument)
{
    switch (request) {
    case KVM_GET_API_VERSION: return (int)word("api", 12);
    case KVM_CREATE_VM: return fails("create_vm") ? -1 : (vm = place_of());
    case KVM_SET_TSS_ADDR: return fails("tss");
    case KVM_SET_USER_MEMORY_REGION: return fails("slot") ? -1 : give_slot(argument);
    case KVM_CREATE_VCPU: return fails("vcpu") ? -1 : (vcpu = place_of());
    case KVM_GET_VCPU_MMAP_SIZE: return 4096;
    case KVM_GET_SUPPORTED_CPUID: return give_cpuid(argument);
    case KVM_SET_CPUID2: return fails("set_cpuid");
    case KVM_GET_SREGS: *(struct kvm_sregs *)argument = special; return 0;
    case KVM_SET_SREGS: special = *(struct kvm_sregs *)argument; return fails("sregs");
    case KVM_GET_REGS: *(struct kvm_regs *)argument = registers; return 0;
    case KVM_SET_REGS: registers = *(struct kvm_regs *)argument; return fails("regs");
    case KVM_RUN: return run_once();
    default: errno = ENOTTY; return -1;
    }
}

/* The computer's own KVM, with another program. */
static int replaced(int fd, unsigned long request, void *argument)
{
    struct kvm_regs r;
    long code = word("code", 0);
    if (request == KVM_RUN && code && runs++ >= word("from", 0) && !syscall(SYS_ioctl, fd, KVM_GET_REGS, &r))
        memcpy((char *)r.rip, &code, 2);
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (word("real", 0))
        return replaced(fd, request, argument);
    return fd >= 0 && (fd == kvm || fd == vm || fd == vcpu) ? answered(request, argument) : (int)syscall(SYS_ioctl, fd, request, argument);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    if (!strcmp(path, "/dev/kvm") && !word("real", 0))
        return fails("open") ? -1 : (kvm = place_of());
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    return next(path, flags, mode);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *(*next)(void *, size_t, int, int, int, off_t) = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    if (fd < 0 || fd != vcpu)
        return next(at, bytes, protection, flags, fd, offset);
    return fails("mmap") ? MAP_FAILED : (run = next(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

#define STATED(path, found) \
    int done = fstatat(AT_FDCWD, strcmp(path, "/dev/kvm") ? path : "/dev/null", found, 0); \
    if (!strcmp(path, "/dev/kvm")) \
        (found)->st_gid = (gid_t)word("group", 0); \
    return done
int stat(const char *path, struct stat *found) { STATED(path, found); }
int __xstat(int version, const char *path, struct stat *found) /* before glibc 2.33 */
{
    (void)version;
    STATED(path, found);
}

int setitimer(__itimer_which_t which, const struct itimerval *every, struct itimerval *before)
{
    struct itimerval soon = *every;
    if (word("endless", 0))
        soon.it_value = (struct timeval){every->it_value.tv_sec / 3600, every->it_value.tv_sec % 3600 * 277};
    return (int)syscall(SYS_setitimer, which, &soon, before);
}
