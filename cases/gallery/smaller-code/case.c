// A call in a loop, built for size (-Os), or AFTER for speed (-O2).
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static int add(const int *x, const int *y) { return *x + *y; }

__attribute__((noinline)) static int work(int xval, int yval, long turns) {
    int sum = 0;
    for (long i = 0; i < turns; ++i) {
        int x = xval + sum, y = yval + sum;
        int z = add(&x, &y);
        sum += z;
    }
    return sum;
}

int main(int argc, char **argv) {
    printf("%d\n", work(argc, 37, argc > 1 ? atol(argv[1]) : 1));
}
