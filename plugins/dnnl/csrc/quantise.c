/* Images of a few planes of float32, divided by a scale, as bytes with channels last.
 *
 * oneDNN 3.2 divides in one primitive, and moves the bytes in another. Neither step gains from a second thread, since
 * the steps divide the image in different ways.
 */
#include "program.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct {
  const Quantisation *quantisation;
  const float *x;
  uint8_t *y;
} QuantiseTask;

/* The limits of quotients, so that a byte holds the sum with the zero point. */
static float least(const Quantisation *q) { return (float)((q->is_signed ? INT8_MIN : 0) - q->zero_point); }
static float most(const Quantisation *q) { return (float)((q->is_signed ? INT8_MAX : UINT8_MAX) - q->zero_point); }

/* The steps are those of the reference kernel: divide, round halves to even, add the zero point; 0 for NaN. */
static uint8_t to_byte(const Quantisation *q, float x) {
  const float to_integer = 12582912.0f; /* 1.5 * 2^23: sums have no bits of fractions */
  float quotient = x / q->scale;
  if (quotient != quotient) return 0;
  quotient = quotient < least(q) ? least(q) : quotient > most(q) ? most(q) : quotient;
  return (uint8_t)((int32_t)(quotient + to_integer - to_integer) + q->zero_point);
}

/* Bytes of the pixels [first, first + count) of an image. */
static void quantise_by_baseline(const Quantisation *q, const float *image, uint8_t *y, int64_t first, int64_t count) {
  for (int64_t pixel = first; pixel < first + count; ++pixel)
    for (int64_t c = 0; c < q->channels; ++c) y[pixel * q->channels + c] = to_byte(q, image[c * q->pixels + pixel]);
}

#if defined(__x86_64__)
enum { LANES = 8 };

/* The bytes of a pixel are collected in a word. */
static inline __attribute__((always_inline, target("avx2"))) void quantise_by_avx2(const Quantisation *q,
                                                                                   const float *image, uint8_t *y,
                                                                                   int64_t first, int64_t count,
                                                                                   const int channels) {
  static const int8_t bytes_of_words[MAX_QUANTISED_CHANNELS + 1][16] = {
      [2] = {0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1},
      [3] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1},
      [4] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
  };
  const __m128i order = _mm_loadu_si128((const __m128i *)bytes_of_words[channels]);
  const __m256 scale = _mm256_set1_ps(q->scale), low = _mm256_set1_ps(least(q)), high = _mm256_set1_ps(most(q));
  const __m256i zero_point = _mm256_set1_epi32(q->zero_point), byte = _mm256_set1_epi32(UINT8_MAX);
  int64_t pixel = first;
  for (; pixel <= first + count - LANES; pixel += LANES) {
    __m256i words = _mm256_setzero_si256();
    for (int c = channels - 1; c >= 0; --c) {
      const __m256 quotient = _mm256_div_ps(_mm256_loadu_ps(image + c * q->pixels + pixel), scale);
      const __m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(quotient, quotient, _CMP_ORD_Q));
      const __m256 limited = _mm256_min_ps(_mm256_max_ps(quotient, low), high);
      const __m256i sum = _mm256_add_epi32(_mm256_cvtps_epi32(limited), zero_point);
      const __m256i bytes = _mm256_and_si256(sum, _mm256_and_si256(is_number, byte));
      words = _mm256_or_si256(_mm256_slli_epi32(words, 8), bytes);
    }
    const __m128i halves[] = {_mm_shuffle_epi8(_mm256_castsi256_si128(words), order),
                              _mm_shuffle_epi8(_mm256_extracti128_si256(words, 1), order)};
    memcpy(y + pixel * channels, &halves[0], (size_t)(LANES / 2 * channels));
    memcpy(y + (pixel + LANES / 2) * channels, &halves[1], (size_t)(LANES / 2 * channels));
  }
  quantise_by_baseline(q, image, y, pixel, first + count - pixel);
}

static __attribute__((target("avx2"))) void quantise_pixels_by_avx2(const Quantisation *q, const float *image,
                                                                    uint8_t *y, int64_t first, int64_t count) {
  if (q->channels == 2) quantise_by_avx2(q, image, y, first, count, 2);
  if (q->channels == 3) quantise_by_avx2(q, image, y, first, count, 3);
  if (q->channels == 4) quantise_by_avx2(q, image, y, first, count, 4);
}
#endif

/* Elements are the pixels of all images; a range may begin and end within images. */
static void quantise_range(void *data, int64_t first, int64_t count) {
  const QuantiseTask *task = data;
  const Quantisation *q = task->quantisation;
  while (count > 0) {
    const int64_t start = first / q->pixels * q->pixels, begin = first - start, rest = q->pixels - begin;
    const int64_t length = count < rest ? count : rest;
    const float *image = task->x + start * q->channels;
    uint8_t *y = task->y + start * q->channels;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
      quantise_pixels_by_avx2(q, image, y, begin, length);
    else
#endif
      quantise_by_baseline(q, image, y, begin, length);
    first += length;
    count -= length;
  }
}

void byoc_quantise(const Api *api, const Quantisation *quantisation, const float *x, void *y) {
  enum { CHUNK = 1 << 11 }; /* pixels written by a thread at a time */
  QuantiseTask task = {quantisation, x, y};
  const int64_t count = quantisation->images * quantisation->pixels;
  byoc_share(api, count, CHUNK, count > 2 * CHUNK, quantise_range, &task);
}
