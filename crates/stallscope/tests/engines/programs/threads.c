// Four threads with a socket pair each; the window is in one of them, the others must go on.
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int pairs[4][2];
static pthread_barrier_t together;

__attribute__((noinline)) int window(int n) {
    int sum = 0;
    for (int i = 0; i < 20; i++) {
        char byte = (char)(n + i);
        if (write(pairs[n][0], &byte, 1) != 1 || read(pairs[n][0], &byte, 1) != 1)
            return -1;
        sum += byte;
    }
    return sum;
}

static void *echo(void *at) {
    int n = (int)(long)at;
    char byte;
    while (read(pairs[n][1], &byte, 1) == 1)
        if (byte == 'q' || write(pairs[n][1], &byte, 1) != 1)
            break;
    return 0;
}

static void *worker(void *at) {
    pthread_barrier_wait(&together);
    return (void *)(long)window((int)(long)at);
}

int main(void) {
    pthread_t workers[4], echoes[4];
    long total = 0;
    pthread_barrier_init(&together, 0, 4);
    for (long n = 0; n < 4; n++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[n]))
            return 1;
        pthread_create(&echoes[n], 0, echo, (void *)n);
        pthread_create(&workers[n], 0, worker, (void *)n);
    }
    for (int n = 0; n < 4; n++) {
        void *sum;
        pthread_join(workers[n], &sum);
        total += (long)sum;
        if (write(pairs[n][0], "q", 1) != 1)
            return 1;
        pthread_join(echoes[n], 0);
    }
    printf("%ld\n", total);
}
