/* group.h: a memory cgroup that this process enters and leaves, which is charged for pages as the root is not. The fixed name
 * lets the next process remove what a killed one left. */
#ifndef GROUP_H
#define GROUP_H
#include "arguments.h"
#include <limits.h>
#include <sys/stat.h>

struct group { char root[PATH_MAX / 2], own[PATH_MAX]; };

static inline void must_write(const char *folder, const char *file, const char *text)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY);
    ssize_t written = fd < 0 ? -1 : write(fd, text, strlen(text));
    if (written != (ssize_t)strlen(text)) {
        int why = errno;
        rmdir(folder);
        unavailable("not-permitted", "memory cgroup: %s: %s", path, strerror(why));
    }
    close(fd);
}

static inline int has_file(const char *folder, const char *file)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return !access(path, F_OK);
}

/* Find the memory controller's hierarchy, mounted from its root: only there has version 1 release_agent, and only elsewhere
 * has version 2 cgroup.type. */
static inline struct group find_group(void)
{
    struct group g = {.root = ""};
    char line[2048], place[PATH_MAX / 2], kind[32], options[512];
    FILE *mounts = fopen("/proc/self/mounts", "r");
    while (mounts && fgets(line, sizeof line, mounts))
        if (sscanf(line, "%*s %2047s %31s %511s", place, kind, options) == 3 &&
            ((!strcmp(kind, "cgroup") && strstr(options, "memory") && has_file(place, "release_agent")) ||
             (!strcmp(kind, "cgroup2") && has_file(place, "cgroup.controllers") && !has_file(place, "cgroup.type")))) {
            snprintf(g.root, sizeof g.root, "%s", place);
            if (!strcmp(kind, "cgroup"))
                break;
        }
    if (mounts) fclose(mounts);
    if (!*g.root)
        unavailable("not-permitted", "no hierarchy of memory cgroups is mounted here from its root: run on the host, booted without cgroup_disable=memory");
    snprintf(g.own, sizeof g.own, "%s/tlb-page-fault", g.root);
    return g;
}

static inline void make_group(const struct group *g)
{
    if (mkdir(g->own, 0755) && errno != EEXIST)
        unavailable("not-permitted", "memory cgroup: %s: %s", g->own, strerror(errno));
    if (has_file(g->own, "memory.limit_in_bytes") || has_file(g->own, "memory.max"))
        return;
    rmdir(g->own);
    unavailable("not-permitted", "%s does not count memory for its groups", g->root);
}

static inline void enter_group(const struct group *g) { must_write(g->own, "cgroup.procs", "0"); }
static inline void leave_group(const struct group *g) { must_write(g->root, "cgroup.procs", "0"); }
#endif
