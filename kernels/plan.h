/* plan.h: the plan, by which the runner asks for points.
 *
 *   PROGRAM --pages P [--bytes N] [--cpu C] [--fifo] [--perf-fds CONTROL,ACK] --plan
 *
 * A session maps N bytes, faults them in and proves them once; each point's lines lie at their beginning. A kernel whose
 * points take a process each forks one a line (arguments.h) and, by hand, takes the same point as its arguments. A program
 * prints {"mapped": N, "populate_ns": ..., "page_table_bytes": ..., "proved": 0}. Then each line of stdin is a point ("-": no
 * mode),
 *
 *   ID KERNEL MODE LAYOUT ORDER LINES STRIDE_PAGES SEED REGION_MS [--name value ...]
 *
 * answered by its record or {"id": ID, "reason": CODE, "detail": TEXT, "proved": K}; {"end": N, "proved": N} is last.
 * "proved" counts the answers before smaps last confirmed the page size: for each point on transparent pages (Linux may split
 * them), else for every hundredth, and at the end. */
#ifndef PLAN_H
#define PLAN_H
#include "nodes.h"
#include "placement.h"
#include "record.h"

static inline struct arena map_for(const struct kernel *k, const struct config *c) { return k->map ? k->map(c) : map_arena(c); }

static inline int measure_alone(const struct kernel *k, int argc, char **argv)
{
    struct config c = parse(k, argc, argv);
    c.cpu = pin(c.cpu);
    struct arena a = map_for(k, &c);
    verify_backing(&c, &a);
    struct region r = k->measure(&c, &a);
    verify_backing(&c, &a);
    return report(&c, &a, &r);
}

enum { OFTEN = 100 };

static struct session {
    const struct kernel *const *kernels; /* ends with NULL */
    struct config asked;
    struct arena shared;
    uint64_t answered;
    int keeps;                           /* mappings and files kept for all points */
} session;

static inline void prove_answers(void)
{
    jmp_buf *back = next_point;
    next_point = NULL;
    if (session.shared.bytes)
        verify_backing(&session.asked, &session.shared);
    plan_line.proved = session.answered;
    next_point = back;
}

static inline const struct kernel *kernel_of(char *line, int *argc, char **argv)
{
    *argc = 1;
    const char *name = read_point(line, argc, argv);
    const struct kernel *const *k = session.kernels;
    while (*k && strcmp((*k)->name, name))
        k++;
    if (!*k)
        bad_argument("'%s' is no kernel that this program measures many points of.", name);
    argv[0] = (char *)name;
    argv[(*argc)++] = "--pages", argv[(*argc)++] = (char *)session.asked.pages->name; /* last: the mapping's */
    argv[*argc] = NULL;
    return *k;
}

/* The part of the shared arena for a point; 0 bytes if it does not fit. */
static inline struct arena part_for(const struct config *c)
{
    struct arena a = session.shared;
    uint64_t bytes;
    a.stride = base_page() * c->stride_pages;
    a.bytes = 0;
    if (c->alias || (!c->packed && a.stride > a.page) ||
        __builtin_mul_overflow(c->lines, c->packed ? LINE : a.stride, &bytes) || bytes > session.shared.bytes)
        return a;
    a.working_set = bytes;
    a.bytes = a.resident = a.physical = round_up(bytes, a.page);
    return a;
}

static inline void measure_apart(const struct kernel *k, const struct config *c)
{
    uint64_t tables = page_table_bytes();
    struct arena a = map_for(k, c);
    verify_backing(c, &a);
    struct region r = k->measure(c, &a);
    verify_backing(c, &a);
    r.table_bytes -= tables < r.table_bytes ? tables : 0;
    plan_line.mapping_bytes = a.physical;
    if (plan_line.proved == plan_line.position)
        plan_line.proved++;
    report(c, &a, &r);
}

static inline void measure_line(char *line)
{
    char *argv[2 * MOST_ARGUMENTS + POINT_FIELDS];
    int argc;
    const struct kernel *k = kernel_of(line, &argc, argv);
    struct config c = parse(k, argc, argv);
    const struct config *all = &session.asked;
    c.cpu = all->cpu, c.fifo = all->fifo, c.control_fd = all->control_fd, c.ack_fd = all->ack_fd;
    struct arena a = part_for(&c);
    enum source source = c.pages->source;
    uint64_t often = source == FROM_THP || source == FROM_MTHP ? 1 : OFTEN;
    if (session.answered >= plan_line.proved + often)
        prove_answers();
    if (!a.bytes) {
        measure_apart(k, &c);
        return;
    }
    struct region r = k->measure(&c, &a);
    r.table_bytes = 0; /* the mapping's, printed once */
    plan_line.mapping_bytes = session.shared.bytes;
    report(&c, &a, &r);
}

static inline void answer(char *line)
{
    jmp_buf back;
    also_text[0] = 0;
    warm_ns = 0;
    plan_line.position = session.answered;
    if (!setjmp(back)) {
        next_point = &back;
        measure_line(line);
    } else {
        if (plan_line.proved == plan_line.position)
            plan_line.proved++;
        fputs("{\"id\": \"", stdout);
        print_escaped(stdout, plan_line.id);
        fputs("\", ", stdout);
        print_failure(stdout);
        printf(", \"proved\": %" PRIu64 "}\n", plan_line.proved);
        fflush(stdout);
    }
    next_point = NULL;
    session.answered++;
    leave_fifo();
    give_back_to(session.keeps);
}

static inline int serve_plan(const struct kernel *const *kernels, int argc, char **argv)
{
    static const struct kernel mapping = {.name = "--plan", .orders = {"random"}, .layouts = {"packed"},
                                          .own = {{.name = "bytes", .most = 1ull << 46}}};
    char *words[MOST_ARGUMENTS], *line = NULL;
    int n = 0;
    size_t room = 0;
    for (int i = 0; i < argc && n < MOST_ARGUMENTS - 1; i++)
        if (!i || strcmp(argv[i], "--plan"))
            words[n++] = argv[i];
    words[n] = NULL;
    struct config *c = &session.asked;
    *c = parse(&mapping, n, words);
    c->cpu = pin(c->cpu);
    session.kernels = kernels;
    uint64_t begin = now_ns();
    if (c->own[0].value) {
        session.shared = reserve_bytes(c, c->own[0].value);
        lay_arena(c, &session.shared);
        fault_in(&session.shared);
    }
    uint64_t took = now_ns() - begin;
    session.keeps = keeps;
    prove_answers();
    print_mapped(session.shared.bytes, took, page_table_bytes());
    while (getline(&line, &room, stdin) > 0)
        answer(line);
    prove_answers();
    print_end(session.answered, plan_line.proved);
    return fflush(stdout) ? 1 : 0;
}
#endif
