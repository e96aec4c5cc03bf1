// A window that never returns: it crashes, exits, waits for a thread by yielding, or reads from a pipe.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int pipes[2];
static volatile int *volatile nowhere;
static volatile int written;

static void *writer(void *unused) {
    usleep(20000);
    written = 1;
    return write(pipes[1], "w", 1) == 1 ? unused : 0;
}

__attribute__((noinline)) static unsigned mixed(unsigned rounds, unsigned sum) {
    for (unsigned i = 0; i < rounds; i++) {
        sum = sum * 31 + i;
    }
    return sum;
}

__attribute__((noinline)) int window(const char *how) {
    char byte = 0;
    printf("%s\n", how);
    fflush(stdout);
    if (!strcmp(how, "crash")) {
        return *nowhere;
    }
    if (!strcmp(how, "exit")) {
        exit(7);
    }
    if (!strcmp(how, "pipe")) {
        return read(pipes[0], &byte, 1) == 1 ? byte : 0;
    }
    if (!strcmp(how, "yield")) {
        unsigned sum = 0;
        for (int i = 0; i < 100; i++) {
            sum = mixed(1000, sum);
        }
        while (!written) {
            sum = mixed(1000, sum);
            sched_yield();
        }
        return sum == 1;
    }
    return 0;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (pipe(pipes) || count < 2 || pthread_create(&thread, 0, writer, 0)) {
        return 2;
    }
    int got = window(arguments[1]);
    pthread_join(thread, 0);
    printf("%d\n", got);
    return 0;
}
