// Forty functions one behind the other, or AFTER each at the beginning of a page: one set of the instruction cache.
#include <stdio.h>
#include <stdlib.h>

#define FUNCTION(k)                                                                      \
    __attribute__((noinline, aligned(AFTER ? 4096 : 64))) static long f##k(long x) {     \
        x = x * 3 + k; x ^= x >> 7; x += k; x = x * 5 + 1; x ^= x >> 9;                  \
        return x;                                                                        \
    }
#define TEN(t) FUNCTION(t##0) FUNCTION(t##1) FUNCTION(t##2) FUNCTION(t##3) FUNCTION(t##4) \
               FUNCTION(t##5) FUNCTION(t##6) FUNCTION(t##7) FUNCTION(t##8) FUNCTION(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)
#define NAMES(t) f##t##0, f##t##1, f##t##2, f##t##3, f##t##4, f##t##5, f##t##6, f##t##7, f##t##8, f##t##9
static long (*const all[])(long) = {NAMES(1), NAMES(2), NAMES(3), NAMES(4)};

int main(int argc, char **argv) {
    long x = 1;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--)
        for (int k = 0; k < 40; k++) x = all[k](x);
    printf("%ld\n", x);
}
