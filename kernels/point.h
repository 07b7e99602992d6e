/* point.h: one point, measured by a program of its own; plan.h measures many in the same steps. */
#ifndef POINT_H
#define POINT_H
#include "nodes.h"
#include "placement.h"
#include "record.h"

static inline struct arena map_for(const struct kernel *k, const struct config *c) { return k->map ? k->map(c) : map_arena(c); }

static inline int measure_alone(const struct kernel *k, int argc, char **argv)
{
    struct config c = parse(k, argc, argv);
    c.cpu = pin(c.cpu);
    struct arena a = map_for(k, &c);
    verify_backing(&c, &a);
    struct region r = k->measure(&c, &a);
    verify_backing(&c, &a);
    return report(&c, &a, &r);
}
#endif
