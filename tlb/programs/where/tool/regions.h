/* regions.h: which allocation an address belongs to. A region is what one mmap or brk gave, or the
 * part of it that the preloaded library (sites.c) has named by a digest of the stack that asked.
 * Regions that are gone keep their counts. */
#ifndef REGIONS_H
#define REGIONS_H
#include <pub_tool_basics.h>
#include <pub_tool_hashtable.h>
#include <pub_tool_mallocfree.h>
#include <pub_tool_rangemap.h>

struct region {
    UInt number;
    ULong site; /* 0: none has named it */
    ULong bytes, unmapped;
    ULong pages, blocks; /* touched base pages that lie in blocks of 2 MiB, and these blocks */
    ULong began, ended; /* instructions passed when it was made, and last lost memory */
    Bool is_printed;
};

#define LARGE_SHIFT 21
/* The base pages that a region touched of a block of 2 MiB, a bit each. */
struct block {
    struct block *next;
    UWord key;
    struct region *region;
    ULong touched[8];
};

static struct region elsewhere;
static VgHashTable *blocks;
static RangeMap *regions;
static UInt region_count;
static ULong passed; /* instructions */
static UWord low = 1, high, found; /* the range that was looked up last */

static struct region *region_of(Addr a)
{
    if (a < low || a > high)
        VG_(lookupRangeMap)(&low, &high, &found, regions, a);
    return (struct region *)found;
}

static void bind_range(Addr start, Addr end, struct region *r)
{
    VG_(bindRangeMap)(regions, start, end - 1, (UWord)r);
    low = 1, high = 0;
}

static void add_range(Addr start, Addr end, ULong site)
{
    struct region *r = region_of(start - 1);
    /* A heap that grows at its end, for the same reason, is one region. */
    if (!site || r->site != site) {
        r = VG_(calloc)("tlb.region", 1, sizeof *r);
        r->number = ++region_count, r->site = site, r->began = passed;
    }
    r->bytes += end - start;
    bind_range(start, end, r);
}

/* Count a page at its first touch, if `found` has the whole block, which may then be a huge page. */
static void touch(Addr a, UInt page_shift)
{
    Addr first = a >> LARGE_SHIFT << LARGE_SHIFT;
    struct region *r = (struct region *)found;
    if (first < low || first + (1 << LARGE_SHIFT) - 1 > high)
        return;
    UWord key = first >> LARGE_SHIFT | (UWord)r->number << 32; /* of 26 bits and 32 */
    struct block *b = VG_(HT_lookup)(blocks, key);
    if (!b) {
        b = VG_(calloc)("tlb.block", 1, sizeof *b);
        b->key = key, b->region = r, r->blocks++;
        VG_(HT_add_node)(blocks, b);
    }
    UInt page = (UInt)((a - first) >> page_shift);
    ULong bit = 1ULL << page % 64, *touched = &b->touched[page / 64];
    r->pages += !(*touched & bit), *touched |= bit;
}
#endif
