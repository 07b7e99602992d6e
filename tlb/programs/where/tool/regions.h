/* regions.h: which allocation an address belongs to. A region is what one mmap or brk gave, or the
 * part of it that the preloaded library (sites.c) has named by a digest of the stack that asked.
 * Regions that are gone keep their counts. */
#pragma once
#include <pub_tool_basics.h>
#include <pub_tool_hashtable.h>
#include <pub_tool_libcbase.h>
#include <pub_tool_mallocfree.h>
#include <pub_tool_rangemap.h>

struct region {
    UInt number;
    ULong site; /* 0: none has named it */
    ULong bytes, unmapped, touched; /* touched: of base pages at their first touch */
    Long added; /* bytes, by huge pages: touched blocks of their size less their touched base pages;
                 * negative in a child, of pages in blocks that its parent has counted */
    ULong began, ended; /* instructions passed when it was made, and last lost memory */
    Bool is_printed;
};

#define MOST_BLOCK_PAGES 8192 /* a table of base pages of 64 KiB maps 512 MiB */
static UInt large_shift; /* of a huge page's bytes; set before the program begins */
/* The base pages that a region touched of a block of a huge page's size, a bit each. */
struct block {
    struct block *next;
    UWord key;
    Bool is_counted;
    UInt touched_bytes;
    ULong touched[MOST_BLOCK_PAGES / 64];
};

static struct region elsewhere;
static VgHashTable *blocks;
static RangeMap *regions;
static UInt region_count;
static ULong passed; /* instructions */
/* The range that was looked up last for a block, of those that share its place, and the
 * block that was touched last: the tables are slow to search. */
static struct range {
    UWord low, high;
    struct region *region;
    struct block *touched;
} ranges[64];

/* The node of a table with this key; a new one of zeros if there is none. */
static void *node_of(VgHashTable *table, UWord key, SizeT bytes)
{
    VgHashNode *node = VG_(HT_lookup)(table, key);
    if (!node) {
        node = VG_(calloc)("tlb.node", 1, bytes);
        node->key = key;
        VG_(HT_add_node)(table, node);
    }
    return node;
}

static struct range *range_of(Addr a)
{
    struct range *is = &ranges[(a >> large_shift) % 64];
    if (a < is->low || a >= is->high)
        VG_(lookupRangeMap)(&is->low, &is->high, (UWord *)&is->region, regions, a), is->high++;
    return is;
}

static struct region *region_of(Addr a) { return range_of(a)->region; }

static void bind_range(Addr start, Addr end, struct region *r)
{
    VG_(bindRangeMap)(regions, start, end - 1, (UWord)r);
    VG_(memset)(ranges, 0, sizeof ranges);
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

/* Give a part of a region, or all of it, another name. */
static void rename_range(Addr a, SizeT bytes, ULong site)
{
    struct region *r = region_of(a);
    r->bytes -= bytes < r->bytes ? bytes : r->bytes;
    r->ended = passed;
    add_range(a, a + bytes, site);
}

/* Count a page at its first touch; and its block once its range has the whole block, which may be a
 * huge page then. A heap may get the rest of a block later. */
static void touch(Addr a, UInt page_shift)
{
    Addr first = a >> large_shift << large_shift;
    Long large_bytes = 1LL << large_shift;
    struct range *in = range_of(a);
    struct region *r = in->region;
    Bool is_whole = first >= in->low && first + (Addr)large_bytes <= in->high;
    UWord key = first >> large_shift | (UWord)r->number << 32; /* of at most 32 bits each */
    if (!in->touched || in->touched->key != key)
        in->touched = node_of(blocks, key, sizeof *in->touched);
    struct block *b = in->touched;
    UInt page = (UInt)((a - first) >> page_shift);
    ULong bit = 1ULL << page % 64, *touched = &b->touched[page / 64];
    if (!(*touched & bit)) {
        *touched |= bit, b->touched_bytes += 1u << page_shift, r->touched += 1u << page_shift;
        r->added -= b->is_counted ? 1 << page_shift : 0;
    }
    if (is_whole && !b->is_counted) {
        r->added += large_bytes - (Long)b->touched_bytes;
        b->is_counted = True;
    }
}
