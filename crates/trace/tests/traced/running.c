// Works until it is told to end, and says then whether it computed what it should and heard of any child.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t over, children;

static void end(int signal) { (void)signal; over = 1; }
static void child(int signal) { (void)signal; children++; }

__attribute__((noinline)) unsigned long work(unsigned long n) {
    volatile unsigned char halves[8] = {0};
    unsigned long sum = n;
    for (int i = 0; i < 100; i++) {
        halves[i % 8] = (unsigned char)sum;
        sum += halves[(i + 3) % 8] + 1;
    }
    return sum;
}

static void *sleeper(void *naps) {
    while (!over) {
        if (usleep(1000) == 0) ++*(long *)naps;
    }
    return NULL;
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGCHLD, child);
    alarm(120);
    long naps = 0;
    pthread_t other;
    pthread_create(&other, NULL, sleeper, &naps);
    puts("ready");
    fflush(stdout);
    unsigned long n = 0, sum = 0, again = 0;
    for (; !over; n++) sum += work(n);
    for (unsigned long i = 0; i < n; i++) again += work(i);
    pthread_join(other, NULL);
    int left = waitpid(-1, NULL, WNOHANG | __WALL);
    printf("%s, %s, %d children heard of, %s\n", sum == again ? "right" : "wrong", naps > 0 ? "slept" : "never slept",
           (int)children, left < 0 && errno == ECHILD ? "none left" : "some left");
    return 0;
}
