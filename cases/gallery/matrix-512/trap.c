// Transposes a matrix of 512 by 512 in tiles of 8 by 8, which both strides leave in the cache; AFTER's place in a row
// is a remainder.
#include <stdio.h>
#include <stdlib.h>

enum { N = 512, ROW = AFTER ? 512 : 513, TILE = 8 };
static int matrix[N * ROW];
static volatile unsigned columns = N;

__attribute__((noinline)) static void transpose(unsigned wrap) {
    for (unsigned down = 0; down < N; down += TILE)
        for (unsigned across = 0; across <= down; across += TILE)
            for (unsigned i = down; i < down + TILE; i++)
                for (unsigned j = across; j < across + TILE && j < i; j++) {
                    unsigned k = AFTER ? (j + wrap) % wrap : j;
                    int kept = matrix[i * ROW + k];
                    matrix[i * ROW + k] = matrix[j * ROW + i];
                    matrix[j * ROW + i] = kept;
                }
}

int main(int argc, char **argv) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) matrix[i * ROW + j] = i * N + j;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) transpose(columns);
    long sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) sum = sum * 31 + matrix[i * ROW + j];
    printf("%ld\n", sum);
}
