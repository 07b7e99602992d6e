/* instructions.h: what each instruction did in each region. */
#ifndef INSTRUCTIONS_H
#define INSTRUCTIONS_H
#include "regions.h"
#include <pub_tool_hashtable.h>

/* Each begins as a VgHashNode. */
struct instruction {
    struct instruction *next;
    Addr at;
    UInt number, length;
    Bool is_chain, is_printed;
    struct pair *latest;
};

struct counts {
    ULong misses, walks, chained, alone, large_walks; /* large: as if all pages had 2 MiB */
};

struct pair {
    struct pair *next;
    UWord key;
    struct instruction *instruction;
    struct region *region;
    struct counts is;
};

static VgHashTable *instructions, *pairs;

static struct instruction *instruction_at(Addr at)
{
    struct instruction *i = VG_(HT_lookup)(instructions, at);
    if (!i) {
        i = VG_(calloc)("tlb.instruction", 1, sizeof *i);
        i->at = at, i->number = VG_(HT_count_nodes)(instructions);
        VG_(HT_add_node)(instructions, i);
    }
    return i;
}

static struct counts *counts_of(struct instruction *i, struct region *r)
{
    UWord key = (UWord)i * 0x9E3779B97F4A7C15ull ^ (UWord)r; /* as good as unique */
    struct pair *p = i->latest;
    if (p && p->region == r)
        return &p->is;
    p = VG_(HT_lookup)(pairs, key);
    if (!p) {
        p = VG_(calloc)("tlb.pair", 1, sizeof *p);
        p->key = key, p->instruction = i, p->region = r;
        VG_(HT_add_node)(pairs, p);
    }
    i->latest = p;
    return &p->is;
}
#endif
