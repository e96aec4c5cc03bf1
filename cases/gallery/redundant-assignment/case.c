// An unoptimised loop that assigns a variable to itself, or AFTER does not.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long turns = argc > 1 ? atol(argv[1]) : 1;
    int p = 0;
    for (long i = 0; i < turns; i++) {
#if !AFTER
        p = p;
#endif
        p++;
    }
    printf("%d\n", p);
}
