/* guest_chase: page_chase's cycle, followed in a guest: each step of the guest's page walk is itself translated by the host.
 *
 *   guest_chase --pages 4k --mode 2m --layout spread --lines 262144 [--levels 5]
 *
 * --pages   the host's: what the guest's memory is made of
 * --mode    the guest's: the size of the pages that its own page tables map (4k, 2m, 1g)
 *
 * The guest has one vCPU, no operating system and one program: the loop. It runs at CPL 3, with all pages the user's, and leaves
 * by `out`: a KVM without hardware to help it (nested, on shadow page tables) runs user code as it is and emulates each
 * instruction of the rest. Every byte has one virtual address, in the guest and out of it, so that the links that the host places
 * lead in the guest to the same lines. One region on the named pages holds all that the guest has: the lines, then its program,
 * what the two tell each other, and its page tables. So lines that fill their last page make it one page more.
 *
 * Timed inside, by the TSC around the loop, and outside, by the clock around the guest: the record has both. */
#ifndef __x86_64__
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "chase.h"
#include "guest.h"

#if defined __x86_64__
#include <grp.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>

#define TSS_ADDRESS 0xFFFBD000ul /* pages that an Intel KVM wants below 4 GiB and this guest does not: KVM's API documentation */
#define GUEST_BASE (4 * GIB)     /* guest-physical: above those, and aligned as the arena is: the host's huge pages fit the guest's */
#define RING 32                  /* lines of a chase that fits into every first-level cache */
#define EMULATED_CYCLES 50       /* a hit in a first-level cache costs 3 to 5 cycles, an emulated instruction thousands */
#define BATCH_NS 10000000.0      /* at least: going in and out takes 1 to 30 us, which are to be lost in it */

static struct {
    int vcpu, stats;
    struct kvm_run *run;
    volatile struct talk *talk;
    long limit_s;
} guest;

/* ---- the virtual machine --------------------------------------------------------------------------------- */

static int ask_kvm(int fd, unsigned long request, const char *name, void *argument)
{
    int answer = ioctl(fd, request, argument);
    if (answer < 0)
        unavailable("kvm-refused", "%s: %s", name, strerror(errno));
    return answer;
}
#define ASK(fd, request, argument) ask_kvm(fd, request, #request, (void *)(uintptr_t)(argument))

static int open_kvm(void)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), why = errno;
    struct stat node;
    struct group *owner = kvm >= 0 || stat("/dev/kvm", &node) ? NULL : getgrgid(node.st_gid);
    if (kvm < 0 && (why == EACCES || why == EPERM))
        unavailable("kvm-permission", "/dev/kvm: %s; its group is %s", strerror(why), owner ? owner->gr_name : "one without a name");
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

/* The vCPU is shown the CPU that KVM offers; page sizes and levels that it lacks are refused. */
static void set_cpuid(int kvm, const struct tables *t)
{
    static union { struct kvm_cpuid2 is; char bytes[sizeof(struct kvm_cpuid2) + 256 * sizeof(struct kvm_cpuid_entry2)]; } all = {.is.nent = 256};
    ASK(kvm, KVM_GET_SUPPORTED_CPUID, &all);
    if (t->leaf == 3 && !(leaf(&all.is, 0x80000001).edx >> 26 & 1))
        unavailable("page-size-unsupported", "KVM offers its guests no pages of 1g: pdpe1gb is not in their CPUID");
    if (t->levels == 5 && !(leaf(&all.is, 7).ecx >> 16 & 1))
        unavailable("no-la57", "la57 is not in the CPUID of KVM's guests");
    ASK(guest.vcpu, KVM_SET_CPUID2, &all);
}

/* 64-bit mode at CPL 3 from the first instruction on: no descriptor table is ever read. */
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
    ASK(guest.vcpu, KVM_SET_SREGS, &s);
    struct kvm_regs r = {.rip = (uint64_t)code, .rbx = (uint64_t)guest.talk, .rflags = IOPL_3 | 2};
    ASK(guest.vcpu, KVM_SET_REGS, &r);
}

/* A virtual machine without memory. First, since what it lacks is known before gigabytes are faulted in; the VM. */
static int open_vm(const struct tables *t)
{
    int kvm = open_kvm(), vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0) /* so too where the module loaded, and the firmware or the hypervisor below keeps virtualization to itself */
        unavailable(errno == ENODEV || errno == EOPNOTSUPP ? "no-kvm" : "kvm-refused", "KVM_CREATE_VM: %s", strerror(errno));
    ASK(vm, KVM_SET_TSS_ADDR, TSS_ADDRESS);
    guest.vcpu = ASK(vm, KVM_CREATE_VCPU, 0);
    set_cpuid(kvm, t);
    guest.run = mmap(NULL, (size_t)ASK(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, guest.vcpu, 0);
    if (guest.run == MAP_FAILED)
        unavailable("kvm-refused", "the vCPU's page could not be mapped: %s", strerror(errno));
#ifdef KVM_GET_STATS_FD
    guest.stats = ioctl(guest.vcpu, KVM_GET_STATS_FD, NULL);
#endif
    return vm;
}

/* Give the guest the arena for memory. `own` is what it has behind the lines: a page of program, a page of talk, the tables. */
static void give_memory(int vm, const struct arena *a, char *own, struct tables *t)
{
    struct kvm_userspace_memory_region slot = {0, 0, GUEST_BASE, a->bytes, (uint64_t)a->base};
    ASK(vm, KVM_SET_USER_MEMORY_REGION, &slot);
    t->memory = own + 2 * TABLE;
    t->physical = GUEST_BASE + (uint64_t)(t->memory - a->base);
    t->room = (uint64_t)(a->base + a->bytes - t->memory) / TABLE;
    if (!build_tables(t, (uint64_t)a->base, GUEST_BASE, (uint64_t)(t->memory - a->base)))
        unavailable("kernel-garbage", "the guest's page tables do not fit into %" PRIu64 " pages", t->room);
    guest.talk = (volatile struct talk *)(own + TABLE);
    memcpy(own, guest_code, (size_t)(guest_code_end - guest_code));
    set_registers(t, own);
}

/* ---- running it ------------------------------------------------------------------------------------------ */

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
    unavailable("guest-crashed", "%s: exit reason %" PRIu32 ", %s, at rip %#llx", why, exit, name, r.rip);
}

static volatile sig_atomic_t late;
static void on_alarm(int signal) { late = signal; }

/* Let the guest run until it says that it is done. The timer goes on ringing: its first signal may come just before KVM_RUN. */
static void run_guest(void)
{
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = guest.limit_s, .it_interval.tv_sec = 1}, NULL);
    while (ioctl(guest.vcpu, KVM_RUN, 0)) {
        if (late)
            unavailable("kernel-hung", "the vCPU did not leave the guest in %ld s", guest.limit_s);
        if (errno != EINTR && errno != EAGAIN)
            crashed(strerror(errno));
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    if (guest.run->exit_reason != KVM_EXIT_IO || guest.run->io.direction != KVM_EXIT_IO_OUT || guest.run->io.port != DONE_PORT)
        crashed("it left");
}

/* The chase from `start`, `hops` of them, in the guest: the ns outside. It must make its last hop at `last`. */
static uint64_t chase(void *last, uint64_t hops)
{
    guest.talk->start = *(void **)last;
    guest.talk->blocks = (hops - 1) / 16;
    guest.talk->singles = (hops - 1) % 16;
    guest.talk->last = guest.talk->next = NULL;
    uint64_t t0 = now_ns();
    run_guest();
    uint64_t ns = now_ns() - t0;
    must_be((uint64_t)guest.talk->last, (uint64_t)last);
    must_be((uint64_t)guest.talk->next, (uint64_t)guest.talk->start);
    return ns;
}

/* A vCPU that is emulated measures the emulator. Outside time, which no emulator can bend; the best of three. */
static void refuse_emulation(char *ring)
{
    enum { HOPS = 1 << 16 };
    void *last;
    double fastest = 1e18, ghz = core_ghz();
    place_cycle(ring, RING, 1, TABLE, 1, 1, &last);
    for (int i = 0; i < 3; i++) {
        double ns = (double)chase(last, HOPS) / HOPS;
        fastest = ns < fastest ? ns : fastest;
    }
    if (fastest * ghz > EMULATED_CYCLES)
        unavailable("guest-emulated", "a hop in the first-level cache costs %.0f cycles", fastest * ghz);
}

/* How often the vCPU has left the guest, by KVM's own count (Linux 5.14 and later); -1 where it is not told. */
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

/* measure() of the harness, with two clocks. */
static int measure_guest(const struct config *c, const struct arena *a, void *last, uint64_t checksum)
{
    struct region r = {0};
    uint64_t begin = now_ns(), rounds = 0, took;
    do {
        uint64_t more = rounds ? rounds : 1;
        chase(last, more * c->lines);
        rounds += more;
    } while ((took = now_ns() - begin) < 5000000);
    double round_ns = (double)took / (double)rounds, outside[MAX_BATCHES];
    verify_backing(c, a);
    for (int i = 0; i < 8; i++)
        r.ghz[i] = core_ghz();
    uint64_t prepare = now_ns() - c->started_ns, region = prepare > c->region_ns ? prepare : c->region_ns;
    int most = (int)((double)region / (round_ns > BATCH_NS ? round_ns : BATCH_NS));
    int batches = most < MIN_BATCHES ? MIN_BATCHES : most > 16 ? 16 : most;
    double batch_ns = (double)region / batches > BATCH_NS ? (double)region / batches : BATCH_NS;
    uint64_t hops = (batch_ns > round_ns ? (uint64_t)(batch_ns / round_ns + 0.5) : 1) * c->lines;
    chase(last, c->lines);
    double exits = exits_so_far();
    open_region(c, &r);
    uint64_t t0 = now_ns(), ticks = __builtin_ia32_rdtsc();
    while (r.batches < batches) {
        outside[r.batches] = (double)chase(last, hops) / (double)hops;
        add_batch(&r, guest.talk->end - guest.talk->begin, hops); /* ticks, until their rate is known */
    }
    double ghz = (double)(__builtin_ia32_rdtsc() - ticks) / (double)(now_ns() - t0);
    close_region(c, &r);
    exits = exits < 0 ? -1 : exits_so_far() - exits - batches;
    for (int i = 8; i < 16; i++)
        r.ghz[i] = core_ghz();
    verify_backing(c, a);
    r.elapsed_ns = (uint64_t)((double)r.elapsed_ns / ghz);
    for (int i = 0; i < batches; i++)
        r.batch[i] /= ghz;
    /* Time inside is part of the time outside; 1 %: far above what reading two clocks one after the other can be wrong by. */
    if (median(r.batch, batches) > 1.01 * median(outside, batches))
        unavailable("kernel-garbage", "the guest's TSC counts %.4g ns where %.4g passed: its rate is not the host's",
                    median(r.batch, batches), median(outside, batches));
    also("outside_ns_per_access", median(outside, batches));
    also("tsc_ghz", ghz);
    if (exits >= 0)
        also("vcpu_exits", exits);
    return report(c, a, &r, checksum);
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", NULL}, *const layouts[] = {"spread", "packed", NULL}, *const modes[] = {"4k", "2m", "1g", NULL};
    struct own own[] = {{.name = "levels", .value = 4, .least = 4, .most = 5}, {.name = NULL}};
    struct config c = parse_more(argc, argv, "guest_chase", orders, layouts, modes, own);
    struct tables t = {.levels = (int)own[0].value, .leaf = c.mode[0] == '4' ? 1 : c.mode[0] == '2' ? 2 : 3};
    int packed = c.layout[0] == 'p';
    if (c.stride_pages > 1 || c.pages[0] == '6')
        bad_argument("guest_chase takes --stride-pages 1 and --pages 4k, thp, 2m or 1g.");
    c.cpu = pin(c.cpu);
    uint64_t size = c.lines * (packed ? LINE : TABLE), lines_end = round_up(size, TABLE) + 2 * TABLE;
    int vm = open_vm(&t);
    struct config all = c; /* the arena that the harness knows is all that the guest has: lines, and its own */
    all.layout = layouts[1];
    all.lines = (lines_end + tables_for(lines_end, t.leaf, t.levels) * TABLE) / LINE;
    struct arena a = map_arena(&all);
    a.working_set = size;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL); /* no SA_RESTART: KVM_RUN is to be interrupted */
    guest.limit_s = 60 + (long)(50 * a.bytes / GIB); /* half of what the runner allows: experiments/measure.py */
    void *last;
    uint64_t checksum = place_cycle(a.base, c.lines, packed, a.stride, 1, c.seed, &last);
    give_memory(vm, &a, a.base + round_up(size, TABLE), &t);
    refuse_emulation((char *)guest.talk + TABLE / 2);
    also("first_touch_ns_per_access", (double)chase(last, c.lines) / (double)c.lines);
    also("guest_table_bytes", (double)(t.used * TABLE));
    also("guest_levels", t.levels);
    return measure_guest(&c, &a, last, checksum);
}
#else
int main(void) { unavailable("not-x86", "this is arm64"); }
#endif
