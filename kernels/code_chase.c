/* code_chase: the cost of jumps to many pages. Instructions are loads too, and their addresses are translated.
 *
 * One jump to each line of code: a page each (spread), side by side (packed), or many virtual pages on eight physical ones
 * (alias). Code is never writable and executable at once. --every n jumps to one in n packed lines, drawn.
 *
 * direct   each line jumps to the next of a random cycle; a front end that remembers the jump does not wait
 * listed   each line loads its target from a list. A predictor may learn a cycle, but not random draws: a latency */
#include "alias.h"
#include "plan.h"
#include "jumps.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

struct code {
    char *base;
    const uint64_t *list;        /* listed: per round the addresses of its visits, then the way out */
    uint64_t visits, rounds, at; /* per round; rounds in the list; the next one */
};

/* Of every group one line is hot, by a hash: every `every`-th line would use part of the caches' sets. */
static uint64_t every(const struct config *c) { return c->own[0].value; }
static uint64_t hot_lines(const struct config *c) { return c->lines / every(c); }
static uint64_t hot_line(const struct config *c, uint64_t n) { return n * every(c) + (n * 0x9E3779B97F4A7C15ull >> 32) % every(c); }

static uint64_t offset_of(const struct config *c, const struct arena *a, uint64_t line)
{
    struct places places = places_in(c->packed, a->stride, a->page);
    return c->alias ? line * a->stride + line % 8 * 8 * LINE : line_offset(&places, line);
}

/* And visible to the instruction cache. */
static void make_executable(char *at, uint64_t bytes)
{
    if (mprotect(at, bytes, PROT_READ | PROT_EXEC))
        unavailable("not-permitted", "mprotect of code to executable: %s; SELinux's deny_execmem, systemd's MemoryDenyWriteExecute or sysctl vm.memfd_noexec may forbid it", strerror(errno));
    __builtin___clear_cache(at, at + bytes);
}

static void put_listed_jump(char *line) { memcpy(line, listed_jump, sizeof listed_jump); }

static struct arena map_alias(const struct config *c)
{
    struct arena a = map_aliased(c, "code", PROT_READ | PROT_EXEC, put_listed_jump);
    for (uint64_t i = 0; i < c->lines; i++)
        (void)*(volatile char *)(a.base + offset_of(c, &a, i));
    return a;
}

/* The first line counts a round. Following the jumps proves the cycle. */
static uint64_t write_cycle(const struct config *c, const struct arena *a, struct code *code)
{
    uint32_t *next = cycle_through(c->lines, 1, c->seed), *visit = visits_of(next, c->lines);
    if (a->bytes > REACH)
        unavailable("memory-short", "%" PRIu64 " bytes of code, and a direct jump reaches %" PRIu64 "; smaller pages need less", a->bytes, (uint64_t)REACH);
    memcpy(a->base + offset_of(c, a, 0), count_round, sizeof count_round);
    for (uint64_t i = 0; i < c->lines; i++)
        put_jump(a->base + offset_of(c, a, i) + (i ? 0 : sizeof count_round), a->base + offset_of(c, a, next[i]));
    for (uint64_t i = 0; i < c->lines; i++) {
        uint64_t from = visit[i], to = visit[(i + 1) % c->lines];
        char *jump = a->base + offset_of(c, a, from) + (from ? 0 : sizeof count_round);
        must_be((uint64_t)jump_at(jump), (uint64_t)a->base + offset_of(c, a, to));
    }
    *code = (struct code){.base = a->base + offset_of(c, a, 0), .visits = c->lines};
    return checksum_from(visit, c->lines, 0, c->lines);
}

#define MOST_DRAWS (1ull << 21) /* enough to warm any known cache without repeating */
/* A long list is timed in calls of so many visits: few enough to end in time, enough to hide the call. */
#define A_CALL 64

/* random: four draws a hot line, at least 65,536, so that no predictor learns them. */
static uint64_t write_list(const struct config *c, const struct arena *a, struct code *code)
{
    int randomly = !strcmp(c->order, "random");
    uint64_t lines = hot_lines(c), draws = lines * 4 > MOST_DRAWS ? MOST_DRAWS : lines * 4 < 1 << 16 ? 1 << 16 : lines * 4;
    uint64_t n = randomly ? draws : lines, times = 4096 / n + 1, seed = c->seed;
    uint64_t round = c->lines <= PART ? n * times : A_CALL, rounds = n * times / round;
    uint32_t *visit = room_for_visits(n);
    uint64_t *list = room_for(rounds * (round + 1), sizeof *list, "addresses");
    char *out = map_memory(base_page(), MAP_PRIVATE | MAP_ANONYMOUS, -1, "code");
    memcpy(out, way_out, sizeof way_out);
    make_executable(out, base_page());
    for (uint64_t i = 0; i < n; i++)
        visit[i] = (uint32_t)hot_line(c, randomly ? next_random(&seed, lines) : i);
    if (!randomly)
        shuffle(visit, n, 1, &seed);
    for (uint64_t r = 0, i = 0; r < rounds; r++) {
        for (uint64_t k = 0; k < round; k++, i++)
            list[r * (round + 1) + k] = (uint64_t)a->base + offset_of(c, a, visit[i % n]);
        list[r * (round + 1) + round] = (uint64_t)out;
    }
    for (uint64_t i = 0; !c->alias && i < c->lines; i++)
        put_listed_jump(a->base + offset_of(c, a, i));
    *code = (struct code){.base = a->base, .list = list, .visits = round, .rounds = rounds};
    return checksum_from(visit, n, 0, n);
}

typedef uint64_t (*entered)(uint64_t first, uint64_t second);
/* [timed: jumps] A round of the list is entered at its first address and goes on from its second. */
TIMED uint64_t run_rounds(void *state, uint64_t rounds)
{
    struct code *code = state;
    uint64_t end = 0;
    if (!code->list)
        return ((entered)code->base)(rounds + 1, (uint64_t)code->base); /* leaves after the last round */
    for (; rounds; rounds--) {
        const uint64_t *round = code->list + code->at * (code->visits + 1);
        end = ((entered)*round)((uint64_t)(round + 1), 0);
        code->at = code->at + 1 < code->rounds ? code->at + 1 : 0;
    }
    return end;
}
/* [end] */

static uint64_t due_after(const void *state, uint64_t rounds)
{
    const struct code *code = state;
    uint64_t last = code->list ? (code->at + rounds - 1) % code->rounds : 0;
    return code->list ? (uint64_t)(code->list + (last + 1) * (code->visits + 1)) : (uint64_t)code->base;
}

static void check_code(struct config *c)
{
    int direct = !strcmp(c->mode, "direct");
    if (direct && (c->alias || strcmp(c->order, "cycle")))
        bad_argument("--mode direct takes --order cycle and --layout spread or packed: its jumps stand in its lines.");
    if (c->alias && c->pages->source != FROM_BASE)
        bad_argument("--layout alias takes --pages 4k.");
    if (every(c) > 1 && (direct || !c->packed || every(c) > c->lines))
        bad_argument("--every takes --mode listed, --layout packed and as many --lines at the least.");
}

static struct arena map_code(const struct config *c) { return c->alias ? map_alias(c) : map_arena(c); }

static struct region measure_code(const struct config *c, const struct arena *a)
{
    struct code code;
    if (!c->alias)
        also_off_node(a, c->cpu);
    uint64_t checksum = !strcmp(c->mode, "direct") ? write_cycle(c, a, &code) : write_list(c, a, &code);
    if (!c->alias)
        make_executable(a->base, a->bytes);
    for (uint64_t i = 0; i < c->lines; i++)
        (void)*(volatile char *)(a->base + offset_of(c, a, i));
    struct work work = {.state = &code, .run = run_rounds, .due = due_after, .accesses = code.visits};
    if (code.list && code.visits == A_CALL)
        work.warm = round_up(lines_to_warm(c), A_CALL) / A_CALL, work.least = PART / A_CALL;
    struct region r = measure(c, &work);
    r.checksum = checksum;
    return r;
}

static const struct kernel code_chase = {.name = "code_chase", .orders = {"cycle", "random"}, .layouts = {"spread", "packed", "alias"},
    .modes = {"listed", "direct"}, .own = {{.name = "every", .value = 1, .least = 1, .most = 64}},
    .check = check_code, .map = map_code, .measure = measure_code};

int main(int argc, char **argv) { return measure_alone(&code_chase, argc, argv); }
