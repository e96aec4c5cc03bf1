// Loops on which the model of the core is held against the clock: `work` does the kernel that is defined (KERNEL_name), or
// stands in assembly beside this file. See scripts/bench-core-model.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDE(x) __asm__ volatile("" : "+r"(x))
#define ITEMS 65536

static uint32_t values[ITEMS], table[ITEMS];
static double numbers[ITEMS];
static _Alignas(4096) unsigned char memory[16384];

uint64_t work(uint64_t turns, void *memory);

#ifndef ASSEMBLY
__attribute__((noinline)) uint64_t work(uint64_t turns, void *unused) {
    (void)unused;
    uint64_t sum = 0;
    for (uint64_t turn = 0; turn < turns; turn++) {
#if defined(KERNEL_random_branches) || defined(KERNEL_sorted_branches)
        for (int i = 0; i < ITEMS; i++) {
            if (values[i] >> 31) { HIDE(sum); sum += values[i]; } else { HIDE(sum); sum ^= values[i] >> 3; }
        }
#elif defined(KERNEL_one_accumulator)
        double x = 0;
        for (int i = 0; i < ITEMS; i++) x += numbers[i] * 1.0001;
        sum += (uint64_t)x;
#elif defined(KERNEL_four_accumulators)
        double x = 0, y = 0, z = 0, w = 0;
        for (int i = 0; i < ITEMS; i += 4) {
            x += numbers[i] * 1.0001; y += numbers[i + 1] * 1.0001;
            z += numbers[i + 2] * 1.0001; w += numbers[i + 3] * 1.0001;
        }
        sum += (uint64_t)(x + y + z + w);
#elif defined(KERNEL_division)
        for (int i = 0; i < ITEMS; i++) sum += (values[i] | 1) / ((uint32_t)sum | 3);
#elif defined(KERNEL_multiply_chain)
        for (int i = 0; i < ITEMS; i++) sum = (sum ^ values[i]) * 0x9e3779b97f4a7c15;
#elif defined(KERNEL_lookups)
        for (int i = 0; i < ITEMS; i++) sum += table[values[i] * 2654435761u >> 17];
#elif defined(KERNEL_lookups_in_chain)
        uint32_t at = 1;
        for (int i = 0; i < ITEMS; i++) { at = table[at & 0x7fff] + i; sum += at; }
#elif defined(KERNEL_histogram_of_4)
        for (int i = 0; i < ITEMS; i++) table[values[i] & 3]++;
#elif defined(KERNEL_histogram_of_1024)
        for (int i = 0; i < ITEMS; i++) table[values[i] & 1023]++;
#elif defined(KERNEL_random_switch)
        for (int i = 0; i < ITEMS; i++) {
            switch (values[i] & 7) {
            case 0: sum += i; break;
            case 1: sum ^= values[i]; break;
            case 2: sum -= 3 * i; break;
            case 3: sum = sum * 5 + 1; break;
            case 4: sum += values[i] >> 7; break;
            case 5: sum ^= sum >> 3; break;
            case 6: sum += 0x55; break;
            default: sum = ~sum;
            }
            HIDE(sum);
        }
#elif defined(KERNEL_table_crc)
        uint32_t crc = (uint32_t)turn;
        for (int i = 0; i < ITEMS; i++) crc = table[(crc ^ values[i]) & 255] ^ crc >> 8;
        sum += crc;
#endif
    }
    return sum;
}
#endif

int main(int argc, char **argv) {
    uint64_t turns = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint32_t x = 12345;
    for (int i = 0; i < ITEMS; i++) {
        x = x * 1664525 + 1013904223;
        values[i] = x ^ x >> 13;
        table[i] = (x >> 7) * 2654435761u;
        numbers[i] = x * 1e-9;
    }
#ifdef KERNEL_sorted_branches
    for (int i = 0; i < ITEMS; i++) values[i] = values[i] >> 1 | (i < ITEMS / 2 ? 0 : 1u << 31);
#endif
    printf("%llu\n", (unsigned long long)work(turns, memory + 4096));
}
