/* collapse_chase: a chase before, while and after Linux makes large pages of base pages (MADV_COLLAPSE) for another thread.
 *
 * none     the other thread spins for as long: the control
 * other    collapses as much other memory of the program: the effect on the chase's CPU alone
 * address  the chase's own memory, large page by large page in address order
 * random   the same in random order */
#include "beside.h"
#include "chase.h"
#include "record.h"

#define MEASURES 1

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define SLICE 64            /* hops: a few microseconds, in which a flush shows */
#define SLICES (1ull << 18) /* over a second; then a phase ends */
#define LEAST 64

struct job {
    char *memory;
    uint64_t bytes, large, *order, began_ns, ended_ns, lasts_ns; /* order: of large pages, or NULL: spin for lasts_ns */
    int error;
    volatile int wanted, done;
};

/* [timed: join] */
static void join_all(struct job *j)
{
    for (uint64_t i = 0; i < j->bytes / j->large && !j->error; i++)
        if (madvise(j->memory + j->order[i] * j->large, j->large, MADV_COLLAPSE))
            j->error = errno;
}
/* [end] */

static void work(void *of)
{
    struct job *j = of;
    if (!j->wanted || j->done)
        return;
    j->began_ns = now_ns();
    if (j->order)
        join_all(j);
    while (!j->order && now_ns() - j->began_ns < j->lasts_ns)
        ;
    j->ended_ns = now_ns();
    __atomic_store_n(&j->done, 1, __ATOMIC_RELEASE);
}

static uint64_t *order_of(uint64_t pages, int shuffled, uint64_t seed)
{
    uint32_t *number = numbers_below(pages, shuffled, &seed);
    uint64_t *order = room_for(pages, sizeof *order, "pages' numbers");
    for (uint64_t i = 0; i < pages; i++)
        order[i] = number[i];
    free_room(number);
    return order;
}

static uint64_t chase_on(const struct work *w, double *slice, uint64_t least_ns, volatile int *until)
{
    uint64_t n = 0, ns = 0;
    while (n < SLICES && (n < LEAST || (until ? !__atomic_load_n(until, __ATOMIC_ACQUIRE) : ns < least_ns))) {
        uint64_t took = run_checked(w, 1);
        slice[n++] = (double)took / SLICE;
        ns += took;
    }
    return n;
}

static void also_phase(const char *phase, double *slice, uint64_t n)
{
    char name[32];
    qsort(slice, n, sizeof *slice, ascending);
    if (!is_resolved(slice[n / 2] * SLICE))
        clock_is_coarse(slice[n / 2] * SLICE);
    snprintf(name, sizeof name, "%s_p50_ns", phase);
    also(name, slice[n / 2]);
    snprintf(name, sizeof name, "%s_p999_ns", phase);
    also(name, slice[(uint64_t)(0.999 * (double)(n - 1) + 0.5)]);
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "collapse_chase", .orders = {"cycle"}, .layouts = {"spread"},
        .modes = {"none", "other", "address", "random"}};
    struct config c = parse(&kernel, argc, argv);
    static double slice[3][SLICES];
    uint64_t n[3], turns = 0, large = sysfs_number(THP "hpage_pmd_size", 0), bytes = c.lines * base_page();
    int none = c.mode == kernel.modes[0], elsewhere = c.mode == kernel.modes[1];
    if (c.pages->source != FROM_BASE || c.stride_pages != 1)
        bad_argument("collapse_chase takes --pages 4k and no --stride-pages.");
    must_make_large_pages(&c, bytes);
    c.cpu = pin(c.cpu);
    count_nothing(&c);
    struct other beside = {.turn = work, .cpu = -1};
    for (int i = 0; i < cpus_given.count; i++)
        beside.cpu = cpus_given.number[i] != c.cpu ? cpus_given.number[i] : beside.cpu;
    if (beside.cpu < 0)
        unavailable("one-cpu", "a chase and a thread beside it asked for");
    turn_large_pages_off();
    struct arena a = map_arena(&c), more = elsewhere ? map_arena(&c) : a;
    verify_backing(&c, &a);
    verify_backing(&c, &more);
    struct job job = {.memory = more.base, .bytes = bytes, .large = large, .lasts_ns = c.region_ns,
                      .order = none ? NULL : order_of(bytes / large, c.mode == kernel.modes[3], c.seed)};
    struct chase chase = place_chase(a.base, c.lines, places_in(0, a.stride, a.page), 1, c.seed);
    chase.round = SLICE;
    struct work chasing = {.state = &chase, .run = follow_rounds, .due = due_after_rounds, .accesses = SLICE, .warm = c.lines / SLICE + 1};
    beside.of = &job;
    start_beside(&beside, 1);
    await_turns(&beside, 1, &turns);

    struct region r = {.batches = 0};
    if (!none)
        let_collapse(&more);
    warm_up(&c, &chasing);
    sample_clock(&r);
    run_checked(&chasing, SETTLE);
    n[0] = chase_on(&chasing, slice[0], c.region_ns, NULL);
    open_region(&c, &r);
    job.wanted = 1;
    n[1] = chase_on(&chasing, slice[1], 0, &job.done);
    close_region(&c, &r);
    for (uint64_t begin = now_ns(); !__atomic_load_n(&job.done, __ATOMIC_ACQUIRE);)
        if (now_ns() - begin > PATIENCE_NS)
            unavailable("kernel-failed", "the thread on CPU %d does not end", beside.cpu);
    run_checked(&chasing, c.lines / SLICE + 1);
    n[2] = chase_on(&chasing, slice[2], c.region_ns, NULL);
    if (job.error)
        unavailable(no_collapse(job.error), "MADV_COLLAPSE: %s", strerror(job.error));
    struct stated after = read_smaps(&a, base_page() >> 10, 0);
    must_be(after.thp << 10, none || elsewhere ? 0 : bytes);
    sample_clock(&r);
    for (uint64_t i = 0, from = 0; i < MOST_BATCHES; i++, from = i * n[1] / MOST_BATCHES) {
        double ns = 0;
        uint64_t to = (i + 1) * n[1] / MOST_BATCHES;
        for (uint64_t k = from; k < to; k++)
            ns += slice[1][k] * SLICE;
        add_batch(&r, (uint64_t)ns, (to - from) * SLICE);
    }
    also_phase("before", slice[0], n[0]);
    also_phase("during", slice[1], n[1]);
    also_phase("after", slice[2], n[2]);
    also("joined_ns", (double)(job.ended_ns - job.began_ns));
    also("joined_bytes", none ? 0 : (double)bytes);
    also("huge_bytes_after", (double)(after.thp << 10));
    r.checksum = checksum_from(chase.visit, c.lines, 0, c.lines);
    return report(&c, &a, &r);
}
