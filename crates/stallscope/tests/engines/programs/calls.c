// A function that is called from a loop and calls another.
#include <stdio.h>

int table[16];

__attribute__((noinline)) int helper(int x) { return table[x & 15] += x; }

__attribute__((noinline)) int window(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += helper(i);
    return sum;
}

int main(void) {
    int sum = 0;
    for (int i = 1; i <= 10; i++)
        sum += window(i);
    printf("%d\n", sum);
    return 0;
}
