// A small interpreter whose every operation jumps to the next through a table of labels.
#include <stdio.h>

enum { PUSH, ADD, DUP, JUMP_IF, STOP };

__attribute__((noinline)) int window(const signed char *code) {
    static const void *const labels[] = {&&push, &&add, &&dup, &&jump_if, &&stop};
    int stack[16], top = 0, rounds = 0;
    const signed char *at = code;
#define NEXT goto *labels[*at++]
    NEXT;
push:
    stack[top++] = *at++;
    NEXT;
add:
    top--;
    stack[top - 1] += stack[top];
    NEXT;
dup:
    stack[top] = stack[top - 1];
    top++;
    NEXT;
jump_if:
    at += rounds++ < 20 ? *at : 1;
    NEXT;
stop:
    return stack[top - 1] + rounds;
}

int main(void) {
    static const signed char code[] = {PUSH, 1, PUSH, 2, ADD, JUMP_IF, -4, DUP, ADD, STOP};
    printf("%d\n", window(code));
}
