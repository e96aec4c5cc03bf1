// Out of nested calls by longjmp, and once out of the window's own function.
#include <setjmp.h>
#include <stdio.h>

static jmp_buf inner, outer;

__attribute__((noinline)) void thrower(int depth, int how) {
    if (depth > 0)
        thrower(depth - 1, how);
    else
        longjmp(how ? outer : inner, 1);
}

__attribute__((noinline)) int landed(int x) { return x + 1; }

__attribute__((noinline)) int window(int how) {
    if (setjmp(inner) == 0)
        thrower(3, how);
    return landed(how);
}

int main(void) {
    volatile int sum = 0;
    if (setjmp(outer) == 0)
        sum += window(1);
    sum += window(0);
    printf("%d\n", sum);
}
