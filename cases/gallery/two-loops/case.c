// Two elementwise sums in two loops, or AFTER in one: four arrays that begin at the same place in a page.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 512 * 7 };
static double a[1 << 12] __attribute__((aligned(4096))), b[1 << 12] __attribute__((aligned(4096)));
static double c[1 << 12] __attribute__((aligned(4096))), d[1 << 12] __attribute__((aligned(4096)));

__attribute__((noinline)) static void add(double *a, double *b, double *c, double *d) {
#if AFTER
    for (int i = 0; i < LENGTH; i++) {
        a[i] += b[i];
        c[i] += d[i];
    }
#else
    for (int i = 0; i < LENGTH; i++) a[i] += b[i];
    for (int i = 0; i < LENGTH; i++) c[i] += d[i];
#endif
}

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < LENGTH; i++) {
        b[i] = i % 7;
        d[i] = i % 5;
    }
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) add(a, b, c, d);
    for (int i = 0; i < LENGTH; i++) sum += a[i] + c[i];
    printf("%.0f\n", sum);
}
