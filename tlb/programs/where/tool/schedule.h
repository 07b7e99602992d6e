/* schedule.h: when each walk could begin and end on a core that executes out of order, in walks: a
 * walk takes 1, all else nothing. A walk begins once its address is known, all that is too old to
 * be in flight beside it has ended, and the branches before it that were mispredicted are decided.
 * It is exposed if it ends later than every walk before it; the others overlap with one of those.
 *
 * A core learns what a branch does from all its executions. Here only those that have to wait for a
 * walk count, since the others cost no walk. */
#pragma once
#include "counts.h"

#define IN_FLIGHT 2048 /* exposed walks in a window of instructions, at most */
#define PREDICTORS 4096
#define HISTORY 0xFF /* outcomes of the branches before, a bit each */

static struct {
    ULong at, end; /* instructions passed when an exposed walk was met; its end */
} in_flight[IN_FLIGHT];
static ULong first_in_flight, next_in_flight; /* modulo IN_FLIGHT */
static ULong last_end, floor;                 /* no walk from now on begins before floor */
static ULong last_walk;                       /* instructions passed at the last one */

/* Retire what is older than the window. */
static void retire(ULong window)
{
    while (first_in_flight < next_in_flight) {
        ULong k = first_in_flight % IN_FLIGHT;
        if (passed - in_flight[k].at < window && next_in_flight - first_in_flight < IN_FLIGHT)
            return;
        if (floor < in_flight[k].end)
            floor = in_flight[k].end;
        first_in_flight++;
    }
}

/* Whether nothing has to wait for a walk any more. */
static Bool has_ended(ULong end, ULong window)
{
    retire(window);
    return end <= floor;
}

/* Count a walk whose address is known at `known_at`; return its end. */
static ULong schedule_walk(struct counts *c, ULong known_at, ULong window)
{
    retire(window);
    ULong end = (known_at > floor ? known_at : floor) + 1;
    if (end > last_end) {
        in_flight[next_in_flight % IN_FLIGHT].at = passed;
        in_flight[next_in_flight++ % IN_FLIGHT].end = last_end = end;
        if (passed - last_walk < window)
            c->chained++;
        else
            c->alone++;
    }
    last_walk = passed;
    return end;
}

/* Predict a branch that has to wait for a walk, by its last outcomes after the same history. What
 * follows a wrong prediction begins only when that walk has ended. branch: a number of its own. */
static VG_REGPARM(3) void decide_branch(ULong branch, ULong is_taken, ULong known_at)
{
    static UChar counters[PREDICTORS]; /* 0, 1: not taken; 2, 3: taken */
    static ULong history;
    UChar *counter = &counters[(branch * 0x9E3779B97F4A7C15ull >> 32 ^ history) % PREDICTORS];
    Bool is_wrong = (*counter > 1) != is_taken;
    if (is_taken && *counter < 3)
        ++*counter;
    else if (!is_taken && *counter)
        --*counter;
    history = (history << 1 | is_taken) & HISTORY;
    if (is_wrong && floor < known_at)
        floor = known_at;
}
