/* Programs in which some walks wait for others, for tests of `tlb where`: known_structures MODE NODES.
 * list, tree, hash, skip: searches that compare a key before they follow a pointer; beside each, a
 * gather of independent reads, most of which are walks. freed: a large block, freed, then a
 * list of small objects in its place. unmapped, given_back, moved: memory of NODES pages, each
 * written once, ten times: a mapping of its own, or after MADV_DONTNEED, or at another address. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define LEVELS 12
#define APART __attribute__((noinline))

struct node {
    struct node *next[LEVELS]; /* next[0]: of a list; next[0], next[1]: the children of a tree */
    uint32_t key;
    char padding[PAGE - 8 * LEVELS - 8];
};

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

static uint32_t *shuffled(uint32_t n)
{
    uint32_t *order = malloc(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t k = draw(i), kept = order[i];
        order[i] = order[k], order[k] = kept;
    }
    return order;
}

APART struct node *search_list(struct node *at, uint32_t key)
{
    while (at) {
        if (at->key == key)
            return at;
        at = at->next[0];
    }
    return NULL;
}

APART struct node *search_tree(struct node *at, uint32_t key)
{
    while (at && at->key != key) {
        if (key < at->key)
            at = at->next[0];
        else
            at = at->next[1];
    }
    return at;
}

APART struct node *search_skip(struct node *at, uint32_t key)
{
    for (int level = LEVELS - 1; level >= 0; level--)
        while (at->next[level] && at->next[level]->key < key)
            at = at->next[level];
    return at->next[0];
}

APART uint64_t gather(const char *array, const uint32_t *order, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (uint64_t)array[(uint64_t)order[i] * PAGE];
    return sum;
}

APART void *allocate_nodes(uint32_t n) { return calloc(n, sizeof(struct node)); }
APART char *allocate_gathered(uint32_t n) { return malloc((uint64_t)n * PAGE); }
APART char *allocate_freed(uint32_t n) { return malloc((uint64_t)n * PAGE); }

static uint64_t lists(struct node *nodes, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        nodes[order[i]].key = i;
        nodes[order[i]].next[0] = i + 1 < n ? &nodes[order[i + 1]] : NULL;
    }
    uint64_t sum = 0;
    for (uint32_t pass = 1; pass <= 8; pass++)
        sum += search_list(&nodes[order[0]], n - pass)->key;
    return sum;
}

static uint64_t trees(struct node *nodes, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        nodes[i].key = order[i];
        struct node **link = &nodes[0].next[0];
        if (i == 0)
            continue;
        link = &nodes[0].next[nodes[0].key < order[i]];
        while (*link)
            link = &(*link)->next[(*link)->key < order[i]];
        *link = &nodes[i];
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 2 * n; i++)
        sum += search_tree(nodes, draw(n))->key;
    return sum;
}

static uint64_t hashes(struct node *nodes, const uint32_t *order, uint32_t n)
{
    struct node **buckets = calloc(n / 8, sizeof *buckets);
    for (uint32_t i = 0; i < n; i++) {
        struct node **bucket = &buckets[i % (n / 8)], *node = &nodes[order[i]];
        node->key = i, node->next[0] = *bucket, *bucket = node;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4 * n; i++) {
        uint32_t key = draw(n);
        sum += search_list(buckets[key % (n / 8)], key)->key;
    }
    return sum;
}

static uint64_t skips(struct node *nodes, const uint32_t *order, uint32_t n)
{
    struct node *last[LEVELS];
    for (int level = 0; level < LEVELS; level++)
        last[level] = &nodes[order[0]];
    for (uint32_t i = 1; i < n; i++) {
        struct node *node = &nodes[order[i]];
        node->key = i;
        for (int level = 0; level < LEVELS && (level == 0 || draw(2)); level++)
            last[level]->next[level] = node, last[level] = node;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4 * n; i++)
        sum += search_skip(&nodes[order[0]], 1 + draw(n - 1))->key;
    return sum;
}

static uint64_t small_objects(uint32_t n)
{
    struct small { struct small *next; char padding[48]; } **all;
    char *block = allocate_freed(n);
    memset(block, 1, (uint64_t)n * PAGE);
    uint64_t sum = (uint64_t)block[n];
    free(block);
    uint32_t count = 48 * n, *order = shuffled(count); /* 64 bytes each: three quarters of the block */
    all = malloc(count * sizeof *all);
    for (uint32_t i = 0; i < count; i++)
        all[i] = malloc(sizeof **all);
    for (uint32_t i = 0; i < count; i++)
        all[order[i]]->next = all[order[(i + 1) % count]];
    struct small *at = all[order[0]];
    for (uint32_t i = 0; i < 4 * count; i++)
        at = at->next;
    return sum + (at == all[order[0]]);
}

static uint64_t written(const char *mode, uint32_t n)
{
    uint64_t bytes = (uint64_t)n * PAGE, sum = 0;
    char *at = NULL;
    for (int pass = 0; pass < 10; pass++) {
        if (!at)
            at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (uint64_t i = 0; i < bytes; i += PAGE)
            at[i] = 1;
        if (!strcmp(mode, "unmapped"))
            munmap(at, bytes), at = NULL;
        else if (!strcmp(mode, "given_back"))
            madvise(at, bytes, MADV_DONTNEED);
        else {
            char *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            at = mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        }
        sum++;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"list", "tree", "hash", "skip"};
    static uint64_t (*const searches[])(struct node *, const uint32_t *, uint32_t) = {lists, trees, hashes, skips};
    if (argc != 3)
        return 2;
    uint32_t n = (uint32_t)atoi(argv[2]);
    uint64_t sum = 0;
    for (int k = 0; k < 4; k++)
        if (!strcmp(argv[1], names[k])) {
            uint32_t *order = shuffled(n), *read = malloc(40ul * n * sizeof *read);
            char *gathered = allocate_gathered(n);
            memset(gathered, 1, (uint64_t)n * PAGE);
            for (uint32_t i = 0; i < 40 * n; i++)
                read[i] = draw(n);
            sum = searches[k](allocate_nodes(n), order, n) + gather(gathered, read, 40 * n);
        }
    if (!strcmp(argv[1], "freed"))
        sum = small_objects(n);
    else if (!sum)
        sum = written(argv[1], n);
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
