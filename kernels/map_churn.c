/* map_churn: threads that map memory for each record that they search, as servers do.
 *
 * unmap   per record: map a chunk, copy one of --chunks into it, bisect it, unmap it. All threads change one address space
 * keep    the same in memory that each thread keeps: the control
 *
 * ns are from the first thread's start to the last one's end over all records. Each thread has a CPU, ours first. */
#include "placement.h"
#include "record.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

enum { MOST_THREADS = 64 };
struct searcher {
    const struct config *c;
    const uint64_t *source;
    char *at;
    uint64_t chunks, chunk, records, state, found, faults, began_ns, ended_ns;
    int keeps;
    pthread_t thread;
};
static pthread_barrier_t line_up;

static char *map_copy(const struct searcher *s)
{
    char *copy = mmap(s->at, s->chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (copy != s->at || (s->c->pages->source == FROM_THP && madvise(copy, s->chunk, MADV_HUGEPAGE)))
        unavailable("memory-short", "%" PRIu64 " bytes could not be mapped: %s", s->chunk, strerror(errno));
    return copy;
}

static uint64_t bisect(const uint64_t *numbers, uint64_t n, uint64_t key)
{
    uint64_t low = 0;
    while (n > 1) {
        uint64_t half = n / 2;
        low += numbers[low + half] <= key ? half : 0;
        n -= half;
    }
    return low;
}

/* [timed: records] */
static void search(struct searcher *s)
{
    uint64_t words = s->chunk / sizeof *s->source;
    for (uint64_t i = 0; i < s->records; i++) {
        const uint64_t *source = s->source + next_random(&s->state, s->chunks) * words;
        char *copy = s->keeps ? s->at : map_copy(s);
        memcpy(copy, source, s->chunk);
        uint64_t key = next_random(&s->state, words);
        s->found += bisect((const uint64_t *)copy, words, key) == key;
        if (!s->keeps)
            munmap(copy, s->chunk);
    }
}
/* [end] */

static void *run(void *given)
{
    struct searcher *s = given;
    struct rusage before, after;
    pthread_barrier_wait(&line_up);
    getrusage(RUSAGE_THREAD, &before);
    s->began_ns = now_ns();
    search(s);
    s->ended_ns = now_ns();
    getrusage(RUSAGE_THREAD, &after);
    s->faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
    return NULL;
}

static uint64_t time_all(struct searcher *s, uint64_t threads, uint64_t records, const struct cpus *allowed, int own, uint64_t *faults)
{
    uint64_t from = UINT64_MAX, to = 0;
    int first = 0;
    while (allowed->number[first] != own)
        first++;
    pthread_barrier_init(&line_up, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        s[i].records = records;
        s[i].found = 0;
        if (i)
            start_on(allowed->number[((uint64_t)first + i) % (uint64_t)allowed->count], &s[i].thread, run, &s[i]);
    }
    run(&s[0]);
    for (uint64_t i = 0; i < threads; i++) {
        if (i)
            pthread_join(s[i].thread, NULL);
        must_be(s[i].found, records);
        *faults += s[i].faults;
        from = s[i].began_ns < from ? s[i].began_ns : from;
        to = s[i].ended_ns > to ? s[i].ended_ns : to;
    }
    pthread_barrier_destroy(&line_up);
    return to - from;
}

static void prove_copy(const struct config *c, struct searcher *s, const struct arena *like)
{
    struct arena one = *like;
    one.base = map_copy(s);
    one.bytes = one.resident = s->chunk;
    memset(one.base, 1, s->chunk);
    verify_backing(c, &one);
    if (!s->keeps)
        munmap(one.base, one.bytes);
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "map_churn", .orders = {"random"}, .layouts = {"packed"},
        .modes = {"unmap", "keep"},
        .own = {{.name = "threads", .value = 1, .least = 1, .most = MOST_THREADS},
                {.name = "chunks", .value = 7, .least = 1, .most = 1 << 16}}};
    struct config c = parse(&kernel, argc, argv);
    static struct searcher searcher[MOST_THREADS];
    uint64_t threads = c.own[0].value, chunks = c.own[1].value, chunk = c.lines * LINE / chunks, faults = 0;
    c.cpu = pin(c.cpu);
    if (c.lines % chunks || chunk % base_page() || c.pages->source == FROM_POOL || c.pages->source == FROM_MTHP ||
        (c.pages->source == FROM_THP && chunk % page_bytes(c.pages)))
        bad_argument("--lines are --chunks of whole pages, of 4k or thp.");
    if (c.pages->source == FROM_BASE) /* an advice per mapping would be timed too */
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    struct arena a = map_arena(&c);
    verify_backing(&c, &a);
    uint64_t *source = (uint64_t *)a.base, words = chunk / sizeof *source, checksum = FNV_BASIS, seed = c.seed;
    for (uint64_t i = 0; i < chunks * words; i++)
        source[i] = i % words;
    char *room = reserve_addresses(threads * GIB);
    munmap(room, threads * GIB);
    for (uint64_t i = 0; i < threads; i++) {
        searcher[i] = (struct searcher){.c = &c, .source = source, .at = room + i * GIB, .chunks = chunks, .chunk = chunk,
                                        .state = c.seed + i, .keeps = c.mode == kernel.modes[1]};
        prove_copy(&c, &searcher[i], &a);
    }
    for (int i = 0; i < 64; i++) {
        checksum = mix(checksum, next_random(&seed, chunks));
        checksum = mix(checksum, next_random(&seed, words));
    }
    struct region r = {.batches = 0};
    uint64_t least = 4, took = time_all(searcher, threads, least, &cpus_given, c.cpu, &faults);
    uint64_t records = 1 + least * c.region_ns / MIN_BATCHES / (took + 1);
    time_all(searcher, threads, records, &cpus_given, c.cpu, &faults);
    faults = 0;
    sample_clock(&r);
    open_region(&c, &r);
    while (r.batches < MIN_BATCHES)
        add_batch(&r, time_all(searcher, threads, records, &cpus_given, c.cpu, &faults), records * threads);
    close_region(&c, &r);
    sample_clock(&r);
    verify_backing(&c, &a);
    also("faults_per_access", (double)faults / (double)r.accesses);
    also("cpus", (double)(threads < (uint64_t)cpus_given.count ? threads : (uint64_t)cpus_given.count));
    r.checksum = checksum;
    return report(&c, &a, &r);
}
