/* empty_gate: opens perf's gate and closes it again, with nothing in between: what is counted is the gate's own. */
#include "../region.h"

int main(int argc, char **argv)
{
    static const struct kernel nothing = {.name = "empty_gate", .orders = {"cycle"}, .layouts = {"spread"}};
    struct config c = parse(&nothing, argc, argv);
    gate(&c, "enable\n");
    gate(&c, "disable\n");
    return puts("{}") < 0;
}
