/* python.h: which Python function runs. With PYTHONPERFSUPPORT=1, CPython from 3.12 enters each function
 * by a trampoline of its own: a dozen bytes in anonymous memory that call the evaluator and return
 * (Python/asm_trampoline.S). It names them in /tmp/perf-PID.map, as other programs name what they compile. */
#pragma once
#include "counts.h"

#define TRAMPOLINE_BYTES 16
#define PYTHON_FRAMES 4096 /* four times CPython's limit of recursion; what is deeper counts for these */
#define FRAME_BYTES 64     /* of the stack, between a trampoline's entry and its return, at most */

struct python_frame {
    struct instruction *function; /* the first of its trampoline */
    Addr stack_pointer;           /* as it was entered */
};

static struct python_stack {
    UInt depth;
    struct python_frame frames[PYTHON_FRAMES];
} *python; /* of the running thread */

static struct instruction *python_function(void)
{
    return python->depth ? python->frames[python->depth - 1].function : NULL;
}

/* Frames that an exception or longjmp left without a return lie below the stack's end. */
static void leave_python_below(Addr stack_pointer)
{
    while (python->depth && python->frames[python->depth - 1].stack_pointer <= stack_pointer)
        python->depth--;
}

static void enter_python(struct instruction *function, Addr stack_pointer)
{
    leave_python_below(stack_pointer);
    if (python->depth < PYTHON_FRAMES)
        python->frames[python->depth++] = (struct python_frame){function, stack_pointer};
}

static void leave_python(Addr stack_pointer) { leave_python_below(stack_pointer + FRAME_BYTES); }

/* Notes a block that is the half of a trampoline before its call, or the one after. Other short code
 * in anonymous memory that calls through a register is one without a name in the map. */
static void follow_python(IRSB *out, const IRSB *in, const VexGuestLayout *layout,
                          const VexGuestExtents *extents)
{
    const NSegment *mapping = VG_(am_find_nsegment)(extents->base[0]);
    Bool calls = in->jumpkind == Ijk_Call && in->next->tag != Iex_Const;
    Bool is_short = extents->n_used == 1 && extents->len[0] <= TRAMPOLINE_BYTES;
    if (!is_short || !mapping || mapping->kind != SkAnonC || !mapping->hasX ||
        !(calls || in->jumpkind == Ijk_Ret))
        return;
    IRTemp at = newIRTemp(out->tyenv, Ity_I64);
    addStmtToIRSB(out, IRStmt_WrTmp(at, IRExpr_Get(layout->offset_SP, Ity_I64)));
    IRDirty *call;
    if (calls) {
        struct instruction *function = instruction_at(extents->base[0]);
        function->is_python = True;
        call = unsafeIRDirty_0_N(0, "enter_python", VG_(fnptr_to_fnentry)(&enter_python),
                                 mkIRExprVec_2(mkIRExpr_HWord((HWord)function), IRExpr_RdTmp(at)));
    } else
        call = unsafeIRDirty_0_N(0, "leave_python", VG_(fnptr_to_fnentry)(&leave_python),
                                 mkIRExprVec_1(IRExpr_RdTmp(at)));
    addStmtToIRSB(out, IRStmt_Dirty(call));
}
