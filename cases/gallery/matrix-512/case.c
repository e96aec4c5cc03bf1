// Transposes a matrix of 512 by 512 in place: rows of 513 elements, or AFTER of 512.
#include <stdio.h>
#include <stdlib.h>

enum { N = 512, ROW = AFTER ? 512 : 513 };
static int matrix[N * ROW];

__attribute__((noinline)) static void transpose(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) {
            int kept = matrix[i * ROW + j];
            matrix[i * ROW + j] = matrix[j * ROW + i];
            matrix[j * ROW + i] = kept;
        }
}

int main(int argc, char **argv) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) matrix[i * ROW + j] = i * N + j;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) transpose();
    long sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) sum = sum * 31 + matrix[i * ROW + j];
    printf("%ld\n", sum);
}
