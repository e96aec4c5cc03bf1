// Memory that a fork does not get, or finds empty. The way through the window depends on it.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static volatile unsigned char *wiped, *kept;

__attribute__((noinline)) int window(void) {
    int found = 0;
    for (int i = 0; i < 3000; i++)
        if (wiped[i] && kept[i]) found++;
    return found;
}

static unsigned char *advised(int advice) {
    unsigned char *memory = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, 8192, advice)) return 0;
    memset(memory, 1, 8192);
    return memory;
}

int main(void) {
    wiped = advised(MADV_WIPEONFORK);
    kept = advised(MADV_DONTFORK);
    if (!wiped || !kept) return 1;
    printf("%d\n", window());
    return 0;
}
