/* The largest byte of each window, in images with channels last.
 *
 * oneDNN 3.2 calls a kernel for each pixel, and the kernel loads a tap at a time: on AVX-512 five times slower than the
 * loads themselves.
 */
#include "program.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The taps of a window within the image: the first, and steps in bytes to the next row and column. */
typedef struct {
  const uint8_t *first;
  int64_t rows, columns, row_step, column_step;
} Taps;

typedef void (*LargestOfTaps)(const Taps *taps, uint8_t *y, int64_t channels);

#define LARGEST_BY_BASELINE(NAME, TYPE)                                                       \
  static void NAME(const Taps *taps, uint8_t *bytes, int64_t channels) {                      \
    TYPE *y = (TYPE *)bytes;                                                                  \
    memcpy(y, taps->first, (size_t)channels);                                                 \
    for (int64_t a = 0; a < taps->rows; ++a)                                                  \
      for (int64_t b = 0; b < taps->columns; ++b) {                                           \
        const uint8_t *tap = taps->first + a * taps->row_step + b * taps->column_step;        \
        const TYPE *restrict x = (const TYPE *)tap;                                           \
        for (int64_t c = 0; c < channels; ++c) y[c] = x[c] > y[c] ? x[c] : y[c];              \
      }                                                                                       \
  }

LARGEST_BY_BASELINE(largest_uint8, uint8_t)
LARGEST_BY_BASELINE(largest_int8, int8_t)

#if defined(__x86_64__)
enum { VECTOR = 32 };

/* The last vector overlaps the one before. */
#define LARGEST_BY_AVX2(NAME, BASELINE, MAX)                                                    \
  static __attribute__((target("avx2"))) void NAME(const Taps *taps, uint8_t *y, int64_t channels) { \
    if (channels < VECTOR) {                                                                    \
      BASELINE(taps, y, channels);                                                              \
      return;                                                                                   \
    }                                                                                           \
    for (int64_t begin = 0; begin < channels; begin += 2 * VECTOR) {                            \
      const int64_t last = channels - VECTOR;                                                   \
      const int64_t c = begin < last ? begin : last;                                            \
      const int64_t d = c + VECTOR < last ? c + VECTOR : last;                                  \
      __m256i left = _mm256_loadu_si256((const __m256i *)(taps->first + c));                    \
      __m256i right = _mm256_loadu_si256((const __m256i *)(taps->first + d));                   \
      for (int64_t a = 0; a < taps->rows; ++a) {                                                \
        const uint8_t *tap = taps->first + a * taps->row_step;                                  \
        for (int64_t b = 0; b < taps->columns; ++b, tap += taps->column_step) {                 \
          left = MAX(left, _mm256_loadu_si256((const __m256i *)(tap + c)));                     \
          right = MAX(right, _mm256_loadu_si256((const __m256i *)(tap + d)));                   \
        }                                                                                       \
      }                                                                                         \
      _mm256_storeu_si256((__m256i *)(y + c), left);                                            \
      _mm256_storeu_si256((__m256i *)(y + d), right);                                           \
    }                                                                                           \
  }

LARGEST_BY_AVX2(largest_uint8_by_avx2, largest_uint8, _mm256_max_epu8)
LARGEST_BY_AVX2(largest_int8_by_avx2, largest_int8, _mm256_max_epi8)
#endif

static LargestOfTaps find_largest(int is_signed) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return is_signed ? largest_int8_by_avx2 : largest_uint8_by_avx2;
#endif
  return is_signed ? largest_int8 : largest_uint8;
}

/* The taps of a window along an axis within the image; returns the number. */
static int64_t clip_taps(const PoolAxis *axis, int64_t position, int64_t *first) {
  const int64_t start = position * axis->stride - axis->before;
  const int64_t skipped = start < 0 ? (axis->dilation - 1 - start) / axis->dilation : 0;
  const int64_t within = axis->size - start; /* elements from the start to the end of the image */
  const int64_t reached = within > 0 ? (within + axis->dilation - 1) / axis->dilation : 0;
  *first = start + skipped * axis->dilation;
  return (reached < axis->window ? reached : axis->window) - skipped;
}

typedef struct {
  const Pooling *pooling;
  const uint8_t *x;
  uint8_t *y;
  LargestOfTaps largest;
} PoolTask;

static void pool_rows(void *data, int64_t first, int64_t count) {
  const PoolTask *task = data;
  const Pooling *pooling = task->pooling;
  const PoolAxis *rows = &pooling->axes[0], *columns = &pooling->axes[1];
  const int64_t channels = pooling->channels, row_nbytes = columns->size * channels;
  uint8_t *y = task->y + first * columns->count * channels;
  for (int64_t row = first; row < first + count; ++row) {
    int64_t top, left;
    Taps taps = {.row_step = rows->dilation * row_nbytes, .column_step = columns->dilation * channels};
    taps.rows = clip_taps(rows, row % rows->count, &top);
    const uint8_t *image = task->x + row / rows->count * rows->size * row_nbytes;
    for (int64_t column = 0; column < columns->count; ++column, y += channels) {
      taps.columns = clip_taps(columns, column, &left);
      if (taps.rows <= 0 || taps.columns <= 0) { /* refused by plans */
        memset(y, pooling->is_signed ? INT8_MIN : 0, (size_t)channels);
        continue;
      }
      taps.first = image + top * row_nbytes + left * channels;
      task->largest(&taps, y, channels);
    }
  }
}

void byoc_pool(const Api *api, const Pooling *pooling, const void *x, void *y) {
  enum { CHUNK = 1 << 12 }; /* bytes written by a thread at a time */
  PoolTask task = {pooling, x, y, find_largest(pooling->is_signed)};
  const PoolAxis *axes = pooling->axes;
  const int64_t count = pooling->images * axes[0].count;
  const int64_t row_nbytes = axes[1].count * pooling->channels;
  const int64_t chunk = row_nbytes < CHUNK ? CHUNK / row_nbytes : 1;
  byoc_share(api, count, chunk, count > 2 * chunk, pool_rows, &task);
}
