// A list whose nodes lie one behind the other, or AFTER in random order in three megabytes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

struct Node { Node *next; long value; };

int main(int argc, char **argv) {
    const int count = 200000;
    std::vector<Node> nodes(count);
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    if (AFTER) std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (int i = 0; i < count; i++) nodes[order[i]] = {&nodes[order[(i + 1) % count]], i};
    long sum = 0;
    Node *node = &nodes[order[0]];
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--) { sum += node->value; node = node->next; }
    printf("%ld\n", sum);
}
