/* harness.h: what every C kernel shares, so that a kernel's own file holds its accesses and little else.
 *
 *   arguments   parse_arguments()   exit 2 and one sentence for a bad one
 *   memory      map_arena()         the page size asked for, both ways, before the first touch
 *   proof       verify_backing()    from /proc/self/smaps; another page size is never measured
 *   region      measure()           warm up, calibrate, open perf's gate, time batches, close it, print one record
 *
 * A kernel supplies a `round`: one whole pass over its lines. All times are CLOCK_MONOTONIC_RAW nanoseconds.
 * What the machine lacks ends in exit 3 and {"reason": ..., "detail": ...} on stderr; codes: experiments/reasons.py. */
#ifndef HARNESS_H
#define HARNESS_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LINE 64ull                 /* bytes a cache line, on every x86-64 and almost every arm64 server core */
#define GIB (1ull << 30)
#define MAX_BATCHES 64
#define MIN_BATCHES 5              /* below this a median over batches says little */
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23     /* Linux 5.14 */
#endif

/* A number that one kernel alone takes: --name VALUE. An array of them ends with a name of NULL. The record holds those that
 * were given. */
struct own {
    const char *name;
    uint64_t value, least, most;
    int given;
};

struct config {
    const char *kernel, *pages, *layout, *order, *mode;
    struct own *own;
    uint64_t lines, stride_pages, seed, region_ns, started_ns;
    int cpu, control_fd, ack_fd;   /* perf's gate; -1 when nothing counts */
};

struct arena {
    char *base;
    uint64_t bytes, resident, physical;  /* of address space; that smaps must show as resident in it; of memory */
    uint64_t stride, working_set;        /* stride: stride_pages base pages of the machine, for every page size */
    uint64_t mthp_alloc, mthp_fallback;  /* the kernel's 64 kB fault counters before the first touch */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void bad_argument(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(2);
}

__attribute__((noreturn, format(printf, 2, 3))) static void unavailable(const char *reason, const char *format, ...)
{
    char detail[256];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    fprintf(stderr, "{\"reason\": \"%s\", \"detail\": \"%s\"}\n", reason, detail);
    exit(3);
}

/* ---- arguments ------------------------------------------------------------------------------------------ */

static uint64_t natural(const char *name, const char *text, uint64_t least, uint64_t most)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || !*text || text[strspn(text, "0123456789")] || value < least || value > most)
        bad_argument("--%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'.", name, least, most, text);
    return value;
}

static const char *one_of(const char *name, const char *text, const char *const *allowed)
{
    for (const char *const *a = allowed; *a; a++)
        if (!strcmp(text, *a))
            return *a;
    fprintf(stderr, "--%s takes", name);
    for (const char *const *a = allowed; *a; a++)
        fprintf(stderr, "%s %s", a == allowed ? "" : ",", *a);
    bad_argument("; not '%s'.", text);
}

/* orders, layouts, modes: what may be chosen, the first is the default. modes and own: NULL where a kernel has none. */
static struct config parse_more(int argc, char **argv, const char *kernel, const char *const *orders, const char *const *layouts,
                                const char *const *modes, struct own *own)
{
    static const char *const pages[] = {"4k", "64k", "thp", "2m", "1g", NULL};
    enum { SHARED = 9, OWN = 256, MOST_OWN = 6 }; /* OWN: past every character, so that it is no shared option's letter */
    static struct option options[SHARED + 1 + MOST_OWN + 1] = {
        {"pages", 1, 0, 'p'}, {"layout", 1, 0, 'l'}, {"order", 1, 0, 'o'},     {"lines", 1, 0, 'n'}, {"seed", 1, 0, 's'},
        {"cpu", 1, 0, 'c'},   {"region-ms", 1, 0, 'r'}, {"perf-fds", 1, 0, 'f'}, {"stride-pages", 1, 0, 'd'}};
    static struct own none[1];
    struct config c = {kernel, "4k", layouts[0], orders[0], modes ? modes[0] : "", own ? own : none, 4096, 1, 1, 60000000ull,
                       now_ns(), -1, -1, -1};
    int option, end, known = SHARED;
    if (modes)
        options[known++] = (struct option){"mode", 1, 0, 'm'};
    for (int i = 0; c.own[i].name && i < MOST_OWN; i++)
        options[known++] = (struct option){c.own[i].name, 1, 0, OWN + i};
    opterr = 0; /* one sentence, ours */
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'p': c.pages = one_of("pages", optarg, pages); break;
        case 'l': c.layout = one_of("layout", optarg, layouts); break;
        case 'o': c.order = one_of("order", optarg, orders); break;
        case 'm': c.mode = one_of("mode", optarg, modes); break;
        case 'n': c.lines = natural("lines", optarg, 1, 1ull << 32); break; /* next_random() draws 32 bits */
        case 'd': c.stride_pages = natural("stride-pages", optarg, 1, 1 << 20); break;
        case 's': c.seed = natural("seed", optarg, 0, INT64_MAX); break;
        case 'c': c.cpu = (int)natural("cpu", optarg, 0, CPU_SETSIZE - 1); break;
        case 'r': c.region_ns = natural("region-ms", optarg, 1, 60000) * 1000000ull; break;
        case 'f':
            if (sscanf(optarg, "%d,%d%n", &c.control_fd, &c.ack_fd, &end) != 2 || optarg[end])
                bad_argument("--perf-fds takes two file descriptors, CONTROL,ACK, not '%s'.", optarg);
            break;
        default:
            if (option < OWN)
                bad_argument("Usage: %s --pages P --layout L --order O --lines N [--stride-pages D] [--seed S] [--cpu C] [--region-ms R]", kernel);
            struct own *o = &c.own[option - OWN];
            o->value = natural(o->name, optarg, o->least, o->most);
            o->given = 1;
        }
    if (optind < argc)
        bad_argument("'%s' is not an option of %s.", argv[optind], kernel);
    if (c.stride_pages > 1 && (c.layout[0] == 'p' || c.pages[0] == '6' || c.pages[0] == 't'))
        bad_argument("--stride-pages above 1 takes --layout spread or alias and --pages 4k, 2m or 1g.");
    return c;
}

static inline struct config parse_arguments(int argc, char **argv, const char *kernel, const char *const *orders, const char *const *layouts)
{
    return parse_more(argc, argv, kernel, orders, layouts, NULL, NULL);
}

/* Pin to one allowed CPU: the one asked for, else the highest allowed (interrupts tend to favour the lowest); and die with
 * the parent, so that a runner killed with -9 leaves no chase behind it. */
static int pin(int cpu)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR)
        exit(1); /* the parent died before it could be asked for: nobody is left to read the record */
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        unavailable("kernel-crashed", "sched_getaffinity: %s", strerror(errno));
    if (cpu < 0)
        for (cpu = CPU_SETSIZE - 1; cpu > 0 && !CPU_ISSET(cpu, &allowed); cpu--) {}
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (!CPU_ISSET(cpu, &allowed) || sched_setaffinity(0, sizeof one, &one))
        bad_argument("CPU %d is not one this process may use.", cpu);
    return cpu;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static uint64_t sysfs_number(const char *path, uint64_t if_absent)
{
    unsigned long long value;
    FILE *f = fopen(path, "r");
    int got = f && fscanf(f, "%llu", &value) == 1;
    if (f) fclose(f);
    return got ? value : if_absent;
}

static int sysfs_selects(const char *path, const char *word) /* "always [madvise] never" selects madvise */
{
    char text[256] = "", bracketed[64];
    FILE *f = fopen(path, "r");
    if (f) { if (!fgets(text, sizeof text, f)) text[0] = 0; fclose(f); }
    snprintf(bracketed, sizeof bracketed, "[%s]", word);
    return strstr(text, bracketed) != NULL;
}

#define THP "/sys/kernel/mm/transparent_hugepage/"

static uint64_t page_bytes(const char *pages, uint64_t base_page)
{
    switch (pages[0]) {
    case '6': return 64 << 10;
    case 't': return sysfs_number(THP "hpage_pmd_size", 2 << 20);
    case '2': return 2 << 20;
    case '1': return GIB;
    default: return base_page;
    }
}

static const char *pool_path(uint64_t page, const char *file, char *path, size_t n)
{
    snprintf(path, n, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s", page >> 10, file);
    return path;
}

static uint64_t pool_page; /* for the signal handler: a hugetlb page that was promised but is gone, or over a cgroup's limit */
#define GONE "; the pool was emptied meanwhile, or the cgroup's hugetlb limit"
static void on_sigbus(int signal)
{
    (void)signal;
    static const char text[] = "{\"reason\": \"pool-empty\", \"detail\": \"a huge page could not be faulted in: SIGBUS" GONE "\"}\n";
    static const char other[] = "{\"reason\": \"memory-short\", \"detail\": \"a page could not be faulted in (SIGBUS)\"}\n";
    ssize_t ignored = pool_page ? write(2, text, sizeof text - 1) : write(2, other, sizeof other - 1);
    (void)ignored;
    _exit(3);
}

#define MTHP_STATS THP "hugepages-64kB/stats/"

static int mthp_on(int kb) /* "inherit" means what the setting for all sizes says */
{
    char path[128];
    snprintf(path, sizeof path, THP "hugepages-%dkB/enabled", kb);
    const char *decides = sysfs_selects(path, "inherit") ? THP "enabled" : path;
    return sysfs_selects(decides, "always") || sysfs_selects(decides, "madvise");
}

/* A 64 kB page forms only where no larger size fits, so cut the range into mappings of 1 MiB: neighbours whose flags
 * differ (here: left out of core dumps, or not) are never merged. Sizes between 64 kB and 1 MiB must be off. */
static void ask_for_64k(struct arena *a)
{
    static const int between[] = {128, 256, 512, 1024};
    if (access(THP "hugepages-64kB/enabled", F_OK))
        unavailable("page-size-unsupported", "this kernel has no transparent pages of 64 kB");
    for (unsigned i = 0; i < sizeof between / sizeof *between; i++)
        if (mthp_on(between[i]))
            unavailable("mthp-off", "hugepages-%dkB is enabled too and would be taken first", between[i]);
    if (!mthp_on(64))
        unavailable("mthp-off", "hugepages-64kB/enabled selects neither always nor madvise");
    if (madvise(a->base, a->bytes, MADV_HUGEPAGE))
        unavailable("mthp-off", "madvise: %s", strerror(errno));
    for (uint64_t at = 0; at < a->bytes; at += 2 << 20)
        if (madvise(a->base + at, a->bytes - at < (1 << 20) ? a->bytes - at : 1 << 20, MADV_DONTDUMP))
            unavailable("memory-short", "too many mappings for 64 kB pages: %s", strerror(errno));
    a->mthp_alloc = sysfs_number(MTHP_STATS "anon_fault_alloc", 0);
    a->mthp_fallback = sysfs_number(MTHP_STATS "anon_fault_fallback", 0);
}

/* Address space for the arena, not yet memory. Its base is aligned to 1 GiB whatever the page size, so that no two runs
 * differ in how they fall on the page table's levels or on a TLB's sets. */
static struct arena reserve(const struct config *c, uint64_t page)
{
    uint64_t base_page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct arena a = {.stride = base_page * c->stride_pages};
    if (c->pages[0] == '4' && base_page != 4096)
        unavailable("page-size-unsupported", "the base page here is %" PRIu64 " bytes", base_page);
    char path[128];
    if ((c->pages[0] == '2' || c->pages[0] == '1') && access(pool_path(page, "free_hugepages", path, sizeof path), F_OK))
        unavailable("page-size-unsupported", "the kernel has no pool of %s pages", c->pages);
    a.working_set = c->lines * (c->layout[0] == 'p' ? LINE : a.stride);
    a.bytes = round_up(a.working_set, page);
    char *room = mmap(NULL, a.bytes + GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        unavailable("memory-short", "no address space for %" PRIu64 " bytes: %s", a.bytes, strerror(errno));
    a.base = (char *)round_up((uint64_t)room, GIB);
    signal(SIGBUS, on_sigbus);
    return a;
}

/* Pages that stand further apart than one page are faulted in one by one: the room between them stays empty. */
static int fault_in(const struct config *c, const struct arena *a, uint64_t page)
{
    if (a->resident == a->bytes)
        return madvise(a->base, a->bytes, MADV_POPULATE_WRITE);
    for (uint64_t i = 0; i < c->lines; i++)
        if (madvise(a->base + i * a->stride, page, MADV_POPULATE_WRITE))
            return -1;
    return 0;
}

/* Pages that another mapping has reserved count as free and are not. With enough of them, it is a cgroup that refuses. */
__attribute__((noreturn)) static void pool_refuses(uint64_t needed, const char *pages, uint64_t page)
{
    char path[128];
    const char *why = strerror(errno);
    uint64_t have = sysfs_number(pool_path(page, "free_hugepages", path, sizeof path), 0);
    uint64_t reserved = sysfs_number(pool_path(page, "resv_hugepages", path, sizeof path), 0);
    uint64_t left = have > reserved ? have - reserved : 0;
    unavailable("pool-empty", "%" PRIu64 " pages of %s needed, %" PRIu64 " free: %s%s", needed, pages, left, why,
                left < needed ? "" : GONE);
}

/* Map room for all lines, on the page size asked for, at `a` as reserve() gave it; nothing of it is touched yet. */
static void lay_arena(const struct config *c, struct arena *at, uint64_t page)
{
    struct arena a = *at;
    a.resident = a.physical = c->layout[0] == 's' && a.stride > page ? c->lines * page : a.bytes;
    int huge = c->pages[0] == '2' ? MAP_HUGETLB | 21 << MAP_HUGE_SHIFT : c->pages[0] == '1' ? MAP_HUGETLB | 30 << MAP_HUGE_SHIFT : 0;
    if (huge) {
        pool_page = page;
        if (a.resident < a.bytes)
            huge |= MAP_NORESERVE; /* the pages between are never touched, so the pool need not hold them */
        if (mmap(a.base, a.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | huge, -1, 0) == MAP_FAILED)
            pool_refuses(a.resident / page, c->pages, page);
    } else {
        /* Pages far apart span more than there is memory; what lies between them is never touched. */
        int sparse = a.resident < a.bytes ? MAP_NORESERVE : 0;
        if (mmap(a.base, a.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | sparse, -1, 0) == MAP_FAILED)
            unavailable("memory-short", "%" PRIu64 " bytes could not be mapped: %s", a.bytes, strerror(errno));
        if (c->pages[0] == '6')
            ask_for_64k(&a);
        else if (c->pages[0] == 't' && (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 || sysfs_selects(THP "enabled", "never") || madvise(a.base, a.bytes, MADV_HUGEPAGE)))
            unavailable("thp-never", "the kernel refuses MADV_HUGEPAGE");
        else if (c->pages[0] == '4')
            madvise(a.base, a.bytes, MADV_NOHUGEPAGE); /* fails only where no THP exists; verify_backing() has the last word */
    }
    *at = a;
}

/* The same, faulted in. */
static inline struct arena map_arena(const struct config *c)
{
    uint64_t base_page = (uint64_t)sysconf(_SC_PAGESIZE), page = page_bytes(c->pages, base_page);
    struct arena a = reserve(c, page);
    lay_arena(c, &a, page);
    if (fault_in(c, &a, page)) { /* older kernel: one write a page, never zero (KSM merges zeros) */
        if (errno != EINVAL)
            unavailable(pool_page ? "pool-empty" : "memory-short", "%" PRIu64 " bytes could not be faulted in: %s%s", a.resident,
                        strerror(errno), pool_page ? GONE : "");
        for (uint64_t at = 0; at < a.bytes; at += a.resident < a.bytes ? a.stride : base_page)
            *(volatile char *)(a.base + at) = 1;
    }
    return a;
}

/* The page size that the arena is on, from /proc/self/smaps: every byte of it, or no measurement. Linux reports hugetlb in
 * KernelPageSize and THP in AnonHugePages; a 64 kB page shows in neither, so for it every one of our faults must be in the
 * kernel's allocation counter and none, of any process, in its fallback counter. Returns the bytes that are resident. */
static uint64_t verify_backing(const struct config *c, const struct arena *a)
{
    char line[512], field[32], digits[16];
    uint64_t base_page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long long from = 0, to = 0, kb, mapped = 0, thp = 0, odd = 0, expected = page_bytes(c->pages, base_page) >> 10;
    enum { SIZE = 1, ON_THP = 2, ALL = 3 };
    int inside = 0, end, stated = ALL; /* a mapping that does not state both proves nothing */
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f)
        unavailable("backing-partial", "/proc/self/smaps cannot be read: %s", strerror(errno));
    if (c->pages[0] == 't' || c->pages[0] == '6')
        expected = base_page >> 10;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && !strstr(line, " kB")) {
            odd += stated != ALL;
            inside = from < (uint64_t)a->base + a->bytes && to > (uint64_t)a->base;
            stated = inside ? 0 : ALL;
            continue;
        }
        end = 0; /* digits and not %llu, which takes "-8" for a very large number */
        if (!inside || sscanf(line, "%31[^:]: %15[0-9] kB%n", field, digits, &end) != 2 || !end)
            continue;
        kb = strtoull(digits, NULL, 10);
        if (!strcmp(field, "Rss") || !strcmp(field, "Private_Hugetlb") || !strcmp(field, "Shared_Hugetlb")) {
            mapped += kb;
        } else if (!strcmp(field, "KernelPageSize")) {
            odd += kb != expected;
            stated |= SIZE;
        } else if (!strcmp(field, "AnonHugePages") || !strcmp(field, "ShmemPmdMapped")) {
            thp += kb;
            stated |= field[0] == 'A' ? ON_THP : 0;
        }
    }
    odd += stated != ALL;
    fclose(f);
    unsigned long long whole = a->resident >> 10, want_thp = c->pages[0] == 't' ? whole : 0;
    if (odd || mapped < whole || thp != want_thp)
        unavailable("backing-partial", "asked for %llu kB on %s; smaps shows %llu kB resident, %llu kB on THP, %llu mappings of another size or none",
                    whole, c->pages, mapped, thp, odd);
    if (c->pages[0] == '6') {
        uint64_t got = sysfs_number(MTHP_STATS "anon_fault_alloc", 0) - a->mthp_alloc;
        uint64_t fell_back = sysfs_number(MTHP_STATS "anon_fault_fallback", 0) - a->mthp_fallback;
        if (got < a->bytes >> 16 || fell_back)
            unavailable("backing-partial", "%" PRIu64 " of %" PRIu64 " 64 kB pages allocated, %" PRIu64 " fell back", got,
                        a->bytes >> 16, fell_back);
    }
    return mapped << 10;
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014); its high half scaled to [0, below). The numba twins use the same, so that
 * equal seeds give equal orders and equal checksums. */
static inline uint64_t next_random(uint64_t *state, uint64_t below)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return ((z ^ (z >> 31)) >> 32) * below >> 32;
}

/* One FNV-1a-like step over a line's number: the order counts, not only the set. */
static uint64_t mix(uint64_t checksum, uint64_t line) { return (checksum ^ line) * 0x100000001B3ull; }

/* Core clock in GHz from a chain of dependent register additions, one cycle each on every core this book knows. (Not an
 * addition of a constant: Golden Cove and later fold those at rename.) No counter and no nominal frequency is involved. */
static double core_ghz(void)
{
    enum { STEPS = 200000, UNROLL = 16 };
    uint64_t a = 1, b = 3, begin = now_ns();
    for (int i = 0; i < STEPS / UNROLL; i++)
#if defined __x86_64__
#define ADD "add %1, %0\n\t"
        __asm__ volatile(ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD : "+r"(a) : "r"(b));
#elif defined __aarch64__
#define ADD "add %0, %0, %1\n\t"
        __asm__ volatile(ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD : "+r"(a) : "r"(b));
#else
#error "kernels measure x86-64 and arm64"
#endif
    return (double)STEPS / (double)(now_ns() - begin);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double copy[MAX_BATCHES];
    memcpy(copy, values, sizeof *copy * (size_t)n);
    qsort(copy, (size_t)n, sizeof *copy, ascending);
    return n % 2 ? copy[n / 2] : (copy[n / 2 - 1] + copy[n / 2]) / 2;
}

/* ---- the timed region ------------------------------------------------------------------------------------ */

/* Ask perf to start or stop counting and wait until it says it did: five bytes, "ack\n" and a NUL. */
static void gate(const struct config *c, const char *command)
{
    char ack[5];
    if (c->control_fd < 0)
        return;
    if (write(c->control_fd, command, strlen(command)) != (ssize_t)strlen(command))
        unavailable("perf-failed", "perf's control pipe: %s", strerror(errno));
    for (size_t got = 0; got < sizeof ack;) {
        struct pollfd ready = {.fd = c->ack_fd, .events = POLLIN};
        if (poll(&ready, 1, 5000) != 1) /* perf ignores what it does not understand, in silence */
            unavailable("perf-failed", "perf did not acknowledge in 5 s");
        ssize_t n = read(c->ack_fd, ack + got, sizeof ack - got);
        if (n <= 0)
            unavailable("perf-failed", "perf closed its acknowledgement pipe");
        got += (size_t)n;
    }
}

/* One whole pass, `rounds` times: `accesses` each. Must return a value that depends on every access. */
typedef uint64_t (*round_fn)(void *kernel_state, uint64_t rounds);

/* What every call of a round must return: where the chase began, the word that all lines hold. A compiler that left
 * accesses out cannot know it. */
static void must_be(uint64_t got, uint64_t expected)
{
    if (got != expected)
        unavailable("kernel-garbage", "the accesses ended in %" PRIx64 " where %" PRIx64 " was due: not all were made", got, expected);
}

/* What was timed, to be reported: `batches` times of the same work, in ns per access. */
struct region {
    double batch[MAX_BATCHES], ghz[16];
    uint64_t accesses, elapsed_ns, prepare_ns;
    int batches, migrations, cpu;
    struct rusage before, after;
};

static void open_region(const struct config *c, struct region *r)
{
    r->prepare_ns = now_ns() - c->started_ns;
    r->cpu = sched_getcpu();
    gate(c, "enable\n");
    getrusage(RUSAGE_SELF, &r->before);
}

static void add_batch(struct region *r, uint64_t ns, uint64_t accesses)
{
    r->batch[r->batches++] = (double)ns / (double)accesses;
    r->elapsed_ns += ns;
    r->accesses += accesses;
    r->migrations += sched_getcpu() != r->cpu;
}

static void close_region(const struct config *c, struct region *r)
{
    getrusage(RUSAGE_SELF, &r->after);
    gate(c, "disable\n");
}

static char also_text[1024]; /* what one kernel alone measures: "name": value, ... */
static inline void also(const char *name, double value)
{
    size_t used = strlen(also_text);
    snprintf(also_text + used, sizeof also_text - used, "%s\"%s\": %.12g", used ? ", " : "", name, value);
}

/* The record, one line of JSON; the exit status. */
static int report(const struct config *c, const struct arena *a, const struct region *r, uint64_t checksum)
{
    printf("{\"kernel\": \"%s\", \"engine\": \"c\", \"pages\": \"%s\", \"backing\": \"%s\", \"layout\": \"%s\", \"order\": \"%s\", "
           "\"lines\": %" PRIu64 ", \"stride_pages\": %" PRIu64 ", \"mode\": \"%s\", \"options\": [",
           c->kernel, c->pages, c->pages, c->layout, c->order, c->lines, c->stride_pages, c->mode);
    const char *comma = "";
    for (struct own *o = c->own; o->name; o++)
        if (o->given) {
            printf("%s[\"%s\", %" PRIu64 "]", comma, o->name, o->value);
            comma = ", ";
        }
    printf("], \"also\": {%s}, \"stride_bytes\": %" PRIu64 ", \"working_set_bytes\": %" PRIu64 ", \"arena_bytes\": %" PRIu64
           ", \"seed\": %" PRIu64 ", \"cpu\": %d, \"accesses\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 ".0, \"ns_per_access\": %.9g, ",
           also_text, a->stride, a->working_set, a->physical, c->seed, r->cpu, r->accesses, r->elapsed_ns, median(r->batch, r->batches));
    printf("\"batch_ns_per_access\": [");
    for (int i = 0; i < r->batches; i++)
        printf("%s%.6g", i ? ", " : "", r->batch[i]);
    printf("], \"core_ghz\": %.6g, \"prepare_ns\": %" PRIu64 ".0, \"minor_faults\": %ld, \"major_faults\": %ld, "
           "\"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"migrations\": %d, \"checksum\": \"%016" PRIx64 "\"}\n",
           median(r->ghz, 16), r->prepare_ns, r->after.ru_minflt - r->before.ru_minflt, r->after.ru_majflt - r->before.ru_majflt,
           r->after.ru_nvcsw - r->before.ru_nvcsw, r->after.ru_nivcsw - r->before.ru_nivcsw, r->migrations, checksum);
    return fflush(stdout) ? 1 : 0;
}

/* Warm up by whole rounds, choose the batches, time them behind the gate, verify again, print the record.
 * The region lasts at least region_ns and at least as long as it took to get here: time spent preparing (faulting
 * 4 GiB in takes seconds) buys measurement, not waiting. Not so for alias, which surveys in half a minute. */
static inline int measure(const struct config *c, const struct arena *a, round_fn round, void *state, uint64_t accesses_a_round,
                   uint64_t expected, uint64_t checksum)
{
    struct region r = {0};
    uint64_t begin = now_ns(), rounds = 0, took;
    do { /* 5 ms: long enough for a core to leave its idle state and for the timing of a round to mean something */
        uint64_t more = rounds ? rounds : 1;
        must_be(round(state, more), expected);
        rounds += more;
    } while ((took = now_ns() - begin) < 5000000);
    double round_ns = (double)took / (double)rounds;
    verify_backing(c, a);
    for (int i = 0; i < 8; i++)
        r.ghz[i] = core_ghz();
    uint64_t prepare = now_ns() - c->started_ns;
    uint64_t region = prepare > c->region_ns && c->layout[0] != 'a' ? prepare : c->region_ns;
    int batches = (int)((double)region / round_ns);
    batches = batches < MIN_BATCHES ? MIN_BATCHES : batches > 16 ? 16 : batches;
    uint64_t rounds_a_batch = (uint64_t)((double)region / round_ns / batches + 0.5);
    if (!rounds_a_batch)
        rounds_a_batch = 1;
    must_be(round(state, 1), expected); /* what stood between (smaps, the clock's chain) is out of the caches again */
    open_region(c, &r);
    while (r.batches < batches) {
        uint64_t t0 = now_ns();
        uint64_t end = round(state, rounds_a_batch);
        uint64_t ns = now_ns() - t0;
        must_be(end, expected);
        add_batch(&r, ns, rounds_a_batch * accesses_a_round);
    }
    close_region(c, &r);
    for (int i = 8; i < 16; i++)
        r.ghz[i] = core_ghz();
    verify_backing(c, a);
    return report(c, a, &r, checksum);
}

/* Where line i of a layout stands. Spread: one line a page; which of the page's lines, so that lines fall evenly on the
 * cache sets? Page number mod 64 is even in L1 but, on physically contiguous huge pages, puts all lines on 64 sets of a
 * larger cache (bits 12 and up repeat bits 6 to 11), and set conflicts would pass for TLB misses. So each block of 64 pages
 * takes all 64 lines once, turned by a multiplicative (golden ratio) hash of the block. */
static inline uint64_t line_offset(uint64_t line, int packed, uint64_t stride)
{
    uint64_t turned = line + ((line >> 6) * 0x9E3779B97F4A7C15ull >> 58);
    return packed ? line * LINE : line * stride + turned % 64 * LINE;
}
#endif
