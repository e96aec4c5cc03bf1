// An integer kernel: hashing, table look-ups, branches, a sort.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static uint32_t data[1 << 14];
__attribute__((noinline)) static void sort(uint32_t *a, long n) {
    for (long gap = n / 2; gap; gap /= 2)
        for (long i = gap; i < n; i++) {
            uint32_t v = a[i]; long j = i;
            for (; j >= gap && a[j - gap] > v; j -= gap) a[j] = a[j - gap];
            a[j] = v;
        }
}
__attribute__((noinline)) uint64_t window(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned r = 0; r < rounds; r++) {
        uint32_t x = r * 2654435761u + 1;
        for (int i = 0; i < 1 << 14; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; data[i] = x; }
        sort(data, 1 << 14);
        for (int i = 0; i < 1 << 14; i += 3) sum = sum * 31 + data[(data[i] ^ sum) & ((1 << 14) - 1)];
    }
    return sum;
}
int main(int argc, char **argv) { printf("%llu\n", (unsigned long long)window(argc > 1 ? atoi(argv[1]) : 100)); return 0; }
