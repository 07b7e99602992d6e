/* regions.h: which allocation an address belongs to. A region is what one mmap or brk gave, or the
 * part of it that the preloaded library (sites.c) has named by a digest of the stack that asked.
 * Regions that are gone keep their counts. */
#ifndef REGIONS_H
#define REGIONS_H
#include <pub_tool_basics.h>
#include <pub_tool_mallocfree.h>
#include <pub_tool_rangemap.h>

struct counts {
    ULong misses, walks, chained, alone, large_walks; /* large: as if all pages had 2 MiB */
};

struct region {
    struct region *older; /* all regions are a list */
    UInt number;
    ULong site;          /* 0: none has named it */
    ULong bytes, mapped; /* in all, and now */
    ULong born, died;    /* by the count of instructions; died 0: it is there */
    struct counts is;
};

static struct region elsewhere = {.mapped = 1ull << 63}, *newest = &elsewhere;
static RangeMap *regions;
static UWord low = 1, high, found; /* the range that was looked up last */

static void begin_regions(void)
{
    regions = VG_(newRangeMap)(VG_(malloc), "tlb.regions", VG_(free), (UWord)&elsewhere);
}

static struct region *region_of(Addr a)
{
    if (a < low || a > high)
        VG_(lookupRangeMap)(&low, &high, &found, regions, a);
    return (struct region *)found;
}

static void bind_range(Addr start, Addr end, struct region *r, ULong now)
{
    for (Addr a = start; start <= a && a < end; a = high + 1) {
        struct region *before = region_of(a);
        before->mapped -= (high < end ? high + 1 : end) - a;
        if (!before->mapped)
            before->died = now ? now : 1;
    }
    r->mapped += end - start;
    VG_(bindRangeMap)(regions, start, end - 1, (UWord)r);
    low = 1, high = 0;
}

static void add_range(Addr start, Addr end, ULong site, ULong now)
{
    struct region *r = region_of(start - 1);
    /* A heap that grows at its end, for the same reason, is one region. */
    if (!site || r->site != site) {
        r = VG_(calloc)("tlb.region", 1, sizeof *r);
        r->older = newest, r->number = newest->number + 1, newest = r;
        r->site = site, r->born = now;
    }
    r->bytes += end - start;
    bind_range(start, end, r, now);
}

static void add_counts(struct counts *to, const struct counts *from)
{
    to->misses += from->misses, to->walks += from->walks, to->chained += from->chained;
    to->alone += from->alone, to->large_walks += from->large_walks;
}
#endif
