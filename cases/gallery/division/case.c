// Remainders by a constant, or AFTER by a variable that holds the same.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t given = 1009;

__attribute__((noinline)) static uint64_t buckets(uint64_t by, long turns) {
    uint64_t x = 1, sum = 0;
    for (long n = 0; n < turns; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        sum += (x >> 11) % (AFTER ? by : 1009);
    }
    return sum;
}

int main(int argc, char **argv) {
    printf("%llu\n", (unsigned long long)buckets(given, argc > 1 ? atol(argv[1]) : 1));
}
