/* neighbour_chase: page_chase's chase beside a thread on another CPU, and the scatter of its times.
 *
 * alone    without a thread: the control
 * other    a thread on another core
 * sibling  on the same core's other hardware thread
 *
 * The thread spins (the second control); or --stream_kib N reads its own memory in order, --walk_lines N chases lines of its
 * own, a page each, --discard_pages N gives pages back (MADV_DONTNEED) and touches them again, which interrupts this CPU. */
#include "beside.h"
#include "chase.h"
#include "record.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

#define SLICE 256          /* hops: a reading's 30 ns are a tenth of one; no quantiles if the clock steps by more */
#define SLICES (1ull << 16)
#define LEAST 16

struct load { char *memory; uint64_t bytes; struct chase *chase; volatile uint64_t sum; };

static void stream(void *of)
{
    struct load *l = of;
    uint64_t sum = 0;
    for (uint64_t at = 0; at < l->bytes; at += LINE)
        sum += *(uint64_t *)(l->memory + at);
    l->sum += sum;
}
static void walk(void *of)
{
    struct load *l = of;
    l->sum += follow_rounds(l->chase, 1);
}
static void discard(void *of)
{
    struct load *l = of;
    for (uint64_t at = 0; at < l->bytes; at += base_page())
        l->memory[at] = 1;
    madvise(l->memory, l->bytes, MADV_DONTNEED);
}

static int is_sibling(int cpu, int of)
{
    char path[128], list[256] = "", *rest = list;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", of);
    FILE *f = fopen(path, "r");
    if (f) { if (!fgets(list, sizeof list, f)) *list = 0; fclose(f); }
    while (*rest) {
        long low = strtol(rest, &rest, 10), high = *rest == '-' ? strtol(rest + 1, &rest, 10) : low;
        if (low <= cpu && cpu <= high)
            return 1;
        rest += *rest == ',' ? 1 : strlen(rest);
    }
    return 0;
}
/* The highest given CPU on the same core, or on another. */
static int cpu_beside(const struct cpus *allowed, int own, int sibling)
{
    for (int i = allowed->count - 1; i >= 0; i--)
        if (allowed->number[i] != own && is_sibling(allowed->number[i], own) == sibling)
            return allowed->number[i];
    unavailable("one-cpu", "%s beside CPU %d, of %d", sibling ? "no second thread of its core" : "none", own, allowed->count);
}

static struct load load_of(const struct own *own, void (**turn)(void *of))
{
    static void (*const turns[])(void *) = {stream, walk, discard};
    struct load l = {.memory = NULL};
    for (int i = 0; i < 3; i++) {
        if (!own[i].value)
            continue;
        if (*turn)
            bad_argument("A thread beside the chase streams, walks or discards: one of --stream_kib, --walk_lines and --discard_pages.");
        *turn = turns[i];
        l.bytes = own[i].value * (i ? base_page() : 1024);
    }
    if (!l.bytes)
        return l;
    l.memory = map_memory(l.bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, "the other thread");
    for (uint64_t at = 0; at < l.bytes; at += base_page())
        l.memory[at] = 1;
    if (*turn == walk) {
        l.chase = room_for(1, sizeof *l.chase, "second chase");
        *l.chase = place_chase(l.memory, l.bytes / base_page(), places_in(0, base_page(), base_page()), 1, 1);
    }
    return l;
}

static void also_slices(double *slice, uint64_t n)
{
    static const struct { const char *name; double q; } asked[] = {{"p50_ns", 0.5}, {"p99_ns", 0.99}, {"p999_ns", 0.999}};
    qsort(slice, n, sizeof *slice, ascending);
    for (unsigned i = 0; is_resolved(slice[n / 2] * SLICE) && i < sizeof asked / sizeof *asked; i++)
        also(asked[i].name, slice[(uint64_t)(asked[i].q * (double)(n - 1) + 0.5)]);
    also("slices", (double)n);
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "neighbour_chase", .orders = {"cycle"}, .layouts = {"spread", "packed"},
        .modes = {"alone", "other", "sibling"},
        .own = {{.name = "stream_kib", .value = 0, .least = 0, .most = 1 << 24},
                {.name = "walk_lines", .value = 0, .least = 0, .most = 1 << 24},
                {.name = "discard_pages", .value = 0, .least = 0, .most = 1 << 20}}};
    struct config c = parse(&kernel, argc, argv);
    uint64_t others = c.mode != kernel.modes[0], turns = 0;
    struct other other = {.turn = NULL}, measured = {.turn = NULL};
    c.cpu = measured.cpu = pin(c.cpu);
    struct load load = load_of(c.own, &other.turn);
    if (others)
        count_nothing(&c);
    if (!others && other.turn)
        bad_argument("--mode alone has no thread beside it that could do anything.");
    other.of = &load;
    other.cpu = others ? cpu_beside(&cpus_given, c.cpu, c.mode == kernel.modes[2]) : -1;
    struct arena a = map_arena(&c);
    verify_backing(&c, &a);
    struct chase chase = place_chase(a.base, c.lines, places_in(c.packed, a.stride, a.page), 1, c.seed);
    chase.round = SLICE;
    uint64_t warm = round_up(lines_to_warm(&c), SLICE) / SLICE, n = 0;
    double *slice = room_for(SLICES, sizeof *slice, "times");
    struct work work = {.state = &chase, .run = follow_rounds, .due = due_after_rounds, .accesses = SLICE, .warm = warm};
    start_beside(&other, others);
    await_turns(&other, others, &turns);

    struct region r = {.batches = 0};
    warm_up(&c, &work);
    sample_clock(&r);
    settle(&work);
    uint64_t begun = others ? *other.turns : 0, before = flushes_at(&measured, 1);
    open_region(&c, &r);
    while (r.batches < MOST_BATCHES) {
        uint64_t ns = 0, slices = 0;
        for (; slices < LEAST || (ns < c.region_ns / MOST_BATCHES && slices < SLICES / MOST_BATCHES); slices++, n++) {
            uint64_t took = run_checked(&work, 1);
            slice[n] = (double)took / SLICE;
            ns += took;
        }
        add_batch(&r, ns, slices * SLICE);
    }
    close_region(&c, &r);
    uint64_t after = flushes_at(&measured, 1), ended = others ? *other.turns : 0;
    await_turns(&other, others, &turns);
    sample_clock(&r);
    verify_backing(&c, &a);
    also_slices(slice, n);
    also("turns", (double)(ended - begun));
    if (after != UINT64_MAX)
        also("flushes_seen", (double)(after - before));
    r.checksum = checksum_from(chase.visit, c.lines, 0, c.lines);
    return report(&c, &a, &r);
}
