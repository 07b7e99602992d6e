/* tlb.h: one thread's TLB for one page size: a first level that is fully associative, and a second
 * level of sets and ways, both with LRU; and how many walks second levels of other sizes would
 * leave. Freestanding, so that a test compiles it too and compares it with a plain search. */
#ifndef TLB_H
#define TLB_H
#include <stdint.h>

#define MOST_FIRST 512    /* entries of a first level */
#define MOST_SECOND 16384 /* and of a second */
#define BUCKETS 1024
#define NO_PAGE (~(uint64_t)0)
/* Second levels whose walks are counted: of 64, 128, ... 131,072 entries, without sets. */
#define LEAST_SHIFT 6
#define CURVE 12
#define MOST_CURVE (1u << (LEAST_SHIFT + CURVE - 1))

struct geometry {
    uint32_t first, second, ways;
};

/* An entry: in a ring by the time of its use, and in the list of its bucket. Entry 0 stands between
 * the latest and the oldest, and ends lists. size: the first of the curve's that holds it. */
struct entry {
    uint64_t page;
    uint32_t older, newer, next, size;
};

struct lru {
    struct entry *all;
    uint32_t *buckets, bucket_count;
};

/* Of the pages that miss the first level. hits: of pages that this size holds and the one before
 * does not; misses: of those that none holds. oldest: the entry that each size loses next. */
struct curve {
    struct lru lru;
    uint32_t oldest[CURVE];
    uint64_t hits[CURVE], misses;
    struct entry entries[MOST_CURVE + 1];
    uint32_t buckets[MOST_CURVE];
};

struct tlb {
    uint32_t ways, sets; /* of the second level */
    struct lru lru;      /* the first */
    struct entry first[MOST_FIRST + 1];
    uint32_t buckets[BUCKETS];
    uint64_t second[MOST_SECOND]; /* each set begins with the latest used */
};

enum outcome { IN_FIRST, IN_SECOND, WALKED };

/* all, buckets: of zeros. */
static inline void lru_clear(struct lru *l, struct entry *all, uint32_t n, uint32_t *buckets, uint32_t bucket_count)
{
    *l = (struct lru){all, buckets, bucket_count};
    for (uint32_t i = 0; i <= n; i++)
        all[i] = (struct entry){NO_PAGE, (i + n) % (n + 1), (i + 1) % (n + 1), 0, 0};
}

/* t: of zeros. */
static inline void tlb_clear(struct tlb *t, struct geometry is)
{
    t->ways = is.ways, t->sets = is.second / is.ways;
    lru_clear(&t->lru, t->first, is.first, t->buckets, BUCKETS);
    for (uint32_t i = 0; i < is.second; i++)
        t->second[i] = NO_PAGE;
}

static inline uint32_t *bucket_of(struct lru *l, uint64_t page)
{
    return l->buckets + (page ^ page / l->bucket_count) % l->bucket_count;
}

/* The entry of a page, or 0. */
static inline uint32_t find(struct lru *l, uint64_t page)
{
    uint32_t k = *bucket_of(l, page);
    while (k && l->all[k].page != page)
        k = l->all[k].next;
    return k;
}

/* Give a page the oldest entry: that, which keeps its place in the ring. */
static inline uint32_t replace(struct lru *l, uint64_t page)
{
    struct entry *all = l->all;
    uint32_t k = all->newer, *bucket = bucket_of(l, page), *link = bucket_of(l, all[k].page);
    while (*link && *link != k)
        link = &all[*link].next;
    *link = all[k].next;
    all[k].page = page, all[k].next = *bucket, *bucket = k;
    return k;
}

static inline void make_latest(struct entry *all, uint32_t k)
{
    all[all[k].newer].older = all[k].older, all[all[k].older].newer = all[k].newer;
    all[k].newer = 0, all[k].older = all->older;
    all[all->older].newer = k, all->older = k;
}

/* Make a page the latest used of the first level: what left for it, or itself if it was there. */
static inline uint64_t use_first(struct lru *l, uint64_t page)
{
    uint64_t left = page;
    uint32_t k = find(l, page);
    if (!k) {
        left = l->all[l->all->newer].page;
        k = replace(l, page);
    }
    make_latest(l->all, k);
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
    uint64_t moved = use_first(&t->lru, page);
    *left = moved == page ? NO_PAGE : moved;
    if (moved == page)
        return IN_FIRST;
    uint64_t *set = t->second + page % t->sets * t->ways;
    return use(set, t->ways, page) == page ? IN_SECOND : WALKED;
}

/* c: of zeros. */
static inline void curve_clear(struct curve *c)
{
    lru_clear(&c->lru, c->entries, MOST_CURVE, c->buckets, MOST_CURVE);
    for (uint32_t age = 0, size = 0; age < MOST_CURVE; age++) {
        uint32_t k = MOST_CURVE - age; /* the latest is the last */
        c->entries[k].size = size;
        if (age + 1 == 1u << (LEAST_SHIFT + size))
            c->oldest[size++] = k;
    }
}

/* One pass over a list that is cut at each size tells for all of them whether they hold a page
 * (Mattson and others, IBM Systems Journal 9, 1970): a larger LRU holds what a smaller one does. */
static inline void curve_access(struct curve *c, uint64_t page)
{
    struct entry *all = c->lru.all;
    uint32_t k = find(&c->lru, page);
    if (k)
        c->hits[all[k].size]++;
    else
        c->misses++, k = replace(&c->lru, page);
    uint32_t size = all[k].size;
    if (c->oldest[size] == k)
        c->oldest[size] = all[k].newer;
    make_latest(all, k);
    for (uint32_t i = 0; i < size; i++) {
        struct entry *falls = &all[c->oldest[i]];
        falls->size = i + 1;
        c->oldest[i] = falls->newer;
    }
    all[k].size = 0;
}
#endif
