// Adds long numbers with a carry through the loop, or AFTER with the carry kept in a register: more instructions.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMBS = 512 };
static uint64_t a[LIMBS], b[LIMBS];

__attribute__((noinline)) static void add(uint64_t *to, const uint64_t *from, long limbs) {
    uint64_t limb, carry = 0;
#if AFTER
    __asm__ volatile("1:\tmov (%1),%3\n\tneg %4\n\tadc (%0),%3\n\tsetc %b4\n\tmovzbl %b4,%k4\n\tmov %3,(%0)\n\t"
                     "add $8,%0\n\tadd $8,%1\n\tsub $1,%2\n\tmov %0,%3\n\txor %1,%3\n\tjnz 3f\n\tnop\n3:\ttest %2,%2\n\tjnz 1b"
                     : "+r"(to), "+r"(from), "+c"(limbs), "=&r"(limb), "+q"(carry) : : "cc", "memory");
#else
    __asm__ volatile("clc\n1:\tmov (%1),%3\n\tadc (%0),%3\n\tmov %3,(%0)\n\tlea 8(%0),%0\n\tlea 8(%1),%1\n\tdec %2\n\tjnz 1b"
                     : "+r"(to), "+r"(from), "+c"(limbs), "=&r"(limb), "+q"(carry) : : "cc", "memory");
#endif
}

int main(int argc, char **argv) {
    uint64_t sum = 0;
    for (int i = 0; i < LIMBS; i++) b[i] = i * 0x9E3779B97F4A7C15u;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) add(a, b, LIMBS);
    for (int i = 0; i < LIMBS; i++) sum = sum * 31 + a[i];
    printf("%llx\n", (unsigned long long)sum);
}
