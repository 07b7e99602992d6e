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
#include "nodes.h"

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", NULL}, *const layouts[] = {"spread", NULL};
    static const char *const modes[] = {"address", "visit", "shuffled", NULL};
    struct config c = parse_more(argc, argv, "first_touch", orders, layouts, modes, NULL);
    c.cpu = pin(c.cpu);
    struct arena a = reserve(&c);
    lay_arena(&c, &a);
    uint32_t *touch = room_for_visits(c.lines);
    if (c.mode == modes[1]) {
        uint32_t *next = cycle_through(c.lines, 1, c.seed);
        free(touch);
        touch = visits_of(next, c.lines);
        free(next);
    } else {
        uint64_t seed = c.seed + 1; /* another order than that of the visits */
        for (uint64_t i = 0; i < c.lines; i++)
            touch[i] = (uint32_t)i;
        if (c.mode == modes[2])
            shuffle(touch, c.lines, 1, &seed);
    }
    for (uint64_t i = 0; i < c.lines; i++)
        *(volatile char *)(a.base + touch[i] * a.stride) = 1;
    free(touch);
    also_off_node(&a, c.cpu);
    struct chase chase = place_chase(a.base, c.lines, places_in(0, a.stride, a.page), 1, c.seed);
    struct work work = work_of(&chase, &c);
    uint64_t checksum = checksum_of(&chase, &work);
    struct region r = measure(&c, &a, &work);
    return report(&c, &a, &r, checksum, NULL, NULL);
}
