/* walks: a Valgrind tool that simulates the TLB of this machine, and says which instructions and which allocations a program's
 * page walks come from. `tlb where` builds it from Debian's package valgrind and runs it.
 *
 * Each thread has a TLB of its own, for base pages and, beside it, for the pages of 2 MiB that it would have with huge pages
 * everywhere. A walk is `chained` if its address comes from an earlier load of the same kind (chains.h): it waits for that one.
 * It is `alone` if more instructions than a reorder buffer holds have passed since the last walk: it overlaps with none. The
 * others overlap, and cost a part of a walk each.
 *
 * Valgrind is under the GPL, version 2 or later, and so is the program that is built from this file and its libraries; it is
 * built on the computer that uses it. */
#include "chains.h"
#include "instructions.h"
#include "statements.h"
#include "tlb.h"
#include <pub_tool_clreq.h>
#include <pub_tool_debuginfo.h>
#include <pub_tool_libcfile.h>
#include <pub_tool_libcprint.h>
#include <pub_tool_libcproc.h>
#include <pub_tool_machine.h>
#include <pub_tool_options.h>
#include <pub_tool_threadstate.h>
#include <pub_tool_vki.h>
#include "requests.h"
#include <stddef.h>
#if defined(VGA_amd64)
#include <libvex_guest_amd64.h>
#else
#include <libvex_guest_arm64.h>
#endif

#define LARGE_SHIFT 21
#define THREADS 64
/* Pages known to be in the first level, whose accesses are not simulated. They do not count as used there, so they are forgotten
 * every dozen misses: else the first level's misses are 14 % too many. */
#define KNOWN 64
#define FRESH_FOR 12

static ULong known[KNOWN], passed, last_walk, misses_since;
static struct tlb *base[THREADS], *large[THREADS], *base_now, *large_now;
static ThreadId running = VG_INVALID_THREADID;
static struct geometry base_is = {64, 2048, 8, 0, 0}, large_is = {64, 1024, 8, 0, 0};
static Long page_shift = 12, window = 256;
static const HChar *output = "walks.%p";
static struct counts all;

static void forget_known(void)
{
    for (UInt k = 0; k < KNOWN; k++)
        known[k] = NO_PAGE;
}

static VG_REGPARM(2) void access_memory(Addr a, struct instruction *i)
{
    uint64_t page = a >> page_shift, left, unused;
    if (!base_now)
        return;
    enum outcome is = tlb_access(base_now, page, &left);
    enum outcome large_is_now = tlb_access(large_now, a >> LARGE_SHIFT, &unused);
    if (left != NO_PAGE && known[left % KNOWN] == left)
        known[left % KNOWN] = NO_PAGE;
    if (is != IN_FIRST && ++misses_since >= FRESH_FOR) {
        misses_since = 0;
        forget_known();
    }
    known[page % KNOWN] = page;
    if (is == IN_FIRST && large_is_now != WALKED)
        return;
    struct region *r = region_of(a);
    struct counts one = {is != IN_FIRST, is == WALKED, 0, 0, large_is_now == WALKED};
    if (is == WALKED) {
        one.chained = i->is_chain;
        one.alone = !i->is_chain && passed - last_walk >= (ULong)window;
        last_walk = passed;
        count_pair(i, r);
    }
    add_counts(&i->is, &one);
    add_counts(&r->is, &one);
    add_counts(&all, &one);
}

static void begin_thread(ThreadId thread, ULong blocks)
{
    (void)blocks;
    if (thread == running)
        return;
    running = thread;
    UInt k = thread % THREADS;
    if (!base[k]) {
        base[k] = VG_(malloc)("tlb.base", sizeof(struct tlb));
        large[k] = VG_(malloc)("tlb.large", sizeof(struct tlb));
        tlb_clear(base[k], base_is);
        tlb_clear(large[k], large_is);
    }
    base_now = base[k], large_now = large[k];
    forget_known();
}

/* --- instrumentation */

/* if (known[(address >> page_shift) % KNOWN] != address >> page_shift) access_memory(address, i); */
static void add_access(IRSB *block, IRExpr *address, struct instruction *i)
{
    IRExpr *shift = IRExpr_Const(IRConst_U8((UChar)page_shift)), *table = mkIRExpr_HWord((HWord)known);
    IRTemp page = assigned(block, Ity_I64, IRExpr_Binop(Iop_Shr64, address, shift));
    IRTemp k = assigned(block, Ity_I64, IRExpr_Binop(Iop_And64, temporary(page), mkIRExpr_HWord(KNOWN - 1)));
    IRTemp offset = assigned(block, Ity_I64, IRExpr_Binop(Iop_Shl64, temporary(k), IRExpr_Const(IRConst_U8(3))));
    IRTemp at = assigned(block, Ity_I64, IRExpr_Binop(Iop_Add64, temporary(offset), table));
    IRTemp there = assigned(block, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, temporary(at)));
    IRTemp is_new = assigned(block, Ity_I1, IRExpr_Binop(Iop_CmpNE64, temporary(there), temporary(page)));
    IRExpr **arguments = mkIRExprVec_2(address, mkIRExpr_HWord((HWord)i));
    IRDirty *call = unsafeIRDirty_0_N(2, "access_memory", VG_(fnptr_to_fnentry)(&access_memory), arguments);
    call->guard = temporary(is_new);
    addStmtToIRSB(block, IRStmt_Dirty(call));
}

static void count_instructions(IRSB *block, UInt number)
{
    IRExpr *place = mkIRExpr_HWord((HWord)&passed);
    IRTemp before = assigned(block, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, place));
    IRTemp after = assigned(block, Ity_I64, IRExpr_Binop(Iop_Add64, temporary(before), mkIRExpr_HWord(number)));
    addStmtToIRSB(block, IRStmt_Store(Iend_LE, place, temporary(after)));
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout, const VexGuestExtents *extents,
                        const VexArchInfo *architecture, IRType guest_word, IRType host_word)
{
    (void)closure, (void)layout, (void)extents, (void)architecture, (void)guest_word, (void)host_word;
    IRSB *out = deepCopyIRSBExceptStmts(in);
    struct instruction *now = NULL;
    IRExpr *last = NULL; /* a read-modify-write accesses its address twice and walks once */
    UInt number = 0;
    find_chains(in, mark_chain);
    for (Int i = 0; i < in->stmts_used; i++)
        number += in->stmts[i]->tag == Ist_IMark;
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *s = in->stmts[i];
        if (s->tag == Ist_IMark) {
            if (!now)
                count_instructions(out, number);
            now = instruction_at(s->Ist.IMark.addr), last = NULL;
        }
        IRExpr *address = accessed(s);
        if (address && now && !(last && eqIRAtom(last, address))) {
            add_access(out, address, now);
            last = address;
        }
        addStmtToIRSB(out, s);
    }
    return out;
}

/* --- memory that comes and goes */

static void map_startup(Addr a, SizeT n, Bool r, Bool w, Bool x, ULong handle)
{
    (void)r, (void)w, (void)x, (void)handle;
    add_range(a, a + n, 0, passed);
}

static void grow_heap(Addr a, SizeT n, ThreadId thread)
{
    (void)thread;
    add_range(a, a + n, region_of(a - 1)->site, passed); /* as it was named before */
}

static void unmap(Addr a, SizeT n) { remove_range(a, a + n, passed); }

static void move(Addr from, Addr to, SizeT n)
{
    ULong site = region_of(from)->site;
    remove_range(from, from + n, passed);
    add_range(to, to + n, site, passed);
}

static Bool answer(ThreadId thread, UWord *arguments, UWord *result)
{
    (void)thread;
    *result = 0;
    if (arguments[0] == NAME_RANGE)
        add_range(arguments[2], arguments[2] + arguments[3], arguments[1], passed);
    else if (arguments[0] == NAME_REGION) {
        struct region *r = region_of(arguments[2]);
        if (r != &elsewhere && !r->site)
            r->site = arguments[1];
    } else
        return False;
    return True;
}

/* --- output: one record a line, fields separated by tabs */

static void print_counts(VgFile *f, const struct counts *c)
{
    VG_(fprintf)(f, "%llu\t%llu\t%llu\t%llu\t%llu\n", c->misses, c->walks, c->chained, c->alone, c->large_walks);
}

static void print_instruction(VgFile *f, const struct instruction *i)
{
    DiEpoch now = VG_(current_DiEpoch)();
    const HChar *text, *folder;
    UInt line = 0;
    VG_(fprintf)(f, "I\t%d\t%s", (Int)(i - instructions), VG_(get_objname)(now, i->at, &text) ? text : "");
    VG_(fprintf)(f, "\t%s", VG_(get_fnname)(now, i->at, &text) ? text : "");
    Bool is_known = VG_(get_filename_linenum)(now, i->at, &text, &folder, &line);
    VG_(fprintf)(f, "\t%s\t%u\t", is_known ? text : "", line);
    print_counts(f, &i->is);
}

static void finish(Int code)
{
    (void)code;
    HChar *name = VG_(expand_file_name)("--output", output);
    VgFile *f = VG_(fopen)(name, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, 0600);
    if (!f)
        return;
    VG_(fprintf)(f, "T\t%llu\t%d\t", passed, is_full);
    print_counts(f, &all);
    for (UInt k = 0; k < MOST_INSTRUCTIONS; k++)
        if (instructions[k].is.misses | instructions[k].is.large_walks)
            print_instruction(f, &instructions[k]);
    for (UInt k = 0; k <= region_count; k++) {
        const struct region *r = k < region_count ? &regions[k] : &elsewhere;
        if (r->is.misses | r->is.large_walks) {
            VG_(fprintf)(f, "R\t%d\t%016llx\t%llu\t%llu\t%llu\t", k < region_count ? (Int)k : -1, r->site, r->bytes, r->born, r->died);
            print_counts(f, &r->is);
        }
    }
    for (UInt k = 0; k < MOST_PAIRS; k++)
        if (pairs[k].instruction) {
            const struct region *r = pairs[k].region;
            VG_(fprintf)(f, "P\t%d\t%d\t%llu\n", (Int)(pairs[k].instruction - instructions), r == &elsewhere ? -1 : (Int)(r - regions), pairs[k].walks);
        }
    VG_(fclose)(f);
}

/* --- options */

static Bool take_option(const HChar *arg)
{
    Long given = 0; /* the macros have an n of their own */
    if VG_STR_CLO (arg, "--output", output) {}
    else if VG_BINT_CLO (arg, "--page-shift", page_shift, 12, 16) {}
    else if VG_BINT_CLO (arg, "--window", window, 1, 100000) {}
    else if VG_BINT_CLO (arg, "--first", given, 1, MOST_FIRST) base_is.first = (UInt)given;
    else if VG_BINT_CLO (arg, "--second", given, 1, MOST_SECOND) base_is.second = (UInt)given;
    else if VG_BINT_CLO (arg, "--ways", given, 1, MOST_SECOND) base_is.ways = (UInt)given;
    else if VG_BINT_CLO (arg, "--large-first", given, 1, MOST_FIRST) large_is.first = (UInt)given;
    else if VG_BINT_CLO (arg, "--large-second", given, 1, MOST_SECOND) large_is.second = (UInt)given;
    else if VG_BINT_CLO (arg, "--large-ways", given, 1, MOST_SECOND) large_is.ways = (UInt)given;
    else if VG_BINT_CLO (arg, "--exclusive", given, 0, 1) base_is.exclusive = large_is.exclusive = (UInt)given;
    else if VG_BINT_CLO (arg, "--hashed", given, 0, 1) base_is.hashed = large_is.hashed = (UInt)given;
    else return False;
    return True;
}

static void print_nothing(void) {}

static void begin(void)
{
    tl_assert(base_is.second % base_is.ways == 0 && large_is.second % large_is.ways == 0);
#if defined(VGA_amd64)
    first_register = offsetof(VexGuestAMD64State, guest_RAX), register_count = 16;
#elif defined(VGA_arm64)
    first_register = offsetof(VexGuestARM64State, guest_X0), register_count = 31;
#endif
    begin_instructions();
    begin_regions();
    forget_known();
}

static void declare(void)
{
    VG_(details_name)("walks");
    VG_(details_version)(NULL);
    VG_(details_description)("where page walks come from");
    VG_(details_copyright_author)("part of Every Load Is Two Loads");
    VG_(details_bug_reports_to)("the maintainers of Every Load Is Two Loads");
    VG_(details_avg_translation_sizeB)(300);
    VG_(basic_tool_funcs)(begin, instrument, finish);
    VG_(needs_command_line_options)(take_option, print_nothing, print_nothing);
    VG_(needs_client_requests)(answer);
    VG_(track_new_mem_startup)(map_startup);
    VG_(track_new_mem_mmap)(map_startup);
    VG_(track_new_mem_brk)(grow_heap);
    VG_(track_die_mem_munmap)(unmap);
    VG_(track_die_mem_brk)(unmap);
    VG_(track_copy_mem_remap)(move);
    VG_(track_start_client_code)(begin_thread);
}
VG_DETERMINE_INTERFACE_VERSION(declare)
