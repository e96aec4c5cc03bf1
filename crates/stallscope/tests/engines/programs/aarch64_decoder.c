// Encodes triangle strips and decodes them: to be linked with meshoptimizer's codec.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

size_t meshopt_encodeIndexBufferBound(size_t index_count, size_t vertex_count);
size_t meshopt_encodeIndexBuffer(unsigned char *buffer, size_t size, const unsigned *indices,
                                 size_t index_count);
int meshopt_decodeIndexBuffer(void *to, size_t index_count, size_t index_size,
                              const unsigned char *buffer, size_t size);

enum { STRIPS = 4, TRIANGLES = 1000, INDICES = 3 * STRIPS * TRIANGLES };
static unsigned indices[INDICES], decoded[INDICES];

int main(void) {
    size_t n = 0, vertices = STRIPS * (TRIANGLES + 2);
    for (unsigned strip = 0; strip < STRIPS; strip++)
        for (unsigned k = 0, base = strip * (TRIANGLES + 2); k < TRIANGLES; k++) {
            unsigned i = base + k, flip = k % 2;
            indices[n++] = i + flip, indices[n++] = i + 1 - flip, indices[n++] = i + 2;
        }
    size_t bound = meshopt_encodeIndexBufferBound(INDICES, vertices);
    unsigned char *buffer = malloc(bound);
    size_t size = meshopt_encodeIndexBuffer(buffer, bound, indices, INDICES);
    int failed = 0;
    for (int round = 0; round < 2; round++)
        failed |= meshopt_decodeIndexBuffer(decoded, INDICES, 4, buffer, size);
    unsigned long sum = 0;
    for (n = 0; n < INDICES; n++)
        sum += decoded[n];
    printf("%d %lu\n", failed, sum);
}
