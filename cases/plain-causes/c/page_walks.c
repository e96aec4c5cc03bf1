// A walk through nodes in random order: 64 bytes apart, or AFTER more than a page.
#include <stdio.h>
#include <stdlib.h>

struct node {
    struct node *next;
    long value;
    char padding[AFTER ? 4096 + 64 - 16 : 48];
};

int main(int argc, char **argv) {
    enum { NODES = 6000 };
    struct node *nodes = calloc(NODES, sizeof *nodes);
    int order[NODES];
    unsigned random = 1;
    for (int i = 0; i < NODES; i++) order[i] = i;
    for (int i = NODES - 1; i > 0; i--) {
        random = random * 1103515245 + 12345;
        int other = (random >> 8) % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < NODES; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
        nodes[order[i]].value = i;
    }
    long sum = 0, n = argc > 1 ? atol(argv[1]) : 1;
    struct node *node = nodes;
    for (long i = 0; i < n; i++) {
        sum += node->value;
        node = node->next;
    }
    printf("%ld\n", sum);
}
