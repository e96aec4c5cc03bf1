// Turns integers into floating-point numbers, into a register that is zeroed first, and halves them, or AFTER divides them.
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 4096 };
static int numbers[COUNT];

#if AFTER
#define HALVE "divsd"
#define BY 2.000001
#else
#define HALVE "mulsd"
#define BY 0.4999999
#endif

__attribute__((noinline)) static long halves(const int *at, const int *end) {
    long sum = 0, half;
    for (; at != end; at++) {
        __asm__("pxor %%xmm0,%%xmm0\n\tcvtsi2sdl (%1),%%xmm0\n\t" HALVE " %2,%%xmm0\n\tcvttsd2si %%xmm0,%0"
                : "=r"(half) : "r"(at), "x"(BY) : "xmm0", "memory");
        sum += half;
    }
    return sum;
}

int main(int argc, char **argv) {
    long sum = 0;
    for (int i = 0; i < COUNT; i++) numbers[i] = i;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) sum += halves(numbers, numbers + COUNT);
    printf("%ld\n", sum);
}
