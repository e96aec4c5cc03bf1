// Generated code is written and run, without a flush, or AFTER with a flush of each of its lines.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 4096, LINE = 64 };
typedef uint32_t (*Constant)(void);

__attribute__((noinline)) static void finish(uint8_t *code) {
    for (int at = 0; at < SIZE; at += LINE)
#if AFTER
        __asm__ volatile("clflush (%0)" : : "r"(code + at) : "memory");
    __asm__ volatile("mfence" ::: "memory");
#else
        __asm__ volatile("nop" : : "r"(code + at) : "memory");
#endif
}

int main(int argc, char **argv) {
    uint8_t *page = mmap(0, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 2;
    uint64_t sum = 0;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        uint32_t value = (uint32_t)n;
        memset(page, 0x90, SIZE);
        page[SIZE - 6] = 0xb8; // mov eax, value; ret
        memcpy(page + SIZE - 5, &value, 4);
        page[SIZE - 1] = 0xc3;
        finish(page);
        for (int k = 0; k < 200; k++) sum += ((Constant)(uintptr_t)(page + SIZE - 16))();
    }
    printf("%llu\n", (unsigned long long)sum);
}
