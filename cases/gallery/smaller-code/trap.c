// Remainders by a constant, built for speed (-O2), or AFTER for size (-Os), which divides.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static unsigned work(unsigned x, long turns) {
    unsigned sum = 0;
    for (long i = 0; i < turns; ++i) {
        sum += x % 10007;
        x = x * 1664525 + sum;
    }
    return sum;
}

int main(int argc, char **argv) {
    printf("%u\n", work(argc, argc > 1 ? atol(argv[1]) : 1));
}
