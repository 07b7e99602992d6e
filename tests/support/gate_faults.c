/* gate_faults: touches --lines fresh pages while perf's gate is open, and some before and after while it is closed. */
#include "../../kernels/region.h"

static char *touch(char *at, uint64_t pages, uint64_t page)
{
    for (; pages; pages--, at += page)
        *(volatile char *)at = 1;
    return at;
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "gate_faults", .orders = {"cycle"}, .layouts = {"spread"}};
    struct config c = parse(&kernel, argc, argv);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), outside = 137, bytes = (c.lines + 2 * outside) * page;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 1;
    madvise(at, bytes, MADV_NOHUGEPAGE);
    at = touch(at, outside, page);
    gate(&c, "enable\n");
    at = touch(at, c.lines, page);
    gate(&c, "disable\n");
    touch(at, outside, page);
    return puts("done") < 0;
}
