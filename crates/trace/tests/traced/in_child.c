// All work is done by a child, which has no children of its own, and its parent has no other.
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "window.h"

extern char **environ;

static int has_no_children(void) {
    return waitpid(-1, 0, 0) < 0 && errno == ECHILD;
}

static int work(void) {
    uint64_t x = 1;
    for (int i = 0; i < 300; i++) {
        x = window(x % 7) + i;
    }
    printf("%llu\n", (unsigned long long)x);
    fflush(stdout);
    return has_no_children() ? 3 : 4;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "fork";
    pid_t child = 0;
    int status = 0;
    if (!strcmp(how, "child")) {
        return work();
    }
    if (!strcmp(how, "spawn")) {
        char *arguments[] = {argv[0], "child", 0};
        if (posix_spawn(&child, argv[0], 0, 0, arguments, environ)) {
            abort();
        }
    } else if ((child = fork()) == 0) {
        _exit(work());
    }
    if (waitpid(-1, &status, 0) != child || !has_no_children()) {
        abort();
    }
    return WEXITSTATUS(status) + 1;
}
