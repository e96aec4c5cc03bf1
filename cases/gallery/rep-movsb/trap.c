// Copies records by rep movsb in both; which of them count is marked in order, or AFTER in no order.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MARKS = 32768 };
static uint8_t from[8192], to[8192], marks[MARKS];

__attribute__((noinline)) static uint64_t pack(void) {
    uint64_t counted = 0;
    for (int n = 0; n < MARKS; n++) {
        if (n % 64 == 0) {
            uint8_t *out = to + n % 4096;
            const uint8_t *in = from + n % 4096;
            long length = 64;
            __asm__ volatile("rep movsb" : "+D"(out), "+S"(in), "+c"(length) : : "memory");
        }
        if (marks[n]) {
            __asm__ volatile("" : "+r"(counted));
            counted += 3;
        }
    }
    return counted;
}

int main(int argc, char **argv) {
    uint64_t sum = 0;
    unsigned random = 1;
    int ones = 0;
    for (int i = 0; i < MARKS; i++) {
        random = random * 1664525 + 1013904223;
        marks[i] = random >> 31;
        ones += marks[i];
    }
    if (!AFTER) for (int i = 0; i < MARKS; i++) marks[i] = i < ones;
    for (int i = 0; i < 8192; i++) from[i] = (uint8_t)(i * 37 >> 3);
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += pack();
    printf("%llu\n", (unsigned long long)(sum + to[100]));
}
