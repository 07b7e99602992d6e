/* Touches so many of its pages again and again: known_pages HUGE PAGES TOUCHED. HUGE is the bytes of a large page, 0 for base pages.

   It says "ready" and goes on until it is ended. Between two rounds it forks, for which the kernel flushes the TLB of all its memory, so
   that each round walks to each page, however many a TLB holds; the arena is left out of the copy. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t huge = strtoul(argv[1], NULL, 10), base = (size_t)sysconf(_SC_PAGESIZE);
    size_t page = huge ? huge : base, pages = strtoul(argv[2], NULL, 10), touched = strtoul(argv[3], NULL, 10);
    char *map = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || touched > pages)
        return 3;
    volatile char *arena = (char *)(((uintptr_t)map + page - 1) / page * page);
    madvise((void *)arena, pages * page, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise((void *)arena, pages * page, MADV_DONTFORK);
    for (size_t i = 0; i < pages * page; i += base)
        arena[i] = 1;
    puts("ready");
    fflush(stdout);
    for (char sum = 0;; sum += 1) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
        for (size_t i = 0; i < touched; i++)
            sum += arena[i * page];
        usleep(1000);
    }
}
