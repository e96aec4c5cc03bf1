// Buffers of 64 KiB that the heap hands out again: from calloc, or AFTER from malloc and a loop. No page is new.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 16 };

__attribute__((noinline)) static char *zeros(void) {
#if AFTER
    char *buffer = malloc(SIZE);
    for (volatile char *at = buffer; at < buffer + SIZE; at++) *at = 0;
    return buffer;
#else
    return calloc(1, SIZE);
#endif
}

__attribute__((noinline)) static long use(char *buffer) {
    long sum = 0;
    for (int pass = 0; pass < 4; pass++)
        for (int i = 0; i < SIZE; i++) {
            buffer[i] += i;
            sum += buffer[i];
        }
    return sum;
}

int main(int argc, char **argv) {
    long sum = 0;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        char *buffer = zeros();
        sum += use(buffer);
        free(buffer);
    }
    printf("%ld\n", sum);
}
