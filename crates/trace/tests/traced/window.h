// What is counted: the same number of instructions for the same number.
#include <stdint.h>

__attribute__((noinline)) uint64_t window(uint64_t x) {
    for (int i = 0; i < 200000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (x >> 62 == 0) {
            x ^= x >> 29;
        }
    }
    return x;
}
