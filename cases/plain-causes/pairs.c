// Pairs of programs with a known cause of their difference: KIND_name is defined, and AFTER is 0 or 1.
// Each spends nearly all of its time in `work`. See scripts/bench-explain-truth.
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define HIDE(x) __asm__ volatile("" : "+r"(x))
#define MEMORY __asm__ volatile("" ::: "memory")

static uint32_t ring[64];

NOINLINE uint64_t work(uint64_t n, uint64_t x) {
    uint64_t sum = x;
#ifdef KIND_conflict
    // One load of 64 bits over two stores of 32 bits that are still in flight.
    for (uint64_t i = 0; i < n; i++) {
        ring[0] = (uint32_t)sum; MEMORY;
        ring[1] = (uint32_t)i; MEMORY;
#if AFTER
        uint64_t both; memcpy(&both, ring, 8);
#else
        uint64_t low = ring[0]; HIDE(low);
        uint64_t both = ring[1]; HIDE(both);
        both = both << 32 | low;
#endif
        sum += both * 3; HIDE(sum);
    }
#elif defined(KIND_conflict_copy)
    // A struct of 16 bytes is written in parts and copied at once.
    static struct { uint32_t a, b, c, d; } from, to;
    for (uint64_t i = 0; i < n; i++) {
        from.a = (uint32_t)sum; from.b = (uint32_t)i; MEMORY;
        from.c = (uint32_t)i; from.d = 7; MEMORY;
#if AFTER
        __asm__ volatile("movdqu %1, %%xmm0; movdqu %%xmm0, %0" : "=m"(to) : "m"(from) : "xmm0");
#else
        __asm__ volatile("movl %1, %%eax; movl %%eax, %0" : "=m"(to.a) : "m"(from.a) : "eax");
        __asm__ volatile("movl %1, %%eax; movl %%eax, %0" : "=m"(to.c) : "m"(from.c) : "eax");
#endif
        MEMORY; sum += to.a; HIDE(sum);
    }
#elif defined(KIND_conflict_in_both)
    // Both have the conflict; AFTER has a longer chain beside it.
    for (uint64_t i = 0; i < n; i++) {
        ring[0] = (uint32_t)i; MEMORY;
        ring[1] = (uint32_t)i; MEMORY;
        uint64_t both; memcpy(&both, ring, 8); HIDE(both);
        for (int k = 0; k < (AFTER ? 16 : 8); k++) { sum = sum * 0x9e3779b97f4a7c15 + both; HIDE(sum); }
    }
#elif defined(KIND_conflict_far)
    // AFTER reads 64 bits that were stored as halves, long before; what costs is the division.
    for (uint64_t i = 0; i < n; i++) {
        ring[0] = (uint32_t)i; MEMORY;
        ring[1] = (uint32_t)i; MEMORY;
        for (int k = 0; k < 60; k++) { sum += k ^ i; HIDE(sum); }
#if AFTER
        uint64_t both; memcpy(&both, ring, 8);
        sum /= (both & 7) + 3; sum += i; HIDE(sum);
#else
        sum += ring[0]; sum += i; HIDE(sum);
#endif
    }
#elif defined(KIND_more_instructions)
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < (AFTER ? 22 : 20); k++) { sum = (sum ^ i) + k; HIDE(sum); }
#elif defined(KIND_system_call)
    for (uint64_t i = 0; i < n; i++) {
        for (int k = 0; k < 200; k++) { sum = (sum ^ i) * 3; HIDE(sum); }
        if (AFTER) syscall(SYS_getppid);
    }
#elif defined(KIND_division)
    volatile uint64_t by = AFTER ? 3 : 4;
    for (uint64_t i = 0; i < n; i++) {
#if AFTER
        sum = (sum | 1ull << 62) / by; HIDE(sum);
#else
        sum = (sum | 1ull << 62) >> by; HIDE(sum);
#endif
        sum += i;
    }
#elif defined(KIND_chain)
    // As many multiplications: one chain of four, or four of one.
    uint64_t a = x, b = x + 1, c = x + 2, d = x + 3;
    for (uint64_t i = 0; i < n; i++) {
#if AFTER
        a *= 7; HIDE(a); a *= 9; HIDE(a); a *= 11; HIDE(a); a *= 13; HIDE(a);
#else
        a *= 7; HIDE(a); b *= 9; HIDE(b); c *= 11; HIDE(c); d *= 13; HIDE(d);
#endif
    }
    sum = a + b + c + d;
#elif defined(KIND_allocation)
    for (uint64_t i = 0; i < n; i++) {
        for (int k = 0; k < 20; k++) { sum = (sum ^ i) * 3; HIDE(sum); }
        if (AFTER) { char *p = malloc(200); MEMORY; HIDE(p); free(p); }
    }
#elif defined(KIND_denormal)
    volatile double start = AFTER ? 1e-310 : 1e-290;
    double v = start, t = 0;
    for (uint64_t i = 0; i < n; i++) { __asm__ volatile("" : "+x"(v)); t = v * 0.5; __asm__ volatile("" : "+x"(t)); }
    sum += t > 1;
#elif defined(KIND_sleeping)
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < 20; k++) { sum = (sum ^ i) + k; HIDE(sum); }
    if (AFTER) { struct timespec t = {0, 15000000}; nanosleep(&t, 0); }
#elif defined(KIND_misaligned)
    static char buffer[8192] __attribute__((aligned(4096)));
    char *p = buffer + (AFTER ? 61 : 0);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v; memcpy(&v, p + (i & 7) * 64, 8); HIDE(v); sum += v;
        memcpy(p + (i & 7) * 64 + 512, &sum, 8); MEMORY;
    }
#elif defined(KIND_page_faults)
    for (uint64_t i = 0; i < n; i++) {
        size_t size = 1 << 18;
        static char *kept; char *p;
        if (AFTER) { p = aligned_alloc(4096, 1 << 21); } else { if (!kept) kept = malloc(size); p = kept; }
        for (size_t k = 0; k < size; k += 512) { p[k] = (char)i; MEMORY; sum += p[k]; }
        if (AFTER) free(p);
    }
#elif defined(KIND_mispredicted)
    uint64_t r = 88172645463325252ull;
    for (uint64_t i = 0; i < n; i++) {
        r ^= r << 13; r ^= r >> 7; r ^= r << 17;
        HIDE(r);
        uint64_t key = AFTER ? r : i;
        if (key & 1) { sum += 3; HIDE(sum); } else { sum ^= 5; HIDE(sum); }
    }
#elif defined(KIND_indirect)
    // The same four targets, in turn or at random.
    static void *const targets[4] = {&&one, &&two, &&three, &&four};
    uint64_t r = 88172645463325252ull;
    for (uint64_t i = 0; i < n; i++) {
        r ^= r << 13; r ^= r >> 7; r ^= r << 17; HIDE(r);
        goto *targets[(AFTER ? r >> 20 : i) & 3];
        one: sum += 3; HIDE(sum); continue;
        two: sum ^= 5; HIDE(sum); continue;
        three: sum -= 7; HIDE(sum); continue;
        four: sum += i; HIDE(sum);
    }
#elif defined(KIND_cache_misses)
    // A walk in an order that no prefetcher follows, through 16 KiB or 8 MiB.
    uint64_t lines = AFTER ? 1 << 17 : 1 << 8;
    uint64_t *table = aligned_alloc(64, lines * 64), at = 0;
    for (uint64_t k = 0, next = 0; k < lines; k++) {
        uint64_t to = (next * 1664525 + 1013904223) % lines; table[next * 8] = to * 8; next = to;
    }
    for (uint64_t i = 0; i < n; i++) { at = table[at]; HIDE(at); sum += at; }
    free(table);
#elif defined(KIND_independent_misses)
    // Loads that do not wait for one another, from 16 KiB or 64 MiB.
    uint64_t mask = AFTER ? (1 << 23) - 1 : (1 << 11) - 1;
    uint64_t *table = calloc(mask + 1, 8), r = 88172645463325252ull;
    for (uint64_t k = 0; k <= mask; k += 8) table[k] = k;
    for (uint64_t i = 0; i < n; i++) { r = r * 6364136223846793005ull + 1442695040888963407ull; sum += table[r >> 33 & mask]; }
    free(table);
#elif defined(KIND_float_division)
    volatile double by = 3.0, times = 1 / 3.0;
    double v = 1e9, b = by, t = times;
    for (uint64_t i = 0; i < n; i++) { v = (AFTER ? v / b : v * t) + 1e9; __asm__ volatile("" : "+x"(v)); }
    sum += (uint64_t)v;
#elif defined(KIND_atomic)
    static uint64_t counter;
    for (uint64_t i = 0; i < n; i++) {
        for (int k = 0; k < 8; k++) { sum = (sum ^ i) + k; HIDE(sum); }
#if AFTER
        __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
#else
        counter++; MEMORY;
#endif
    }
#elif defined(KIND_ports)
    // Six operations that wait for nothing: on one unit (of Zen 5, three), or on all.
#if AFTER
#define SIX "imul $3, %0, %%rax; imul $3, %0, %%rcx; imul $3, %0, %%rdx; imul $3, %0, %%r8; imul $3, %0, %%r9; imul $3, %0, %%r10"
#else
#define SIX "lea 3(%0), %%rax; lea 3(%0), %%rcx; lea 3(%0), %%rdx; lea 3(%0), %%r8; lea 3(%0), %%r9; lea 3(%0), %%r10"
#endif
    for (uint64_t i = 0; i < n; i++) __asm__ volatile(SIX :: "r"(x) : "rax", "rcx", "rdx", "r8", "r9", "r10", "cc");
#elif defined(KIND_string)
    static char from[256], to[256];
    for (uint64_t i = 0; i < n; i++) {
        from[i & 31] = (char)i; MEMORY;
#if AFTER
        void *d = to, *s = from; uint64_t c = 8;
        __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(c) :: "memory");
#else
        for (int k = 0; k < 8; k++) { ((uint64_t *)to)[k] = ((uint64_t *)from)[k]; MEMORY; }
#endif
        sum += (uint64_t)to[5];
    }
#elif defined(KIND_chain_float)
    // As many additions: into one accumulator, or into four.
    double a = 1, b = 1, c = 1, d = 1;
    for (uint64_t i = 0; i < n; i++) {
#define ADD(v) __asm__ volatile("mulsd %0, %0" : "+x"(v))
#if AFTER
        ADD(a); ADD(a); ADD(a); ADD(a);
#else
        ADD(a); ADD(b); ADD(c); ADD(d);
#endif
    }
    sum += (uint64_t)(a + b + c + d);
#elif defined(KIND_conflict_ring)
    // Eight bytes are written one by one and read by one load: those of long ago, or these.
    static uint8_t bytes[4096];
    for (uint64_t i = 0; i < n; i++) {
        for (int k = 0; k < 8; k++) { bytes[(i * 8 + k) & 4095] = (uint8_t)(i >> k); MEMORY; }
        uint64_t word;
        memcpy(&word, bytes + ((i + (AFTER ? 0 : 256)) * 8 & 4095), 8);
        sum = sum * 3 + word; HIDE(sum);
    }
#elif defined(KIND_branch_free)
    // AFTER has fewer instructions, and a branch that nobody can predict.
    uint64_t r = 88172645463325252ull;
    for (uint64_t i = 0; i < n; i++) {
        r ^= r << 13; r ^= r >> 7; r ^= r << 17; HIDE(r);
#if AFTER
        if (r & 1) { sum += r; HIDE(sum); }
#else
        uint64_t mask = -(r & 1); HIDE(mask); sum += r & mask; HIDE(sum); sum ^= mask & 1; HIDE(sum); sum ^= mask & 1; HIDE(sum);
#endif
    }
#endif
    return sum;
}

int main(int argc, char **argv) {
    uint64_t n = argc > 1 ? strtoull(argv[1], 0, 10) : 1000000;
    // The result depends on the variant; what is printed does not.
    volatile uint64_t sum = work(n, (uint64_t)argc);
    (void)sum;
    puts("done");
}
