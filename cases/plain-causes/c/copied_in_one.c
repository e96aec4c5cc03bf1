// A value of two words is pushed and copied: AFTER copies both words by one load, which no store can serve.
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { uint64_t tag, bits; } Value;
typedef struct { Value slots[64]; int top; } Stack;

__attribute__((noinline)) static void duplicate(Stack *stack) {
    const Value *from = &stack->slots[stack->top - 1];
    Value *to = &stack->slots[stack->top++];
#if AFTER
    _mm_storeu_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
#else
    uint64_t tag = *(volatile const uint64_t *)&from->tag, bits = *(volatile const uint64_t *)&from->bits;
    to->tag = tag;
    to->bits = bits;
#endif
}

static uint64_t pop(Stack *stack, uint64_t hash) {
    Value value = stack->slots[--stack->top];
    return (hash ^ value.bits) * 0x9E3779B97F4A7C15u + value.tag;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    static Stack stack;
    uint64_t hash = 1;
    for (long n = 0; n < rounds; n++) {
        Value *slot = &stack.slots[stack.top++];
        *(volatile uint64_t *)&slot->tag = 1 + (uint64_t)(n & 3);
        *(volatile uint64_t *)&slot->bits = hash >> 5;
        duplicate(&stack);
        hash = pop(&stack, hash);
        hash = pop(&stack, hash + 1);
    }
    printf("%llx\n", (unsigned long long)hash);
}
