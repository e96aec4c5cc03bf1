// Adds long numbers with a carry through the loop, which is counted by lea and jrcxz, or AFTER by dec, which leaves the carry
// as it is.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMBS = 512 };
static uint64_t a[LIMBS], b[LIMBS];

#define LIMB(place) "mov " place "(%1),%3\n\tadc %3," place "(%0)\n\t"
#define LIMBS_8 LIMB("0") LIMB("8") LIMB("16") LIMB("24") LIMB("32") LIMB("40") LIMB("48") LIMB("56") "lea 64(%0),%0\n\tlea 64(%1),%1\n\t"

__attribute__((noinline)) static void add(uint64_t *to, const uint64_t *from, long eights) {
    uint64_t limb;
#if AFTER
    __asm__ volatile("clc\n1:\t" LIMBS_8 "dec %2\n\tjnz 1b"
#else
    __asm__ volatile("clc\n1:\t" LIMBS_8 "lea -1(%2),%2\n\tjrcxz 2f\n\tjmp 1b\n2:"
#endif
                     : "+r"(to), "+r"(from), "+c"(eights), "=&r"(limb) : : "cc", "memory");
}

int main(int argc, char **argv) {
    uint64_t sum = 0;
    for (int i = 0; i < LIMBS; i++) b[i] = i * 0x9E3779B97F4A7C15u;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) add(a, b, LIMBS / 8);
    for (int i = 0; i < LIMBS; i++) sum = sum * 31 + a[i];
    printf("%llx\n", (unsigned long long)sum);
}
