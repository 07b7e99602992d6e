/* shootdown: the cost of taking pages away from a program that also runs on other CPUs, in ns a system call.
 *
 * unmap     munmap() of --lines pages
 * protect   mprotect() to read-only
 * discard   madvise(MADV_DONTNEED)
 * collapse  madvise(MADV_COLLAPSE), which moves pages into a large one (--lines: whole large pages)
 *
 * The CPU interrupts all others that run the program, which flush their TLBs, and waits. --threads N spin on their own CPUs;
 * --apart 1 makes them processes, the control. A guest may defer the flush of a CPU that its hypervisor does not run. */
#include "beside.h"
#include "placement.h"
#include "record.h"

#define MEASURES 2 /* 1 read smaps just before the calls */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define CALLS 64  /* a batch of about 100 us */
#define FEWER 16  /* of more pages than MANY, which have to be made ready */
#define MANY 64

enum mode { UNMAP, PROTECT, DISCARD, COLLAPSE };
static struct other other[MOST_CPUS];
static uint64_t turns[MOST_CPUS];

/* [timed: calls] */
static int call_all(enum mode mode, char *from, uint64_t apart, uint64_t bytes, uint64_t calls)
{
    int failed = 0;
    for (uint64_t i = 0; i < calls && !failed; i++, from += apart)
        switch (mode) {
        case UNMAP: failed = munmap(from, bytes); break;
        case PROTECT: failed = mprotect(from, bytes, PROT_READ); break;
        case DISCARD: failed = madvise(from, bytes, MADV_DONTNEED); break;
        case COLLAPSE: failed = madvise(from, bytes, MADV_COLLAPSE); break;
        }
    return failed;
}
/* [end] */

static void choose_others(const struct cpus *allowed, int own, uint64_t threads, int apart)
{
    uint64_t n = 0;
    for (int i = allowed->count - 1; i >= 0 && n < threads; i--)
        if (allowed->number[i] != own)
            other[n++] = (struct other){.cpu = allowed->number[i], .apart = apart};
    if (n < threads)
        unavailable("one-cpu", "%" PRIu64 " others asked for, and this process may use %d CPUs", threads, allowed->count);
}

static void check_effect(enum mode mode, const struct arena *a, uint64_t taken, uint64_t *huge_bytes)
{
    struct stated s = read_smaps(a, base_page() >> 10, 0);
    *huge_bytes = s.thp << 10;
    must_be(s.mapped, (a->bytes - (mode == UNMAP || mode == DISCARD ? taken : 0)) >> 10);
    if (mode == COLLAPSE)
        must_be(s.thp, a->bytes >> 10);
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "shootdown", .orders = {"sequential"}, .layouts = {"spread"},
        .modes = {"unmap", "protect", "discard", "collapse"},
        .own = {{.name = "threads", .value = 0, .least = 0, .most = MOST_CPUS},
                {.name = "apart", .value = 0, .least = 0, .most = 1}}};
    struct config c = parse(&kernel, argc, argv);
    enum mode mode = UNMAP;
    while (strcmp(kernel.modes[mode], c.mode))
        mode++;
    uint64_t threads = c.own[0].value, bytes = c.lines * base_page();
    if (c.stride_pages != 1 || (c.pages->source != FROM_BASE && c.pages->source != FROM_THP))
        bad_argument("shootdown takes --pages 4k or thp and no --stride-pages.");
    if (mode == COLLAPSE && c.pages->source != FROM_BASE)
        bad_argument("--mode collapse takes --pages 4k: others are large already.");
    if (mode == COLLAPSE)
        must_make_large_pages(&c, bytes);
    c.cpu = pin(c.cpu);
    choose_others(&cpus_given, c.cpu, threads, c.own[1].value);
    if (threads)
        count_nothing(&c);
    uint64_t calls = c.lines <= MANY && c.pages->source == FROM_BASE ? CALLS : FEWER;
    uint64_t apart = round_up(bytes, page_bytes(c.pages)), asked = 0, seen = 0, huge = 0, checksum = FNV_BASIS;
    struct arena a = reserve_bytes(&c, calls * apart);
    a.working_set = bytes;
    start_beside(other, threads);
    await_turns(other, threads, turns);

    struct region r = {.batches = 0};
    int counted = 1;
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c.region_ns && r.batches < MOST_BATCHES); first = 0) {
        if (mode == COLLAPSE)
            turn_large_pages_off();
        lay_arena(&c, &a);
        fault_in(&a);
        verify_backing(&c, &a);
        use_memory(&a);
        if (mode == COLLAPSE)
            let_collapse(&a);
        if (first) {
            sample_clock(&r);
            start_counting(&c, &r);
            r.table_bytes = page_table_bytes();
        }
        uint64_t before = flushes_at(other, threads);
        if (!first)
            gate(&c, "enable\n");
        uint64_t begin = now_ns();
        int failed = call_all(mode, a.base, apart, bytes, calls), error = errno;
        uint64_t ns = now_ns() - begin;
        if (!first)
            gate(&c, "disable\n");
        uint64_t after = flushes_at(other, threads);
        if (failed)
            unavailable(mode == COLLAPSE ? no_collapse(error) : "memory-short", "%s: %s", c.mode, strerror(error));
        check_effect(mode, &a, calls * bytes, &huge);
        await_turns(other, threads, turns);
        if (first)
            continue;
        counted = counted && after != UINT64_MAX;
        asked += c.own[1].value ? 0 : calls * threads;
        seen += counted ? after - before : 0;
        checksum = mix(checksum, calls * c.lines);
        add_batch(&r, ns, calls);
    }
    getrusage(RUSAGE_SELF, &r.after);
    stop_beside(other, threads);
    sample_clock(&r);
    if (c.pages->source == FROM_BASE && mode != COLLAPSE) /* elsewhere Linux splits or moves pages and flushes more often */
        also("flushes_asked", (double)asked);
    if (counted && threads)
        also("flushes_seen", (double)seen);
    if (c.pages->source == FROM_THP)
        also("huge_bytes_after", (double)huge);
    r.checksum = checksum;
    return report(&c, &a, &r);
}
