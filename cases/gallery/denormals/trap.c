// The recurrence with 0.1 in both: times the inverse, or AFTER divided. No number becomes denormal.
#include <stdio.h>
#include <stdlib.h>

static const float x[16] = {1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f, 1.7f, 1.8f, 1.9f, 2.0f, 2.1f, 2.2f, 2.3f, 2.4f, 2.5f, 2.6f};
static float z[16], y[16];

__attribute__((noinline)) static void recur(long turns) {
    for (long n = 0; n < turns; n++) {
        for (int i = 0; i < 16; i++) {
            y[i] *= x[i];
            y[i] = AFTER ? y[i] / z[i] : y[i] * z[i];
            y[i] = y[i] + 0.1f;
            y[i] = y[i] - 0.1f;
        }
        __asm__ volatile("" ::: "memory");
    }
}

int main(int argc, char **argv) {
    float sum = 0;
    for (int i = 0; i < 16; i++) {
        float by = x[i] * 1.05f;
        y[i] = x[i];
        z[i] = AFTER ? by : 1 / by;
    }
    recur(argc > 1 ? atol(argv[1]) : 1);
    for (int i = 0; i < 16; i++) sum += y[i];
    printf("%.4f\n", sum);
}
