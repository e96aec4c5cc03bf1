// The length of vectors, or AFTER its square.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double numbers[1025];

__attribute__((noinline)) double work(void) {
    double sum = 0;
    for (int i = 0; i < 1024; i++) {
        double x = numbers[i], y = numbers[i + 1];
        sum += AFTER ? sqrt(x * x + y * y) : x * x + y * y + x * y + x - y;
    }
    return sum;
}

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < 1025; i++) numbers[i] = i * 0.37;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        sum += work();
        __asm__ volatile("" ::: "memory");
    }
    printf("%g\n", sum);
}
