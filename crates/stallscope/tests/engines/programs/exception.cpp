// Exceptions through two frames, with a destructor on the way.
#include <cstdio>

int table[8];

struct Guard {
    int index;
    __attribute__((noinline)) ~Guard();
};
Guard::~Guard() { table[index]++; }

extern "C" __attribute__((noinline)) int thrower(int x) {
    Guard guard{x & 7};
    if (x & 1)
        throw x;
    return x;
}

extern "C" __attribute__((noinline)) int landed(int x) { return x * 2; }

extern "C" __attribute__((noinline)) int window() {
    int sum = 0;
    for (int i = 0; i < 4; i++)
        try {
            sum += thrower(i);
        } catch (int x) {
            sum += landed(x);
        }
    return sum;
}

int main() { std::printf("%d\n", window()); }
