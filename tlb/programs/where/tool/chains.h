/* chains.h: loads whose address comes from what they loaded before, by the data flow through one block of code: the loop of a
 * list, a tree or a hash chain is one block, and its load waits for the last one of its kind. Such walks cannot overlap. */
#ifndef CHAINS_H
#define CHAINS_H
#include <pub_tool_basics.h>
#include <pub_tool_libcbase.h>
#include <pub_tool_tooliface.h>

#define MOST_LOADS 64 /* of a block: bits of a word */
#define MOST_TEMPORARIES 8192

/* What a value comes from: registers as the block begins, and loads of this block. */
struct origin {
    ULong registers, loads;
};

static struct origin temporaries[MOST_TEMPORARIES], in_register[64];
/* Where the integer registers are in the guest state, and how many. */
static Int first_register, register_count;

static Int register_at(Int offset)
{
    Int k = (offset - first_register) / 8;
    return offset >= first_register && k < register_count && (offset - first_register) % 8 == 0 ? k : -1;
}

static struct origin both(struct origin a, struct origin b)
{
    return (struct origin){a.registers | b.registers, a.loads | b.loads};
}

static struct origin origin_of(const IRExpr *e)
{
    struct origin none = {0, 0};
    switch (e->tag) {
    case Iex_RdTmp:
        return temporaries[e->Iex.RdTmp.tmp];
    case Iex_Get: {
        Int k = register_at(e->Iex.Get.offset);
        return k < 0 ? none : in_register[k];
    }
    case Iex_Unop:
        return origin_of(e->Iex.Unop.arg);
    case Iex_Binop:
        return both(origin_of(e->Iex.Binop.arg1), origin_of(e->Iex.Binop.arg2));
    case Iex_Triop:
        return both(origin_of(e->Iex.Triop.details->arg2), origin_of(e->Iex.Triop.details->arg3));
    case Iex_ITE:
        return both(origin_of(e->Iex.ITE.iftrue), origin_of(e->Iex.ITE.iffalse));
    case Iex_Load:
        return origin_of(e->Iex.Load.addr);
    default:
        return none;
    }
}

/* Registers that decide an address, followed back through as many rounds of the block as there are registers: the loads that
 * they come from. */
static ULong loads_behind(ULong registers)
{
    ULong seen = 0, loads = 0;
    while (registers & ~seen) {
        ULong now = registers & ~seen;
        seen |= now;
        for (Int k = 0; k < register_count; k++)
            if (now >> k & 1)
                registers |= in_register[k].registers, loads |= in_register[k].loads;
    }
    return loads;
}

/* Call `found` with the instruction of each load that waits for itself. */
static void find_chains(const IRSB *block, void (*found)(Addr instruction))
{
    Addr at[MOST_LOADS];
    ULong needs[MOST_LOADS];
    Int loads = 0;
    Addr now = 0;
    if (block->tyenv->types_used > MOST_TEMPORARIES)
        return;
    VG_(memset)(temporaries, 0, sizeof temporaries[0] * block->tyenv->types_used);
    for (Int k = 0; k < register_count; k++)
        in_register[k] = (struct origin){1ull << k, 0};
    for (Int i = 0; i < block->stmts_used; i++) {
        const IRStmt *s = block->stmts[i];
        if (s->tag == Ist_IMark)
            now = s->Ist.IMark.addr;
        else if (s->tag == Ist_Put && register_at(s->Ist.Put.offset) >= 0)
            in_register[register_at(s->Ist.Put.offset)] = origin_of(s->Ist.Put.data);
        else if (s->tag == Ist_WrTmp) {
            struct origin o = origin_of(s->Ist.WrTmp.data);
            if (s->Ist.WrTmp.data->tag == Iex_Load && loads < MOST_LOADS) {
                at[loads] = now, needs[loads] = o.registers;
                o.loads |= 1ull << loads++;
            }
            temporaries[s->Ist.WrTmp.tmp] = o;
        }
    }
    for (Int i = 0; i < loads; i++)
        if (loads_behind(needs[i]) >> i & 1)
            found(at[i]);
}
#endif
