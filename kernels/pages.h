/* pages.h: the page sizes.
 *
 *   base   the machine's own, 4, 16 or 64 KiB (MADV_NOHUGEPAGE)
 *   mTHP   transparent, between base page and THP (MADV_HUGEPAGE, if its own setting allows it)
 *   THP    transparent, one entry of the second page-table level (MADV_HUGEPAGE)
 *   pool   hugetlbfs (MAP_HUGETLB and log2 of its size) */
#ifndef PAGES_H
#define PAGES_H
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB (1ull << 30)
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

enum source { FROM_BASE, FROM_MTHP, FROM_THP, FROM_POOL };
struct page_size {
    const char *name;
    uint64_t bytes;
    enum source source;
};

static const struct page_size page_sizes[] = {
    {"4k", 0, FROM_BASE}, /* the base page, whatever its size */
    {"16k", 16 << 10, FROM_MTHP},
    {"32k", 32 << 10, FROM_MTHP},
    {"64k", 64 << 10, FROM_MTHP},
    {"128k", 128 << 10, FROM_MTHP},
    {"256k", 256 << 10, FROM_MTHP},
    {"512k", 512 << 10, FROM_MTHP},
    {"1m", 1 << 20, FROM_MTHP},
    {"thp", 2 << 20, FROM_THP}, /* 32 or 512 MiB on larger base pages, by sysfs */
    {"2m", 2 << 20, FROM_POOL},
    {"1g", GIB, FROM_POOL},
};
enum { PAGE_SIZES = sizeof page_sizes / sizeof *page_sizes };

#define THP "/sys/kernel/mm/transparent_hugepage/"

static inline uint64_t base_page(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static inline uint64_t sysfs_number(const char *path, uint64_t if_absent)
{
    unsigned long long value;
    FILE *f = fopen(path, "r");
    int got = f && fscanf(f, "%llu", &value) == 1;
    if (f) fclose(f);
    return got ? value : if_absent;
}

static inline int sysfs_selects(const char *path, const char *word) /* "always [madvise] never" selects madvise */
{
    char text[256] = "", bracketed[64];
    FILE *f = fopen(path, "r");
    if (f) { if (!fgets(text, sizeof text, f)) text[0] = 0; fclose(f); }
    snprintf(bracketed, sizeof bracketed, "[%s]", word);
    return strstr(text, bracketed) != NULL;
}

static inline uint64_t page_bytes(const struct page_size *p)
{
    return p->source == FROM_BASE ? base_page() : p->source == FROM_THP ? sysfs_number(THP "hpage_pmd_size", p->bytes) : p->bytes;
}

static inline int pool_flags(const struct page_size *p)
{
    return p->source == FROM_POOL ? MAP_HUGETLB | __builtin_ctzll(p->bytes) << MAP_HUGE_SHIFT : 0;
}

static inline const char *pool_path(uint64_t page, const char *file, char *path, size_t n)
{
    snprintf(path, n, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s", page >> 10, file);
    return path;
}

static inline const char *mthp_path(uint64_t page, const char *file, char *path, size_t n)
{
    snprintf(path, n, THP "hugepages-%" PRIu64 "kB/%s", page >> 10, file);
    return path;
}

static inline int mthp_on(uint64_t page) /* "inherit": the common setting decides */
{
    char own[128];
    const char *decides = sysfs_selects(mthp_path(page, "enabled", own, sizeof own), "inherit") ? THP "enabled" : own;
    return sysfs_selects(decides, "always") || sysfs_selects(decides, "madvise");
}

static inline uint64_t mthp_faults(uint64_t page, int fallen)
{
    char path[128];
    return sysfs_number(mthp_path(page, fallen ? "stats/anon_fault_fallback" : "stats/anon_fault_alloc", path, sizeof path), 0);
}
#endif
