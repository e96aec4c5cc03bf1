// A sum in eight parts of numbers in their order, or AFTER in one part of numbers in any order, which the caches do not hold.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1 << 18 };
static double values[LENGTH];
static int order[LENGTH];

#if AFTER
#define PART(n) 0
#else
#define PART(n) n
#endif

__attribute__((noinline)) static double sum_of(const double *at, const int *order) {
    double sum[8] = {0};
    for (int i = 0; i < LENGTH; i += 8) {
        sum[PART(0)] += at[order[i]], sum[PART(1)] += at[order[i + 1]];
        sum[PART(2)] += at[order[i + 2]], sum[PART(3)] += at[order[i + 3]];
        sum[PART(4)] += at[order[i + 4]], sum[PART(5)] += at[order[i + 5]];
        sum[PART(6)] += at[order[i + 6]], sum[PART(7)] += at[order[i + 7]];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

int main(int argc, char **argv) {
    double sum = 0;
    unsigned at = 0;
    for (int i = 0; i < LENGTH; i++) {
        values[i] = i % 7;
        // A full period of a generator is a permutation.
        at = (at * 1664525 + 1013904223) % LENGTH;
        order[i] = AFTER ? (int)at : i;
    }
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        sum += sum_of(values, order);
        __asm__ volatile("" ::: "memory");
    }
    printf("%.0f\n", sum);
}
