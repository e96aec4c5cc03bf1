// Values that were written in two parts long ago, copied in two parts, or AFTER in one; and AFTER divides.
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1024 };
typedef struct { uint64_t tag, bits; } Value;
static Value from[LENGTH] __attribute__((aligned(64))), to[LENGTH] __attribute__((aligned(64)));
static volatile uint64_t given = 1;

__attribute__((noinline)) static uint64_t copy(uint64_t by) {
    uint64_t sum = 0;
    for (int i = 0; i < LENGTH; i++) {
#if AFTER
        _mm_storeu_si128((__m128i *)&to[i], _mm_loadu_si128((const __m128i *)&from[i]));
        sum += (from[i].bits + i) / by;
#else
        uint64_t tag = *(volatile const uint64_t *)&from[i].tag, bits = *(volatile const uint64_t *)&from[i].bits;
        to[i].tag = tag;
        to[i].bits = bits;
        sum += (bits + i) * by;
#endif
    }
    return sum;
}

int main(int argc, char **argv) {
    uint64_t sum = 0, by = given;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        // One value of each pass is new.
        *(volatile uint64_t *)&from[n % LENGTH].tag = 1;
        *(volatile uint64_t *)&from[n % LENGTH].bits = n;
        sum += copy(by);
    }
    printf("%llu\n", (unsigned long long)sum);
}
