// Code made at run time: in pages that stay writable, and in pages that are sealed first.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*function)(void);
static unsigned char *open_page, *sealed_page;

// mov eax, value; ret
static void emit(unsigned char *at, int value) {
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}

__attribute__((noinline)) int window(void) {
    int sum = 0;
    for (int i = 0; i < 6; i++) {
        emit(open_page + 64 * (i % 2), i * i);
        sum += ((function)(open_page + 64 * (i % 2)))();
        mprotect(sealed_page, 4096, PROT_READ | PROT_WRITE);
        emit(sealed_page, sum);
        mprotect(sealed_page, 4096, PROT_READ | PROT_EXEC);
        sum += ((function)sealed_page)();
    }
    return sum;
}

int main(void) {
    int rights = PROT_READ | PROT_WRITE;
    open_page = mmap(0, 4096, rights | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sealed_page = mmap(0, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d\n", window());
    return 0;
}
