/* tlb.h: one thread's TLB for one page size: a first level that is fully associative, and a second
 * level of sets and ways, both with LRU; and how many walks second levels of other sizes would
 * leave. Freestanding, so that a test compiles it too and compares it with a plain search. */
#pragma once
#include <stdint.h>

#define MOST_FIRST 512    /* entries of a first level */
#define MOST_SECOND 16384 /* and of a second */
#define BUCKET_BITS 10
#define NO_PAGE (~(uint64_t)0)
/* Second levels whose walks are counted: of 64, 128, ... 131,072 entries, without sets. */
#define LEAST_SHIFT 6
#define CURVE 12
#define CURVE_BITS (LEAST_SHIFT + CURVE - 1)
#define MOST_CURVE (1u << CURVE_BITS)

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
    uint32_t *buckets, bucket_bits;
};

/* Of the pages that miss the first level. oldest: the entry that each size loses next. */
struct curve {
    struct lru lru;
    uint32_t oldest[CURVE];
    struct entry entries[MOST_CURVE + 1];
    uint32_t buckets[MOST_CURVE];
};

struct tlb {
    uint32_t entries;    /* of the first level */
    uint32_t ways, sets; /* of the second */
    struct lru lru;
    struct entry first[MOST_FIRST + 1];
    uint32_t buckets[1 << BUCKET_BITS];
    uint64_t notes[MOST_FIRST + 1]; /* of whoever uses it, for each entry of the first */
    uint64_t second[MOST_SECOND]; /* pages + 1, or 0; each set begins with the latest used */
};

enum outcome { IN_FIRST, IN_SECOND, WALKED };

/* all, buckets: of zeros. Each entry has the size of the oldest, which is replaced before others. */
static inline void lru_clear(struct lru *l, struct entry *all, uint32_t n, uint32_t *buckets, uint32_t bucket_bits)
{
    *l = (struct lru){all, buckets, bucket_bits};
    for (uint32_t i = 0; i <= n; i++)
        all[i] = (struct entry){NO_PAGE, (i + n) % (n + 1), (i + 1) % (n + 1), 0, CURVE - 1};
}

/* What is cleared is of zeros before. */
static inline void tlb_clear(struct tlb *t, struct geometry is)
{
    t->entries = is.first, t->ways = is.ways, t->sets = is.second / is.ways;
    lru_clear(&t->lru, t->first, is.first, t->buckets, BUCKET_BITS);
}

static inline uint32_t *bucket_of(struct lru *l, uint64_t page)
{
    return l->buckets + ((page ^ page >> l->bucket_bits) & ((1u << l->bucket_bits) - 1));
}

/* The entry of a page; if it has none, the oldest, which keeps its place in the ring. left: the page
 * that the entry had. */
static inline uint32_t entry_of(struct lru *l, uint64_t page, uint64_t *left)
{
    struct entry *all = l->all;
    uint32_t *bucket = bucket_of(l, page), k = *bucket;
    while (k && all[k].page != page)
        k = all[k].next;
    *left = page;
    if (k)
        return k;
    k = all->newer, *left = all[k].page;
    uint32_t *link = bucket_of(l, *left);
    while (*link && *link != k)
        link = &all[*link].next;
    *link = all[k].next;
    all[k].page = page, all[k].next = *bucket, *bucket = k;
    return k;
}

/* Forget a page's entry, which keeps its place in the ring: 0 if it has none. */
static inline uint32_t drop(struct lru *l, uint64_t page)
{
    uint32_t *link = bucket_of(l, page);
    while (*link && l->all[*link].page != page)
        link = &l->all[*link].next;
    uint32_t k = *link;
    if (k) {
        *link = l->all[k].next;
        l->all[k].page = NO_PAGE, l->all[k].next = 0;
    }
    return k;
}

/* Forget the pages from `from` to before `to`: by page, or by entry if these are fewer. */
static inline void drop_range(struct lru *l, uint32_t entries, uint64_t from, uint64_t to)
{
    if (to - from < entries)
        for (; from < to; from++)
            drop(l, from);
    else
        for (uint32_t k = 1; k <= entries; k++)
            if (from <= l->all[k].page && l->all[k].page < to)
                drop(l, l->all[k].page);
}

static inline void make_latest(struct entry *all, uint32_t k)
{
    all[all[k].newer].older = all[k].older, all[all[k].older].newer = all[k].newer;
    all[k].newer = 0, all[k].older = all->older;
    all[all->older].newer = k, all->older = k;
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

/* left: the page that left the first level for this one, or itself if it was there. */
static inline enum outcome tlb_access(struct tlb *t, uint64_t page, uint64_t *left)
{
    struct entry *all = t->first;
    *left = page;
    if (all[all->older].page != page)
        make_latest(all, entry_of(&t->lru, page, left));
    if (*left == page)
        return IN_FIRST;
    uint64_t *set = t->second + page % t->sets * t->ways;
    return use(set, t->ways, page + 1) == page + 1 ? IN_SECOND : WALKED;
}

/* Forget pages, as when their memory is unmapped. In the second level the entries before them move
 * up; in the first, theirs are free once they are the oldest. */
static inline void tlb_drop(struct tlb *t, uint64_t from, uint64_t to)
{
    uint64_t sets = to - from < t->sets ? to - from : t->sets;
    drop_range(&t->lru, t->entries, from, to);
    for (uint64_t i = 0; i < sets; i++) {
        uint64_t *set = t->second + (from + i) % t->sets * t->ways;
        uint32_t kept = 0;
        for (uint32_t at = 0; at < t->ways; at++)
            if (set[at] <= from || to < set[at]) /* which is its page + 1 */
                set[kept++] = set[at];
        while (kept < t->ways)
            set[kept++] = 0;
    }
}

/* The note of the page that was used last. It stays until another is written for it. */
static inline uint64_t *tlb_note(struct tlb *t) { return &t->notes[t->first->older]; }

static inline void curve_drop(struct curve *c, uint64_t from, uint64_t to)
{
    drop_range(&c->lru, MOST_CURVE, from, to);
}

static inline void curve_clear(struct curve *c)
{
    lru_clear(&c->lru, c->entries, MOST_CURVE, c->buckets, CURVE_BITS);
    for (uint32_t i = 0; i < CURVE; i++)
        c->oldest[i] = MOST_CURVE + 1 - (1u << (LEAST_SHIFT + i)); /* the latest is the last */
}

/* Use a page: the smallest size that held it, CURVE if none did. One pass over a list that is cut
 * at each size tells (Mattson and others, IBM Systems Journal 9, 1970): a larger LRU holds what a
 * smaller one does. */
static inline uint32_t curve_access(struct curve *c, uint64_t page)
{
    struct entry *all = c->lru.all;
    uint64_t left;
    uint32_t k = entry_of(&c->lru, page, &left), size = all[k].size;
    if (c->oldest[size] == k)
        c->oldest[size] = all[k].newer;
    make_latest(all, k);
    for (uint32_t i = 0; i < size; i++) {
        struct entry *falls = &all[c->oldest[i]];
        falls->size = i + 1;
        c->oldest[i] = falls->newer;
    }
    all[k].size = 0;
    return left == page ? size : CURVE;
}
