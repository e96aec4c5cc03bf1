// String instructions of every width: short, long, none, and over what they have just written.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char memory[4096];

static void *moved[3];

#define MOVE(name, op)                                                                        \
    __attribute__((noinline)) void name(void *to, const void *from, unsigned long count) {    \
        __asm__ volatile("rep " op : "+D"(to), "+S"(from), "+c"(count)::"memory");            \
        moved[0] = to, moved[1] = (void *)from, moved[2] = (void *)count;                     \
    }
#define STORE(name, op, type)                                                                 \
    __attribute__((noinline)) void name(void *to, type value, unsigned long count) {          \
        __asm__ volatile("rep " op : "+D"(to), "+c"(count) : "a"(value) : "memory");          \
        moved[0] = to, moved[2] = (void *)count;                                              \
    }
MOVE(move1, "movsb")
MOVE(move2, "movsw")
MOVE(move4, "movsl")
MOVE(move8, "movsq")
STORE(store1, "stosb", uint8_t)
STORE(store2, "stosw", uint16_t)
STORE(store4, "stosl", uint32_t)
STORE(store8, "stosq", uint64_t)

int main(void) {
    static void (*const moves[])(void *, const void *, unsigned long) = {move1, move2, move4, move8};
    uint64_t sum = 0;
    for (unsigned i = 0; i < sizeof memory; i++)
        memory[i] = (unsigned char)(i * 37 + i / 256);
    for (unsigned count = 0; count < 90; count++) {
        store1(memory + 3 * count, (uint8_t)(count * 7), count);
        store2(memory + 700 + count, (uint16_t)(count * 771), count);
        store4(memory + 1500, count * 0x1234567u, count);
        store8(memory + 2000 + count, count * 0x123456789abcdefull, count);
        for (int width = 0; width < 4; width++) {
            moves[width](memory + 1000, memory + 3000 + count, count);
            // Forwards by less than sixteen bytes, and backwards.
            moves[width](memory + 2100 + count % 17, memory + 2100, count);
            moves[width](memory + 2800, memory + 2800 + count % 19, count);
            sum += (uintptr_t)moved[0] - (uintptr_t)memory + (uintptr_t)moved[1] - (uintptr_t)memory
                + (uintptr_t)moved[2];
        }
        for (unsigned i = 0; i < sizeof memory; i++)
            sum = sum * 31 + memory[i];
    }
    printf("%llu\n", (unsigned long long)sum);
}
