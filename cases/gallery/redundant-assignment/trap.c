// An unoptimised loop that adds one, or AFTER does so and keeps three more variables, which nothing waits for.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long turns = argc > 1 ? atol(argv[1]) : 1;
    int p = 0;
    for (long i = 0; i < turns; i++) {
#if AFTER
        int q = (int)i ^ 5, r = (int)i + 3, s = (int)i & 7;
        (void)q, (void)r, (void)s;
#endif
        p++;
    }
    printf("%d\n", p);
}
