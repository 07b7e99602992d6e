/* page_store: independent stores, or loads, of one line a page in a shuffled order, pass by pass.
 *
 *   page_store --lines 65536 --mode store-clean
 *
 * load, store              a byte of each line
 * load-clean, store-clean  the same, where before each pass the entries of all pages lost their accessed and dirty bits
 *
 * A store is translated as a load is. What either may need besides: the processor keeps two bits in a page's entry, accessed,
 * which the walk of the first load or store sets, and dirty, which the first store sets; and to set one it writes to the page
 * table. A program's pages are faulted in by a store, so both are set from the beginning, until the kernel clears them: to see
 * which pages are in use, when it has written a file's page out, after a fork. Here madvise(MADV_FREE) clears them, and leaves
 * pages and bytes where they are while memory is not short. On its way it reads what the kernel knows of each page, as smaps
 * does, which is read before the passes that keep their bits; and it empties the TLB, so what is compared is compared past the
 * TLB's reach. The accessed bit is then load-clean less load, and the dirty bit store-clean less load-clean. */
#include "nodes.h"
#include "placement.h"
#include "region.h"

/* [timed: load] */
__attribute__((noinline)) static uint64_t load_each(const char *base, const int64_t *index, uint64_t lines)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < lines; i++)
        sum += (unsigned char)base[index[i]];
    return sum;
}
/* [end] */

/* [timed: store] */
__attribute__((noinline)) static void store_each(char *base, const int64_t *index, uint64_t lines, char what)
{
    for (uint64_t i = 0; i < lines; i++)
        base[index[i]] = what;
}
/* [end] */

/* ns of a pass, behind perf's gate. Stores are read again, and loads have been added up. */
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

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", NULL}, *const layouts[] = {"spread", "packed", NULL};
    static const char *const modes[] = {"load", "store", "load-clean", "store-clean", NULL};
    struct config c = parse_more(argc, argv, "page_store", orders, layouts, modes, NULL);
    if (c.pages->source != FROM_BASE)
        bad_argument("page_store takes --pages 4k: of others MADV_FREE may give parts away.");
    int stores = c.mode == modes[1] || c.mode == modes[3], clean = c.mode == modes[2] || c.mode == modes[3];
    c.cpu = pin(c.cpu);
    struct arena a = map_arena(&c);
    also_off_node(&a, c.cpu);
    uint64_t checksum;
    int64_t *index = offsets_of(places_in(c.packed, a.stride, a.page), c.lines, 1, c.seed, &checksum);
    char what = 1;
    store_each(a.base, index, c.lines, what);
    struct region r = {.batches = 0};
    struct config ungated = c; /* the first pass is not perf's */
    ungated.control_fd = -1;
    sample_clock(&r);
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c.region_ns && r.batches < MOST_BATCHES); first = 0) {
        if (!clean)
            verify_backing(&c, &a);
        else if (madvise(a.base, a.bytes, MADV_FREE))
            unavailable("not-supported", "madvise(MADV_FREE): %s", strerror(errno));
        what = (char)(stores ? what % 100 + 1 : what);
        uint64_t ns = time_pass(first ? &ungated : &c, &a, index, stores, what);
        if (first)
            start_counting(&c, &r);
        else
            add_batch(&r, ns, c.lines);
    }
    getrusage(RUSAGE_SELF, &r.after);
    sample_clock(&r);
    r.table_bytes = page_table_bytes();
    verify_backing(&c, &a);
    return report(&c, &a, &r, checksum, NULL, NULL);
}
