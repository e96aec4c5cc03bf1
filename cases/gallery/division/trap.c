// Remainders by the same constant in both; AFTER uses all of them, and so a table that the caches do not hold.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUCKETS = 4194301, USED = AFTER ? 0x3fffff : 1023 };
static uint64_t table[USED + 1];

__attribute__((noinline)) static uint64_t lookup(long turns) {
    uint64_t x = 1, sum = 0;
    for (long n = 0; n < turns; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        sum += table[(x >> 11) % BUCKETS & USED];
    }
    return sum;
}

int main(int argc, char **argv) {
    for (int i = 0; i <= USED; i++) table[i] = 1;
    printf("%llu\n", (unsigned long long)lookup(argc > 1 ? atol(argv[1]) : 1));
}
