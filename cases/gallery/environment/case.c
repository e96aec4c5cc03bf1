// A loop over static variables and two of the stack, which lie beside them in a page, or AFTER at the same place in a page:
// the environment, which lies above the stack, is as long as that takes.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

enum { APART = AFTER ? 0 : 64, PAGE = 4096 };
static volatile int i, j, k;

// Starts the program anew until `mine` lies as far behind `i` as it shall, with stacks that the kernel does not move about.
static void place(volatile int *mine, char **argv) {
    unsigned off = ((uintptr_t)mine - (uintptr_t)&i - APART) & (PAGE - 1) & ~15u;
    int persona = personality(0xffffffff);
    if ((persona & ADDR_NO_RANDOMIZE) && off == 0) return;
    const char *was = getenv("STALLSCOPE_PAD");
    unsigned length = ((was ? strlen(was) : 0) + off) % PAGE;
    char pad[PAGE] = {0};
    memset(pad, 'x', length);
    setenv("STALLSCOPE_PAD", pad, 1);
    personality(persona | ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", argv);
    exit(2);
}

int main(int argc, char **argv) {
    volatile int g = 0, inc = 1;
    place(&inc, argv);
    int turns = argc > 1 ? atoi(argv[1]) : 1;
    for (; g < turns; g++) {
        i += inc;
        j += inc;
        k += inc;
    }
    printf("%d\n", i + j + k);
}
