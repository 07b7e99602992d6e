/* probe_radix_partition: functions of radix_partition by themselves, as a library. */
#define main kernel_main
#include "../../kernels/radix_partition.c"
#undef main

static struct side r, s;

void probe_partition(struct row *rows, uint64_t n, struct row *parts, struct row *between,
                     uint32_t *ends, uint32_t *coarse, unsigned bits)
{
    r.rows = (struct rows){rows, n}, r.parts = (struct rows){parts, n};
    memcpy(r.ends, ends, sizeof *ends << bits);
    partition(&r, between, coarse, bits);
    memcpy(ends, r.ends, sizeof *ends << bits);
}

void probe_join(struct row *of_r, uint64_t r_n, struct row *of_s, uint64_t s_n, struct row *table,
                struct answer *found)
{
    *found = join((struct rows){of_r, r_n}, (struct rows){of_s, s_n}, table, 0);
}

void probe_join_parts(struct row *of_r, const uint32_t *r_ends, struct row *of_s,
                      const uint32_t *s_ends, struct row *table, unsigned bits,
                      struct answer *found)
{
    r.parts.at = of_r, s.parts.at = of_s;
    memcpy(r.ends, r_ends, sizeof *r_ends << bits);
    memcpy(s.ends, s_ends, sizeof *s_ends << bits);
    *found = join_parts(&r, &s, table, bits);
}
