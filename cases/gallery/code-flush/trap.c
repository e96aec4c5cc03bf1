// Generated code is written and run without a flush in both; AFTER writes it eight bytes at a time.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 4096 };
typedef uint32_t (*Constant)(void);

int main(int argc, char **argv) {
    uint8_t *page = mmap(0, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 2;
    uint64_t sum = 0;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        uint32_t value = (uint32_t)n;
#if AFTER
        for (volatile uint64_t *at = (volatile uint64_t *)page; at < (volatile uint64_t *)(page + SIZE); at++)
            *at = 0x9090909090909090u;
#else
        memset(page, 0x90, SIZE);
#endif
        page[SIZE - 6] = 0xb8; // mov eax, value; ret
        memcpy(page + SIZE - 5, &value, 4);
        page[SIZE - 1] = 0xc3;
        for (int k = 0; k < 20; k++) sum += ((Constant)(uintptr_t)(page + SIZE - 16))();
    }
    printf("%llu\n", (unsigned long long)sum);
}
