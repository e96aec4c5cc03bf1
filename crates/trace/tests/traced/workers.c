// Work that is the same whether the first thread does all of it or threads of their own do, in the presence of a timer,
// of a pipe between two of them, of a lock and of threads that follow each other.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "window.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;
static int ends[2];
static volatile uint64_t ticks;

static void tick(int unused) {
    ticks += (uint64_t)unused;
}

static void *work(void *x) {
    uint64_t own = window((uint64_t)x);
    pthread_mutex_lock(&lock);
    sum += own;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *echo(void *unused) {
    uint64_t word;
    while (read(ends[0], &word, sizeof word) == sizeof word) {
        sum += word;
    }
    return unused;
}

int main(int argc, char **argv) {
    int threads = argc > 1 && !strcmp(argv[1], "threads");
    struct itimerval often = {{0, 700}, {0, 700}};
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &often, 0);
    for (uint64_t round = 0; round < 4; round++) {
        pthread_t thread[3];
        for (uint64_t i = 0; i < 3; i++) {
            void *x = (void *)(3 * round + i);
            if (!threads) {
                work(x);
            } else if (pthread_create(&thread[i], 0, work, x)) {
                abort();
            }
        }
        for (int i = 0; threads && i < 3; i++) {
            pthread_join(thread[i], 0);
        }
    }
    if (threads) {
        pthread_t reader;
        if (pipe(ends) || pthread_create(&reader, 0, echo, 0)) {
            abort();
        }
        for (uint64_t word = 0; word < 50; word++) {
            if (write(ends[1], &word, sizeof word) != sizeof word) {
                abort();
            }
        }
        close(ends[1]);
        pthread_join(reader, 0);
    }
    printf("%llu\n", (unsigned long long)sum);
    return sum % 50 + 1;
}
