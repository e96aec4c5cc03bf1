// Visits records in their order: of 24 bytes, or AFTER of 32, with a weight to divide by.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct record {
    uint64_t first, other, last;
#if AFTER
    uint64_t weight;
#endif
};

enum { RECORDS = 256 };

__attribute__((noinline)) static uint64_t visit(const struct record *records, long rounds) {
    uint64_t sum = 0;
    for (long n = 0; n < rounds; n++)
        for (int i = 0; i < RECORDS; i++) {
#if AFTER
            sum += (records[i].first * 3 + records[i].last * 3) / records[i].weight;
#else
            sum += records[i].first + records[i].last;
#endif
            sum ^= sum >> 7;
        }
    return sum;
}

int main(int argc, char **argv) {
    struct record *records = aligned_alloc(64, RECORDS * sizeof *records);
    for (int i = 0; i < RECORDS; i++) {
        records[i] = (struct record){.first = i, .last = 3 * i};
#if AFTER
        records[i].weight = 3;
#endif
    }
    printf("%llu\n", (unsigned long long)visit(records, argc > 1 ? atol(argv[1]) : 1));
}
