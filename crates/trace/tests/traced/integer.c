// Loops, calls, recursion, a jump table, function pointers, string instructions.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t table[1024];
static unsigned char from[300], to[300];

__attribute__((noinline)) static uint64_t fib(unsigned n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}
__attribute__((noinline)) static uint64_t times3(uint64_t x) { return x * 3; }
__attribute__((noinline)) static uint64_t plus7(uint64_t x) { return x + 7; }
static uint64_t (*const functions[])(uint64_t) = {times3, plus7, times3};

__attribute__((noinline)) static uint64_t pick(uint64_t x) {
    switch (x % 7) {
    case 0: return x + 1;
    case 1: return x * 5;
    case 2: return x ^ 0x55;
    case 3: return x - 9;
    case 4: return x << 3;
    case 5: return x >> 1;
    default: return ~x;
    }
}

__attribute__((noinline)) uint64_t window(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < rounds; i++) {
        table[i % 1024] += (uint32_t)(sum ^ i);
        sum = pick(sum + i) + functions[i % 3](sum);
        sum += table[(sum >> 5) % 1024];
        size_t count = i % 32;
        void *d = to + i % 64, *s = from;
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(count) : : "memory");
        from[i % 300] = (unsigned char)sum;
    }
    return sum + fib(8);
}

int main(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += window(200);
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
