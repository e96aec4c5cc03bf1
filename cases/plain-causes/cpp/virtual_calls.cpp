// Objects of four classes, sorted by class, or AFTER in random order.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Shape { virtual long next(long x) = 0; virtual ~Shape() {} };
struct Add : Shape { long next(long x) override { return x + 1; } };
struct Xor : Shape { long next(long x) override { return x ^ 3; } };
struct Mul : Shape { long next(long x) override { return x * 5; } };
struct Sub : Shape { long next(long x) override { return x - 7; } };

int main(int argc, char **argv) {
    unsigned random = 1;
    std::vector<int> kinds;
    for (int i = 0; i < 20000; i++) kinds.push_back(((random = random * 1103515245 + 12345) >> 16) % 4);
    if (!AFTER) std::sort(kinds.begin(), kinds.end());
    std::vector<Shape *> shapes;
    for (int kind : kinds) {
        Shape *all[] = {new Add, new Xor, new Mul, new Sub};
        shapes.push_back(all[kind]);
    }
    long x = 0;
    for (long n = argc > 1 ? atol(argv[1]) : 1; n > 0; n--)
        for (Shape *shape : shapes) x = shape->next(x);
    printf("%ld\n", x);
}
