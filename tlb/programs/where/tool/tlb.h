/* tlb.h: one thread's TLB for one page size: a first level that is fully associative and replaces the least recently used entry,
 * and a second level of sets and ways, LRU in each set. An access takes constant time. Freestanding, so that a test compiles it
 * too and compares it with a plain search.
 *
 * exclusive: an entry that the first level drops goes into the second, and one that the second provides leaves it (AMD's Zen).
 * Otherwise every walk fills both. hashed: the set is the exclusive or of the page number's parts, so that no power of two of
 * pages crowds into few sets. */
#ifndef TLB_H
#define TLB_H
#include <stdint.h>

#define MOST_FIRST 512    /* entries of a first level */
#define MOST_SECOND 16384 /* and of a second */
#define BUCKETS 1024      /* of the first level's hash table, which finds a page among its entries */
#define NONE 0xFFFFu
#define NO_PAGE (~(uint64_t)0)

struct geometry {
    uint32_t first, second, ways, exclusive, hashed;
};

struct tlb {
    struct geometry is;
    uint32_t sets, used;
    uint64_t page[MOST_FIRST];                                 /* the first level, and its list by use: */
    uint16_t newer[MOST_FIRST + 1], older[MOST_FIRST + 1];     /* ends meet at MOST_FIRST */
    uint16_t bucket[BUCKETS], chained[MOST_FIRST];
    uint64_t second[MOST_SECOND];                              /* each set from the latest used to the oldest */
    uint64_t misses, walks;
};

enum outcome { IN_FIRST, IN_SECOND, WALKED };

static inline void tlb_clear(struct tlb *t, struct geometry is)
{
    t->is = is, t->sets = is.second / is.ways, t->used = 0, t->misses = t->walks = 0;
    t->newer[MOST_FIRST] = t->older[MOST_FIRST] = MOST_FIRST;
    for (uint32_t i = 0; i < BUCKETS; i++)
        t->bucket[i] = NONE;
    for (uint32_t i = 0; i < is.second; i++)
        t->second[i] = NO_PAGE;
}

static inline uint16_t *bucket_of(struct tlb *t, uint64_t page)
{
    return &t->bucket[(page ^ page >> 10 ^ page >> 20) % BUCKETS];
}

static inline void unlink_entry(struct tlb *t, uint32_t i)
{
    t->older[t->newer[i]] = t->older[i];
    t->newer[t->older[i]] = t->newer[i];
}

static inline void link_latest(struct tlb *t, uint32_t i)
{
    uint16_t latest = t->older[MOST_FIRST];
    t->newer[i] = MOST_FIRST, t->older[i] = latest;
    t->newer[latest] = t->older[MOST_FIRST] = (uint16_t)i;
}

/* Make room in the first level: the entry to use, whose page has left, or NO_PAGE. */
static inline uint32_t entry_for(struct tlb *t, uint64_t *left)
{
    uint32_t i = t->used;
    *left = NO_PAGE;
    if (t->used < t->is.first) {
        t->used++;
        return i;
    }
    i = t->newer[MOST_FIRST]; /* the oldest */
    unlink_entry(t, i);
    *left = t->page[i];
    uint16_t *at = bucket_of(t, *left);
    while (*at != i)
        at = &t->chained[*at];
    *at = t->chained[i];
    return i;
}

static inline uint64_t *set_of(struct tlb *t, uint64_t page)
{
    uint64_t index = t->is.hashed ? page ^ page / t->sets ^ page / t->sets / t->sets : page;
    return t->second + index % t->sets * t->is.ways;
}

/* Move the page at place `at` of its set, or a new one, to the front; the last falls out. */
static inline void to_front(uint64_t *set, uint32_t at, uint64_t page)
{
    for (; at; at--)
        set[at] = set[at - 1];
    set[0] = page;
}

static inline uint32_t place_in(const uint64_t *set, uint32_t ways, uint64_t page)
{
    uint32_t at = 0;
    while (at < ways && set[at] != page)
        at++;
    return at;
}

/* left: the page that left the first level, or NO_PAGE. */
static inline enum outcome tlb_access(struct tlb *t, uint64_t page, uint64_t *left)
{
    *left = NO_PAGE;
    for (uint32_t i = *bucket_of(t, page); i != NONE; i = t->chained[i])
        if (t->page[i] == page) {
            unlink_entry(t, i);
            link_latest(t, i);
            return IN_FIRST;
        }
    t->misses++;
    uint32_t i = entry_for(t, left), ways = t->is.ways;
    uint16_t *bucket = bucket_of(t, page);
    t->page[i] = page, t->chained[i] = *bucket, *bucket = (uint16_t)i;
    link_latest(t, i);
    uint64_t *set = set_of(t, page);
    uint32_t at = place_in(set, ways, page);
    int walked = at == ways;
    t->walks += walked;
    if (!t->is.exclusive)
        to_front(set, walked ? ways - 1 : at, page);
    else {
        if (!walked) {
            for (; at + 1 < ways; at++)
                set[at] = set[at + 1];
            set[ways - 1] = NO_PAGE;
        }
        if (*left != NO_PAGE)
            to_front(set_of(t, *left), ways - 1, *left);
    }
    return walked ? WALKED : IN_SECOND;
}
#endif
