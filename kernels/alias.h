/* alias.h: many virtual pages on eight physical ones, or as many more as 8192 mappings need (a process may have 65530). */
#ifndef ALIAS_H
#define ALIAS_H
#include "arena.h"

/* Code: write through one mapping, unmap it, then map executable. */
static inline struct arena map_aliased(const struct config *c, const char *name, int rights, void (*fill)(char *line))
{
    struct arena a = reserve(c);
    int pool = c->pages->source == FROM_POOL;
    a.physical = 8 * a.page;
    while (!pool && a.bytes / a.physical > 8192)
        a.physical *= 2;
    int fd = file_in_memory(name, a.physical, pool ? MFD_HUGETLB | (unsigned)__builtin_ctzll(a.page) << MAP_HUGE_SHIFT : 0);
    char *memory = fd < 0 ? MAP_FAILED : mmap(NULL, a.physical, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        unavailable(pool ? "pool-empty" : "memory-short", "memfd of %" PRIu64 " pages of %s: %s", a.physical / a.page, c->pages->name,
                    strerror(errno));
    pool_page = pool ? a.page : 0;
    if (!pool)
        madvise(memory, a.physical, MADV_NOHUGEPAGE);
    /* Descending, because some TLBs merge pages that ascend both virtually and physically into one entry. */
    for (uint64_t at = a.physical; at; at -= LINE)
        fill(memory + at - LINE);
    if (rights & PROT_EXEC) {
        __builtin___clear_cache(memory, memory + a.physical);
        munmap(memory, a.physical);
    } else {
        keep(memory, a.physical, -1);
    }
    for (uint64_t at = 0; at < a.bytes; at += a.physical) {
        uint64_t bytes = a.bytes - at < a.physical ? a.bytes - at : a.physical;
        if (mmap(a.base + at, bytes, rights, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            unavailable(rights & PROT_EXEC && errno != ENOMEM ? "not-permitted" : "memory-short", "page %" PRIu64 " could not be mapped: %s",
                        at / a.page, strerror(errno));
    }
    a.resident = c->lines * (a.stride < a.page ? a.stride : a.page);
    return a;
}
#endif
