/* walks: a Valgrind tool that simulates this machine's TLB, and says which instructions and which
 * allocations a program's page walks come from. `tlb where` builds it from Debian's valgrind.
 *
 * Each thread has a TLB of its own, for base pages and, beside it, for the huge pages that it
 * would have with huge pages everywhere. A walk is exposed if it makes the run longer (schedule.h):
 * it is `chained` if it waits for an earlier one, and `alone` if more instructions than a reorder
 * buffer holds have passed since the last walk. The others overlap, and cost a part of a walk each.
 *
 * Valgrind is under the GPL, version 2 or later, and so is the program that is built from this file
 * and its libraries; it is built on the computer that uses it. */
#include "dataflow.h"
#include "python.h"
#include "requests.h"
#include "tlb.h"
#include <pub_tool_libcassert.h>
#include <pub_tool_libcproc.h>
#include <pub_tool_options.h>
#include <pub_tool_tooliface.h>
#include <pub_tool_vkiscnums.h>

#define THREADS 64
/* Pages known to be in the first level, whose accesses are not simulated. They do not count as used
 * there, so they are forgotten every dozen misses: else first-level misses are 14 % too many, and
 * as it is at most 0.8 % are added or lacking (xz, sort and CPython's dictionary). */
#define KNOWN 256
#define FRESH_FOR 12
#define MADV_DONTNEED 4 /* of linux/mman.h, which a tool does not include */
#define MADV_FREE 8

static ULong known[KNOWN], misses;
static ULong held[CURVE + 1]; /* misses of the first level by the smallest size that held the page */
static struct {
    struct tlb base, large;
    struct curve curve; /* of base pages */
    struct python_stack python;
} *tlbs[THREADS], *now_used;
static ThreadId running; /* 0 at first, which none has */
static const HChar *output = "walks.%p", *machine = "";
static Bool is_random_fixed; /* what Linux gives as random is the same in each run */
static Bool has_curve = True; /* whether walks of other sizes are counted */

/* --machine has these, separated by commas. */
static struct {
    uint32_t page_shift, large_shift, window;
    struct geometry base, large;
} is;

static void forget_known(void) { VG_(memset)(known, 0xFF, sizeof known); /* NO_PAGE */ }

/* known_at: the end of the walk that the address comes from. */
static VG_REGPARM(3) void access_memory(Addr a, struct instruction *i, ULong known_at)
{
    uint64_t page = a >> is.page_shift, left, unused;
    enum outcome now = tlb_access(&now_used->base, page, &left);
    enum outcome large_is = tlb_access(&now_used->large, a >> large_shift, &unused);
    uint64_t *ready_at = tlb_note(&now_used->base);
    if (known[left % KNOWN] == left)
        known[left % KNOWN] = NO_PAGE;
    if (now != IN_FIRST) {
        *ready_at = 0;
        if (has_curve)
            held[curve_access(&now_used->curve, page)]++;
        if (++misses % FRESH_FOR == 0)
            forget_known();
    }
    if (now != IN_FIRST || large_is == WALKED) {
        struct instruction *function = python_function();
        struct counts *c = counts_of(function ? function : i, region_of(a));
        c->misses += now != IN_FIRST, c->large_walks += large_is == WALKED;
        if (now == WALKED) {
            touch(a, is.page_shift);
            c->walks++;
            *ready_at = schedule_walk(c, known_at, is.window);
        }
    }
    if (has_ended(*ready_at, is.window))
        known[page % KNOWN] = page;
    else
        note_walk(a, *ready_at);
}

static void begin_thread(ThreadId thread, ULong blocks)
{
    if (thread == running)
        return;
    running = thread;
    UInt k = thread % THREADS;
    if (!tlbs[k]) {
        tlbs[k] = VG_(calloc)("tlb.thread", 1, sizeof *tlbs[k]);
        tlb_clear(&tlbs[k]->base, is.base);
        tlb_clear(&tlbs[k]->large, is.large);
        curve_clear(&tlbs[k]->curve);
    }
    now_used = tlbs[k];
    python = &now_used->python;
    forget_known();
}

/* --- instrumentation: statements of VEX's intermediate representation (libvex_ir.h) */

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
        return s->Ist.Dirty.details->mAddr;
    case Ist_CAS:
        return s->Ist.CAS.details->addr;
    case Ist_LLSC:
        return s->Ist.LLSC.addr;
    default:
        return NULL;
    }
}

/* page = address >> page_shift;
 * if (known[page % KNOWN] != page) access_memory(address, i, time of the address);
 * The shift for an entry's bytes is one with that for the page. */
static void add_access(IRSB *block, IRExpr *address, struct instruction *i)
{
    IRExpr *page = calculated(block, Iop_Shr64, address, bits(is.page_shift));
    IRExpr *bytes = calculated(block, Iop_Shr64, address, bits(is.page_shift - 3));
    IRExpr *offset = calculated(block, Iop_And64, bytes, constant(8 * (KNOWN - 1)));
    IRExpr *entry = calculated(block, Iop_Add64, offset, constant((HWord)known));
    IRExpr *known_at = or_start(ready_of(block, address));
    IRDirty *call = unsafeIRDirty_0_N(3, "access_memory", VG_(fnptr_to_fnentry)(&access_memory),
                                      mkIRExprVec_3(address, constant((HWord)i), known_at));
    call->guard = calculated(block, Iop_CmpNE64, loaded(block, entry), page);
    addStmtToIRSB(block, IRStmt_Dirty(call));
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *arch,
                        IRType guest_word, IRType host_word)
{
    IRSB *out = deepCopyIRSBExceptStmts(in);
    struct instruction *at = NULL;
    IRExpr *last = NULL; /* a read-modify-write accesses its address twice and walks once */
    IRExpr *counter = constant((HWord)&passed), *number = constant(0);
    guest = layout;
    follow_python(out, in, layout, extents);
    ready = VG_(calloc)("tlb.ready", in->tyenv->types_used + 1, sizeof *ready);
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *s = in->stmts[i];
        IRExpr *address = accessed(s);
        if (s->tag == Ist_IMark) {
            if (!at) {
                IRExpr *before = assigned(out, IRExpr_Load(Iend_LE, Ity_I64, counter));
                IRExpr *sum = calculated(out, Iop_Add64, before, number);
                addStmtToIRSB(out, IRStmt_Store(Iend_LE, counter, sum));
            }
            number->Iex.Const.con->Ico.U64++; /* of the sum, which is for the whole block */
            at = instruction_at(s->Ist.IMark.addr);
            at->length = s->Ist.IMark.len, last = NULL;
        }
        if (at)
            follow(out, s, at->at);
        addStmtToIRSB(out, s);
        if (address && at && !(last && eqIRAtom(last, address))) {
            /* After it, so that the simulation runs while the program's own load waits. */
            add_access(out, address, at);
            last = address;
        }
        if (at && s->tag == Ist_WrTmp && s->Ist.WrTmp.data->tag == Iex_Load)
            ready[s->Ist.WrTmp.tmp] = ready_of_load(out, s->Ist.WrTmp.data);
    }
    VG_(free)(ready);
    return out;
}

/* --- memory that comes and goes */

static void map(Addr a, SizeT n, Bool r, Bool w, Bool x, ULong handle) { add_range(a, a + n, 0); }

static void grow_heap(Addr a, SizeT n, ThreadId thread)
{
    add_range(a, a + n, region_of(a - 1)->site); /* as it was named before */
}

/* No TLB has pages of memory that is unmapped. */
static void forget_pages(Addr a, SizeT n)
{
    Addr last = a + n - 1;
    for (UInt k = 0; n && k < THREADS; k++)
        if (tlbs[k]) {
            tlb_drop(&tlbs[k]->base, a >> is.page_shift, (last >> is.page_shift) + 1);
            tlb_drop(&tlbs[k]->large, a >> large_shift, (last >> large_shift) + 1);
            curve_drop(&tlbs[k]->curve, a >> is.page_shift, (last >> is.page_shift) + 1);
        }
    forget_known();
}

static void unmap(Addr a, SizeT n)
{
    struct region *r = region_of(a);
    r->unmapped += n, r->ended = passed;
    bind_range(a, a + n, &elsewhere);
    forget_pages(a, n);
}

static void protect(Addr a, SizeT n, Bool r, Bool w, Bool x) { forget_pages(a, n); }

static void begin_call(ThreadId thread, UInt number, UWord *arguments, UInt count) {}

/* As hash tables are seeded with it, their order and so their walks would change with each run. */
static void fix_random(UChar *at, SizeT bytes)
{
    static ULong state = 1; /* Knuth's MMIX */
    while (bytes--) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        *at++ = (UChar)(state >> 56);
    }
}

/* Valgrind tells a tool of no madvise. */
static void end_call(ThreadId thread, UInt number, UWord *arguments, UInt count, SysRes result)
{
    if (number == __NR_getrandom && is_random_fixed && !sr_isError(result))
        fix_random((UChar *)arguments[0], sr_Res(result));
    if (number == __NR_madvise && !sr_isError(result) &&
        (arguments[2] == MADV_DONTNEED || arguments[2] == MADV_FREE))
        forget_pages(arguments[0], arguments[1]);
}

static void move(Addr from, Addr to, SizeT n)
{
    ULong site = region_of(from)->site;
    unmap(from, n);
    add_range(to, to + n, site);
}

static Bool answer(ThreadId thread, UWord *arguments, UWord *result)
{
    struct region *r = region_of(arguments[2]);
    *result = 0;
    switch (arguments[0]) {
    case NAME_RANGE:
        rename_range(arguments[2], arguments[3], arguments[1]);
        return True;
    case FREE_RANGE: /* if it was not unmapped */
        if (r != &elsewhere && r->site != arguments[1]) {
            r->bytes += arguments[3]; /* it had them until now */
            r->unmapped += arguments[3];
            rename_range(arguments[2], arguments[3], arguments[1]);
        }
        return True;
    case NAME_REGION:
        if (r != &elsewhere && !r->site)
            r->site = arguments[1];
        return True;
    default:
        return False;
    }
}

/* What a forked child has of its parent's counts, the parent reports. */
static void forget_counts(ThreadId thread)
{
    forked = last_walk = passed;
    VG_(HT_ResetIter)(pairs);
    for (struct pair *p; (p = VG_(HT_Next)(pairs));) {
        p->is = (struct counts){0};
        p->region->added = 0, p->region->touched = 0;
    }
    VG_(memset)(held, 0, sizeof held);
}

/* --- output */

static void finish(Int code)
{
    HChar *name = VG_(expand_file_name)("--walks-out-file", output);
    VgFile *f = VG_(fopen)(name, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, 0600);
    ULong walks = held[CURVE];
    struct pair *p;
    if (!f)
        return;
    VG_(fprintf)(f, "T\t%llu\n", passed - forked);
    VG_(fprintf)(f, "N\t%d\n", VG_(getpid)());
    /* That a second level of each size would leave. */
    for (Int i = CURVE - 1; has_curve && i >= 0; walks += held[i--])
        VG_(fprintf)(f, "M\t%u\t%llu\n", 1u << (LEAST_SHIFT + i), walks);
    for (VG_(HT_ResetIter)(pairs); (p = VG_(HT_Next)(pairs));)
        if (p->is.misses | p->is.large_walks)
            print_pair(f, p);
    VG_(fclose)(f);
}

/* --- options */

static Bool take_option(const HChar *arg)
{
    return VG_STR_CLO(arg, "--walks-out-file", output) || VG_STR_CLO(arg, "--machine", machine) ||
           VG_BOOL_CLO(arg, "--fixed-random", is_random_fixed) ||
           VG_BOOL_CLO(arg, "--curve", has_curve);
}

static void print_nothing(void) {}

static void begin(void)
{
    HChar *text = (HChar *)machine;
    for (uint32_t *n = &is.page_shift; n < (uint32_t *)(&is + 1); n++, text += *text == ',')
        *n = (uint32_t)VG_(strtoll10)(text, &text);
    for (const struct geometry *g = &is.base; g <= &is.large; g++) {
        tl_assert(0 < g->first && g->first <= MOST_FIRST && g->second <= MOST_SECOND);
        tl_assert(0 < g->ways && g->ways <= g->second && g->second % g->ways == 0);
    }
    tl_assert(is.page_shift < is.large_shift && is.large_shift <= 32);
    tl_assert(1u << (is.large_shift - is.page_shift) <= MOST_BLOCK_PAGES);
    large_shift = is.large_shift;
    instructions = VG_(HT_construct)("tlb.instructions");
    pairs = VG_(HT_construct)("tlb.pairs");
    blocks = VG_(HT_construct)("tlb.blocks");
    regions = VG_(newRangeMap)(VG_(malloc), "tlb.regions", VG_(free), (UWord)&elsewhere);
    forget_known();
    VG_(atfork)(NULL, NULL, forget_counts);
}

static void declare(void)
{
    VG_(details_name)("walks");
    VG_(details_description)("where page walks come from");
    VG_(details_copyright_author)("part of Every Load Is Two Loads");
    VG_(details_bug_reports_to)("the maintainers of Every Load Is Two Loads");
    VG_(details_avg_translation_sizeB)(300);
    VG_(basic_tool_funcs)(begin, instrument, finish);
    VG_(needs_command_line_options)(take_option, print_nothing, print_nothing);
    VG_(needs_client_requests)(answer);
    VG_(needs_syscall_wrapper)(begin_call, end_call);
    VG_(track_new_mem_startup)(map);
    VG_(track_new_mem_mmap)(map);
    VG_(track_new_mem_brk)(grow_heap);
    VG_(track_die_mem_munmap)(unmap);
    VG_(track_die_mem_brk)(unmap);
    VG_(track_change_mem_mprotect)(protect);
    VG_(track_copy_mem_remap)(move);
    VG_(track_start_client_code)(begin_thread);
}
VG_DETERMINE_INTERFACE_VERSION(declare)
