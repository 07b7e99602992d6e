/* first_touch: page_chase's chase over pages first touched in another order: "address", "visit" (the chase's) or "shuffled".
 *
 * Linux and hypervisors hand out memory as it is touched, mostly upwards. So the order of first touch decides which pages are
 * neighbours in physical memory and in a host's page table. */
#include "chase.h"
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

static struct arena touch_first(const struct config *c)
{
    struct arena a = reserve(c);
    uint64_t seed = c->seed + 1; /* not the order of the visits */
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
