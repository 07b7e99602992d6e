/* statements.h: parts of what Valgrind calls a superblock, in its intermediate representation
 * (libvex_ir.h). */
#ifndef STATEMENTS_H
#define STATEMENTS_H
#include <libvex_ir.h>

static IRExpr *constant(ULong value) { return IRExpr_Const(IRConst_U64(value)); }

/* A statement that assigns, and what it assigned. */
static IRExpr *assigned(IRSB *block, IRType type, IRExpr *value)
{
    IRTemp t = newIRTemp(block->tyenv, type);
    addStmtToIRSB(block, IRStmt_WrTmp(t, value));
    return IRExpr_RdTmp(t);
}

static IRExpr *calculated(IRSB *block, IROp operation, IRExpr *a, IRExpr *b)
{
    IRType type = operation == Iop_CmpNE64 ? Ity_I1 : Ity_I64;
    return assigned(block, type, IRExpr_Binop(operation, a, b));
}

static IRExpr *loaded(IRSB *block, IRExpr *address)
{
    return assigned(block, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, address));
}

/* The address that a statement accesses, or NULL. */
static IRExpr *accessed(const IRStmt *s)
{
    switch (s->tag) {
    case Ist_WrTmp:
        return s->Ist.WrTmp.data->tag == Iex_Load ? s->Ist.WrTmp.data->Iex.Load.addr : NULL;
    case Ist_Store:
        return s->Ist.Store.addr;
    case Ist_StoreG:
        return s->Ist.StoreG.details->addr;
    case Ist_LoadG:
        return s->Ist.LoadG.details->addr;
    case Ist_Dirty:
        return s->Ist.Dirty.details->mFx != Ifx_None ? s->Ist.Dirty.details->mAddr : NULL;
    case Ist_CAS:
        return s->Ist.CAS.details->addr;
    case Ist_LLSC:
        return s->Ist.LLSC.addr;
    default:
        return NULL;
    }
}
#endif
