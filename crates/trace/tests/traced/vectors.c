// Every vector width, gathers, scatters, masked loads and stores, as far as the processor has them.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static float a[256] __attribute__((aligned(64))), b[256] __attribute__((aligned(64)));
static int index32[16] = {3, 1, 200, 7, 9, 64, 2, 250, 5, 8, 100, 11, 0, 13, 17, 19};

__attribute__((noinline, target("sse2"))) static void sse(void) {
    for (int i = 0; i < 256; i += 4) {
        _mm_store_ps(b + i, _mm_add_ps(_mm_load_ps(a + i), _mm_set1_ps(1.5f)));
    }
    _mm_maskmoveu_si128(_mm_set1_epi8(7), _mm_setr_epi8(0, -1, 0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
                        (char *)b + 40);
}

__attribute__((noinline, target("avx2"))) static void avx2(void) {
    __m256i at = _mm256_loadu_si256((const __m256i *)index32);
    __m256 mask = _mm256_castsi256_ps(_mm256_setr_epi32(-1, 0, -1, -1, 0, 0, -1, 0));
    __m256 got = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), a, at, mask, 4);
    _mm256_storeu_ps(b + 3, got);
    _mm256_maskstore_ps(b + 20, _mm256_setr_epi32(0, -1, -1, 0, -1, 0, 0, 0), got);
    _mm256_storeu_ps(b + 60, _mm256_maskload_ps(a + 60, _mm256_setr_epi32(0, 0, -1, 0, 0, -1, 0, 0)));
    _mm_storeu_si128((__m128i *)(b + 80), _mm256_i64gather_epi32((const int *)a,
                     _mm256_setr_epi64x(4, 9, 77, 200), 4));
}

__attribute__((noinline, target("avx512f,avx512vl,avx512bw"))) static void avx512(void) {
    __m512i at = _mm512_loadu_si512(index32);
    for (unsigned m = 1; m < 0x10000; m = m * 5 + 2) {
        __mmask16 mask = (__mmask16)m;
        __m512 got = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, at, a, 4);
        _mm512_storeu_ps(b + 100, got);
        _mm512_mask_i32scatter_ps(b, mask, at, got, 4);
        _mm512_mask_storeu_ps(b + 120, mask, _mm512_maskz_loadu_ps(mask, a + 7));
        _mm512_mask_compressstoreu_ps(b + 150, mask, got);
        got = _mm512_mask_add_ps(got, mask, got, _mm512_set1_ps(a[m % 256]));
        _mm512_storeu_ps(b + 180, _mm512_maskz_expandloadu_ps(mask, a + 11));
        _mm256_mask_storeu_epi8(b + 220, (__mmask32)m, _mm256_loadu_si256((const __m256i *)(a + 2)));
        _mm512_storeu_ps(b + 230, got);
    }
}

__attribute__((noinline)) int window(void) {
    sse();
    if (__builtin_cpu_supports("avx2")) {
        avx2();
    }
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        avx512();
    }
    return 1;
}

int main(void) {
    for (int i = 0; i < 256; i++) {
        a[i] = (float)(i * 37 % 101);
    }
    __builtin_cpu_init();
    window();
    uint32_t sum = 0, word;
    for (int i = 0; i < 256; i++) {
        memcpy(&word, b + i, 4);
        sum = sum * 31 + word;
    }
    printf("%u\n", sum);
    return 0;
}
