/* chains.h: loads whose address comes from what they loaded before, by the data flow through one
 * block of code: the loop of a list, a tree or a hash chain is one block, and its load waits for
 * the last one of its kind. Such walks cannot overlap. */
#pragma once
#include "counts.h"
#include <libvex_ir.h>
#include <libvex_guest_offsets.h>
/* Where the integer registers are in the guest state, and how many. */
#if defined(VGA_amd64)
#define FIRST_REGISTER OFFSET_amd64_RAX
#define REGISTERS 16
#else
#define FIRST_REGISTER OFFSET_arm64_X0
#define REGISTERS 31
#endif

#define MOST_LOADS 64 /* of a block */
#define MOST_TEMPORARIES 8192

/* What a value comes from, a bit each: registers as the block begins, then loads of this block. */
typedef unsigned __int128 origin;
#define REGISTER(k) ((origin)1 << (k))
#define LOAD(k) ((origin)1 << (REGISTERS + (k)))

static origin temporaries[MOST_TEMPORARIES], in_register[REGISTERS];

static Int register_at(Int offset)
{
    Int k = (offset - FIRST_REGISTER) / 8;
    return offset == FIRST_REGISTER + 8 * k && 0 <= k && k < REGISTERS ? k : -1;
}

static origin origin_of(const IRExpr *e)
{
    Int k = e->tag == Iex_Get ? register_at(e->Iex.Get.offset) : -1;
    switch (e->tag) {
    case Iex_RdTmp:
        return temporaries[e->Iex.RdTmp.tmp];
    case Iex_Unop:
        return origin_of(e->Iex.Unop.arg);
    case Iex_Binop:
        return origin_of(e->Iex.Binop.arg1) | origin_of(e->Iex.Binop.arg2);
    case Iex_Triop:
        return origin_of(e->Iex.Triop.details->arg2) | origin_of(e->Iex.Triop.details->arg3);
    case Iex_ITE:
        return origin_of(e->Iex.ITE.iftrue) | origin_of(e->Iex.ITE.iffalse);
    case Iex_Load:
        return origin_of(e->Iex.Load.addr);
    default:
        return k < 0 ? 0 : in_register[k];
    }
}

/* An origin with those of its registers, and theirs, through as many rounds of the block as it
 * takes until there are no more. */
static origin followed(origin from)
{
    origin before = 0;
    while (from != before) {
        before = from;
        for (Int k = 0; k < REGISTERS; k++)
            if (from & REGISTER(k))
                from |= in_register[k];
    }
    return from;
}

/* Mark the instruction of each load that waits for itself. */
static void find_chains(const IRSB *block)
{
    Addr at[MOST_LOADS], now = 0;
    origin needs[MOST_LOADS];
    Int loads = 0;
    if (block->tyenv->types_used > MOST_TEMPORARIES)
        return;
    VG_(memset)(temporaries, 0, sizeof temporaries[0] * block->tyenv->types_used);
    for (Int k = 0; k < REGISTERS; k++)
        in_register[k] = REGISTER(k);
    for (Int i = 0; i < block->stmts_used; i++) {
        const IRStmt *s = block->stmts[i];
        if (s->tag == Ist_IMark)
            now = s->Ist.IMark.addr;
        else if (s->tag == Ist_Put && register_at(s->Ist.Put.offset) >= 0)
            in_register[register_at(s->Ist.Put.offset)] = origin_of(s->Ist.Put.data);
        else if (s->tag == Ist_WrTmp) {
            origin *result = &temporaries[s->Ist.WrTmp.tmp];
            *result = origin_of(s->Ist.WrTmp.data);
            if (s->Ist.WrTmp.data->tag == Iex_Load && loads < MOST_LOADS) {
                at[loads] = now, needs[loads] = *result;
                *result |= LOAD(loads++);
            }
        }
    }
    for (Int i = 0; i < loads; i++)
        if (followed(needs[i]) & LOAD(i))
            instruction_at(at[i])->is_chain = True;
}
