/* arena.h: the memory that a kernel measures. A request for a page size is only a hint, so each size is requested both ways
 * before the first touch, at an aligned address; every page is written, because pages only read share one page of zeros; and
 * smaps proves the result (backing.h). */
#ifndef ARENA_H
#define ARENA_H
#include "cpus.h"
#include "rooms.h"
#include <fcntl.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

struct arena {
    char *base;
    uint64_t bytes, resident, physical;
    uint64_t page, stride, working_set;  /* stride: in bytes, a multiple of the base page for every page size */
    uint64_t mthp_taken, mthp_fallen;
};

static inline uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static uint64_t pool_page; /* for the signal handler: losing a reserved page raises SIGBUS */
#define GONE "; the pool was emptied meanwhile, or the cgroup's hugetlb limit"
static void on_sigbus(int signal)
{
    (void)signal;
    static const char text[] = "{\"reason\": \"pool-empty\", \"detail\": \"a huge page could not be faulted in: SIGBUS" GONE "\"}\n";
    static const char other[] = "{\"reason\": \"memory-short\", \"detail\": \"a page could not be faulted in (SIGBUS)\"}\n";
    ssize_t ignored = pool_page ? write(2, text, sizeof text - 1) : write(2, other, sizeof other - 1);
    (void)ignored;
    _exit(3);
}

/* Aligned to 1 GiB for every page size, so that runs do not differ in page-table levels and TLB sets. A guard page on both
 * sides keeps Linux from merging a neighbouring stack with the arena, which smaps would count (since Linux 6.7 both are
 * VM_NOHUGEPAGE). */
static inline char *reserve_addresses(uint64_t bytes)
{
    uint64_t room_bytes = bytes + base_page() + GIB;
    char *room = room_bytes < bytes ? MAP_FAILED
                 : mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        unavailable("memory-short", "no address space for %" PRIu64 " bytes: %s", bytes, strerror(ENOMEM));
    keep(room, room_bytes, -1);
    return (char *)round_up((uint64_t)room + base_page(), GIB);
}

static inline struct arena reserve_bytes(const struct config *c, uint64_t bytes)
{
    struct arena a = {.page = page_bytes(c->pages), .stride = base_page() * c->stride_pages, .working_set = bytes};
    char path[128];
    if (c->pages->source == FROM_POOL && access(pool_path(a.page, "free_hugepages", path, sizeof path), F_OK))
        unavailable("page-size-unsupported", "the kernel has no pool of %s pages", c->pages->name);
    a.bytes = round_up(bytes, a.page);
    a.base = reserve_addresses(a.bytes);
    signal(SIGBUS, on_sigbus);
    return a;
}

static inline struct arena reserve(const struct config *c)
{
    uint64_t bytes, a_line = c->packed ? LINE : base_page() * c->stride_pages;
    if (__builtin_mul_overflow(c->lines, a_line, &bytes) || bytes > INT64_MAX)
        unavailable("memory-short", "no address space for %" PRIu64 " lines, one every %" PRIu64 " bytes", c->lines, a_line);
    return reserve_bytes(c, bytes);
}

/* THP forms where a larger enabled size fits, so cut the range into mappings of at most 1 MiB; Linux never merges neighbours
 * with different flags (dumped or not). */
static inline void ask_for_mthp(struct arena *a)
{
    char path[128];
    uint64_t kb = a->page >> 10, piece = a->page;
    if (access(mthp_path(a->page, "enabled", path, sizeof path), F_OK))
        unavailable("page-size-unsupported", "this kernel has no transparent pages of %" PRIu64 " kB", kb);
    if (!mthp_on(a->page))
        unavailable("thp-never", "hugepages-%" PRIu64 "kB/enabled selects neither always nor madvise", kb);
    if (madvise(a->base, a->bytes, MADV_HUGEPAGE))
        unavailable("thp-never", "madvise: %s", strerror(errno));
    while (piece < 1 << 20 && !mthp_on(2 * piece))
        piece *= 2;
    for (uint64_t at = 0; at < a->bytes; at += 2 * piece)
        if (madvise(a->base + at, a->bytes - at < piece ? a->bytes - at : piece, MADV_DONTDUMP))
            unavailable("memory-short", "too many mappings for %" PRIu64 " kB pages: %s", kb, strerror(errno));
    a->mthp_taken = mthp_faults(a->page, 0);
    a->mthp_fallen = mthp_faults(a->page, 1);
}

/* Pages reserved by other mappings count as free. If enough are left, a cgroup is the reason. */
__attribute__((noreturn)) static inline void pool_refuses(uint64_t needed, const char *pages, uint64_t page)
{
    char path[128];
    const char *why = strerror(errno);
    uint64_t have = sysfs_number(pool_path(page, "free_hugepages", path, sizeof path), 0);
    uint64_t reserved = sysfs_number(pool_path(page, "resv_hugepages", path, sizeof path), 0);
    uint64_t left = have > reserved ? have - reserved : 0;
    unavailable("pool-empty", "%" PRIu64 " pages of %s needed, %" PRIu64 " free: %s%s", needed, pages, left, why,
                left < needed ? "" : GONE);
}

/* Since Linux 6.8 each size has its own setting, THP included. */
static inline int thp_is_refused(const struct arena *a)
{
    char own[128];
    int off = access(mthp_path(a->page, "enabled", own, sizeof own), F_OK) ? sysfs_selects(THP "enabled", "never") : !mthp_on(a->page);
    return off || prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1
           || madvise(a->base, a->bytes, MADV_HUGEPAGE);
}

static inline void lay_arena(const struct config *c, struct arena *a)
{
    int spread = !c->packed && !c->alias, pool = pool_flags(c->pages);
    a->resident = a->physical = spread && a->stride > a->page ? c->lines * a->page : a->bytes;
    /* A sparse arena may span more than there is memory; the gaps are never touched. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | pool | (a->resident < a->bytes ? MAP_NORESERVE : 0);
    pool_page = pool ? a->page : 0;
    if (mmap(a->base, a->bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
        if (pool)
            pool_refuses(a->resident / a->page, c->pages->name, a->page);
        unavailable("memory-short", "%" PRIu64 " bytes could not be mapped: %s", a->bytes, strerror(errno));
    }
    if (c->pages->source == FROM_MTHP)
        ask_for_mthp(a);
    else if (c->pages->source == FROM_THP && thp_is_refused(a))
        unavailable("thp-never", "the kernel refuses MADV_HUGEPAGE");
    else if (c->pages->source == FROM_BASE)
        madvise(a->base, a->bytes, MADV_NOHUGEPAGE); /* fails only without THP support */
}

#define MUCH (64ull << 20) /* bytes from which two threads are faster than one */
struct stretch { char *from; uint64_t bytes; int error; };

static void *populate_stretch(void *given)
{
    struct stretch *s = given;
    s->error = madvise(s->from, s->bytes, MADV_POPULATE_WRITE) ? errno : 0;
    return NULL;
}

static inline int populate_by_two(const struct arena *a)
{
    uint64_t half = round_up(a->bytes / 2, a->page > 2 << 20 ? a->page : 2 << 20);
    struct stretch low = {a->base, a->bytes, 0}, high = {a->base + half, a->bytes - half, 0};
    int own = sched_getcpu(), other = cpus_given.count - 1;
    pthread_t thread;
    while (other >= 0 && cpus_given.number[other] == own)
        other--;
    if (a->bytes < MUCH || half >= a->bytes || other < 0) {
        populate_stretch(&low);
    } else {
        stay_on_this_node();
        low.bytes = half;
        start_on(cpus_given.number[other], &thread, populate_stretch, &high);
        populate_stretch(&low);
        pthread_join(thread, NULL);
    }
    errno = low.error ? low.error : high.error;
    return errno ? -1 : 0;
}

static inline int populate(const struct arena *a)
{
    if (a->resident == a->bytes)
        return populate_by_two(a);
    for (uint64_t at = 0; at < a->working_set; at += a->stride)
        if (madvise(a->base + at, a->page, MADV_POPULATE_WRITE))
            return -1;
    return 0;
}

/* Write every page: older Linux cannot populate and some emulators only claim to. Never zero, which KSM would merge. */
static inline void fault_in(const struct arena *a)
{
    if (populate(a) && errno != EINVAL)
        unavailable(pool_page ? "pool-empty" : "memory-short", "%" PRIu64 " bytes could not be faulted in: %s%s", a->resident,
                    strerror(errno), pool_page ? GONE : "");
    int apart = a->resident < a->bytes;
    for (uint64_t at = 0; at < (apart ? a->working_set : a->bytes); at += apart ? a->stride : base_page())
        *(volatile char *)(a->base + at) = 1;
}

static inline struct arena map_arena(const struct config *c)
{
    struct arena a = reserve(c);
    lay_arena(c, &a);
    fault_in(&a);
    return a;
}
#endif
