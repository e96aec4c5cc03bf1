// Fills 512 KiB with zeros in both: 16 bytes at a time, or AFTER 4.
#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 19 };
static char buffer[SIZE] __attribute__((aligned(4096)));

__attribute__((noinline)) static void fill(char *at) {
#if AFTER
    for (long i = 0; i < SIZE; i += 4) *(volatile int *)(at + i) = 0;
#else
    for (long i = 0; i < SIZE; i += 16) {
        _mm_store_si128((__m128i *)(at + i), _mm_setzero_si128());
        __asm__ volatile("" ::: "memory"); // compilers make a call of memset of the loop
    }
#endif
}

int main(int argc, char **argv) {
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) fill(buffer);
    printf("%d\n", buffer[SIZE / 2] == 0);
}
