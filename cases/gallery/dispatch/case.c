// An interpreter with a dispatch jump behind each instruction, or AFTER one for all.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ADD, XOR, SHIFT, MULTIPLY, ROTATE, NEGATE, SUBTRACT, LOOP, LENGTH = 64 };
static uint8_t program[LENGTH];

__attribute__((noinline)) static uint64_t interpret(long turns) {
    static const void *const to[] = {&&add, &&xor, &&shift, &&multiply, &&rotate, &&negate, &&subtract, &&loop};
    const uint8_t *at = program;
    uint64_t x = 1;
    // An empty assembly of its own keeps compilers from making one jump of all.
#define JUMP(n) __asm__ volatile("# " #n : "+r"(at)); goto *to[*at++]
#if AFTER
#define NEXT(n) goto dispatch
dispatch:
    JUMP(0);
#else
#define NEXT(n) JUMP(n)
    JUMP(0);
#endif
add: x += 0x9E3779B9; NEXT(1);
xor: x ^= x >> 9; NEXT(2);
shift: x = x << 3 | 5; NEXT(3);
multiply: x *= 0x2545F491; NEXT(4);
rotate: x = x << 7 | x >> 57; NEXT(5);
negate: x = ~x; NEXT(6);
subtract: x -= 77; NEXT(7);
loop:
    if (--turns <= 0) return x;
    at = program;
    NEXT(8);
}

int main(int argc, char **argv) {
    unsigned random = 7;
    for (int i = 0; i < LENGTH - 1; i++) {
        random = random * 1664525 + 1013904223;
        program[i] = (random >> 16) % LOOP;
    }
    program[LENGTH - 1] = LOOP;
    printf("%llx\n", (unsigned long long)interpret(argc > 1 ? atol(argv[1]) : 1));
}
