// Counts bits of 64 at a time, or AFTER of 32 at a time, in registers of their own: twice as many instructions.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 2048 };
static uint64_t words[WORDS];

#if AFTER
#define COUNT(place, out) "popcntl " place "(%8),%k" out "\n\tadd %" out ",%0\n\tpopcntl 4+" place "(%8),%k" out "\n\tadd %" out ",%1\n\t"
#else
#define COUNT(place, out) "popcnt " place "(%8),%" out "\n\tadd %" out ",%0\n\t"
#endif

__attribute__((noinline)) static uint64_t count(const uint64_t *at, const uint64_t *end) {
    uint64_t sum[4] = {0, 0, 0, 0}, a, b, c, d;
    for (; at != end; at += 4)
        __asm__(COUNT("0", "4") COUNT("8", "5") COUNT("16", "6") COUNT("24", "7")
                : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d)
                : "r"(at) : "cc", "memory");
    return sum[0] + sum[1] + sum[2] + sum[3];
}

int main(int argc, char **argv) {
    uint64_t random = 1, sum = 0;
    for (int i = 0; i < WORDS; i++) words[i] = random = random * 6364136223846793005u + 1442695040888963407u;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += count(words, words + WORDS);
    printf("%llu\n", (unsigned long long)sum);
}
