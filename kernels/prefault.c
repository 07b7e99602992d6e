/* prefault: what it costs to make memory ready before its first use, and to give it back, in ns per base page.
 *
 *   prefault --pages thp --lines 65536 --mode touch --threads 2
 *
 * touch      write one word a base page, in address order: what a program does
 * populate   madvise(MADV_POPULATE_WRITE): the kernel faults the range in by itself, as MAP_POPULATE has it do. That flag
 *            acts inside mmap(), before any advice on the page size can be given, so it is of no use here.
 * memset     write every byte: what everybody does. The kernel has zeroed each page already, so this writes all twice.
 *
 * A fresh page costs a fault and its zeroing. The fault is paid once a page, so pages 512 times as large have 512 times
 * fewer; the zeroing is paid by the byte, whatever the page. --threads N cuts the range into N parts of whole pages.
 *
 * Each batch is a fresh mapping of the same addresses. The first one ever, for which the kernel or a hypervisor may have to
 * find the memory, is told apart: "first_ns_per_access". "free_ns_per_access" is munmap(). "one_byte_resident_bytes" is what
 * one byte written to an untouched page takes: the price of a large page for a small object. */
#include "harness.h"
#include <pthread.h>

#define MOST_THREADS 256

struct part {
    char *from;
    uint64_t bytes, stride, first; /* first: the number of its first base page */
    char mode;                     /* its first letter */
    int error;                     /* errno of what failed */
    uint64_t began_ns, ended_ns;
    pthread_t thread;
};

static pthread_barrier_t line_up; /* all threads exist before one begins */

/* [timed: touch] */
__attribute__((noinline)) static void touch(char *from, uint64_t bytes, uint64_t stride, uint64_t first)
{
    for (uint64_t at = 0; at < bytes; at += stride)
        *(volatile uint64_t *)(from + at) = ++first;
}
/* [end] */

static void *make_ready(void *given)
{
    struct part *p = given;
    pthread_barrier_wait(&line_up);
    p->began_ns = now_ns();
    if (p->mode == 't')
        touch(p->from, p->bytes, p->stride, p->first);
    else if (p->mode == 'm')
        memset(p->from, 1, p->bytes);
    else if (madvise(p->from, p->bytes, MADV_POPULATE_WRITE))
        p->error = errno;
    p->ended_ns = now_ns();
    return NULL;
}

/* What the first word of a base page holds afterwards. */
static uint64_t due(char mode, uint64_t page) { return mode == 't' ? page + 1 : mode == 'm' ? 0x0101010101010101ull : 0; }

/* Make the arena ready by all threads at once; ns from the first one's beginning to the last one's end, behind perf's gate.
 * cpu: one for each thread; the first is this one's. */
static uint64_t time_all(const struct config *c, const struct arena *a, uint64_t page, const int *cpu, uint64_t threads)
{
    struct part part[MOST_THREADS];
    uint64_t pages = a->bytes / page, from = UINT64_MAX, to = 0;
    pthread_barrier_init(&line_up, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        uint64_t begin = pages * i / threads * page, end = pages * (i + 1) / threads * page;
        part[i] = (struct part){.from = a->base + begin, .bytes = end - begin, .stride = a->stride, .first = begin / a->stride, .mode = c->mode[0]};
        if (!i)
            continue;
        pthread_attr_t on;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu[i], &one);
        pthread_attr_init(&on);
        pthread_attr_setaffinity_np(&on, sizeof one, &one);
        int error = pthread_create(&part[i].thread, &on, make_ready, &part[i]);
        if (error)
            unavailable("memory-short", "thread %" PRIu64 " could not be started: %s", i, strerror(error));
        pthread_attr_destroy(&on);
    }
    gate(c, "enable\n");
    make_ready(&part[0]);
    for (uint64_t i = 1; i < threads; i++)
        pthread_join(part[i].thread, NULL);
    gate(c, "disable\n");
    pthread_barrier_destroy(&line_up);
    for (uint64_t i = 0; i < threads; i++) {
        if (part[i].error == EINVAL)
            unavailable("no-populate", "MADV_POPULATE_WRITE: %s", strerror(EINVAL));
        if (part[i].error)
            unavailable(pool_page ? "pool-empty" : "memory-short", "%" PRIu64 " bytes could not be faulted in: %s%s", part[i].bytes,
                        strerror(part[i].error), pool_page ? GONE : "");
        from = part[i].began_ns < from ? part[i].began_ns : from;
        to = part[i].ended_ns > to ? part[i].ended_ns : to;
    }
    return to - from;
}

/* munmap() takes so many ns. The addresses are reserved again at once: nothing else may come to lie between two batches. */
static uint64_t give_back(const struct arena *a)
{
    uint64_t t0 = now_ns(), ns;
    int failed = munmap(a->base, a->bytes);
    ns = now_ns() - t0;
    if (failed || mmap(a->base, a->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        unavailable("memory-short", "%" PRIu64 " bytes could not be given back: %s", a->bytes, strerror(errno));
    return ns;
}

static uint64_t one_byte_resident(const struct config *c, const struct arena *room, uint64_t page)
{
    struct arena one = *room;
    one.bytes = page;
    lay_arena(c, &one, page);
    *(volatile char *)one.base = 1;
    uint64_t resident = verify_backing(c, &one);
    give_back(&one);
    return resident;
}

/* Room for `threads` CPUs, ours first, then the highest of those that this process was given. */
static void choose_cpus(const cpu_set_t *allowed, int own, int *cpu, uint64_t threads)
{
    uint64_t n = 0;
    cpu[n++] = own;
    for (int i = CPU_SETSIZE - 1; i >= 0 && n < threads; i--)
        if (i != own && CPU_ISSET(i, allowed))
            cpu[n++] = i;
    if (n < threads)
        bad_argument("--threads %" PRIu64 " takes as many CPUs; this process may use %" PRIu64 ".", threads, n);
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"sequential", NULL}, *const layouts[] = {"spread", NULL}, *const modes[] = {"touch", "populate", "memset", NULL};
    struct own own[] = {{.name = "threads", .value = 1, .least = 1, .most = MOST_THREADS}, {.name = NULL}};
    struct config c = parse_more(argc, argv, "prefault", orders, layouts, modes, own);
    uint64_t threads = own[0].value, page = page_bytes(c.pages, (uint64_t)sysconf(_SC_PAGESIZE));
    int cpu[MOST_THREADS];
    cpu_set_t allowed;
    if (c.stride_pages > 1)
        bad_argument("prefault makes every page ready; it takes no --stride-pages.");
    if (sched_getaffinity(0, sizeof allowed, &allowed)) /* before pin() narrows it to one */
        unavailable("kernel-crashed", "sched_getaffinity: %s", strerror(errno));
    c.cpu = pin(c.cpu);
    choose_cpus(&allowed, c.cpu, cpu, threads);
    struct arena a = reserve(&c, page);
    if (a.bytes / page < threads)
        bad_argument("--threads %" PRIu64 " takes as many pages of %s; there are %" PRIu64 ".", threads, c.pages, a.bytes / page);

    struct region r = {0};
    struct config ungated = c; /* the first batch is not perf's */
    ungated.control_fd = -1;
    double freed[MAX_BATCHES];
    uint64_t checksum = 0, pages = a.bytes / a.stride;
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c.region_ns && r.batches < 16); first = 0) {
        lay_arena(&c, &a, page);
        uint64_t ns = time_all(first ? &ungated : &c, &a, page, cpu, threads);
        verify_backing(&c, &a);
        checksum = 0xCBF29CE484222325ull;
        for (uint64_t i = 0; i < pages; i++) {
            uint64_t word = *(volatile uint64_t *)(a.base + i * a.stride);
            must_be(word, due(c.mode[0], i));
            checksum = mix(checksum, word);
        }
        uint64_t free_ns = give_back(&a);
        if (first) {
            also("first_ns_per_access", (double)ns / (double)pages);
            for (int i = 0; i < 8; i++)
                r.ghz[i] = core_ghz();
            r.prepare_ns = now_ns() - c.started_ns;
            r.cpu = sched_getcpu();
            getrusage(RUSAGE_SELF, &r.before);
            continue;
        }
        freed[r.batches] = (double)free_ns / (double)pages;
        add_batch(&r, ns, pages);
    }
    getrusage(RUSAGE_SELF, &r.after);
    for (int i = 8; i < 16; i++)
        r.ghz[i] = core_ghz();
    also("free_ns_per_access", median(freed, r.batches));
    also("one_byte_resident_bytes", (double)one_byte_resident(&c, &a, page)); /* last: a pool that is too small is to say what all takes */
    return report(&c, &a, &r, checksum);
}
