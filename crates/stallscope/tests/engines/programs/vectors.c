// Loops that the compiler turns into vectors as wide as it is allowed.
#include <stdio.h>

static float a[203], b[203];
static unsigned char bytes[1001];
static int indexes[203];

__attribute__((noinline)) float window(int n) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        a[i] = b[i] * 2 + i;
    for (int i = 0; i < n; i++)
        if (a[i] > 50)
            b[i] = a[i];
    for (int i = 0; i < n; i++)
        sum += b[indexes[i]];
    for (int i = 0; i < 1001; i++)
        bytes[i] = (unsigned char)(bytes[i] * 3 + i);
    return sum + bytes[1000];
}

int main(void) {
    for (int i = 0; i < 203; i++)
        indexes[i] = (i * 37) % 203;
    printf("%.1f\n", window(203));
}
