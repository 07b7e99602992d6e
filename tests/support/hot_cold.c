/* hot_cold HOT COLD: reads a random page of HOT again and again, and every millionth time the next
 * one of COLD; both in MiB. Prints their addresses and goes on until it is killed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t hot_bytes = strtoull(argv[1], NULL, 10) << 20, cold_bytes = strtoull(argv[2], NULL, 10) << 20;
    size_t gap = 2 << 20; /* so that Linux makes no single mapping of the two */
    char *hot = mmap(NULL, hot_bytes + gap + cold_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *cold = hot + hot_bytes + gap;
    if (hot == MAP_FAILED || mprotect(hot, hot_bytes, PROT_READ | PROT_WRITE) ||
        mprotect(cold, cold_bytes, PROT_READ | PROT_WRITE))
        return 1;
    for (size_t at = 0; at < hot_bytes; at += PAGE) hot[at] = 1;
    for (size_t at = 0; at < cold_bytes; at += PAGE) cold[at] = 1;
    printf("%jx %jx\n", (uintmax_t)(uintptr_t)hot, (uintmax_t)(uintptr_t)cold);
    fflush(stdout);
    uint64_t drawn = 88172645463325252u; /* of a xorshift generator: any number but 0 */
    volatile uint64_t sum = 0;
    for (size_t n = 0, next = 0;; n++) {
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        sum += (uint64_t)hot[drawn % hot_bytes];
        if (n % 1000000 == 0) {
            sum += (uint64_t)cold[next];
            next = (next + PAGE) % cold_bytes;
        }
    }
}
