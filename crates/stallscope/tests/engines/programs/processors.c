// Asks for all processors, in a thread and in the main one, and says on how many each may run and whether it was refused.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static void *choose(void *name) {
    cpu_set_t all, own;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        CPU_SET(cpu, &all);
    }
    int refused = sched_setaffinity(0, sizeof all, &all);
    sched_getaffinity(0, sizeof own, &own);
    printf("%s: %d, refused %d\n", (char *)name, CPU_COUNT(&own), refused);
    return NULL;
}

int main(void) {
    pthread_t thread;
    choose("main");
    fflush(stdout);
    pthread_create(&thread, NULL, choose, "thread");
    pthread_join(thread, NULL);
    return 0;
}
