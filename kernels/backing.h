/* backing.h: proof by /proc/PID/smaps that an arena lies on the page size named.
 *
 * smaps is read before the lines are placed and after the timed region, never between: for 2 GiB of base pages that takes 40
 * ms, evicts the lines from the caches and refills the TLB. Nor is it read just before Linux is timed at changing the pages: it
 * reads each page's table entry and struct page, as Linux will. Transparent 2 MiB pages do not reduce "page_table_bytes" (VmPTE),
 * because Linux keeps a spare table to split each. */
#ifndef BACKING_H
#define BACKING_H
#include "arena.h"

/* Sizes in kB; odd: number of mappings with another page size or without a field. */
struct stated { unsigned long long mapped, thp, odd; };

/* process: 0 for this one. */
static inline struct stated read_smaps(const struct arena *a, unsigned long long expected_kb, pid_t process)
{
    char line[512], digits[16], path[32] = "/proc/self/smaps", *number;
    unsigned long long from = 0, to = 0, kb;
    struct stated s = {0, 0, 0};
    enum { SIZE = 1, ON_THP = 2, ALL = 3 };
    int inside = 0, end, stated = ALL;
    if (process)
        snprintf(path, sizeof path, "/proc/%d/smaps", process);
    FILE *f = fopen(path, "r");
    if (!f)
        unavailable("backing-partial", "%s cannot be read: %s", path, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && sscanf(line, "%llx-%llx ", &from, &to) == 2 && !strstr(line, " kB")) {
            s.odd += stated != ALL;
            inside = from < (uint64_t)a->base + a->bytes && to > (uint64_t)a->base;
            stated = inside ? 0 : ALL;
            continue;
        }
        if (!inside || !(number = strchr(line, ':')))
            continue;
        *number++ = 0;
        int is_mapped = !strcmp(line, "Rss") || !strcmp(line, "Private_Hugetlb") || !strcmp(line, "Shared_Hugetlb");
        int is_thp = !strcmp(line, "AnonHugePages") || !strcmp(line, "ShmemPmdMapped"), is_size = !strcmp(line, "KernelPageSize");
        end = 0; /* only digits: %llu would read "-8" as a huge number */
        if (!(is_mapped || is_thp || is_size) || sscanf(number, " %15[0-9] kB%n", digits, &end) != 1 || !end)
            continue;
        kb = strtoull(digits, NULL, 10);
        s.mapped += is_mapped ? kb : 0;
        s.thp += is_thp ? kb : 0;
        s.odd += is_size && kb != expected_kb;
        stated |= is_size ? SIZE : *line == 'A' ? ON_THP : 0;
    }
    s.odd += stated != ALL;
    fclose(f);
    return s;
}

/* smaps shows pool pages in KernelPageSize, THP in AnonHugePages, mTHP nowhere: there each page must have raised the
 * allocation counter and no process the fallback counter. */
static inline uint64_t verify_backing_in(const struct config *c, const struct arena *a, pid_t process)
{
    enum source source = c->pages->source;
    struct stated s = read_smaps(a, (source == FROM_POOL ? page_bytes(c->pages) : base_page()) >> 10, process);
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

static inline uint64_t verify_backing(const struct config *c, const struct arena *a) { return verify_backing_in(c, a, 0); }

/* Write every line, as a program does that has used its memory. This evicts what smaps read of it: without it, 16,384 pages
 * were unmapped in 0.8 of the time, and 512 protected in 0.6; with it, both took as long as without smaps. */
static inline void use_memory(const struct arena *a)
{
    for (uint64_t at = 0; at < a->bytes; at += LINE)
        *(volatile char *)(a->base + at) = 1;
}

/* 0 if /proc does not say. */
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
