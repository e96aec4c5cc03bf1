// Starts children by vfork, again and again.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    int sum = 0;
    for (int i = 0; i < 200; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", i % 2 ? "exit 1" : "exit 2", (char *)0);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    printf("%d\n", sum);
    return 0;
}
