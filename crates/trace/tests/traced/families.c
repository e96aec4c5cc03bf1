// Work that is the same whether the first process does all of it or processes of their own do.
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "window.h"

extern char **environ;
static int ends[2];

static void tell(uint64_t x, int fd) {
    uint64_t own = window(x);
    if (write(fd, &own, sizeof own) != sizeof own) {
        abort();
    }
}

static pid_t start(const char *how, char *self, uint64_t x) {
    pid_t child;
    if (!strcmp(how, "spawn")) {
        char number[8], fd[8];
        snprintf(number, sizeof number, "%d", (int)x);
        snprintf(fd, sizeof fd, "%d", ends[1]);
        char *arguments[] = {self, "one", number, fd, 0};
        return posix_spawn(&child, self, 0, 0, arguments, environ) ? -1 : child;
    }
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        close_range(100, ~0u, 0);
        tell(x, ends[1]);
        if (!strcmp(how, "killed")) {
            kill(getpid(), SIGTERM);
        }
        _exit(getppid() > 1 ? 0 : 9);
    }
    return child;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "alone";
    uint64_t sum = 0;
    if (!strcmp(how, "one")) {
        tell(strtoull(argv[2], 0, 10), atoi(argv[3]));
        return 0;
    }
    if (pipe(ends)) {
        abort();
    }
    for (uint64_t x = 0; x < 3; x++) {
        uint64_t own;
        int status = 0;
        if (!strcmp(how, "alone")) {
            tell(x, ends[1]);
        } else {
            pid_t child = start(how, argv[0], x);
            if (child < 0 || waitpid(child, &status, 0) != child) {
                abort();
            }
        }
        if (read(ends[0], &own, sizeof own) != sizeof own || WIFSIGNALED(status) != !strcmp(how, "killed")) {
            abort();
        }
        sum += own;
    }
    printf("%llu\n", (unsigned long long)sum);
    return sum % 50 + 1;
}
