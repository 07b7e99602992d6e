/* short_lived: a program that starts, writes some memory once and ends, on base pages and on large ones in turn, in ns.
 *
 *   short_lived ROOM BYTES ROUNDS      bytes: of a large page, to write
 *
 * Timed are fork, a byte written to each base page, and the end, until the parent has waited for it. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* [timed: life] */
static int live(uint64_t room, uint64_t bytes, int advice)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, bytes + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 1;
    at += (room - (uint64_t)at % room) % room;
    if (madvise(at, bytes, advice))
        return 2;
    for (uint64_t i = 0; i < bytes; i += page)
        *(volatile char *)(at + i) = 1;
    return 0;
}
/* [end] */

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4)
        return 2;
    uint64_t room = strtoull(argv[1], NULL, 10), bytes = strtoull(argv[2], NULL, 10);
    for (long rounds = atol(argv[3]); rounds--;)
        for (int large = 0; large < 2; large++) {
            int status = 0;
            uint64_t begin = now_ns();
            pid_t child = fork();
            if (!child)
                _exit(live(room, bytes, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
            if (child < 0 || waitpid(child, &status, 0) != child || status) {
                printf("{\"reason\": \"%s\", \"detail\": \"a program of %" PRIu64 " bytes ended with %d\"}\n",
                       WIFEXITED(status) && WEXITSTATUS(status) == 2 ? "thp-never" : "memory-short", bytes, status);
                return 3;
            }
            printf("{\"pages\": \"%s\", \"ns\": %" PRIu64 "}\n", large ? "thp" : "4k", now_ns() - begin);
            fflush(stdout); /* else the next child inherits the text */
        }
    return 0;
}
