/* kvm.h: a virtual machine of one vCPU by Linux's KVM, run until its program reports the end. */
#ifndef KVM_H
#define KVM_H
#include "arena.h"
#include "guest.h"
#include <grp.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>

#define TSS_ADDRESS 0xFFFBD000ul /* pages below 4 GiB that KVM needs on Intel */

static struct {
    int vcpu, stats;
    struct kvm_run *run;
    volatile struct talk *talk;
    long limit_s;
} guest;

static int ask_kvm(int fd, unsigned long request, const char *name, void *argument)
{
    int answer = ioctl(fd, request, argument);
    if (answer < 0)
        unavailable("kernel-failed", "KVM refused %s: %s; end other virtual machines and free memory", name, strerror(errno));
    return answer;
}
#define ASK(fd, request, argument) ask_kvm(fd, request, #request, (void *)(uintptr_t)(argument))

static int open_kvm(void)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), why = errno;
    struct stat node;
    struct group *owner = kvm >= 0 || stat("/dev/kvm", &node) ? NULL : getgrgid(node.st_gid);
    if (kvm < 0 && (why == EACCES || why == EPERM))
        unavailable("not-permitted", "/dev/kvm: %s; join its group with sudo usermod -aG, or pass it to a container with --group-add: %s", strerror(why), owner ? owner->gr_name : "one without a name");
    if (kvm < 0)
        unavailable("no-kvm", "/dev/kvm: %s", strerror(why));
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
        unavailable("no-kvm", "/dev/kvm does not speak version %d of KVM's interface", KVM_API_VERSION);
    return kvm;
}

static struct kvm_cpuid_entry2 leaf(const struct kvm_cpuid2 *all, uint32_t function)
{
    for (uint32_t i = 0; i < all->nent; i++)
        if (all->entries[i].function == function && !all->entries[i].index)
            return all->entries[i];
    return (struct kvm_cpuid_entry2){0};
}

/* Refuse page sizes and levels that KVM does not offer. */
static void set_cpuid(int kvm, int leaf_level, int levels)
{
    static union {
        struct kvm_cpuid2 is;
        char bytes[sizeof(struct kvm_cpuid2) + 256 * sizeof(struct kvm_cpuid_entry2)];
    } all = {.is.nent = 256};
    ASK(kvm, KVM_GET_SUPPORTED_CPUID, &all);
    if (leaf_level == 3 && !(leaf(&all.is, 0x80000001).edx >> 26 & 1))
        unavailable("page-size-unsupported", "KVM offers its guests no pages of 1g: pdpe1gb is not in their CPUID");
    if (levels == 5 && !(leaf(&all.is, 7).ecx >> 16 & 1))
        unavailable("no-five-levels", "la57 is not in the CPUID of KVM's guests");
    ASK(guest.vcpu, KVM_SET_CPUID2, &all);
}

/* Start in 64-bit mode at CPL 3; no descriptor table is ever read. */
static void set_registers(const struct tables *t, const char *code)
{
    enum { PE = 1, MP = 2, NE = 32, WP = 1 << 16, PAE = 32, LA57 = 1 << 12, LME = 1 << 8, LMA = 1 << 10, IOPL_3 = 3 << 12 };
    struct kvm_segment data = {.limit = ~0u, .selector = 0x2B, .type = 3, .present = 1, .dpl = 3, .db = 1, .s = 1, .g = 1};
    struct kvm_segment program = {.limit = ~0u, .selector = 0x33, .type = 11, .present = 1, .dpl = 3, .s = 1, .l = 1, .g = 1};
    struct kvm_sregs s;
    ASK(guest.vcpu, KVM_GET_SREGS, &s);
    s.cs = program;
    s.ds = s.es = s.fs = s.gs = s.ss = data;
    guest.talk->task.map_offset = 104;
    s.tr = (struct kvm_segment){.base = (uint64_t)&guest.talk->task, .limit = 112, .selector = 0x40, .type = 11, .present = 1};
    s.cr0 = 1u << 31 | WP | NE | MP | PE;
    s.cr3 = t->physical;
    s.cr4 = PAE | (t->levels == 5 ? LA57 : 0);
    s.efer = LME | LMA;
    if (t->levels == 5 && ioctl(guest.vcpu, KVM_SET_SREGS, &s) && errno == EINVAL) /* a software MMU may offer la57 all the same */
        unavailable("no-five-levels", "KVM_SET_SREGS with la57: %s", strerror(errno));
    ASK(guest.vcpu, KVM_SET_SREGS, &s);
    struct kvm_regs r = {.rip = (uint64_t)code, .rbx = (uint64_t)guest.talk, .rflags = IOPL_3 | 2};
    ASK(guest.vcpu, KVM_SET_REGS, &r);
}

/* Create a virtual machine without memory, before gigabytes are faulted in for nothing. */
static int open_vm(int leaf_level, int levels)
{
    int kvm = open_kvm(), vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0) /* also if firmware or hypervisor reserves virtualization */
        unavailable(errno == ENODEV || errno == EOPNOTSUPP ? "no-kvm" : "kernel-failed", "KVM_CREATE_VM: %s", strerror(errno));
    ASK(vm, KVM_SET_TSS_ADDR, TSS_ADDRESS);
    guest.vcpu = ASK(vm, KVM_CREATE_VCPU, 0);
    set_cpuid(kvm, leaf_level, levels);
    guest.run = mmap(NULL, (size_t)ASK(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, guest.vcpu, 0);
    if (guest.run == MAP_FAILED)
        unavailable("kernel-failed", "the vCPU's page could not be mapped: %s", strerror(errno));
#ifdef KVM_GET_STATS_FD
    guest.stats = ioctl(guest.vcpu, KVM_GET_STATS_FD, NULL);
#endif
    return vm;
}

static void give_memory(int vm, uint32_t slot, uint64_t physical, char *memory, uint64_t bytes)
{
    struct kvm_userspace_memory_region region = {slot, 0, physical, bytes, (uint64_t)memory};
    ASK(vm, KVM_SET_USER_MEMORY_REGION, &region);
}

__attribute__((noreturn)) static void crashed(const char *why)
{
    static const char *const names[] = {
        [KVM_EXIT_EXCEPTION] = "an exception", [KVM_EXIT_HYPERCALL] = "a hypercall", [KVM_EXIT_DEBUG] = "a breakpoint",
        [KVM_EXIT_IO] = "another port", [KVM_EXIT_HLT] = "hlt", [KVM_EXIT_MMIO] = "memory that it has not",
        [KVM_EXIT_SHUTDOWN] = "a triple fault", [KVM_EXIT_FAIL_ENTRY] = "entry refused", [KVM_EXIT_INTERNAL_ERROR] = "internal error"};
    uint32_t exit = guest.run->exit_reason;
    const char *name = exit < sizeof names / sizeof *names && names[exit] ? names[exit] : "an exit that nothing here asks for";
    struct kvm_regs r = {0};
    ioctl(guest.vcpu, KVM_GET_REGS, &r);
    unavailable("kernel-failed", "the guest, %s: exit reason %" PRIu32 ", %s, at rip %#llx", why, exit, name, r.rip);
}

static volatile sig_atomic_t late;
static void on_alarm(int signal) { late = signal; }

/* The timer repeats because its first signal may come just before KVM_RUN. */
static void run_guest(void)
{
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = guest.limit_s, .it_interval.tv_sec = 1}, NULL);
    while (ioctl(guest.vcpu, KVM_RUN, 0)) {
        if (late)
            unavailable("kernel-failed", "the vCPU did not leave the guest in %ld s", guest.limit_s);
        if (errno != EINTR && errno != EAGAIN)
            crashed(strerror(errno));
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    if (guest.run->exit_reason != KVM_EXIT_IO || guest.run->io.direction != KVM_EXIT_IO_OUT || guest.run->io.port != DONE_PORT)
        crashed("it left");
}

static double exits_so_far(void)
{
#ifdef KVM_GET_STATS_FD
    struct kvm_stats_header head;
    union { struct kvm_stats_desc is; char bytes[256]; } one;
    uint64_t count;
    if (guest.stats < 0 || pread(guest.stats, &head, sizeof head, 0) != sizeof head)
        return -1;
    size_t size = sizeof one.is + head.name_size;
    for (uint32_t i = 0; i < head.num_desc && size <= sizeof one; i++) {
        if (pread(guest.stats, &one, size, head.desc_offset + (off_t)(i * size)) != (ssize_t)size)
            return -1;
        if (!strcmp(one.is.name, "exits"))
            return pread(guest.stats, &count, sizeof count, head.data_offset + (off_t)one.is.offset) == sizeof count ? (double)count : -1;
    }
#endif
    return -1;
}

/* Whether KVM splits host huge pages with executed code (its mitigation of ITLB multihit); -1 if unknown. */
static int splits_executed_pages(void)
{
    char said[8] = "";
    FILE *f = fopen("/sys/module/kvm/parameters/nx_huge_pages", "r");
    int told = f && fscanf(f, "%7s", said) == 1;
    if (f) fclose(f);
    return told ? said[0] == 'Y' : -1;
}
#endif
