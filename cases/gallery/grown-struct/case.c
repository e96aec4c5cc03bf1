// Visits records in any order: records of 64 bytes, each in one line, or AFTER of 72 bytes, most of them in two.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct record {
    uint64_t first, others[6], last;
#if AFTER
    uint64_t added;
#endif
};

enum { RECORDS = 1 << 14 };

__attribute__((noinline)) static uint64_t visit(const struct record *records, long visits) {
    uint64_t sum = 0;
    unsigned at = 0;
    for (long n = 0; n < visits; n++) {
        at = (at * 1664525 + 1013904223) % RECORDS;
        sum += records[at].first ^ records[at].last;
    }
    return sum;
}

int main(int argc, char **argv) {
    struct record *records = aligned_alloc(64, RECORDS * sizeof *records);
    for (int i = 0; i < RECORDS; i++) records[i] = (struct record){.first = i, .last = 3 * i};
    printf("%llu\n", (unsigned long long)visit(records, argc > 1 ? atol(argv[1]) : 1));
}
