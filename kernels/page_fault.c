/* page_fault: the cost of touching pages for the first time, in ns a page (Linux enters several for one fault).
 *
 * file        pages of a file in memory, mapped shared and read
 * anonymous   fresh memory, written
 * grouped     the same in a memory cgroup of its own, alternating by batches with the hierarchy's root
 *
 * Timed is the published loop: map, touch every page, unmap; less as many rounds that touch nothing. --populate 1 enters all
 * before the first touch; --written N writes N pages of the file at once, because a file system keeps what is written page by
 * page in single pages. */
#include "touches.h"
#include "group.h"
#include "record.h"
#include <sys/wait.h>

#define MEASURES 1

enum { ROUNDS = 5 };
#define CLOCKED (1ull << 15) /* touches by the clock, at least: a thousandth of them are tens */

static uint64_t time_rounds(struct touches *t, uint64_t rounds, int touched)
{
    uint64_t t0 = now_ns();
    int populate = t->populate;
    t->populate = populate && touched;
    while (rounds--) {
        map_touches(t);
        if (touched)
            touch_all(t);
        unmap_touches(t);
    }
    t0 = now_ns() - t0;
    hold_place(t);
    t->populate = populate;
    return t0;
}

struct times { double full[MIN_BATCHES], empty[MIN_BATCHES]; int n; };

static void time_batch(struct touches *t, uint64_t rounds, struct times *of)
{
    of->full[of->n] = (double)time_rounds(t, rounds, 1);
    of->empty[of->n++] = (double)time_rounds(t, rounds, 0);
}

/* Less the median batch without touches: an interrupt takes as long as thousands of those. */
static double touches_ns(const struct times *of, int batch)
{
    double ns = of->full[batch] - median(of->empty, of->n);
    if (ns <= 0)
        unavailable("unstable", "a batch with touches took no longer than those without");
    return ns;
}

static uint64_t ticks_of_fork(void)
{
    uint64_t ticks = stamp();
    pid_t child = fork();
    if (!child)
        _exit(0);
    ticks = stamp() - ticks;
    if (child < 0 || waitpid(child, NULL, 0) < 0)
        unavailable("memory-short", "a process could not be forked: %s", strerror(errno));
    return ticks;
}

/* Report the median time to change all pages of the mapping, copy its table for a child and unmap it, filled and untouched;
 * and the bytes of page tables. */
static void also_walks(struct touches *t)
{
    static const char *const names[2][3] = {{"protect_empty_ns_per_access", "fork_empty_ns_per_access", "unmap_empty_ns_per_access"},
                                            {"protect_ns_per_access", "fork_ns_per_access", "unmap_ns_per_access"}};
    double ns[3][ROUNDS], ticks = (double)t->n * ticks_per_ns(0, 0); /* that are a ns a page */
    for (int filled = 0; filled < 2; filled++) {
        uint64_t before = page_table_bytes();
        for (int i = 0; i < ROUNDS; i++) {
            map_touches(t);
            if (filled)
                touch_all(t);
            if (!i)
                also(filled ? "filled_table_bytes" : "untouched_table_bytes", (double)(page_table_bytes() - before));
            ns[1][i] = (double)ticks_of_fork() / ticks;
            uint64_t t0 = stamp();
            if (mprotect(t->arena.base, t->arena.bytes, PROT_NONE))
                unavailable("memory-short", "mprotect: %s", strerror(errno));
            uint64_t t1 = stamp();
            unmap_touches(t);
            ns[0][i] = (double)(t1 - t0) / ticks;
            ns[2][i] = (double)(stamp() - t1) / ticks;
            hold_place(t);
        }
        for (int k = 0; k < 3; k++)
            also(names[filled][k], median(ns[k], ROUNDS));
    }
}

/* Touch each page by the clock, and again, as "later". Both wait for the clock's reading; a loop of later touches overlaps. */
static double also_each(struct touches *t, struct tally *tally)
{
    static struct tally later;
    start_tally(tally);
    start_tally(&later);
    uint64_t ticks = stamp(), ns = now_ns();
    while (tally->hops < CLOCKED) {
        map_touches(t);
        touch_each(t, tally);
        touch_each(t, &later);
        check_touched(t);
        unmap_touches(t);
        hold_place(t);
    }
    double ghz = ticks_per_ns(stamp() - ticks, now_ns() - ns);
    also_hops(tally, ghz);
    merge_bins(tally);
    also("later_mean_ns", mean_ns(&later, ghz));
    return ghz;
}

int main(int argc, char **argv)
{
    static struct tally tally;
    static const struct kernel kernel = {.name = "page_fault", .orders = {"cycle", "sequential"}, .layouts = {"spread"},
        .modes = {"file", "anonymous", "grouped"},
        .own = {{.name = "populate", .value = 0, .least = 0, .most = 1},
                {.name = "written", .value = 1, .least = 1, .most = 1 << 16}}};
    struct config c = parse(&kernel, argc, argv);
    int in_file = c.mode == kernel.modes[0], grouped = c.mode == kernel.modes[2];
    if (c.stride_pages > 1 || c.lines < 16 || (in_file && c.pages->source != FROM_BASE) || (c.own[1].given && !in_file))
        bad_argument("page_fault takes 16 --lines or more and no --stride-pages; in a file --pages 4k, and there alone --written.");
    c.cpu = pin(c.cpu);
    if (in_file)
        must_have_room(c.lines);
    struct group group;
    struct touches t = touches_of(&c);
    if (t.arena.page > t.n * t.arena.stride)
        bad_argument("--lines %" PRIu64 " are less than a page of %s.", c.lines, c.pages->name);
    t.populate = (int)c.own[0].value;
    t.file = in_file ? make_file(&t, c.own[1].value) : -1;
    if (grouped) {
        group = find_group();
        make_group(&group);
        leave_group(&group); /* a process that ends is in no group */
    }
    time_rounds(&t, 1, 1); /* memory that a hypervisor has to find first is touch_again's subject */
    uint64_t round_ns = 1 + time_rounds(&t, 3, 1) / 3, rounds = 1 + c.region_ns / MIN_BATCHES / round_ns;
    struct region r = {.batches = 0};
    struct times inside = {.n = 0}, outside = {.n = 0};
    sample_clock(&r);
    open_region(&c, &r);
    while (inside.n < MIN_BATCHES) {
        if (grouped) {
            time_batch(&t, rounds, &outside);
            enter_group(&group);
        }
        time_batch(&t, rounds, &inside);
        if (grouped)
            leave_group(&group);
    }
    close_region(&c, &r);
    sample_clock(&r);
    while (r.batches < MIN_BATCHES)
        add_batch(&r, (uint64_t)touches_ns(&inside, r.batches), rounds * t.n);
    also("faults_per_access", (double)(r.after.ru_minflt - r.before.ru_minflt) / (double)r.accesses / (grouped ? 2 : 1));
    also("map_ns_per_access", median(inside.empty, inside.n) / (double)(rounds * t.n));
    if (grouped) {
        double ns[MIN_BATCHES];
        for (int i = 0; i < outside.n; i++)
            ns[i] = touches_ns(&outside, i) / (double)(rounds * t.n);
        also("outside_ns_per_access", median(ns, outside.n));
        rmdir(group.own);
    }
    also_walks(&t);
    double ghz = also_each(&t, &tally);
    map_touches(&t);
    touch_all(&t);
    r.table_bytes = page_table_bytes();
    check_touched(&t);
    r.checksum = checksum_from(t.order, t.n, 0, t.n);
    r.more = print_histogram, r.of = &(struct histogram){&tally, ghz};
    return report(&c, &t.arena, &r);
}
