/* nodes.h: the NUMA node of a CPU and of pages. */
#ifndef NODES_H
#define NODES_H
#include "region.h"
#include <sys/syscall.h>

#define NODES "/sys/devices/system/node/"
enum { MOST_NODES = 1024 }; /* Linux's limit: 1 << NODES_SHIFT */

/* Read a sysfs list ("0-3,8" or "10 21"), MOST_CPUS numbers at most; return how many. */
static inline int numbers_in(const char *path, int *into)
{
    int n = 0, from, to, got;
    FILE *f = fopen(path, "r");
    while (f && (got = fscanf(f, "%d-%d", &from, &to)) >= 1) {
        for (int i = from; i <= (got == 1 ? from : to) && n < MOST_CPUS; i++)
            into[n++] = i;
        if (fscanf(f, ",") == EOF)
            break;
    }
    if (f) fclose(f);
    return n;
}

static inline int is_in(const int *numbers, int n, int wanted)
{
    while (n && numbers[n - 1] != wanted)
        n--;
    return n != 0;
}

static inline int node_of(int cpu, const int *online, int nodes)
{
    static int cpus[MOST_CPUS];
    char path[128];
    for (int i = 0; i < nodes; i++) {
        snprintf(path, sizeof path, NODES "node%d/cpulist", online[i]);
        if (is_in(cpus, numbers_in(path, cpus), cpu))
            return online[i];
    }
    return -1;
}

static inline int64_t pages_off(const struct arena *a, int node)
{
    enum { AT_ONCE = 512 };
    void *at[AT_ONCE];
    int lies_on[AT_ONCE];
    uint64_t step = a->resident < a->bytes ? a->stride : a->page, pages = a->resident / a->page;
    int64_t elsewhere = 0;
    for (uint64_t done = 0, n; done < pages; done += n) {
        n = pages - done < AT_ONCE ? pages - done : AT_ONCE;
        for (uint64_t i = 0; i < n; i++)
            at[i] = a->base + (done + i) * step;
        if (syscall(SYS_move_pages, 0ul, n, at, NULL, lies_on, 0ul)) /* without target nodes it only reports */
            return -1;
        for (uint64_t i = 0; i < n; i++)
            elsewhere += lies_on[i] != node;
    }
    return elsewhere;
}

/* Report "off_node_pages" where no node is chosen: a full node spills to the next one unnoticed. */
static inline void also_off_node(const struct arena *a, int cpu)
{
    static int online[MOST_CPUS];
    int nodes = numbers_in(NODES "online", online), node = nodes > 1 ? node_of(cpu, online, nodes) : -1;
    int64_t off = node < 0 ? -1 : pages_off(a, node);
    if (off >= 0)
        also("off_node_pages", (double)off);
}
#endif
