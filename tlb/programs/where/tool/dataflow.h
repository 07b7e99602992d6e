/* dataflow.h: adds to each block the statements (libvex_ir.h) that carry, beside each value, the
 * end of the latest walk that it comes from (schedule.h): through registers, temporaries and
 * memory. Registers have theirs in the first of the two shadow states that VEX has room for. Memory
 * has its in a small table: a value that was stored longer ago than a window is ready in any case,
 * so what others overwrite in the table is lost without harm. Flags, vectors and floating-point
 * values are followed within a block, where their use mostly is; they seldom become addresses. */
#pragma once
#include "schedule.h"
#include <libvex_guest_amd64.h>
#include <libvex_guest_arm64.h>
#include <pub_tool_machine.h>
#if defined(VGA_amd64)
#define FLAGS_AT offsetof(VexGuestAMD64State, guest_CC_DEP1)
#else
#define FLAGS_AT offsetof(VexGuestARM64State, guest_CC_DEP1)
#endif
#define FLAGS_END (FLAGS_AT + 16) /* two operands, of which VEX calculates flags */

#define SLOTS 4096 /* of 4 bytes of memory each */
static ULong slots[SLOTS + 8 /* a vector may end beyond */];

static const VexGuestLayout *guest;
static IRExpr **ready; /* of the block's temporaries; NULL: from the start */

static IRExpr *constant(ULong value) { return IRExpr_Const(IRConst_U64(value)); }
static IRExpr *bits(UInt number) { return IRExpr_Const(IRConst_U8((UChar)number)); }

/* Add a statement that assigns a value; return what it assigned to. */
static IRExpr *assigned(IRSB *block, IRExpr *value)
{
    IRTemp t = newIRTemp(block->tyenv, typeOfIRExpr(block->tyenv, value));
    addStmtToIRSB(block, IRStmt_WrTmp(t, value));
    return IRExpr_RdTmp(t);
}

static IRExpr *calculated(IRSB *block, IROp operation, IRExpr *a, IRExpr *b)
{
    return assigned(block, IRExpr_Binop(operation, a, b));
}

static IRExpr *loaded(IRSB *block, IRExpr *address)
{
    return assigned(block, IRExpr_Load(Iend_LE, Ity_I64, address));
}

static IRExpr *later(IRSB *block, IRExpr *a, IRExpr *b)
{
    if (!a || !b || eqIRAtom(a, b))
        return a ? a : b;
    return assigned(block, IRExpr_ITE(calculated(block, Iop_CmpLT64U, a, b), b, a));
}

static IRExpr *or_start(IRExpr *time) { return time ? time : constant(0); }

/* Where the shadow state has the time of a register; 0 for those that are not followed. */
static Int shadow_of(Int offset, IRType type)
{
    Bool is_flag = FLAGS_AT <= (UInt)offset && (UInt)offset < FLAGS_END;
    if (is_flag || offset == guest->offset_SP || type < Ity_I8 || type > Ity_I64)
        return 0;
    for (Int i = 0; i < guest->n_alwaysDefd; i++) /* for Memcheck: what is no program's value */
        if (offset == guest->alwaysDefd[i].offset)
            return 0;
    return (offset & ~7) + guest->total_sizeB;
}

static IRExpr *ready_of(IRSB *block, const IRExpr *e)
{
    IRExpr *time = NULL;
    Int shadow;
    switch (e->tag) {
    case Iex_RdTmp:
        return ready[e->Iex.RdTmp.tmp];
    case Iex_Get:
        shadow = shadow_of(e->Iex.Get.offset, e->Iex.Get.ty);
        return shadow ? assigned(block, IRExpr_Get(shadow, Ity_I64)) : NULL;
    case Iex_Unop:
        return ready_of(block, e->Iex.Unop.arg);
    case Iex_Binop:
        time = ready_of(block, e->Iex.Binop.arg1);
        return later(block, time, ready_of(block, e->Iex.Binop.arg2));
    case Iex_Triop: /* the first argument is a rounding mode */
        time = ready_of(block, e->Iex.Triop.details->arg2);
        return later(block, time, ready_of(block, e->Iex.Triop.details->arg3));
    case Iex_ITE:
        time = ready_of(block, e->Iex.ITE.iftrue);
        time = later(block, time, ready_of(block, e->Iex.ITE.iffalse));
        return later(block, time, ready_of(block, e->Iex.ITE.cond));
    case Iex_CCall:
        for (IRExpr **arg = e->Iex.CCall.args; *arg; arg++)
            time = later(block, time, ready_of(block, *arg));
        return time;
    default:
        return NULL;
    }
}

/* The address of the table's entry for a place in memory. */
static IRExpr *slot_of(IRSB *block, IRExpr *address)
{
    IRExpr *twice = calculated(block, Iop_Shl64, address, bits(1));
    IRExpr *offset = calculated(block, Iop_And64, twice, constant(8 * (SLOTS - 1)));
    return calculated(block, Iop_Add64, offset, constant((HWord)slots));
}

static IRExpr *slot_after(IRSB *block, IRExpr *slot, Int bytes)
{
    return bytes ? calculated(block, Iop_Add64, slot, constant(2 * (ULong)bytes)) : slot;
}

/* A value that was loaded waits for its address, and for what the table has of its place. */
static IRExpr *ready_of_load(IRSB *block, const IRExpr *load)
{
    IRExpr *time = ready_of(block, load->Iex.Load.addr);
    IRExpr *slot = slot_of(block, load->Iex.Load.addr);
    for (Int i = 0; i == 0 || i < sizeofIRType(load->Iex.Load.ty); i += 8)
        time = later(block, time, loaded(block, slot_after(block, slot, i)));
    return time;
}

/* The load that comes next, of this place, waits for the walk of its page. Others that share its
 * entry do not. */
static void note_walk(Addr a, ULong end)
{
    static ULong *noted = slots, before, noted_end;
    if (*noted == noted_end)
        *noted = before;
    noted = &slots[(a >> 2) % SLOTS];
    before = *noted;
    *noted = noted_end = before < end ? end : before;
}

static void store_time(IRSB *block, const IRStmt *s)
{
    IRExpr *slot = slot_of(block, s->Ist.Store.addr);
    IRExpr *time = or_start(ready_of(block, s->Ist.Store.data));
    Int bytes = sizeofIRType(typeOfIRExpr(block->tyenv, s->Ist.Store.data));
    for (Int i = 0; i == 0 || i < bytes; i += 8)
        addStmtToIRSB(block, IRStmt_Store(Iend_LE, slot_after(block, slot, i), time));
}

/* if (floor < time of the condition) decide_branch(...); */
static void add_branch(IRSB *block, const IRStmt *s, Addr at)
{
    IRExpr *time = ready_of(block, s->Ist.Exit.guard);
    if (!time || s->Ist.Exit.jk != Ijk_Boring)
        return;
    /* Where it leads tells apart both ways to translate one branch. */
    ULong branch = at ^ s->Ist.Exit.dst->Ico.U64 << 20;
    IRExpr *is_taken = assigned(block, IRExpr_Unop(Iop_1Uto64, s->Ist.Exit.guard));
    IRDirty *call = unsafeIRDirty_0_N(3, "decide_branch", VG_(fnptr_to_fnentry)(&decide_branch),
                                      mkIRExprVec_3(constant(branch), is_taken, time));
    call->guard = calculated(block, Iop_CmpLT64U, loaded(block, constant((HWord)&floor)), time);
    addStmtToIRSB(block, IRStmt_Dirty(call));
}

/* Follow values through a statement of the instruction `at`, before it: what it reads is as it
 * finds it. Loads are followed after it. */
static void follow(IRSB *block, const IRStmt *s, Addr at)
{
    if (s->tag == Ist_WrTmp && s->Ist.WrTmp.data->tag != Iex_Load)
        ready[s->Ist.WrTmp.tmp] = ready_of(block, s->Ist.WrTmp.data);
    else if (s->tag == Ist_Put) {
        IRType type = typeOfIRExpr(block->tyenv, s->Ist.Put.data);
        Int shadow = shadow_of(s->Ist.Put.offset, type);
        if (shadow)
            addStmtToIRSB(block, IRStmt_Put(shadow, or_start(ready_of(block, s->Ist.Put.data))));
    } else if (s->tag == Ist_Store)
        store_time(block, s);
    else if (s->tag == Ist_Exit)
        add_branch(block, s, at);
}
