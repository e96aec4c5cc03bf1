// Adds up entries of a table that an array names in order, or AFTER in no order. The branch always goes one way.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1 << 18 };
static int values[LENGTH], table[LENGTH * 4];

__attribute__((noinline)) static long sum_of_entries(void) {
    long sum = 0;
    for (int i = 0; i < LENGTH; i++) {
        if (values[i] >= 0) {
            __asm__ volatile("" : "+r"(sum));
            sum += table[values[i]];
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    long sum = 0;
    unsigned at = 0;
    for (int i = 0; i < LENGTH; i++) {
        // The full period of a generator: each number once.
        at = (at * 1664525 + 1013904223) % LENGTH;
        values[i] = (AFTER ? (int)at : i) * 4;
    }
    for (int i = 0; i < LENGTH * 4; i++) table[i] = i & 15;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += sum_of_entries();
    printf("%ld\n", sum);
}
