// The mean of each 3 by 3 pixels, column by column: rows of 8208 pixels, or AFTER of 8192.
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256, COLUMNS = 1024, ROW = AFTER ? 8192 : 8208 };
static float image[ROWS * ROW], blurred[ROWS * ROW];

__attribute__((noinline)) static void blur(void) {
    for (int i = 1; i < COLUMNS - 1; i++)
        for (int j = 1; j < ROWS - 1; j++) {
            const float *at = &image[j * ROW + i];
            blurred[j * ROW + i] = (at[-ROW - 1] + at[-ROW] + at[-ROW + 1] + at[-1] + at[0] + at[1] + at[ROW - 1] +
                                    at[ROW] + at[ROW + 1]) * (1 / 8.f);
        }
}

int main(int argc, char **argv) {
    float sum = 0;
    for (int j = 0; j < ROWS; j++)
        for (int i = 0; i < COLUMNS; i++) image[j * ROW + i] = (i + j) % 8;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) blur();
    for (int j = 0; j < ROWS; j++)
        for (int i = 0; i < COLUMNS; i++) sum += blurred[j * ROW + i];
    printf("%.0f\n", sum);
}
