// Adds 0.1 and takes it away again, or AFTER 0: without the rounding to 0.1's last place the numbers become denormal.
#include <stdio.h>
#include <stdlib.h>

static const float x[16] = {1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f, 1.7f, 1.8f, 1.9f, 2.0f, 2.1f, 2.2f, 2.3f, 2.4f, 2.5f, 2.6f};
static const float z[16] = {1.123f, 1.234f, 1.345f, 156.467f, 1.578f, 1.689f, 1.790f, 1.812f,
                            1.923f, 2.034f, 2.145f, 2.256f,   2.367f, 2.478f, 2.589f, 2.690f};
static float y[16];

__attribute__((noinline)) static void recur(long turns) {
    for (long n = 0; n < turns; n++) {
        for (int i = 0; i < 16; i++) {
            y[i] *= x[i];
            y[i] /= z[i];
            y[i] = y[i] + (AFTER ? 0 : 0.1f);
            y[i] = y[i] - (AFTER ? 0 : 0.1f);
        }
        __asm__ volatile("" ::: "memory");
    }
}

int main(int argc, char **argv) {
    float sum = 0;
    for (int i = 0; i < 16; i++) y[i] = x[i];
    recur(argc > 1 ? atol(argv[1]) : 1);
    for (int i = 0; i < 16; i++) sum += y[i];
    printf("%.4f\n", sum);
}
