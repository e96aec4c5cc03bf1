// One thread in code that was made at run time, another in code of the program's file; both are at work all the time.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static volatile int ends;

static void *in_file(void *unused) {
    volatile uint64_t sum = 0;
    while (!ends)
        sum += 1;
    return unused;
}

int main(int argc, char **argv) {
    // dec rdi; jnz -5; mov eax, 7; ret
    static const unsigned char code[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xb8, 7, 0, 0, 0, 0xc3};
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    pthread_t other;
    pthread_create(&other, 0, in_file, 0);
    int said = argc > 1 ? 7 : ((int (*)(uint64_t))page)(400000000);
    for (volatile int i = 0; i < 20000000; i++)
        continue;
    ends = 1;
    pthread_join(other, 0);
    printf("%d\n", said);
    (void)argv;
    return 0;
}
