/* instructions.h: what each instruction did, and how many of its walks went to which region: two hash tables of fixed size. */
#ifndef INSTRUCTIONS_H
#define INSTRUCTIONS_H
#include "regions.h"

#define MOST_INSTRUCTIONS (1u << 20)
#define MOST_PAIRS (1u << 18) /* of an instruction and a region */

struct instruction {
    Addr at;
    Bool is_chain;
    struct counts is;
};

struct pair {
    struct instruction *instruction;
    struct region *region;
    ULong walks;
};

static struct instruction *instructions;
static struct pair *pairs;
static Bool is_full; /* one of the tables, so that counts are at another place: the output says it */

static void begin_instructions(void)
{
    instructions = VG_(calloc)("tlb.instructions", MOST_INSTRUCTIONS, sizeof *instructions);
    pairs = VG_(calloc)("tlb.pairs", MOST_PAIRS, sizeof *pairs);
}

static struct instruction *instruction_at(Addr at)
{
    UInt k = (UInt)((at * 0x9E3779B97F4A7C15ull) >> 44) % MOST_INSTRUCTIONS, tries = 0;
    while (instructions[k].at && instructions[k].at != at && tries++ < 4096)
        k = (k + 1) % MOST_INSTRUCTIONS;
    if (instructions[k].at && instructions[k].at != at)
        is_full = True; /* its counts go to another one, which the output says */
    else
        instructions[k].at = at;
    return &instructions[k];
}

static void mark_chain(Addr at) { instruction_at(at)->is_chain = True; }

static void count_pair(struct instruction *i, struct region *r)
{
    ULong mixed = ((Addr)i >> 4) * 0x9E3779B97F4A7C15ull ^ ((Addr)r >> 4) * 0xC2B2AE3D27D4EB4Full;
    UInt k = (UInt)(mixed >> 40) % MOST_PAIRS;
    for (UInt tries = 0; tries < 64; tries++, k = (k + 1) % MOST_PAIRS) {
        if (!pairs[k].instruction)
            pairs[k].instruction = i, pairs[k].region = r;
        if (pairs[k].instruction == i && pairs[k].region == r) {
            pairs[k].walks++;
            return;
        }
    }
    is_full = True;
}
#endif
