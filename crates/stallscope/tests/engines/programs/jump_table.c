// A dense switch, which compilers turn into an indirect jump.
#include <stdio.h>

int log_of[8];

#define CASE(n) __attribute__((noinline)) int case##n(int x) { return x * (n + 3) ^ log_of[n]++; }
CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)

__attribute__((noinline)) int window(int x) {
    int sum = 0;
    for (int i = 0; i < 14; i++)
        switch ((i * x) % 7) {
        case 0: sum += case0(i); break;
        case 1: sum -= case1(i); break;
        case 2: sum ^= case2(i); break;
        case 3: sum += 2 * case3(i); break;
        case 4: sum -= 3 * case4(i); break;
        case 5: sum |= case5(i); break;
        case 6: sum &= ~case6(i); break;
        }
    return sum;
}

int main(void) { printf("%d\n", window(3)); }
