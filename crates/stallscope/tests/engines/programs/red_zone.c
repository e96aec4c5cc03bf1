// Big frames, variable arguments, floats of all widths, structures by value.
#include <stdarg.h>
#include <stdio.h>

struct Big { double field[9]; };

__attribute__((noinline)) struct Big make(double x) {
    struct Big big;
    for (int i = 0; i < 9; i++)
        big.field[i] = x + i;
    return big;
}

__attribute__((noinline)) double total(int n, ...) {
    va_list list;
    double sum = 0;
    va_start(list, n);
    for (int i = 0; i < n; i++)
        sum += va_arg(list, double);
    va_end(list);
    return sum;
}

__attribute__((noinline)) double window(double x) {
    struct Big big = make(x);
    long double wide = big.field[3];
    return total(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., x) + (double)(wide * wide);
}

int main(void) { printf("%g\n", window(0.5)); }
