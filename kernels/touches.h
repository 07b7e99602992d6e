/* touches.h: a mapping that is made, touched page by page for the first time, and unmapped. Linux enters neighbours of a
 * file's page too (fault-around): fewer faults than pages. */
#ifndef TOUCHES_H
#define TOUCHES_H
#include "hops.h"
#include "placement.h"
#include <sys/statvfs.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#define MERGED 8              /* bins of hops.h merged in the record, which leaves 16 an octave */

struct touches {
    struct arena arena;
    const struct config *c;
    uint64_t n;
    uint32_t *order;
    int file, populate; /* descriptor, -1 for anonymous memory */
};

static inline struct touches touches_of(const struct config *c)
{
    struct touches t = {.arena = reserve(c), .c = c, .n = c->lines, .file = -1};
    uint64_t seed = c->seed;
    t.order = numbers_below(t.n, !strcmp(c->order, "cycle"), &seed);
    return t;
}

static inline const char *temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

static inline uint64_t available_bytes(void)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
            break;
    if (f) fclose(f);
    return kb ? kb << 10 : UINT64_MAX;
}

/* Refuse a file of more than half of the free disk, which others use too, or of the available memory, which has to hold it. */
static inline void must_have_room(uint64_t pages)
{
    struct statvfs disk;
    uint64_t mib = base_page() * pages >> 20, memory_mib = available_bytes() >> 20, disk_mib = UINT64_MAX;
    if (!statvfs(temporary_folder(), &disk))
        disk_mib = (uint64_t)disk.f_bavail * disk.f_frsize >> 20;
    if (mib > disk_mib / 2)
        unavailable("disk-refused", "a file of %" PRIu64 " MiB is more than half of the %" PRIu64 " MiB free in %s", mib, disk_mib,
                    temporary_folder());
    if (mib > memory_mib / 2)
        unavailable("memory-short", "a file of %" PRIu64 " MiB is more than half of the %" PRIu64 " MiB of memory available", mib,
                    memory_mib);
}

/* Make an unnamed temporary file, each page with its number and one. at_once: pages per write; a file system may keep one
 * write's pages as one folio, which faults faster. */
static inline int make_file(const struct touches *t, uint64_t at_once)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tlb-page-fault-XXXXXX", temporary_folder());
    at_once = at_once < t->n ? at_once : t->n;
    int fd = mkstemp(path);
    uint64_t stride = t->arena.stride, words = stride / sizeof(uint64_t), *some = calloc(at_once, stride);
    if (fd < 0 || unlink(path) || !some)
        unavailable("disk-refused", "%s: %s", path, strerror(errno));
    for (uint64_t i = 0, n; i < t->n; i += n) {
        n = t->n - i < at_once ? t->n - i : at_once;
        for (uint64_t k = 0; k < n; k++)
            some[k * words] = i + k + 1;
        errno = ENOSPC; /* for a short write */
        if (write(fd, some, n * stride) != (ssize_t)(n * stride))
            unavailable("disk-refused", "%s, %" PRIu64 " bytes: %s", path, t->n * stride, strerror(errno));
    }
    free(some);
    fsync(fd); /* else pages are written back while they are measured */
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
        madvise(a->base, a->bytes, MADV_NOHUGEPAGE); /* else 2 MiB may be entered as one page */
    }
    if (t->populate && madvise(a->base, a->bytes, t->file < 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
        unavailable(errno == EINVAL ? "linux-lacks" : "memory-short", "populating %" PRIu64 " bytes (MADV_POPULATE, Linux 5.14): %s", a->bytes, strerror(errno));
}

static inline void unmap_touches(const struct touches *t)
{
    if (munmap(t->arena.base, t->arena.bytes))
        unavailable("memory-short", "%" PRIu64 " bytes could not be given back: %s", t->arena.bytes, strerror(errno));
}

/* Keep the allocator of a C library out of the unmapped range, where the next mapping would remove its blocks. */
static inline void hold_place(const struct touches *t)
{
    const struct arena *a = &t->arena;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (mmap(a->base, a->bytes, PROT_NONE, flags, -1, 0) != a->base)
        unavailable("memory-short", "%" PRIu64 " bytes could not be reserved again: %s", a->bytes, strerror(errno));
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

static inline void touch_all(const struct touches *t)
{
    const struct arena *a = &t->arena;
    must_be((t->file < 0 ? write_pages : (uint64_t(*)(char *, uint64_t, const uint32_t *, uint64_t))read_pages)
            (a->base, a->stride, t->order, t->n), t->n * (t->n + 1) / 2);
}

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

static inline void check_touched(const struct touches *t)
{
    must_be(read_pages(t->arena.base, t->arena.stride, t->order, t->n), t->n * (t->n + 1) / 2);
    verify_backing(t->c, &t->arena);
}

static inline void merge_bins(struct tally *t)
{
    for (uint64_t bin = 0; bin < BINS; bin++)
        if (bin % MERGED) {
            t->bin[bin - bin % MERGED] += t->bin[bin];
            t->bin[bin] = 0;
        }
}
#endif
