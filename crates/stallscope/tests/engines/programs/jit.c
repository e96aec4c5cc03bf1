// Code that is written, run, written over and run again at the same place.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char first[] = {0xb8, 1, 0, 0, 0, 0xc3};       // mov eax, 1; ret
static unsigned char second[] = {0x31, 0xc0, 0xff, 0xc0, 0xc3}; // xor eax, eax; inc eax; ret

__attribute__((noinline)) int window(unsigned char *code) {
    int sum = 0;
    for (int i = 0; i < 6; i++) {
        unsigned char *bytes = i % 2 ? second : first;
        for (int j = 0; j < 5; j++)
            code[j] = bytes[j];
        code[5] = 0xc3;
        sum += ((int (*)(void))code)();
    }
    return sum;
}

int main(void) {
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    printf("%d\n", window(code));
}
