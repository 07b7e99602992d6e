/* first_touch: the chase of page_chase over pages that were touched for the first time in an order of their own.
 *
 *   first_touch --mode visit --lines 1048576
 *
 * address   by ascending address, as a program's loop over a fresh array touches them
 * visit     in the order in which the chase will visit them
 * shuffled  in another random order
 *
 * The kernel of an operating system hands out memory as it is touched, mostly upwards, and a hypervisor under it does the same. So
 * the order of first touch is a layout: it decides which pages are neighbours in the machine's memory, and on a virtual machine which
 * of them have neighbouring entries in its host's page table. The virtual addresses, the links, the order of visits and the loads are
 * those of page_chase with the same seed in all three modes; each page is faulted in by one write of its own. */
#include "chase.h"
#include "point.h"

/* 2: smaps is read before the lines are placed, and no longer between warm-up and timed region. */
#define MEASURES 2

static struct arena touch_first(const struct config *c)
{
    struct arena a = reserve(c);
    uint64_t seed = c->seed + 1; /* another order than that of the visits */
    lay_arena(c, &a);
    uint32_t *touch = !strcmp(c->mode, "visit") ? visits_of(cycle_through(c->lines, 1, c->seed), c->lines)
                                                : numbers_below(c->lines, !strcmp(c->mode, "shuffled"), &seed);
    for (uint64_t i = 0; i < c->lines; i++)
        *(volatile char *)(a.base + touch[i] * a.stride) = 1;
    return a;
}

static struct region measure_touched(const struct config *c, const struct arena *a)
{
    also_off_node(a, c->cpu);
    return measure_cycle(c, a, 1);
}

static const struct kernel first_touch = {.name = "first_touch", .orders = {"cycle"}, .layouts = {"spread"},
    .modes = {"address", "visit", "shuffled"}, .map = touch_first, .measure = measure_touched};

int main(int argc, char **argv) { return measure_alone(&first_touch, argc, argv); }
