// Sets the base of a segment in the window and loads through it.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static long value = 42;

__attribute__((noinline)) long window(void) {
    const int arch_set_gs = 0x1001;
    long found;
    syscall(SYS_arch_prctl, arch_set_gs, &value);
    __asm__ volatile("mov %%gs:0, %0" : "=r"(found));
    return found;
}

int main(void) {
    printf("%ld\n", window());
    return 0;
}
