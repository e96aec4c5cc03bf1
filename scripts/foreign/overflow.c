// Runs off its stack, recovers on another one, and goes on.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static sigjmp_buf home;
static void on_fault(int number) { (void)number, siglongjmp(home, 1); }

__attribute__((noinline)) static unsigned deep(unsigned n) {
    volatile char frame[4096];
    frame[n % 4096] = (char)n;
    return n ? deep(n - 1) + frame[n % 4096] : 0;
}

int main(void) {
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&other, 0);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    unsigned caught = 0;
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(home, 1)) caught++;
        else if (deep(1u << 30)) return 1;
    }
    unsigned sum = 1;
    for (int i = 0; i < 100000000; i++) sum = sum * 3 + 1;
    printf("%u %u\n", caught, sum);
    return 0;
}
