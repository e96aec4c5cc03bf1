// Signals raised in the window: by the thread itself, by a fault, and by a trap instruction.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static volatile int handled;
static sigjmp_buf out;

__attribute__((noinline)) void on_signal(int signal) { handled += signal; }
__attribute__((noinline)) void on_fault(int signal) { handled += signal; siglongjmp(out, 1); }

__attribute__((noinline)) int window(void) {
    raise(SIGUSR1);
    raise(SIGUSR1);
    raise(SIGURG);
    if (sigsetjmp(out, 1) == 0)
        *(volatile int *)8 = 1;
    __asm__ volatile("int3");
    return handled;
}

int main(void) {
    signal(SIGUSR1, on_signal);
    signal(SIGTRAP, on_signal);
    signal(SIGSEGV, on_fault);
    printf("%d\n", window());
}
