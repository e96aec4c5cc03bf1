// Blocks every signal: what follows it must not unblock the one that it uses itself.
#include <signal.h>
#include <stdio.h>

__attribute__((noinline)) int window(void) {
    sigset_t all, before, meanwhile;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    for (volatile int i = 0; i < 50; i++) {}
    sigprocmask(SIG_SETMASK, &before, &meanwhile);
    return sigismember(&meanwhile, SIGTRAP) + 2 * sigismember(&meanwhile, SIGUSR1);
}

int main(void) {
    printf("%d\n", window());
    return 0;
}
