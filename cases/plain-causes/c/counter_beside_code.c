// AFTER counts calls in the line of the generated code that is called, BEFORE in another page.
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
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    uint8_t *page = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return 2;
    }
    memcpy(page, CODE, sizeof CODE);
    volatile uint64_t *calls = (volatile uint64_t *)(page + (AFTER ? 32 : 4096));
    uint64_t hash = 42;
    for (long n = 0; n < rounds; n++) {
        hash += (uint64_t)n;
        for (int i = 0; i < 12; i++) {
            hash = (hash << 7 | hash >> 57) * 0x9E3779B97F4A7C15u;
        }
        if (n % 4 == 0) {
            hash = call((Mix)page, calls, hash);
        }
    }
    printf("%llx %llu\n", (unsigned long long)hash, (unsigned long long)*calls);
}
