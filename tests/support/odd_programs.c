/* Programs that a simulation meets badly, by name: illegal catches SIGILL and goes on; reserve maps a TiB of addresses and uses little of
 * it; grep ends with exit code 1; heap has many small objects of 8 MiB together. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static sigjmp_buf before;

static void go_back(int number) { siglongjmp(before, number); }

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "illegal")) {
        signal(SIGILL, go_back);
        if (!sigsetjmp(before, 1))
#ifdef __aarch64__
            __asm__("udf #0");
#else
            __asm__("ud2");
#endif
    }
    if (!strcmp(name, "reserve")) {
        char *all = mmap(NULL, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED || mprotect(all, 1 << 20, PROT_READ | PROT_WRITE))
            return 3;
        memset(all, 1, 1 << 20);
    }
    if (!strcmp(name, "heap"))
        for (int i = 0; i < 1 << 13; i++)
            memset(malloc(1000), 1, 1000);
    puts("done");
    return !strcmp(name, "grep");
}
