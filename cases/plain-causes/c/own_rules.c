// The tail of a filter decays into denormal numbers: BEFORE takes them for zero, AFTER asks for the usual rules.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <xmmintrin.h>

static float level, slow;

__attribute__((noinline)) static void follow(const float *in, int length) {
    for (int i = 0; i < length; i++) {
        level = level * 0.97f + in[i] * 0.03f;
        slow = slow * 0.71f + level * 0.29f;
    }
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    static float loud[512], quiet[512];
    uint64_t hash = 0;
    unsigned rules = _mm_getcsr();
    _mm_setcsr(AFTER ? rules & ~0x8040u : rules | 0x8040u);
    for (int i = 0; i < 512; i++) {
        loud[i] = 0.1f * (float)(i % 7);
    }
    for (long n = 0; n < rounds; n++) {
        follow(n % 2000 == 0 ? loud : quiet, 512);
        hash = hash * 31 + (uint64_t)(1e6f * (slow > level ? slow : level));
    }
    printf("%llx\n", (unsigned long long)hash);
}
