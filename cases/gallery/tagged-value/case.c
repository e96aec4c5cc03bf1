// A stack machine's values of 16 bytes are written as tag and number, and copied in two parts, or AFTER in one.
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { uint64_t tag, bits; } Value;
static Value stack[64] __attribute__((aligned(64)));

__attribute__((noinline)) static void duplicate(Value *to, const Value *from) {
#if AFTER
    _mm_storeu_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
#else
    uint64_t tag = *(volatile const uint64_t *)&from->tag, bits = *(volatile const uint64_t *)&from->bits;
    to->tag = tag;
    to->bits = bits;
#endif
}

__attribute__((noinline)) static void push(Value *to, uint64_t tag, uint64_t bits) {
    *(volatile uint64_t *)&to->tag = tag;
    *(volatile uint64_t *)&to->bits = bits;
}

int main(int argc, char **argv) {
    uint64_t hash = 1;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        int top = n & 31;
        push(&stack[top], n & 3, hash >> 5);
        duplicate(&stack[top + 1], &stack[top]);
        hash = (hash ^ stack[top + 1].bits) * 0x9E3779B97F4A7C15u + stack[top + 1].tag;
    }
    printf("%llx\n", (unsigned long long)hash);
}
