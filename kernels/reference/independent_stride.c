/* An independent sum over a strided array.
 *
 *   independent_stride BYTES STEP     every STEP-th byte's word of eight bytes, on base pages
 *
 * Prints ns per access: the median of seven passes of at least 20 ms each. */
#include "common.h"

static long total;

/* Not inlined, so that no load of one pass serves another; not volatile, which keeps the load out of the addition: on a Zen 5
 * the two forms differ by 30 % at a stride of 128 bytes. */
__attribute__((noinline)) static long pass(const long *array, long elements, long each)
{
    long sum = 0;
    for (long i = 0; i < elements; i += each)
        sum += array[i];
    total += sum;
    return (elements + each - 1) / each;
}

int main(int argc, char **argv)
{
    long bytes = argc > 1 ? atol(argv[1]) : 256l << 20, step = argc > 2 ? atol(argv[2]) : 4096, few = 1;
    pin_to_the_last_cpu();
    char *array = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED)
        return perror("mmap"), 1;
    madvise(array, (size_t)bytes, MADV_NOHUGEPAGE);
    for (long i = 0; i < bytes; i += 8)
        *(long *)(array + i) = i;
    double ns[PASSES];
    for (double took = 0; took < 0.02; few *= 2) {
        double begin = seconds();
        for (long i = 0; i < few; i++)
            pass((const long *)array, bytes / 8, step / 8);
        took = seconds() - begin;
        if (took >= 0.02)
            break;
    }
    for (int i = 0; i < PASSES; i++) {
        double begin = seconds();
        long visits = 0;
        for (long k = 0; k < few; k++)
            visits += pass((const long *)array, bytes / 8, step / 8);
        ns[i] = (seconds() - begin) / (double)visits * 1e9;
    }
    printf("%.6f 0x%lx\n", median(ns), total);
    return 0;
}
