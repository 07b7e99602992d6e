/* statements.h: small parts of what Valgrind calls a superblock, in its intermediate representation (libvex_ir.h). */
#ifndef STATEMENTS_H
#define STATEMENTS_H
#include <libvex_ir.h>

static IRTemp assigned(IRSB *block, IRType type, IRExpr *value)
{
    IRTemp t = newIRTemp(block->tyenv, type);
    addStmtToIRSB(block, IRStmt_WrTmp(t, value));
    return t;
}

static IRExpr *temporary(IRTemp t) { return IRExpr_RdTmp(t); }

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
