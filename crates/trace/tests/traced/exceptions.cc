// Exceptions through several frames.
#include <cstdio>
#include <stdexcept>

struct Guard {
    int *count;
    ~Guard() { ++*count; }
};
static int unwound;

__attribute__((noinline)) static int deep(int n) {
    Guard guard{&unwound};
    if (n == 0) {
        throw std::runtime_error("bottom");
    }
    return deep(n - 1) + 1;
}

extern "C" __attribute__((noinline)) int window(int n) {
    int caught = 0;
    for (int i = 0; i < n; i++) {
        try {
            deep(i);
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    return caught;
}

int main() {
    int caught = window(1);
    caught += window(4);
    std::printf("%d %d\n", caught, unwound);
}
