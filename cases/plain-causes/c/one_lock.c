// Two threads count under a lock: AFTER has one for both, BEFORE one for each.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct guarded {
    pthread_mutex_t lock;
    long counter;
    char padding[200];
};

static struct guarded all[2] __attribute__((aligned(256))) = {
    {.lock = PTHREAD_MUTEX_INITIALIZER}, {.lock = PTHREAD_MUTEX_INITIALIZER}};
static long turns;

static void *count(void *counted) {
    struct guarded *own = counted;
    pthread_mutex_t *lock = AFTER ? &all[0].lock : &own->lock;
    for (long i = 0; i < turns; i++) {
        pthread_mutex_lock(lock);
        own->counter += i & 3;
        pthread_mutex_unlock(lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    turns = argc > 1 ? atol(argv[1]) : 1000;
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) {
        pthread_create(&threads[n], NULL, count, &all[n]);
    }
    for (int n = 0; n < 2; n++) {
        pthread_join(threads[n], NULL);
    }
    printf("%ld\n", all[0].counter + all[1].counter);
    return 0;
}
