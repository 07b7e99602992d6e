/* session: many points of these kernels in one mapping, by their own code (plan.h). */
#define SESSION /* leaves out their main() */
#include "page_chase.c"
#undef MEASURES
#include "page_gather.c"
#undef MEASURES
#include "page_store.c"
#undef MEASURES
#include "random_touch.c"
#undef MEASURES
#include "stride_sum.c"
#include "plan.h"

int main(int argc, char **argv)
{
    static const struct kernel *const kernels[] = {&page_chase, &page_gather, &page_store, &random_touch, &stride_sum, NULL};
    return serve_plan(kernels, argc, argv);
}
