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

/* The loads of the block that a value comes from, a bit each. */
typedef ULong origin;
#define MOST_LOADS 64 /* of a block */

static origin *temporaries, in_register[REGISTERS];

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

/* Follow values through the block. Mark the instruction of each load that waits for itself. */
static void follow(const IRSB *block)
{
    Addr now = 0;
    UInt loads = 0;
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
                origin itself = 1ULL << loads++;
                if (*result & itself)
                    instruction_at(now)->is_chain = True;
                *result |= itself;
            }
        }
    }
}

/* Repeat the block as a loop does, until its registers come from no further loads. */
static void find_chains(const IRSB *block)
{
    origin before[REGISTERS];
    temporaries = VG_(calloc)("tlb.origins", block->tyenv->types_used, sizeof *temporaries);
    VG_(memset)(in_register, 0, sizeof in_register);
    do {
        VG_(memcpy)(before, in_register, sizeof before);
        follow(block);
    } while (VG_(memcmp)(before, in_register, sizeof before));
    VG_(free)(temporaries);
}
