// Sums with SSE instructions into four registers, or AFTER into one; the upper halves are clean in both.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1024 };
static double values[LENGTH];

#if AFTER
#define SUM(n) "%%xmm0"
#else
#define SUM(n) "%%xmm" n
#endif

__attribute__((noinline)) static void library_call(void) {
    __asm__ volatile("vpcmpeqd %%xmm15,%%xmm15,%%xmm15\n\tvinsertf128 $1,%%xmm15,%%ymm15,%%ymm15\n\tvzeroupper" ::: "xmm15");
}

__attribute__((noinline)) static double sum_of(const double *at, long length) {
    double sum = 0;
    __asm__ volatile("pxor %%xmm0,%%xmm0\n\tpxor %%xmm1,%%xmm1\n\tpxor %%xmm2,%%xmm2\n\tpxor %%xmm3,%%xmm3\n"
                     "1:\tmovupd (%1),%%xmm4\n\tmulpd %%xmm4,%%xmm4\n\taddpd %%xmm4," SUM("0") "\n\t"
                     "movupd 16(%1),%%xmm5\n\tmulpd %%xmm5,%%xmm5\n\taddpd %%xmm5," SUM("1") "\n\t"
                     "movupd 32(%1),%%xmm6\n\tmulpd %%xmm6,%%xmm6\n\taddpd %%xmm6," SUM("2") "\n\t"
                     "movupd 48(%1),%%xmm7\n\tmulpd %%xmm7,%%xmm7\n\taddpd %%xmm7," SUM("3") "\n\t"
                     "add $64,%1\n\tsub $8,%2\n\tjnz 1b\n\t"
                     "addpd %%xmm1,%%xmm0\n\taddpd %%xmm3,%%xmm2\n\taddpd %%xmm2,%%xmm0\n\t"
                     "movapd %%xmm0,%%xmm1\n\tunpckhpd %%xmm1,%%xmm1\n\taddsd %%xmm1,%%xmm0\n\tmovsd %%xmm0,%0"
                     : "=m"(sum), "+r"(at), "+r"(length)
                     :
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
    return sum;
}

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < LENGTH; i++) values[i] = i % 7;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        library_call();
        sum += sum_of(values, LENGTH);
    }
    printf("%.0f\n", sum);
}
