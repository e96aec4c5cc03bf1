// Turns integers into floating-point numbers, into a register that is zeroed first, or AFTER is not.
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 4096 };
static int numbers[COUNT];

#if AFTER
#define FIRST ""
#else
#define FIRST "pxor %%xmm0,%%xmm0\n\t"
#endif

__attribute__((noinline)) static long halves(const int *at, const int *end) {
    long sum = 0, half;
    for (; at != end; at++) {
        __asm__(FIRST "cvtsi2sdl (%1),%%xmm0\n\tmulsd %2,%%xmm0\n\tcvttsd2si %%xmm0,%0"
                : "=r"(half) : "r"(at), "x"(0.5) : "xmm0", "memory");
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
