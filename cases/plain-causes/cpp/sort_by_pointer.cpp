// std::sort, or AFTER qsort, which calls a function for each comparison.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    unsigned random = 1;
    long sum = 0;
    std::vector<int> numbers(20000);
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) {
        for (int &x : numbers) x = (random = random * 1664525 + 1013904223) >> 8;
        if (AFTER) qsort(numbers.data(), numbers.size(), sizeof(int), compare);
        else std::sort(numbers.begin(), numbers.end());
        sum += numbers[777];
    }
    printf("%ld\n", sum);
}
