// A hash table of twelve columns, each in an array of its own: of 1032 rows, or AFTER of 1024.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 12, USED = 1024, ROWS = AFTER ? USED : USED + 8 };
static uint64_t table[COLUMNS][ROWS] __attribute__((aligned(4096)));

__attribute__((noinline)) static uint64_t row_of(uint32_t key) {
    uint32_t row = key * 0x9E3779B9u >> 22;
    uint64_t sum = 0;
    for (int column = 0; column < COLUMNS; column++) sum += table[column][row];
    return sum;
}

int main(int argc, char **argv) {
    uint64_t sum = 0;
    for (int column = 0; column < COLUMNS; column++)
        for (int row = 0; row < USED; row++) table[column][row] = column * row;
    // A few keys are asked for again and again.
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += row_of(n % 17);
    printf("%llu\n", (unsigned long long)sum);
}
