/* jumps.h: the jumps that code_chase writes. listed_jump loads its target from the list at the first argument; way_out ends a
 * list. count_round counts a round of direct jumps and, after the last, returns the second argument. */
#pragma once

#include <stdint.h>
#include <string.h>

#if defined __x86_64__
/* mov (%rdi), %rax; add $8, %rdi; jmp *%rax */
static const unsigned char listed_jump[] = {0x48, 0x8B, 0x07, 0x48, 0x83, 0xC7, 0x08, 0xFF, 0xE0};
/* mov %rdi, %rax; ret */
static const unsigned char way_out[] = {0x48, 0x89, 0xF8, 0xC3};
/* dec %rdi; jnz .+6; mov %rsi, %rax; ret */
static const unsigned char count_round[] = {0x48, 0xFF, 0xCF, 0x75, 0x04, 0x48, 0x89, 0xF0, 0xC3};
#define REACH INT32_MAX

/* Write a jump from `at` to `to`, within REACH bytes. */
static void put_jump(char *at, const char *to)
{
    int32_t by = (int32_t)(to - (at + 5));
    *at = (char)0xE9;
    memcpy(at + 1, &by, sizeof by);
}

static char *jump_at(const char *at)
{
    int32_t by;
    memcpy(&by, at + 1, sizeof by);
    return (char *)at + 5 + by;
}
#elif defined __aarch64__
static const uint32_t listed_jump[] = {0xF8408402, 0xD61F0040};                      /* ldr x2, [x0], #8; br x2 */
static const uint32_t way_out[] = {0xD65F03C0};                                      /* ret */
static const uint32_t count_round[] = {0xF1000400, 0x54000061, 0xAA0103E0, 0xD65F03C0}; /* subs; b.ne .+12; mov x0, x1; ret */
#define REACH ((1 << 27) - 4)

static void put_jump(char *at, const char *to)
{
    uint32_t jump = 0x14000000u | ((uint32_t)((to - at) / 4) & 0x3FFFFFFu);
    memcpy(at, &jump, sizeof jump);
}

static char *jump_at(const char *at)
{
    uint32_t jump;
    memcpy(&jump, at, sizeof jump);
    return (char *)at + (int64_t)((int32_t)(jump << 6) >> 6) * 4;
}
#endif
