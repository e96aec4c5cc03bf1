// Four threads and a socket between two of them; the window is in one.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static volatile int done;
static uint64_t counts[4];

static void *echo(void *unused) {
    char byte;
    while (read(pair[1], &byte, 1) == 1) {
        byte++;
        if (write(pair[1], &byte, 1) != 1) {
            break;
        }
    }
    return unused;
}
static void *spin(void *count) {
    while (!done) {
        ++*(volatile uint64_t *)count;
        usleep(100);
    }
    return 0;
}

__attribute__((noinline)) uint64_t window(uint64_t x) {
    for (int i = 0; i < 3000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        x ^= x >> 29;
    }
    return x;
}

int main(void) {
    pthread_t threads[3];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pthread_create(threads, 0, echo, 0);
    pthread_create(threads + 1, 0, spin, counts + 1);
    pthread_create(threads + 2, 0, spin, counts + 2);
    uint64_t sum = 0;
    char byte = 'a';
    for (int i = 0; i < 4; i++) {
        sum += window(i);
        if (write(pair[0], &byte, 1) != 1 || read(pair[0], &byte, 1) != 1) {
            return 1;
        }
    }
    done = 1;
    shutdown(pair[0], SHUT_WR);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], 0);
    }
    printf("%llu %c\n", (unsigned long long)sum, byte);
    return 0;
}
