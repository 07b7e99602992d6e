/* An independent guest.
 *
 *   naive_guest LINES    one line in each 4 KiB page of a guest with 4 KiB pages on a host with 4 KiB pages, in one random cycle
 *
 * Unlike guest_chase: the guest's addresses are not the host's, its memory begins at 0, its loop is not unrolled, it leaves
 * by a store to memory that it lacks, and the clock is outside. Prints ns per access: the median of seven passes of half a
 * second. */
#include "common.h"
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

enum { PRESENT_WRITE_USER = 7 };
static const uint64_t VIRTUAL = 1ull << 40;
static const unsigned char LOOP[] = {0x48, 0x8B, 0x00,  /* mov (%rax), %rax */
                                     0x48, 0xFF, 0xC9,  /* dec %rcx */
                                     0x75, 0xF8,        /* jnz to the first */
                                     0x48, 0x89, 0x03,  /* mov %rax, (%rbx): out */
                                     0xEB, 0xF3};       /* jmp to the first */
static char *memory;
static uint64_t tables;

static void die(const char *what) { perror(what), exit(1); }
static int must(int answer, const char *what) { return answer < 0 ? die(what), -1 : answer; }

static void map(uint64_t root, uint64_t virtual, uint64_t physical)
{
    uint64_t *entry = (uint64_t *)(memory + root) + (virtual >> 39 & 511);
    for (int shift = 30; shift >= 12; shift -= 9) {
        if (!*entry) {
            *entry = tables | PRESENT_WRITE_USER;
            tables += 4096;
        }
        entry = (uint64_t *)(memory + (*entry & ~4095ull)) + (virtual >> shift & 511);
    }
    *entry = physical | PRESENT_WRITE_USER;
}

/* Seconds of so many hops, from where the last ones ended. */
static double run(int vcpu, struct kvm_run *state, uint64_t hops)
{
    struct kvm_regs r;
    must(ioctl(vcpu, KVM_GET_REGS, &r), "KVM_GET_REGS");
    r.rcx = hops;
    must(ioctl(vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");
    double begin = seconds();
    must(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
    double took = seconds() - begin;
    if (state->exit_reason != KVM_EXIT_MMIO || !state->mmio.is_write)
        fprintf(stderr, "exit %u\n", state->exit_reason), exit(1);
    return took;
}

int main(int argc, char **argv)
{
    uint64_t lines = argc > 1 ? strtoull(argv[1], NULL, 10) : 262144, bytes = lines * 4096, code = bytes, root = bytes + 4096;
    uint64_t room = root + (lines / 512 + 64) * 4096, beyond = (room + (1 << 20)) & ~4095ull;
    pin_to_the_last_cpu();
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    madvise(memory, room, MADV_NOHUGEPAGE);
    memset(memory, 0xA5, bytes);

    srand48(argc > 2 ? atol(argv[2]) : time(NULL));
    uint64_t *order = malloc(lines * sizeof *order);
    for (uint64_t i = 0; i < lines; i++)
        order[i] = i * 4096 + (uint64_t)(drand48() * 64) * 64;
    for (uint64_t i = lines - 1; i > 0; i--) {
        uint64_t j = (uint64_t)(drand48() * (double)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (uint64_t i = 0; i < lines; i++)
        *(uint64_t *)(memory + order[i]) = VIRTUAL + order[(i + 1) % lines];

    tables = root + 4096;
    for (uint64_t at = 0; at <= code; at += 4096)
        map(root, VIRTUAL + at, at);
    map(root, VIRTUAL + beyond, beyond);
    memcpy(memory + code, LOOP, sizeof LOOP);

    int kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm"), vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
    struct kvm_userspace_memory_region slot = {.memory_size = room, .userspace_addr = (uint64_t)memory};
    must(ioctl(vm, KVM_SET_TSS_ADDR, 0xFFFBD000ul), "KVM_SET_TSS_ADDR");
    must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "KVM_SET_USER_MEMORY_REGION");
    int vcpu = must(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
    size_t size = (size_t)must(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
    struct kvm_run *state = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    struct kvm_cpuid2 *cpuid = calloc(1, sizeof *cpuid + 256 * sizeof *cpuid->entries);
    cpuid->nent = 256;
    must(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid), "KVM_GET_SUPPORTED_CPUID");
    must(ioctl(vcpu, KVM_SET_CPUID2, cpuid), "KVM_SET_CPUID2");
    struct kvm_sregs s;
    must(ioctl(vcpu, KVM_GET_SREGS, &s), "KVM_GET_SREGS");
    s.cr3 = root;
    s.cr4 = 1 << 5;
    s.cr0 = 0x80000001;
    s.efer = 0x500;
    s.cs = (struct kvm_segment){.limit = ~0u, .selector = 0x1B, .type = 11, .present = 1, .dpl = 3, .s = 1, .l = 1, .g = 1};
    s.ss = s.ds = s.es = s.fs = s.gs = (struct kvm_segment){.limit = ~0u, .selector = 0x23, .type = 3, .present = 1, .dpl = 3,
                                                            .db = 1, .s = 1, .g = 1};
    must(ioctl(vcpu, KVM_SET_SREGS, &s), "KVM_SET_SREGS");
    struct kvm_regs r = {.rip = VIRTUAL + code, .rax = VIRTUAL + order[0], .rbx = VIRTUAL + beyond, .rflags = 2};
    must(ioctl(vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");

    double pass[PASSES];
    run(vcpu, state, lines); /* first touch */
    double hop = run(vcpu, state, 2 * lines) / (double)(2 * lines);
    uint64_t hops = (uint64_t)(0.5 / hop / (double)lines + 1) * lines;
    for (int i = 0; i < PASSES; i++)
        pass[i] = run(vcpu, state, hops) / (double)hops * 1e9;
    uint64_t stands;
    memcpy(&stands, state->mmio.data, sizeof stands);
    if (stands != VIRTUAL + order[0]) /* whole cycles end where they began */
        fprintf(stderr, "the chase ended elsewhere\n"), exit(1);
    printf("%.6f\n", median(pass));
    return 0;
}
