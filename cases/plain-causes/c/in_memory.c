// A sum in a register, or AFTER in memory: each addition waits for the one before to be stored and loaded.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) long work(long n) {
#if AFTER
    volatile long sum = 0;
#else
    long sum = 0;
#endif
    for (long i = 0; i < n; i++) {
        sum += i;
        __asm__ volatile("");
    }
    return sum;
}

int main(int argc, char **argv) { printf("%ld\n", work(argc > 1 ? atol(argv[1]) : 1)); }
