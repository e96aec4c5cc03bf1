// A hash table of 1024 rows whose row is a mask, or AFTER of 1021 rows whose row is a remainder.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 4, USED = 1021, ROWS = 1032 };
static uint64_t table[COLUMNS][ROWS] __attribute__((aligned(4096)));
static volatile uint32_t rows = USED;

__attribute__((noinline)) static uint64_t row_of(uint32_t key, uint32_t rows) {
    uint32_t hash = key * 0x9E3779B9u, row = AFTER ? hash % rows : hash >> 22;
    uint64_t sum = 0;
    for (int column = 0; column < COLUMNS; column++) sum += table[column][row];
    return sum;
}

int main(int argc, char **argv) {
    uint64_t sum = 0;
    uint32_t by = rows;
    for (int column = 0; column < COLUMNS; column++)
        for (int row = 0; row < ROWS; row++) table[column][row] = column;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += row_of(n % 17 + (uint32_t)(sum & 1), by);
    printf("%llu\n", (unsigned long long)sum);
}
