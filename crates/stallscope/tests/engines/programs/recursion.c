// Calls inside calls of the function at the start of the window.
#include <stdio.h>

__attribute__((noinline)) int window(int n) { return n < 2 ? n : window(n - 1) + window(n - 2); }

int main(void) { printf("%d %d\n", window(9), window(5)); }
