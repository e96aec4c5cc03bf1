// A word is stored whole, or AFTER byte by byte, and loaded whole by another function.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void put(volatile unsigned char *at, uint32_t x) {
#if AFTER
    at[0] = x; at[1] = x >> 8; at[2] = x >> 16; at[3] = x >> 24;
#else
    *(volatile uint32_t *)at = x;
#endif
}

__attribute__((noinline)) uint32_t get(const unsigned char *at) { return *(const volatile uint32_t *)at; }

int main(int argc, char **argv) {
    unsigned char bytes[64];
    uint32_t x = 1;
    long n = argc > 1 ? atol(argv[1]) : 1;
    for (long i = 0; i < n; i++) {
        put(bytes + (i & 31), x);
        x = get(bytes + (i & 31)) * 2654435761u + 1;
    }
    printf("%u\n", x);
}
