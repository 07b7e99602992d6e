/* page_store: independent stores, or loads, of one line a page in a shuffled order, pass by pass.
 *
 * load, store              a byte of each line
 * load-clean, store-clean  the same after all pages' entries lost their accessed and dirty bits
 *
 * The processor sets these bits by writing to the page table. madvise(MADV_FREE) clears them while memory is not short. It
 * also reads what Linux knows of each page, as /proc/self/pagemap does, which is therefore read before the other modes'
 * passes; and it empties the TLB, so compare past the TLB's reach. */
#include "plan.h"

#define MEASURES 2 /* 1 read all of smaps before a pass, not pagemap */

/* [timed: load] */
TIMED uint64_t load_each(const char *base, const int64_t *index, uint64_t lines)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < lines; i++)
        sum += (unsigned char)base[index[i]];
    return sum;
}
/* [end] */

/* [timed: store] */
TIMED void store_each(char *base, const int64_t *index, uint64_t lines, char what)
{
    for (uint64_t i = 0; i < lines; i++)
        base[index[i]] = what;
}
/* [end] */

static uint64_t time_pass(const struct config *c, const struct arena *a, const int64_t *index, int stores, char what)
{
    uint64_t due = c->lines * (unsigned char)what, sum = due;
    gate(c, "enable\n");
    uint64_t t0 = now_ns();
    if (stores)
        store_each(a->base, index, c->lines, what);
    else
        sum = load_each(a->base, index, c->lines);
    uint64_t ns = now_ns() - t0;
    gate(c, "disable\n");
    must_be(stores ? load_each(a->base, index, c->lines) : sum, due);
    return ns;
}

/* Clear the bits, or only read what clearing reads. */
static void prepare_pass(const struct arena *a, int clean)
{
    static uint64_t entries[1 << 13];
    if (clean) {
        if (madvise(a->base, a->bytes, MADV_FREE))
            unavailable("linux-lacks", "madvise(MADV_FREE): %s", strerror(errno));
        return;
    }
    uint64_t left = a->bytes / a->page, at = (uint64_t)a->base / a->page;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (uint64_t n; left; left -= n, at += n) {
        n = left < 1 << 13 ? left : 1 << 13;
        if (pread(fd, entries, n * sizeof *entries, (off_t)(at * sizeof *entries)) != (ssize_t)(n * sizeof *entries))
            break;
    }
    int why = errno;
    close(fd);
    if (left)
        unavailable("linux-lacks", "/proc/self/pagemap: %s", strerror(why));
}

static void check_store(struct config *c)
{
    if (c->pages->source != FROM_BASE)
        bad_argument("page_store takes --pages 4k: of others MADV_FREE may give parts away.");
}

static struct region measure_store(const struct config *c, const struct arena *a)
{
    struct region r = {.batches = 0};
    struct config ungated = *c; /* perf skips the first pass */
    int stores = !strncmp(c->mode, "store", 5), clean = strstr(c->mode, "clean") != NULL;
    struct places places = places_in(c->packed, a->stride, a->page);
    int64_t *index = offsets_of(places, c->lines, 1, c->seed, &r.checksum);
    char what = 1;
    ungated.control_fd = -1;
    also_off_node(a, c->cpu);
    for (uint64_t i = 0; i < c->lines; i++)
        a->base[line_offset(&places, i)] = what;
    sample_clock(&r);
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c->region_ns && r.batches < MOST_BATCHES); first = 0) {
        prepare_pass(a, clean);
        what = (char)(stores ? what % 100 + 1 : what);
        enter_fifo(c);
        uint64_t cpu = cpu_ns(), ns = time_pass(first ? &ungated : c, a, index, stores, what);
        if (first)
            start_counting(c, &r);
        else
            add_batch(&r, ns, c->lines);
        r.cpu_ns += first ? 0 : cpu_ns() - cpu;
        leave_fifo();
    }
    getrusage(RUSAGE_SELF, &r.after);
    sample_clock(&r);
    r.table_bytes = page_table_bytes();
    store_each(a->base, index, c->lines, 1); /* leave no page of a reused mapping to be freed */
    return r;
}

static const struct kernel page_store = {
    .name = "page_store", .orders = {"cycle"}, .layouts = {"spread", "packed"},
    .modes = {"load", "store", "load-clean", "store-clean"}, .check = check_store, .measure = measure_store};

#ifndef SESSION
int main(int argc, char **argv) { return measure_alone(&page_store, argc, argv); }
#endif
