// Two threads count in counters of their own: AFTER has them in one line, BEFORE two lines apart.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define APART (AFTER ? 1 : 32)

static volatile long counters[64] __attribute__((aligned(256)));
static long turns;

static void *count(void *counter) {
    volatile long *own = counter;
    for (long i = 0; i < turns; i++) {
        *own += i & 3;
    }
    return NULL;
}

int main(int argc, char **argv) {
    turns = argc > 1 ? atol(argv[1]) : 1000;
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) {
        pthread_create(&threads[n], NULL, count, (void *)&counters[n * APART]);
    }
    for (int n = 0; n < 2; n++) {
        pthread_join(threads[n], NULL);
    }
    printf("%ld\n", counters[0] + counters[APART]);
    return 0;
}
