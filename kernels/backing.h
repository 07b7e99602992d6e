/* backing.h: the proof that an arena lies on the page size asked for, by /proc/self/smaps, and what its pages cost in page tables.
 *
 * It is read before the lines of a point are placed and after the timed region, and never in between: reading it takes 40 ms for 2 GiB of
 * base pages, puts what a chase left in the caches out of them, and fills the TLB in another order. No warm-up undoes all of that.
 *
 * Page tables are "page_table_bytes" in the record: VmPTE of /proc/self/status, eight bytes a base page, in tables of a base page each.
 * Pages of a pool take as much less as they are larger. Transparent ones of 2 MiB do not: Linux sets a table aside for each, to be able to
 * split it, and counts it, though no walk reads it. */
#ifndef BACKING_H
#define BACKING_H
#include "arena.h"

/* What smaps states of the mappings of an arena, in kB; odd: mappings of another page size, or that do not state both. */
struct stated { unsigned long long mapped, thp, odd; };

static inline struct stated read_smaps(const struct arena *a, unsigned long long expected_kb)
{
    char line[512], field[32], digits[16];
    unsigned long long from = 0, to = 0, kb;
    struct stated s = {0, 0, 0};
    enum { SIZE = 1, ON_THP = 2, ALL = 3 };
    int inside = 0, end, stated = ALL; /* a mapping that does not state both proves nothing */
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f)
        unavailable("backing-partial", "/proc/self/smaps cannot be read: %s", strerror(errno));
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && !strstr(line, " kB")) {
            s.odd += stated != ALL;
            inside = from < (uint64_t)a->base + a->bytes && to > (uint64_t)a->base;
            stated = inside ? 0 : ALL;
            continue;
        }
        end = 0; /* digits and not %llu, which takes "-8" for a very large number */
        if (!inside || sscanf(line, "%31[^:]: %15[0-9] kB%n", field, digits, &end) != 2 || !end)
            continue;
        kb = strtoull(digits, NULL, 10);
        if (!strcmp(field, "Rss") || !strcmp(field, "Private_Hugetlb") || !strcmp(field, "Shared_Hugetlb")) {
            s.mapped += kb;
        } else if (!strcmp(field, "KernelPageSize")) {
            s.odd += kb != expected_kb;
            stated |= SIZE;
        } else if (!strcmp(field, "AnonHugePages") || !strcmp(field, "ShmemPmdMapped")) {
            s.thp += kb;
            stated |= field[0] == 'A' ? ON_THP : 0;
        }
    }
    s.odd += stated != ALL;
    fclose(f);
    return s;
}

/* Every byte of the arena is on the page size asked for, or there is no measurement. Linux reports a pool's pages in
 * KernelPageSize and THP in AnonHugePages; an mTHP shows in neither, so for it every one of our faults must be in the kernel's
 * allocation counter and none, of any process, in its fallback counter. Returns the bytes that are resident. */
static inline uint64_t verify_backing(const struct config *c, const struct arena *a)
{
    enum source source = c->pages->source;
    struct stated s = read_smaps(a, (source == FROM_POOL ? page_bytes(c->pages) : base_page()) >> 10);
    unsigned long long whole = a->resident >> 10, want_thp = source == FROM_THP ? whole : 0;
    if (s.odd || s.mapped < whole || s.thp != want_thp)
        unavailable("backing-partial",
                    "asked for %llu kB on %s; smaps shows %llu kB resident, %llu kB on THP, %llu mappings of another size or none",
                    whole, c->pages->name, s.mapped, s.thp, s.odd);
    if (source == FROM_MTHP) {
        uint64_t page = page_bytes(c->pages), needed = a->bytes / page;
        uint64_t got = mthp_faults(page, 0) - a->mthp_taken, fell_back = mthp_faults(page, 1) - a->mthp_fallen;
        if (got < needed || fell_back)
            unavailable("backing-partial", "%" PRIu64 " of %" PRIu64 " pages of %s allocated, %" PRIu64 " fell back", got, needed,
                        c->pages->name, fell_back);
    }
    return s.mapped << 10;
}

/* This process's page tables, in bytes; 0 where /proc does not state them. */
static inline uint64_t page_table_bytes(void)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmPTE: %llu kB", &kb) == 1)
            break;
    if (f) fclose(f);
    return kb << 10;
}
#endif
