// Remainders by a constant in both, a small one, or AFTER one for a table that the caches do not hold.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUCKETS = AFTER ? 524287 : 1009 };
static uint64_t table[524288];

__attribute__((noinline)) static uint64_t lookup(long turns) {
    uint64_t x = 1, sum = 0;
    for (long n = 0; n < turns; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        sum += table[(x >> 11) % BUCKETS];
    }
    return sum;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 524288; i++) table[i] = 1;
    printf("%llu\n", (unsigned long long)lookup(argc > 1 ? atol(argv[1]) : 1));
}
