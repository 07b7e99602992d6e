/* numa_chase: page_chase's chase with its memory on one NUMA node and its page tables on another. A mode is MEMORY-TABLES:
 * local is the measuring CPU's node, remote the farthest one.
 *
 * Page tables follow the policy of the thread that faults the memory in (Linux,
 * Documentation/admin-guide/mm/numa_memory_policy.rst, "Task/Process Policy"). So the thread binds itself (set_mempolicy) to
 * the tables' node while it first touches each page. No process can read where tables lie; move_pages checks where memory
 * lies. */
#include "chase.h"
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

enum { WORD = 8 * sizeof(unsigned long) };

struct nodes {
    int local, remote, distance;
};

/* The CPU's node and the farthest other one with "normal" memory that this process may use (movable memory holds no tables). */
static struct nodes find_nodes(int cpu)
{
    static int online[MOST_CPUS], normal[MOST_CPUS], found[MOST_CPUS];
    unsigned long allowed[MOST_NODES / WORD] = {0};
    char path[128];
    struct nodes n = {-1, -1, 0};
    int nodes = numbers_in(NODES "online", online), usable = 0, with_memory = numbers_in(NODES "has_normal_memory", normal);
    if (with_memory < 2)
        unavailable("one-cpu", "nodes online: %d, with memory for page tables: %d", nodes, with_memory);
    if (syscall(SYS_get_mempolicy, NULL, allowed, (unsigned long)MOST_NODES, NULL, (unsigned long)MPOL_F_MEMS_ALLOWED))
        unavailable("not-permitted", "get_mempolicy: %s", strerror(errno));
    for (int i = 0; i < with_memory; i++)
        if (normal[i] < MOST_NODES && allowed[normal[i] / WORD] >> normal[i] % WORD & 1)
            normal[usable++] = normal[i];
    n.local = node_of(cpu, online, nodes);
    if (!is_in(normal, usable, n.local))
        unavailable("not-permitted", "CPU %d is on node %d, on which this process may have no memory; name another with --cpu, or widen cpuset.mems", cpu, n.local);
    snprintf(path, sizeof path, NODES "node%d/distance", n.local);
    for (int i = numbers_in(path, found) - 1; i >= 0; i--)
        if (i < nodes && online[i] != n.local && is_in(normal, usable, online[i]) && found[i] >= n.distance) {
            n.remote = online[i];
            n.distance = found[i];
        }
    if (n.remote < 0)
        unavailable("not-permitted", "of %d nodes with memory this process may use node %d alone", with_memory, n.local);
    return n;
}

/* Free memory and page cache of a node; binding to a node with less makes Linux kill a process, perhaps another user's. */
static uint64_t spare_bytes(int node)
{
    char path[128], line[256], field[32];
    unsigned long long kb, sum = 0;
    snprintf(path, sizeof path, NODES "node%d/meminfo", node);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Node %*d %31[^:]: %llu kB", field, &kb) == 2
            && (!strcmp(field, "MemFree") || !strcmp(field, "Active(file)") || !strcmp(field, "Inactive(file)")))
            sum += kb;
    if (f) fclose(f);
    return sum << 10;
}

static unsigned long *mask_of(int node)
{
    static unsigned long mask[MOST_NODES / WORD];
    memset(mask, 0, sizeof mask);
    mask[node / WORD] = 1ul << node % WORD;
    return mask;
}

static struct nodes nodes;
static int memory_node(const struct config *c) { return strncmp(c->mode, "remote", 6) ? nodes.local : nodes.remote; }
static int table_node(const struct config *c) { return strstr(c->mode, "-remote") ? nodes.remote : nodes.local; }

static struct arena map_on_nodes(const struct config *c)
{
    nodes = find_nodes(c->cpu);
    struct arena reserved = reserve(c), *a = &reserved;
    int memory = memory_node(c), tables = table_node(c);
    lay_arena(c, a);
    uint64_t spare = spare_bytes(memory);
    if (!pool_page && a->resident > spare / 2) /* half at most, as in tlb/machine/memory.py */
        unavailable("memory-short", "%" PRIu64 " MiB needed on node %d, which has %" PRIu64 " MiB free", a->resident >> 20, memory,
                    spare >> 20);
    if (syscall(SYS_mbind, a->base, a->bytes, (unsigned long)MPOL_BIND, mask_of(memory), (unsigned long)MOST_NODES, 0ul))
        unavailable("not-permitted", "mbind to node %d: %s", memory, strerror(errno));
    if (syscall(SYS_set_mempolicy, (unsigned long)MPOL_BIND, mask_of(tables), (unsigned long)MOST_NODES))
        unavailable("not-permitted", "set_mempolicy to node %d: %s", tables, strerror(errno));
    for (uint64_t at = 0; at < a->working_set; at += a->resident < a->bytes ? a->stride : base_page())
        *(volatile char *)(a->base + at) = 1; /* never zero, which KSM merges */
    if (syscall(SYS_set_mempolicy, (unsigned long)MPOL_DEFAULT, NULL, 0ul))
        unavailable("not-permitted", "set_mempolicy back to the default: %s", strerror(errno));
    return reserved;
}

static void verify_node(const struct arena *a, int node)
{
    int64_t elsewhere = pages_off(a, node);
    if (elsewhere < 0)
        unavailable("not-permitted", "move_pages, to see where memory lies: %s", strerror(errno));
    if (elsewhere)
        unavailable("not-permitted", "%" PRId64 " of %" PRIu64 " pages are not on node %d", elsewhere, a->resident / a->page, node);
}

static struct region measure_on_nodes(const struct config *c, const struct arena *a)
{
    int memory = memory_node(c);
    also("memory_node", memory);
    also("table_node", table_node(c));
    also("remote_distance", nodes.distance); /* by the firmware; 10 is a node's own */
    verify_node(a, memory);
    struct region r = measure_cycle(c, a, 1);
    verify_node(a, memory);
    return r;
}

static const struct kernel numa_chase = {.name = "numa_chase", .orders = {"cycle"}, .layouts = {"spread", "packed"},
    .modes = {"local-local", "remote-local", "local-remote", "remote-remote"}, .map = map_on_nodes, .measure = measure_on_nodes};

int main(int argc, char **argv) { return measure_alone(&numa_chase, argc, argv); }
