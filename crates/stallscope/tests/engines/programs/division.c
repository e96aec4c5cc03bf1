// A fault in the middle of a straight run, by an instruction that touches no memory.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static sigjmp_buf out;
static volatile int numbers[4] = {12, 4, 0, 7};

__attribute__((noinline)) void on_fault(int signal) { siglongjmp(out, signal); }

__attribute__((noinline)) int divide(int a, int b) {
    int before = numbers[3];
    int quotient = a / b;
    numbers[3] = quotient + 1;
    return quotient + before;
}

__attribute__((noinline)) int window(void) {
    int sum = 0;
    for (int i = 0; i < 3; i++)
        if (sigsetjmp(out, 1) == 0)
            sum += divide(numbers[0], numbers[i]);
    return sum + numbers[3];
}

int main(void) {
    signal(SIGFPE, on_fault);
    printf("%d\n", window());
}
