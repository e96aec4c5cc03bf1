// The same sums over arrays at different places in a page; AFTER's one loop rounds each second sum to a multiple of 4
// by a division.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 512 * 7 };
static double space[4 * 4096 + 1024] __attribute__((aligned(4096)));
static volatile double parts = 4;

__attribute__((noinline)) static void add(double *a, double *b, double *c, double *d, double parts) {
#if AFTER
    for (int i = 0; i < LENGTH; i++) {
        a[i] += b[i];
        c[i] += d[i] * 4 / parts;
    }
#else
    for (int i = 0; i < LENGTH; i++) a[i] += b[i];
    for (int i = 0; i < LENGTH; i++) c[i] += d[i] * 4 * parts;
#endif
}

int main(int argc, char **argv) {
    double sum = 0, *a = space, *b = a + 4096 + 136, *c = b + 4096 + 136, *d = c + 4096 + 136;
    for (int i = 0; i < LENGTH; i++) {
        b[i] = i % 7;
        d[i] = i % 5;
    }
    double by = AFTER ? parts : 1 / parts;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) add(a, b, c, d, by);
    for (int i = 0; i < LENGTH; i++) sum += a[i] + c[i];
    printf("%.0f\n", sum);
}
