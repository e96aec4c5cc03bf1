// Work under an interval timer: every register must be what it was behind each handler.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static void on_tick(int number) { (void)number, ticks++; }

__attribute__((noinline)) static unsigned long work(unsigned long n) {
    unsigned long wrong = 0;
    while (n--) {
        unsigned long kept;
        __asm__ volatile("mov $-1, %%r11\n\t.rept 200\n\tnop\n\t.endr\n\tmov %%r11, %0" : "=r"(kept) : : "r11");
        wrong += kept != ~0UL;
    }
    return wrong;
}

int main(void) {
    signal(SIGALRM, on_tick);
    struct itimerval each = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &each, 0);
    unsigned long wrong = work(20000000);
    each.it_value.tv_usec = each.it_interval.tv_usec = 0;
    setitimer(ITIMER_REAL, &each, 0);
    printf("%lu wrong, %s\n", wrong, ticks ? "ticks" : "no ticks");
    return 0;
}
