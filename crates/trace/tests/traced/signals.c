// Signals raised, faults caught, jumps out of handlers.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int seen;
static sigjmp_buf out;
static volatile int *volatile nowhere;

static void on_user(int number) { seen += number; }
static void on_fault(int number) {
    seen += 1000 * number;
    siglongjmp(out, 1);
}

__attribute__((noinline)) int window(void) {
    for (int i = 0; i < 3; i++) {
        raise(SIGUSR1);
        if (sigsetjmp(out, 1) == 0) {
            seen += *nowhere;
        }
        __asm__ volatile("int3" ::: "memory");
    }
    return seen;
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_user;
    sigaction(SIGUSR1, &action, NULL);
    // Not blocked in its own handler: stepping with it blocked makes the kernel forget the handler.
    action.sa_flags = SA_NODEFER;
    sigaction(SIGTRAP, &action, NULL);
    action.sa_flags = 0;
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    printf("%d\n", window());
    return 0;
}
