/* counts.h: what each instruction did in each region, and records of it: one a line, fields separated
 * by tabs. */
#pragma once
#include "regions.h"
#include <pub_tool_aspacemgr.h>
#include <pub_tool_debuginfo.h>
#include <pub_tool_libcprint.h>

/* Each begins as a VgHashNode. */
struct instruction {
    struct instruction *next;
    UWord key;
    Addr at, offset; /* offset: in the module's file, which is where perf says that it is */
    UInt length;
    Bool is_python; /* the trampoline of a Python function (python.h) */
    DiEpoch epoch; /* in which its module was loaded, which may be gone at the end */
    struct pair *latest;
};

struct counts {
    ULong misses, walks, chained, alone, large_walks; /* large: as if all pages were huge */
};

struct pair {
    struct pair *next;
    UWord key;
    struct instruction *instruction;
    struct region *region;
    struct counts is;
};

static VgHashTable *instructions, *pairs;

/* The instruction that is there now: each module that is loaded begins an epoch. */
static struct instruction *instruction_at(Addr at)
{
    DiEpoch now = VG_(current_DiEpoch)();
    struct instruction *i = node_of(instructions, at ^ (UWord)now.n << 48, sizeof *i);
    if (!i->at) {
        const NSegment *mapping = VG_(am_find_nsegment)(at);
        i->at = at, i->epoch = now;
        i->offset = mapping ? at - mapping->start + (Addr)mapping->offset : 0;
    }
    return i;
}

static struct counts *counts_of(struct instruction *i, struct region *r)
{
    UWord key = (UWord)i * 0x9E3779B97F4A7C15ull ^ (UWord)r; /* as good as unique */
    if (!i->latest || i->latest->region != r) {
        i->latest = node_of(pairs, key, sizeof *i->latest);
        i->latest->instruction = i, i->latest->region = r;
    }
    return &i->latest->is;
}

static ULong forked; /* instructions passed when this process began as a child */

/* After its region, if that is new. */
static void print_pair(VgFile *f, const struct pair *p)
{
    struct region *r = p->region;
    const struct counts *c = &p->is;
    DiEpoch then = p->instruction->epoch;
    Addr at = p->instruction->at;
    const HChar *text, *folder = "";
    UInt line = 0;
    if (!r->is_printed) {
        ULong end = r->unmapped < r->bytes ? passed : r->ended; /* a part may be trimmed */
        ULong lived = end - (r->began > forked ? r->began : forked);
        VG_(fprintf)(f, "R\t%u\t%016llx\t%llu\t", r->number, r->site, r->bytes);
        VG_(fprintf)(f, "%llu\t%lld\t%llu\n", lived, r->added, r->touched);
        r->is_printed = True;
    }
    VG_(fprintf)(f, "P\t%u\t%lu\t%u", r->number, p->instruction->offset, p->instruction->length);
    VG_(fprintf)(f, "\t%s", VG_(get_objname)(then, at, &text) ? text : "");
    if (p->instruction->is_python) /* as /tmp/perf-PID.map has it */
        VG_(fprintf)(f, "\t0x%lx", at);
    else
        VG_(fprintf)(f, "\t%s", VG_(get_fnname)(then, at, &text) ? text : "");
    if (!VG_(get_filename_linenum)(then, at, &text, &folder, &line))
        text = "";
    VG_(fprintf)(f, "\t%s%s%s", folder, *folder ? "/" : "", text);
    VG_(fprintf)(f, "\t%u\t%llu\t%llu\t%llu", line, c->misses, c->walks, c->chained);
    VG_(fprintf)(f, "\t%llu\t%llu\n", c->alone, c->large_walks);
}
