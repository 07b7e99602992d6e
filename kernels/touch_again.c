/* touch_again: memory that was used, given back, left alone and touched again, each touch by the clock.
 *
 * A guest's Linux keeps freed memory unless its host takes it (balloon, free page reporting): the next touch is then a fault
 * in the guest and, inside it, one in the host. One pass and no median: memory touched twice has lost the state to be
 * measured. */
#include "touches.h"
#include "record.h"

#define MEASURES 1

static uint64_t pass(struct touches *t, struct tally *tally, double *ghz)
{
    map_touches(t);
    uint64_t ns = now_ns(), ticks = stamp();
    touch_each(t, tally);
    ticks = stamp() - ticks;
    *ghz = ticks_per_ns(ticks, now_ns() - ns);
    return (uint64_t)((double)ticks / *ghz);
}

int main(int argc, char **argv)
{
    static struct tally tally;
    static const struct kernel kernel = {.name = "touch_again", .orders = {"sequential", "cycle"}, .layouts = {"spread"},
        .own = {{.name = "idle_ms", .value = 0, .least = 0, .most = 60000}}};
    struct config c = parse(&kernel, argc, argv);
    if (c.stride_pages > 1)
        bad_argument("touch_again touches every page; it takes no --stride-pages.");
    c.cpu = pin(c.cpu);
    struct touches t = touches_of(&c);
    struct region r = {.batches = 0};
    double ghz;
    sample_clock(&r);
    start_tally(&tally);
    pass(&t, &tally, &ghz);
    also("first_ns_per_access", mean_ns(&tally, ghz));
    also("first_p50_ns", (quantile(&tally, 0.5) - tally.clock) / ghz);
    also("first_p99_ns", (quantile(&tally, 0.99) - tally.clock) / ghz);
    check_touched(&t);
    unmap_touches(&t);
    struct timespec wait = {(time_t)(c.own[0].value / 1000), (long)(c.own[0].value % 1000) * 1000000l};
    while (nanosleep(&wait, &wait) && errno == EINTR)
        continue;
    forget_hops(&tally);
    open_region(&c, &r);
    add_batch(&r, pass(&t, &tally, &ghz), t.n);
    close_region(&c, &r);
    r.table_bytes = page_table_bytes();
    check_touched(&t);
    sample_clock(&r);
    also_hops(&tally, ghz);
    merge_bins(&tally);
    r.checksum = checksum_from(t.order, t.n, 0, t.n);
    r.more = print_histogram, r.of = &(struct histogram){&tally, ghz};
    return report(&c, &t.arena, &r);
}
