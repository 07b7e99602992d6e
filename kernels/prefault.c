/* prefault: the cost of making memory ready before its first use and of giving it back, in ns per base page.
 *
 * touch      write one word a base page, in address order
 * populate   madvise(MADV_POPULATE_WRITE). MAP_POPULATE acts inside mmap(), before any advice on the page size
 * memset     write every byte
 *
 * --threads N cuts the range into N parts of whole pages. The first batch, for which Linux or a hypervisor may have to find
 * the memory, is reported by itself. */
#include "placement.h"
#include "record.h"

#define MEASURES 2 /* 1 read smaps shortly before the memory was given back */

struct part {
    char *from;
    uint64_t bytes, stride, first;
    enum { TOUCH, POPULATE, MEMSET } mode;
    int error;
    uint64_t began_ns, ended_ns;
    pthread_t thread;
};

static pthread_barrier_t line_up; /* all threads exist before one begins */

/* [timed: touch] */
TIMED void touch(char *from, uint64_t bytes, uint64_t stride, uint64_t first)
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
    if (p->mode == TOUCH)
        touch(p->from, p->bytes, p->stride, p->first);
    else if (p->mode == MEMSET)
        memset(p->from, 1, p->bytes);
    else if (madvise(p->from, p->bytes, MADV_POPULATE_WRITE))
        p->error = errno;
    p->ended_ns = now_ns();
    return NULL;
}

static uint64_t due(int mode, uint64_t page) { return mode == TOUCH ? page + 1 : mode == MEMSET ? 0x0101010101010101ull : 0; }

/* Make the arena ready by all threads; return ns from the first one's start to the last one's end. cpu: one per thread, this
 * one's first. */
static uint64_t time_all(const struct config *c, const struct arena *a, int mode, struct part *part, const int *cpu, uint64_t threads)
{
    uint64_t pages = a->bytes / a->page, from = UINT64_MAX, to = 0;
    pthread_barrier_init(&line_up, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        uint64_t begin = pages * i / threads * a->page, end = pages * (i + 1) / threads * a->page;
        part[i] = (struct part){.from = a->base + begin, .bytes = end - begin, .stride = a->stride, .first = begin / a->stride,
                                .mode = mode};
        if (i)
            start_on(cpu[i], &part[i].thread, make_ready, &part[i]);
    }
    gate(c, "enable\n");
    make_ready(&part[0]);
    for (uint64_t i = 1; i < threads; i++)
        pthread_join(part[i].thread, NULL);
    gate(c, "disable\n");
    pthread_barrier_destroy(&line_up);
    for (uint64_t i = 0; i < threads; i++) {
        if (part[i].error == EINVAL)
            unavailable("linux-lacks", "MADV_POPULATE_WRITE, of Linux 5.14: %s; --mode touch and --mode memset do without", strerror(EINVAL));
        if (part[i].error)
            unavailable(pool_page ? "pool-empty" : "memory-short", "%" PRIu64 " bytes could not be faulted in: %s%s", part[i].bytes,
                        strerror(part[i].error), pool_page ? GONE : "");
        from = part[i].began_ns < from ? part[i].began_ns : from;
        to = part[i].ended_ns > to ? part[i].ended_ns : to;
    }
    return to - from;
}

static uint64_t give_back(const struct arena *a)
{
    uint64_t t0 = now_ns(), ns;
    int failed = munmap(a->base, a->bytes);
    ns = now_ns() - t0;
    if (failed || mmap(a->base, a->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        unavailable("memory-short", "%" PRIu64 " bytes could not be given back: %s", a->bytes, strerror(errno));
    return ns;
}

static uint64_t one_byte_resident(const struct config *c, const struct arena *room)
{
    struct arena one = *room;
    one.bytes = one.page;
    lay_arena(c, &one);
    *(volatile char *)one.base = 1;
    uint64_t resident = verify_backing(c, &one);
    give_back(&one);
    return resident;
}

static void choose_cpus(const struct cpus *allowed, int own, int *cpu, uint64_t threads)
{
    uint64_t n = 0;
    cpu[n++] = own;
    for (int i = allowed->count - 1; i >= 0 && n < threads; i--)
        if (allowed->number[i] != own)
            cpu[n++] = allowed->number[i];
    if (n < threads)
        bad_argument("--threads %" PRIu64 " takes as many CPUs; this process may use %" PRIu64 ".", threads, n);
}

static uint64_t check_words(const struct arena *a, int mode)
{
    uint64_t checksum = FNV_BASIS;
    for (uint64_t i = 0; i < a->bytes / a->stride; i++) {
        uint64_t word = *(volatile uint64_t *)(a->base + i * a->stride);
        must_be(word, due(mode, i));
        checksum = mix(checksum, word);
    }
    return checksum;
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "prefault", .orders = {"sequential"}, .layouts = {"spread"},
        .modes = {"touch", "populate", "memset"},
        .own = {{.name = "threads", .value = 1, .least = 1, .most = MOST_CPUS}}};
    struct config c = parse(&kernel, argc, argv);
    static struct part part[MOST_CPUS];
    static int cpu[MOST_CPUS];
    uint64_t threads = c.own[0].value;
    int mode = c.mode == kernel.modes[0] ? TOUCH : c.mode == kernel.modes[1] ? POPULATE : MEMSET;
    if (c.stride_pages > 1)
        bad_argument("prefault makes every page ready; it takes no --stride-pages.");
    c.cpu = pin(c.cpu);
    choose_cpus(&cpus_given, c.cpu, cpu, threads);
    struct arena a = reserve(&c);
    if (a.bytes / a.page < threads)
        bad_argument("--threads %" PRIu64 " takes as many pages of %s; there are %" PRIu64 ".", threads, c.pages->name, a.bytes / a.page);

    struct region r = {.batches = 0};
    struct config ungated = c; /* perf skips the first batch */
    ungated.control_fd = -1;
    double freed[MOST_BATCHES];
    uint64_t checksum = 0, pages = a.bytes / a.stride;
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c.region_ns && r.batches < MOST_BATCHES); first = 0) {
        lay_arena(&c, &a);
        uint64_t ns = time_all(first ? &ungated : &c, &a, mode, part, cpu, threads);
        verify_backing(&c, &a);
        checksum = check_words(&a, mode);
        use_memory(&a);
        uint64_t tables = page_table_bytes(), free_ns = give_back(&a);
        if (first) {
            also("first_ns_per_access", (double)ns / (double)pages);
            sample_clock(&r);
            start_counting(&c, &r);
            r.table_bytes = tables;
            continue;
        }
        freed[r.batches] = (double)free_ns / (double)pages;
        add_batch(&r, ns, pages);
    }
    getrusage(RUSAGE_SELF, &r.after);
    sample_clock(&r);
    also("free_ns_per_access", median(freed, r.batches));
    also("one_byte_resident_bytes", (double)one_byte_resident(&c, &a)); /* last, so that a pool that is too small reports all pages */
    r.checksum = checksum;
    return report(&c, &a, &r);
}
