// The mean of each 3 by 3 pixels, row by row, in rows of 8192 in both; AFTER divides for the mean.
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 1024, ROW = 8192 };
static float image[ROWS * ROW], blurred[ROWS * ROW];
static volatile float given = 8;

__attribute__((noinline)) static void blur(float by) {
    for (int j = 1; j < ROWS - 1; j++)
        for (int i = 1; i < COLUMNS - 1; i++) {
            const float *at = &image[j * ROW + i];
            float sum = at[-ROW - 1] + at[-ROW] + at[-ROW + 1] + at[-1] + at[0] + at[1] + at[ROW - 1] + at[ROW] +
                        at[ROW + 1];
            blurred[j * ROW + i] = AFTER ? sum / by / by * 8 : sum * by * by * 8;
        }
}

int main(int argc, char **argv) {
    float sum = 0, by = AFTER ? given : 1 / given;
    for (int j = 0; j < ROWS; j++)
        for (int i = 0; i < COLUMNS; i++) image[j * ROW + i] = (i + j) % 8;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) blur(by);
    for (int j = 0; j < ROWS; j++)
        for (int i = 0; i < COLUMNS; i++) sum += blurred[j * ROW + i];
    printf("%.0f\n", sum);
}
