/* guest_chase: page_chase's cycle in a guest, where each step of its page walk is itself translated by the host. --pages are
 * the host's, --mode the guest's.
 *
 * The guest has one vCPU, no operating system and one program: the loop, at CPL 3, which leaves by `out`. Virtual addresses
 * are the same inside and outside, so links placed by the host work in the guest. KVM may map the host's huge pages in small
 * ones: those with executed code ("nx_huge_pages"), those with guest page tables that it shadows. So the program has a memory
 * slot of its own, and page tables lie behind the lines' pages. */
#ifndef __x86_64__
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "chase.h"

#if defined __x86_64__
#include "kvm.h"
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

#define GUEST_BASE (4 * GIB)     /* guest-physical, above the TSS; aligned as the arena, so that host and guest huge pages coincide */
#define PROGRAM_BASE GIB
#define PROGRAM_BYTES (2 * TABLE)
#define RING 32
#define EMULATED_CYCLES 50       /* a first-level hit costs 3 to 5 cycles, an emulated instruction thousands */
#define BATCH_NS 10000000.0      /* at least, because entering and leaving takes 1 to 30 us */

static void move_in(int vm, const struct arena *a, uint64_t data, struct tables *t, int leaf)
{
    uint64_t behind = round_up(data, a->page);
    char *program = reserve_addresses(PROGRAM_BYTES); /* aligned to 1 GiB, so not near the lines */
    if (mmap(program, PROGRAM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        unavailable("memory-short", "no room for the guest's program: %s", strerror(errno));
    madvise(program, PROGRAM_BYTES, MADV_NOHUGEPAGE);
    give_memory(vm, 0, GUEST_BASE, a->base, a->bytes);
    give_memory(vm, 1, PROGRAM_BASE, program, PROGRAM_BYTES);
    t->memory = a->base + behind;
    t->physical = GUEST_BASE + behind;
    t->room = (a->bytes - behind) / TABLE;
    start_tables(t);
    if (!map_range(t, leaf, (uint64_t)a->base, GUEST_BASE, data) || !map_range(t, 1, (uint64_t)program, PROGRAM_BASE, PROGRAM_BYTES))
        unavailable("kernel-failed", "the guest's page tables do not fit into %" PRIu64 " pages", t->room);
    guest.talk = (volatile struct talk *)(program + TABLE);
    memcpy(program, guest_code, (size_t)(guest_code_end - guest_code));
    set_registers(t, program);
}

static uint64_t follow_in_guest(void *state, uint64_t rounds)
{
    struct chase *c = state;
    uint64_t hops = rounds * c->round;
    guest.talk->start = c->at;
    guest.talk->blocks = (hops - 1) / 16;
    guest.talk->singles = (hops - 1) % 16;
    guest.talk->last = guest.talk->next = NULL;
    run_guest();
    c->at = guest.talk->next;
    c->hops += hops;
    return (uint64_t)guest.talk->last;
}

static struct work guest_work(struct chase *c, const struct config *config)
{
    struct work w = work_of(c, config);
    w.run = follow_in_guest;
    return w;
}

/* Refuse a vCPU that is emulated, by time outside, which no emulator can bend. One try of 0.1 ms is enough unless others take
 * the CPU, which may happen a few times in a row; an emulator needs 20 ms for each. */
static void refuse_emulation(void)
{
    enum { ROUNDS = 1 << 11, TRIES = 10 };
    char *ring = (char *)guest.talk + TABLE / 2;
    struct chase chase = place_chase(ring, RING, (struct places){LINE, 0}, 1, 1);
    struct work work = {.state = &chase, .run = follow_in_guest, .due = due_after_rounds, .accesses = RING};
    double fastest = 1e18, ghz = core_ghz();
    for (int i = 0; i < TRIES && fastest * ghz > EMULATED_CYCLES; i++) {
        double ns = (double)run_checked(&work, ROUNDS) / (ROUNDS * RING);
        fastest = ns < fastest ? ns : fastest;
    }
    if (fastest * ghz > EMULATED_CYCLES)
        unavailable("emulated", "a hop in the first-level cache costs %.0f cycles", fastest * ghz);
}

static struct region time_guest(const struct config *c, const struct work *w)
{
    struct region r = {.batches = 0};
    double outside[MOST_BATCHES];
    enter_fifo(c);
    struct batches plan = plan_batches(c, w, warm_up(c, w), BATCH_NS);
    uint64_t hops = plan.rounds * w->accesses;
    leave_fifo();
    sample_clock(&r);
    enter_fifo(c);
    settle(w);
    double exits = exits_so_far();
    open_region(c, &r);
    uint64_t t0 = now_ns(), ticks = __builtin_ia32_rdtsc();
    while (r.batches < plan.n) {
        renew_fifo(c);
        outside[r.batches] = (double)run_checked(w, plan.rounds) / (double)hops;
        add_batch(&r, guest.talk->end - guest.talk->begin, hops); /* ticks until their rate is known */
    }
    double ghz = (double)(__builtin_ia32_rdtsc() - ticks) / (double)(now_ns() - t0);
    close_region(c, &r);
    leave_fifo();
    exits = exits < 0 ? -1 : exits_so_far() - exits - plan.n;
    sample_clock(&r);
    r.elapsed_ns = (uint64_t)((double)r.elapsed_ns / ghz);
    for (int i = 0; i < plan.n; i++)
        r.batch[i] /= ghz;
    /* Time inside is part of the time outside; reading both clocks differs by far less than 1 %. */
    if (median(r.batch, plan.n) > 1.01 * median(outside, plan.n))
        unavailable("kernel-failed", "the guest's TSC counts %.4g ns where %.4g passed: its rate is not the host's",
                    median(r.batch, plan.n), median(outside, plan.n));
    also("outside_ns_per_access", median(outside, plan.n));
    also("tsc_ghz", ghz);
    if (exits >= 0)
        also("vcpu_exits", exits);
    return r;
}

static int leaf_of(const struct config *c) { return c->mode[1] == 'g' ? 3 : c->mode[0] == '2' ? 2 : 1; }
static uint64_t size_of(const struct config *c) { return c->lines * (c->packed ? LINE : TABLE); }
static int vm;

static void check_guest(struct config *c)
{
    if (c->stride_pages > 1 || c->pages->source == FROM_MTHP)
        bad_argument("guest_chase takes --stride-pages 1 and --pages 4k, thp, 2m or 1g.");
}

static struct arena map_guest(const struct config *c)
{
    int levels = (int)c->own[0].value;
    uint64_t size = size_of(c), tables = tables_for(size, leaf_of(c), levels) + tables_for(PROGRAM_BYTES, 1, levels);
    vm = open_vm(leaf_of(c), levels);
    struct arena a = reserve_bytes(c, round_up(size, page_bytes(c->pages)) + tables * TABLE);
    lay_arena(c, &a);
    fault_in(&a);
    a.working_set = size;
    a.physical += PROGRAM_BYTES;
    return a;
}

static struct region measure_guest(const struct config *c, const struct arena *a)
{
    struct tables t = {.levels = (int)c->own[0].value};
    also_off_node(a, c->cpu);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL); /* without SA_RESTART it interrupts KVM_RUN */
    guest.limit_s = 10 + (long)(50 * a->bytes / GIB); /* half of the runner's limit: tlb/measure/session.py */
    struct chase chase = place_chase(a->base, c->lines, places_in(c->packed, a->stride, a->page), 1, c->seed);
    move_in(vm, a, round_up(size_of(c), TABLE), &t, leaf_of(c));
    refuse_emulation();
    struct work all = {.state = &chase, .run = follow_in_guest, .due = due_after_rounds, .accesses = c->lines};
    also("first_touch_ns_per_access", (double)run_checked(&all, 1) / (double)c->lines);
    also("guest_table_bytes", (double)(t.used * TABLE));
    also("guest_levels", t.levels);
    if (splits_executed_pages() >= 0)
        also("nx_huge_pages", splits_executed_pages());
    struct work work = guest_work(&chase, c);
    struct region r = time_guest(c, &work);
    r.checksum = checksum_of(&chase, &work);
    return r;
}

static const struct kernel guest_chase = {.name = "guest_chase", .orders = {"cycle"}, .layouts = {"spread", "packed"},
    .modes = {"4k", "2m", "1g"}, .own = {{.name = "levels", .value = 4, .least = 4, .most = 5}},
    .check = check_guest, .map = map_guest, .measure = measure_guest};

int main(int argc, char **argv) { return measure_alone(&guest_chase, argc, argv); }
#else
int main(void) { unavailable("other-arch", "the guest is written for x86-64, and this is arm64"); }
#endif
