/* records.h: what was counted, one record a line, fields separated by tabs. */
#ifndef RECORDS_H
#define RECORDS_H
#include "instructions.h"
#include "regions.h"
#include <pub_tool_aspacemgr.h>
#include <pub_tool_debuginfo.h>
#include <pub_tool_libcprint.h>

static ULong forked; /* instructions passed when this process began as a child */

/* offset: in the module's file, which is where a sample of perf says that an instruction is. */
static void print_instruction(VgFile *f, const struct instruction *i)
{
    DiEpoch now = VG_(current_DiEpoch)();
    const NSegment *mapping = VG_(am_find_nsegment)(i->at);
    Addr offset = mapping ? i->at - mapping->start + (Addr)mapping->offset : 0;
    const HChar *text, *folder;
    UInt line = 0;
    VG_(fprintf)(f, "I\t%u\t%lu\t%u", i->number, offset, i->length);
    VG_(fprintf)(f, "\t%s", VG_(get_objname)(now, i->at, &text) ? text : "");
    VG_(fprintf)(f, "\t%s", VG_(get_fnname)(now, i->at, &text) ? text : "");
    Bool is_known = VG_(get_filename_linenum)(now, i->at, &text, &folder, &line);
    VG_(fprintf)(f, "\t%s\t%u\n", is_known ? text : "", line);
}

/* With its instruction and its region, if these are new. */
static void print_pair(VgFile *f, const struct pair *p, UInt page_shift)
{
    struct instruction *i = p->instruction;
    struct region *r = p->region;
    const struct counts *c = &p->is;
    if (!i->is_printed)
        print_instruction(f, i);
    if (!r->is_printed) {
        ULong end = r->unmapped < r->bytes ? passed : r->ended; /* a part may be trimmed */
        ULong lived = end - (r->began > forked ? r->began : forked);
        ULong huge = (r->blocks << LARGE_SHIFT) - (r->pages << page_shift);
        VG_(fprintf)(f, "R\t%u\t%016llx\t%llu\t", r->number, r->site, r->bytes);
        VG_(fprintf)(f, "%llu\t%llu\n", lived, huge);
    }
    i->is_printed = r->is_printed = True;
    VG_(fprintf)(f, "P\t%u\t%u\t%llu\t%llu", i->number, r->number, c->misses, c->walks);
    VG_(fprintf)(f, "\t%llu\t%llu\t%llu\n", c->chained, c->alone, c->large_walks);
}
#endif
