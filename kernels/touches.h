/* touches.h: a mapping that is made, touched page by page for the first time, and taken away.
 *
 * The first touch of a page that has no entry in the table is a fault: the kernel walks the table that the CPU has just walked, adds
 * what tables are missing, finds or zeroes a page and enters it. A file's pages that lie in memory are found and not zeroed, and Linux
 * enters neighbours along with the page that was asked for (fault-around), so fewer touches fault than there are pages. */
#ifndef TOUCHES_H
#define TOUCHES_H
#include "hops.h"
#include "placement.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#define MERGED 8              /* bins of hops.h that the record has as one: 16 an octave, of which hundreds take few hundred numbers */

struct touches {
    struct arena arena;
    const struct config *c;
    uint64_t n;
    uint32_t *order; /* of the pages */
    int file, populate; /* file: its descriptor, -1 for anonymous memory */
};

/* Room for the mapping, and the order of the touches: shuffled for "cycle", ascending otherwise. */
static inline struct touches touches_of(const struct config *c)
{
    struct touches t = {.arena = reserve(c), .c = c, .n = c->lines, .file = -1};
    uint64_t seed = c->seed;
    t.order = numbers_below(t.n, !strcmp(c->order, "cycle"), &seed);
    return t;
}

/* A file of as many pages in the folder for temporary files, each page with its number and one; without a name, so that nothing is
 * left behind whatever happens. at_once: pages that one write has. What is written at once a file system may keep as one piece of memory,
 * whose pages are entered faster. */
static inline int make_file(const struct touches *t, uint64_t at_once)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/tlb-page-fault-XXXXXX", folder && *folder ? folder : "/tmp");
    at_once = at_once < t->n ? at_once : t->n;
    int fd = mkstemp(path);
    uint64_t stride = t->arena.stride, words = stride / sizeof(uint64_t), *some = calloc(at_once, stride);
    if (fd < 0 || unlink(path) || !some)
        unavailable("tmp-refused", "%s: %s", path, strerror(errno));
    for (uint64_t i = 0, n; i < t->n; i += n) {
        n = t->n - i < at_once ? t->n - i : at_once;
        for (uint64_t k = 0; k < n; k++)
            some[k * words] = i + k + 1;
        errno = ENOSPC; /* what a write that is cut short means */
        if (write(fd, some, n * stride) != (ssize_t)(n * stride))
            unavailable("tmp-refused", "%s, %" PRIu64 " bytes: %s", path, t->n * stride, strerror(errno));
    }
    free(some);
    fsync(fd); /* or its pages are written back while they are measured */
    return fd;
}

static inline void map_touches(struct touches *t)
{
    struct arena *a = &t->arena;
    if (t->file < 0) {
        lay_arena(t->c, a);
    } else {
        a->resident = a->physical = a->bytes;
        if (mmap(a->base, a->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, t->file, 0) == MAP_FAILED ||
            msync(a->base, a->bytes, MS_INVALIDATE)) /* as the published program does */
            unavailable("memory-short", "%" PRIu64 " bytes of a file could not be mapped: %s", a->bytes, strerror(errno));
        madvise(a->base, a->bytes, MADV_NOHUGEPAGE); /* or a piece of 2 MiB may be entered as one page */
    }
    if (t->populate && madvise(a->base, a->bytes, t->file < 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
        unavailable(errno == EINVAL ? "no-populate" : "memory-short", "populating %" PRIu64 " bytes: %s", a->bytes, strerror(errno));
}

static inline void unmap_touches(const struct touches *t)
{
    if (munmap(t->arena.base, t->arena.bytes))
        unavailable("memory-short", "%" PRIu64 " bytes could not be given back: %s", t->arena.bytes, strerror(errno));
}

/* [timed: touches] */
TIMED uint64_t read_pages(const char *base, uint64_t stride, const uint32_t *order, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += *(const volatile uint64_t *)(base + order[i] * stride);
    return sum;
}

TIMED uint64_t write_pages(char *base, uint64_t stride, const uint32_t *order, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        *(volatile uint64_t *)(base + order[i] * stride) = order[i] + 1;
    return n * (n + 1) / 2;
}
/* [end] */

/* Every page once; what was read has to be what the file has. */
static inline void touch_all(const struct touches *t)
{
    const struct arena *a = &t->arena;
    must_be((t->file < 0 ? write_pages : (uint64_t(*)(char *, uint64_t, const uint32_t *, uint64_t))read_pages)
            (a->base, a->stride, t->order, t->n), t->n * (t->n + 1) / 2);
}

/* Every page once, each by the clock. */
static inline void touch_each(const struct touches *t, struct tally *tally)
{
    const struct arena *a = &t->arena;
    for (uint64_t i = 0; i < t->n; i++) {
        volatile uint64_t *word = (volatile uint64_t *)(a->base + t->order[i] * a->stride);
        uint64_t begin = stamp();
        if (t->file < 0)
            *word = t->order[i] + 1;
        else
            (void)*word;
        count(tally, stamp() - begin);
    }
}

/* Each page of what is mapped has the number that is due in it. */
static inline void check_touched(const struct touches *t)
{
    must_be(read_pages(t->arena.base, t->arena.stride, t->order, t->n), t->n * (t->n + 1) / 2);
    verify_backing(t->c, &t->arena);
}

/* For the record: of MERGED bins the first has the readings of all. Quantiles are asked for before. */
static inline void merge_bins(struct tally *t)
{
    for (uint64_t bin = 0; bin < BINS; bin++)
        if (bin % MERGED) {
            t->bin[bin - bin % MERGED] += t->bin[bin];
            t->bin[bin] = 0;
        }
}
#endif
