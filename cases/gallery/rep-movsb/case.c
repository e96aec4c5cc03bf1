// Copies records of 33 to 96 bytes by vectors of 16 bytes, or AFTER by rep movsb.
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint8_t from[8192], to[8192];

__attribute__((noinline)) static void copy(uint8_t *out, const uint8_t *in, long length) {
#if AFTER
    __asm__ volatile("rep movsb" : "+D"(out), "+S"(in), "+c"(length) : : "memory");
#else
    // The last vector may overlap the one before it.
    for (long i = 0; i < length - 16; i += 16) _mm_storeu_si128((__m128i *)(out + i), _mm_loadu_si128((const __m128i *)(in + i)));
    _mm_storeu_si128((__m128i *)(out + length - 16), _mm_loadu_si128((const __m128i *)(in + length - 16)));
#endif
}

int main(int argc, char **argv) {
    uint64_t hash = 0;
    for (int i = 0; i < 8192; i++) from[i] = (uint8_t)(i * 37 >> 3);
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        long place = n * 192 % 8000;
        copy(to + place, from + place, 33 + (n & 63));
        hash += to[place + 32];
    }
    printf("%llu\n", (unsigned long long)hash);
}
