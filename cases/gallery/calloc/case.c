// Buffers of 32 MiB of which a little is used: from calloc, or AFTER from malloc and memset.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 32 << 20 };

__attribute__((noinline)) static char *zeros(void) {
#if AFTER
    char *buffer = malloc(SIZE);
    __asm__ volatile("" : "+r"(buffer)); // gcc and clang make one calloc of the two
    memset(buffer, 0, SIZE);
    return buffer;
#else
    return calloc(1, SIZE);
#endif
}

__attribute__((noinline)) static long use(char *buffer) {
    long sum = 0;
    for (int pass = 0; pass < 400; pass++)
        for (int i = 0; i < 1 << 16; i++) {
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
