/* tlb.h: one thread's TLB for one page size: a first level that is fully associative, and a second
 * level of sets and ways, both with LRU. Freestanding, so that a test compiles it too and compares
 * it with a plain search. */
#ifndef TLB_H
#define TLB_H
#include <stdint.h>

#define MOST_FIRST 512    /* entries of a first level */
#define MOST_SECOND 16384 /* and of a second */
#define BUCKETS 1024
#define NO_PAGE (~(uint64_t)0)

struct geometry {
    uint32_t first, second, ways;
};

/* An entry of the first level: in a ring by the time of its use, and in the list of its bucket.
 * Entry 0 stands between the latest and the oldest, and ends lists. */
struct entry {
    uint64_t page;
    uint32_t older, newer, next;
};

struct tlb {
    uint32_t ways, sets; /* of the second level */
    struct entry first[MOST_FIRST + 1];
    uint32_t buckets[BUCKETS];
    uint64_t second[MOST_SECOND]; /* each set begins with the latest used */
};

enum outcome { IN_FIRST, IN_SECOND, WALKED };

/* t: of zeros. */
static inline void tlb_clear(struct tlb *t, struct geometry is)
{
    t->ways = is.ways, t->sets = is.second / is.ways;
    for (uint32_t i = 0, n = is.first + 1; i < n; i++)
        t->first[i] = (struct entry){NO_PAGE, (i + n - 1) % n, (i + 1) % n, 0};
    for (uint32_t i = 0; i < is.second; i++)
        t->second[i] = NO_PAGE;
}

static inline uint32_t *bucket_of(struct tlb *t, uint64_t page)
{
    return t->buckets + (page ^ page / BUCKETS) % BUCKETS;
}

/* Make a page the latest used of the first level: what left for it, or itself if it was there. */
static inline uint64_t use_first(struct tlb *t, uint64_t page)
{
    struct entry *all = t->first;
    uint32_t *bucket = bucket_of(t, page), k = *bucket;
    uint64_t left = page;
    while (k && all[k].page != page)
        k = all[k].next;
    if (!k) {
        k = all->newer; /* round the ring: the oldest */
        left = all[k].page;
        uint32_t *link = bucket_of(t, left);
        while (*link && *link != k)
            link = &all[*link].next;
        *link = all[k].next;
        all[k].page = page, all[k].next = *bucket, *bucket = k;
    }
    all[all[k].newer].older = all[k].older, all[all[k].older].newer = all[k].newer;
    all[k].newer = 0, all[k].older = all->older;
    all[all->older].newer = k, all->older = k;
    return left;
}

/* Put a page at the front of a set, in place of itself or else of the oldest: what left for it. */
static inline uint64_t use(uint64_t *set, uint32_t ways, uint64_t page)
{
    uint32_t at = 0;
    while (at + 1 < ways && set[at] != page)
        at++;
    uint64_t left = set[at];
    for (; at; at--)
        set[at] = set[at - 1];
    set[0] = page;
    return left;
}

/* left: the page that left the first level, or NO_PAGE. */
static inline enum outcome tlb_access(struct tlb *t, uint64_t page, uint64_t *left)
{
    uint64_t moved = use_first(t, page);
    *left = moved == page ? NO_PAGE : moved;
    if (moved == page)
        return IN_FIRST;
    uint64_t *set = t->second + page % t->sets * t->ways;
    return use(set, t->ways, page) == page ? IN_SECOND : WALKED;
}
#endif
