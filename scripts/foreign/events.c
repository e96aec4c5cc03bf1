// Waits for timers by epoll, with a thread that writes into a pipe.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int ends[2];
static void *writer(void *nothing) {
    for (int i = 0; i < 1000; i++) {
        char byte = (char)i;
        if (write(ends[1], &byte, 1) != 1) break;
    }
    close(ends[1]);
    return nothing;
}

int main(void) {
    pthread_t thread;
    if (pipe(ends)) return 1;
    int timer = timerfd_create(CLOCK_MONOTONIC, 0), poll = epoll_create1(0);
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    timerfd_settime(timer, 0, &each, 0);
    int both[2] = {timer, ends[0]};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = both[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, both[i], &event);
    }
    pthread_create(&thread, 0, writer, 0);
    unsigned ticks = 0, bytes = 0, sum = 1, open = 1;
    while (ticks < 100 || open) {
        struct epoll_event event;
        if (epoll_wait(poll, &event, 1, -1) < 1) continue;
        for (int i = 0; i < 20000; i++) sum = sum * 3 + 1;
        char byte;
        uint64_t count;
        if (event.data.fd == timer) {
            if (read(timer, &count, 8) == 8) ticks++;
        } else if (read(ends[0], &byte, 1) == 1) {
            bytes += (unsigned char)byte;
        } else {
            open = 0;
            epoll_ctl(poll, EPOLL_CTL_DEL, ends[0], 0);
        }
    }
    pthread_join(thread, 0);
    printf("%u %u\n", ticks >= 100, bytes);
    return 0;
}
