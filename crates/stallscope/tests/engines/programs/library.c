// A window that goes through the C library: sorting with a callback, formatting, copying.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char copy[4096];

__attribute__((noinline)) int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) int window(int n) {
    int numbers[16];
    char text[128];
    for (int i = 0; i < 16; i++)
        numbers[i] = (i * 7 + n) % 16;
    qsort(numbers, 16, sizeof *numbers, compare);
    int length = snprintf(text, sizeof text, "%d %s %.3f %Lg", numbers[3], "x", n / 3.0, 1.5L);
    for (int size = 1; size <= 2048; size *= 2)
        memcpy(copy + size, text, length);
    memset(copy, n, sizeof copy);
    memmove(copy + 1, copy, 3000);
    return length + copy[3000] + numbers[15];
}

int main(void) { printf("%d\n", window(4)); }
