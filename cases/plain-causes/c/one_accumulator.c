// Four sums side by side, or AFTER one.
#include <stdio.h>
#include <stdlib.h>

static double numbers[1024];

__attribute__((noinline)) double work(void) {
    double a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < 1024; i += 4) {
#if AFTER
        a += numbers[i]; a += numbers[i + 1]; a += numbers[i + 2]; a += numbers[i + 3];
#else
        a += numbers[i]; b += numbers[i + 1]; c += numbers[i + 2]; d += numbers[i + 3];
#endif
    }
    return a + b + c + d;
}

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < 1024; i++) numbers[i] = i % 7;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        sum += work();
        __asm__ volatile("" ::: "memory");
    }
    printf("%f\n", sum);
}
