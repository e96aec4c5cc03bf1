// Two threads count in lines of their own; AFTER's count by a remainder.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile long counters[64] __attribute__((aligned(256)));
static volatile unsigned given = 4;
static long turns;

static void *count(void *counter) {
    volatile long *own = counter;
    unsigned by = given;
    for (long i = 0; i < turns; i++) {
        *own += AFTER ? (unsigned)i % by : (unsigned)i & 3;
    }
    return NULL;
}

int main(int argc, char **argv) {
    turns = argc > 1 ? atol(argv[1]) : 1000;
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) {
        pthread_create(&threads[n], NULL, count, (void *)&counters[n * 32]);
    }
    for (int n = 0; n < 2; n++) {
        pthread_join(threads[n], NULL);
    }
    printf("%ld\n", counters[0] + counters[32]);
    return 0;
}
