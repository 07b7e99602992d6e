/* empty_gate: opens perf's gate and closes it again, with nothing in between: what is counted is the gate's own. */
#include "../region.h"

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", NULL}, *const layouts[] = {"spread", NULL};
    struct config c = parse_arguments(argc, argv, "empty_gate", orders, layouts);
    gate(&c, "enable\n");
    gate(&c, "disable\n");
    return puts("done") < 0;
}
