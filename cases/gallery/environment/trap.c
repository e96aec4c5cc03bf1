// A program that measures a variable of its environment in each turn, of 16 bytes, or AFTER of 48.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static long measure(long turns) {
    long longer = 0;
    for (long n = 0; n < turns; n++) {
        const char *at = getenv("STALLSCOPE_PAD");
        if (at == NULL) return -1;
        while (*(volatile const char *)at == 'x') at++;
        longer += *at != 0;
    }
    return longer;
}

int main(int argc, char **argv) {
    char pad[64] = {0};
    memset(pad, 'x', AFTER ? 48 : 16);
    setenv("STALLSCOPE_PAD", pad, 1);
    printf("%ld\n", measure(argc > 1 ? atol(argv[1]) : 1));
}
