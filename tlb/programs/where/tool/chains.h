/* chains.h: loads whose address comes from what they loaded before, by the data flow through one
 * block of code: the loop of a list, a tree or a hash chain is one block, and its load waits for
 * the last one of its kind. Such walks cannot overlap. */
#ifndef CHAINS_H
#define CHAINS_H
#include "instructions.h"
#include <libvex_ir.h>
#include <pub_tool_libcbase.h>
#include <stddef.h>
/* Where the integer registers are in the guest state, and how many. */
#if defined(VGA_amd64)
#include <libvex_guest_amd64.h>
#define FIRST_REGISTER (Int)offsetof(VexGuestAMD64State, guest_RAX)
#define REGISTERS 16
#else
#include <libvex_guest_arm64.h>
#define FIRST_REGISTER (Int)offsetof(VexGuestARM64State, guest_X0)
#define REGISTERS 31
#endif

#define MOST_LOADS 64 /* of a block: bits of a word */
#define MOST_TEMPORARIES 8192

/* What a value comes from: registers as the block begins, and loads of this block. */
struct origin {
    ULong registers, loads;
};

static struct origin temporaries[MOST_TEMPORARIES], in_register[REGISTERS];

static Int register_at(Int offset)
{
    Int k = (offset - FIRST_REGISTER) / 8;
    Bool is_one = offset >= FIRST_REGISTER && k < REGISTERS;
    return is_one && (offset - FIRST_REGISTER) % 8 == 0 ? k : -1;
}

static struct origin origin_of(const IRExpr *e);

static struct origin of_both(const IRExpr *e, const IRExpr *f)
{
    struct origin a = origin_of(e), b = origin_of(f);
    return (struct origin){a.registers | b.registers, a.loads | b.loads};
}

static struct origin origin_of(const IRExpr *e)
{
    Int k = e->tag == Iex_Get ? register_at(e->Iex.Get.offset) : -1;
    switch (e->tag) {
    case Iex_RdTmp:
        return temporaries[e->Iex.RdTmp.tmp];
    case Iex_Unop:
        return origin_of(e->Iex.Unop.arg);
    case Iex_Binop:
        return of_both(e->Iex.Binop.arg1, e->Iex.Binop.arg2);
    case Iex_Triop:
        return of_both(e->Iex.Triop.details->arg2, e->Iex.Triop.details->arg3);
    case Iex_ITE:
        return of_both(e->Iex.ITE.iftrue, e->Iex.ITE.iffalse);
    case Iex_Load:
        return origin_of(e->Iex.Load.addr);
    default:
        return k < 0 ? (struct origin){0, 0} : in_register[k];
    }
}

/* Registers that decide an address, followed back through as many rounds of the block as there are
 * registers: the loads that they come from. */
static ULong loads_behind(ULong registers)
{
    ULong seen = 0, loads = 0;
    while (registers & ~seen) {
        ULong now = registers & ~seen;
        seen |= now;
        for (Int k = 0; k < REGISTERS; k++)
            if (now >> k & 1)
                registers |= in_register[k].registers, loads |= in_register[k].loads;
    }
    return loads;
}

/* Mark the instruction of each load that waits for itself. */
static void find_chains(const IRSB *block)
{
    Addr at[MOST_LOADS], now = 0;
    ULong needs[MOST_LOADS];
    Int loads = 0;
    if (block->tyenv->types_used > MOST_TEMPORARIES)
        return;
    VG_(memset)(temporaries, 0, sizeof temporaries[0] * block->tyenv->types_used);
    for (Int k = 0; k < REGISTERS; k++)
        in_register[k] = (struct origin){1ull << k, 0};
    for (Int i = 0; i < block->stmts_used; i++) {
        const IRStmt *s = block->stmts[i];
        if (s->tag == Ist_IMark)
            now = s->Ist.IMark.addr;
        else if (s->tag == Ist_Put && register_at(s->Ist.Put.offset) >= 0)
            in_register[register_at(s->Ist.Put.offset)] = origin_of(s->Ist.Put.data);
        else if (s->tag == Ist_WrTmp) {
            struct origin *result = &temporaries[s->Ist.WrTmp.tmp];
            *result = origin_of(s->Ist.WrTmp.data);
            if (s->Ist.WrTmp.data->tag == Iex_Load && loads < MOST_LOADS) {
                at[loads] = now, needs[loads] = result->registers;
                result->loads |= 1ull << loads++;
            }
        }
    }
    for (Int i = 0; i < loads; i++)
        if (loads_behind(needs[i]) >> i & 1)
            instruction_at(at[i])->is_chain = True;
}
#endif
