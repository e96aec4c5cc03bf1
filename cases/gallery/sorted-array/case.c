// Adds up the bytes of at least 128, of an array in order, or AFTER as it came.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 32768 };
static int values[LENGTH];

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline)) static long sum_of_large(void) {
    long sum = 0;
    for (int i = 0; i < LENGTH; i++) {
        if (values[i] >= 128) {
            __asm__ volatile("" : "+r"(sum)); // keeps the branch: a conditional move has nothing to predict
            sum += values[i];
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1, sum = 0;
    unsigned random = 1;
    for (int i = 0; i < LENGTH; i++) {
        random = random * 1664525 + 1013904223;
        values[i] = random >> 24;
    }
    if (!AFTER) qsort(values, LENGTH, sizeof *values, by_value);
    for (long n = 0; n < rounds; n++) sum += sum_of_large();
    printf("%ld\n", sum);
}
