// Windows that end otherwise: argv is not used, the macro HOW decides.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int window(int x) {
#if HOW == 1
    *(volatile int *)8 = x;
#elif HOW == 2
    exit(7);
#elif HOW == 3
    execl("/bin/echo", "echo", "replaced", (char *)0);
#elif HOW == 4
    int status = 0;
    if (fork() == 0)
        _exit(5);
    wait(&status);
    return WEXITSTATUS(status) + x;
#elif HOW == 5
    return write(1, "written\n", 8) == 8 ? x : -1;
#endif
    return x + 1;
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    printf("before\n");
    int x = window(1);
    printf("%d\n", x);
}
