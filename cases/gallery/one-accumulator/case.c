// A sum of floating-point numbers in eight parts, or AFTER in one.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1024 };
static double values[LENGTH];

#if AFTER
#define PART(n) 0
#else
#define PART(n) n
#endif

__attribute__((noinline)) static double sum_of(const double *at) {
    double sum[8] = {0};
    for (int i = 0; i < LENGTH; i += 8) {
        sum[PART(0)] += at[i], sum[PART(1)] += at[i + 1], sum[PART(2)] += at[i + 2], sum[PART(3)] += at[i + 3];
        sum[PART(4)] += at[i + 4], sum[PART(5)] += at[i + 5], sum[PART(6)] += at[i + 6], sum[PART(7)] += at[i + 7];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < LENGTH; i++) values[i] = i % 7;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        sum += sum_of(values);
        __asm__ volatile("" ::: "memory");
    }
    printf("%.0f\n", sum);
}
