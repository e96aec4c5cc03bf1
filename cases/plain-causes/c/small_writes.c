// The same bytes to a file, 4096 at a time, or AFTER 64.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int file = open("/dev/null", O_WRONLY), filled = 0;
    char buffer[4096];
    unsigned x = 1;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        for (int i = 0; i < 4; i++) x = x * 1664525 + 1013904223;
        buffer[filled++] = x >> 24;
        if (filled == (AFTER ? 64 : 4096)) {
            if (write(file, buffer, filled) != filled) return 1;
            filled = 0;
        }
    }
    printf("%u\n", x);
}
