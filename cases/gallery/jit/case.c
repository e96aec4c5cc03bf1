// Generated code counts its calls in another page, or AFTER in the line of the code itself.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t (*Mix)(uint64_t);
// mov rax, rdi; shr rax, 7; xor rax, rdi; ret
static const uint8_t CODE[] = {0x48, 0x89, 0xf8, 0x48, 0xc1, 0xe8, 0x07, 0x48, 0x31, 0xf8, 0xc3};

__attribute__((noinline)) static uint64_t call(Mix mix, volatile uint64_t *calls, uint64_t hash) {
    *calls += 1;
    return mix(hash);
}

int main(int argc, char **argv) {
    uint8_t *page = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 2;
    memcpy(page, CODE, sizeof CODE);
    volatile uint64_t *calls = (volatile uint64_t *)(page + (AFTER ? 32 : 4096));
    uint64_t hash = 42;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        for (int i = 0; i < 48; i++) hash = (hash << 7 | hash >> 57) * 0x9E3779B97F4A7C15u;
        hash = call((Mix)page, calls, hash + (uint64_t)n);
    }
    printf("%llx %llu\n", (unsigned long long)hash, (unsigned long long)*calls);
}
