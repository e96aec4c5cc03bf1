// Fills 512 KiB that hold the same already: with zeros, or AFTER with ones.
#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 19 };
static char buffer[SIZE] __attribute__((aligned(4096)));

__attribute__((noinline)) static void fill(__m128i *at, __m128i value) {
    for (long i = 0; i < SIZE / 16; i += 4) {
        _mm_store_si128(at + i, value);
        _mm_store_si128(at + i + 1, value);
        _mm_store_si128(at + i + 2, value);
        _mm_store_si128(at + i + 3, value);
    }
}

int main(int argc, char **argv) {
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) fill((__m128i *)buffer, _mm_set1_epi8(AFTER));
    printf("%d\n", buffer[SIZE / 2] == AFTER);
}
