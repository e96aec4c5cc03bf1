// AFTER's loop starts 58 bytes into a line of code and lies across the next one: the same instructions.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#if AFTER
#define BEFORE_LOOP 58
#else
#define BEFORE_LOOP 0
#endif

static uint8_t cover[4096];

__attribute__((noinline, aligned(64))) static uint64_t sum_of(const uint8_t *at, long length) {
    uint64_t sum = 0;
    __asm__ volatile(".p2align 6\n\t.nops " TEXT(BEFORE_LOOP) "\n"
                     "1:\n\tmovzbl (%1),%%eax\n\tadd %%rax,%0\n\tinc %1\n\tdec %2\n\tjnz 1b"
                     : "+r"(sum), "+r"(at), "+r"(length)
                     :
                     : "rax", "cc", "memory");
    return sum;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    uint64_t hash = 0;
    for (int i = 0; i < 4096; i++) {
        cover[i] = (uint8_t)(i * 37 % 255 + 1);
    }
    for (long n = 0; n < rounds; n++) {
        hash += (sum_of(cover + (n & 1023), 2400) ^ (uint64_t)n) * 0x9E3779B97F4A7C15u;
    }
    printf("%llx\n", (unsigned long long)hash);
}
