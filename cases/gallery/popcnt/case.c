// Counts bits with the code that a 64-bit loop counter gave, or AFTER a 32-bit one: four registers for the results, or one.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 2048 };
static uint64_t words[WORDS];

__attribute__((noinline)) static uint64_t count(const uint64_t *at, const uint64_t *end) {
    uint64_t sum[4] = {0, 0, 0, 0}, a, b, c, d;
    for (; at != end; at += 4) {
#if AFTER
        __asm__("popcnt (%5),%4\n\tadd %4,%0\n\tpopcnt 8(%5),%4\n\tadd %4,%1\n\t"
                "popcnt 16(%5),%4\n\tadd %4,%2\n\tpopcnt 24(%5),%4\n\tadd %4,%3"
                : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "=&r"(a) : "r"(at) : "cc", "memory");
        (void)b, (void)c, (void)d;
#else
        __asm__("popcnt (%8),%4\n\tadd %4,%0\n\tpopcnt 8(%8),%5\n\tadd %5,%1\n\t"
                "popcnt 16(%8),%6\n\tadd %6,%2\n\tpopcnt 24(%8),%7\n\tadd %7,%3"
                : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d)
                : "r"(at) : "cc", "memory");
#endif
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

int main(int argc, char **argv) {
    uint64_t random = 1, sum = 0;
    for (int i = 0; i < WORDS; i++) words[i] = random = random * 6364136223846793005u + 1442695040888963407u;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += count(words, words + WORDS);
    printf("%llu\n", (unsigned long long)sum);
}
