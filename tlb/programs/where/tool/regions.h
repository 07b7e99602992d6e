/* regions.h: which allocation an address belongs to. A region is what one mmap or brk gave, or a part of it that the preloaded
 * library (sites.c) has named: the site is a digest of the stack that asked. Regions that are gone keep their counts. */
#ifndef REGIONS_H
#define REGIONS_H
#include <pub_tool_basics.h>
#include <pub_tool_libcassert.h>
#include <pub_tool_mallocfree.h>

struct counts {
    ULong misses, walks, chained, alone, large_walks; /* large: with the page size of THP everywhere */
};

struct region {
    Addr start, end;
    ULong site;       /* 0: none has named it */
    ULong bytes;      /* when it was made */
    ULong born, died; /* by the count of instructions; died 0: it is there */
    struct counts is;
};

#define MOST_REGIONS 65536
static struct region *regions;
static UInt region_count, live_count, latest;
static UInt *live; /* indices of the living, by address */
static struct region elsewhere;

static void begin_regions(void)
{
    regions = VG_(calloc)("tlb.regions", MOST_REGIONS, sizeof *regions);
    live = VG_(calloc)("tlb.live", MOST_REGIONS, sizeof *live);
}

/* The first living region that ends beyond an address. */
static UInt first_beyond(Addr a)
{
    UInt low = 0, high = live_count;
    while (low < high) {
        UInt middle = (low + high) / 2;
        if (regions[live[middle]].end > a)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct region *region_of(Addr a)
{
    struct region *r = &regions[latest];
    if (latest < region_count && !r->died && r->start <= a && a < r->end)
        return r;
    UInt at = first_beyond(a);
    if (at == live_count || regions[live[at]].start > a)
        return &elsewhere;
    latest = live[at];
    return &regions[latest];
}

static struct region *insert(Addr start, Addr end, ULong site, ULong now)
{
    if (region_count == MOST_REGIONS)
        return &elsewhere;
    UInt at = first_beyond(start);
    for (UInt i = live_count; i > at; i--)
        live[i] = live[i - 1];
    live[at] = region_count, live_count++;
    struct region *r = &regions[region_count++];
    r->start = start, r->end = end, r->site = site, r->bytes = end - start, r->born = now;
    return r;
}

/* Take addresses out of the living regions: what is cut on one side shrinks, and a hole makes two of one. */
static void remove_range(Addr start, Addr end, ULong now)
{
    for (UInt at = first_beyond(start); at < live_count && regions[live[at]].start < end;) {
        struct region *r = &regions[live[at]];
        if (start <= r->start && r->end <= end) {
            r->died = now ? now : 1;
            live_count--;
            for (UInt i = at; i < live_count; i++)
                live[i] = live[i + 1];
            continue;
        }
        if (start <= r->start)
            r->start = end;
        else if (r->end <= end)
            r->end = start;
        else {
            Addr rest = r->end;
            r->end = start;
            insert(end, rest, r->site, now);
        }
        at++;
    }
}

static void add_range(Addr start, Addr end, ULong site, ULong now)
{
    remove_range(start, end, now);
    /* A heap that grows at its end, for the same reason, is one region. */
    UInt at = first_beyond(start - 1);
    struct region *before = at < live_count ? &regions[live[at]] : NULL;
    if (before && before->end == start && before->site == site) {
        before->end = end;
        before->bytes += end - start;
    } else
        insert(start, end, site, now);
}

static void add_counts(struct counts *to, const struct counts *from)
{
    to->misses += from->misses, to->walks += from->walks, to->chained += from->chained;
    to->alone += from->alone, to->large_walks += from->large_walks;
}
#endif
