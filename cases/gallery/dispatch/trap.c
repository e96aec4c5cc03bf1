// One dispatch jump in both; AFTER checks every opcode and counts the instructions: more of them, as well predicted.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ADD, XOR, SHIFT, MULTIPLY, ROTATE, NEGATE, SUBTRACT, LOOP, LENGTH = 8 };
static const uint8_t program[LENGTH] = {ADD, XOR, SHIFT, ADD, ROTATE, NEGATE, SUBTRACT, LOOP};
static uint64_t executed[8];

__attribute__((noinline)) static uint64_t interpret(long turns) {
    static const void *const to[] = {&&add, &&xor, &&shift, &&multiply, &&rotate, &&negate, &&subtract, &&loop};
    const uint8_t *at = program;
    uint64_t x = 1;
dispatch:
#if AFTER
    if (*at >= 8 || at < program || at >= program + LENGTH) return 0;
    executed[*at] += 1;
#endif
    goto *to[*at++];
add: x += 0x9E3779B9; goto dispatch;
xor: x ^= x >> 9; goto dispatch;
shift: x = x << 3 | 5; goto dispatch;
multiply: x *= 0x2545F491; goto dispatch;
rotate: x = x << 7 | x >> 57; goto dispatch;
negate: x = ~x; goto dispatch;
subtract: x -= 77; goto dispatch;
loop:
    if (--turns <= 0) return x + executed[0] * 0;
    at = program;
    goto dispatch;
}

int main(int argc, char **argv) {
    printf("%llx\n", (unsigned long long)interpret(argc > 1 ? atol(argv[1]) : 1));
}
