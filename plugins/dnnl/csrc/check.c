/* Checks: all elements must be within the bound assumed by the proof of the following steps. */
#include "program.h"

#include <stdatomic.h>

enum { BLOCK = 1 << 10, CHUNK = 1 << 15 };

/* Without the sign, the bits of numbers have the order of magnitudes, with NaN above infinity. */
typedef int32_t __attribute__((may_alias)) Word;
typedef int16_t __attribute__((may_alias)) Half;

static inline __attribute__((always_inline)) int are_words_within(const Word *bits, int64_t count, int32_t limit) {
  for (; count > 0; bits += BLOCK, count -= BLOCK) {
    const int64_t block = count < BLOCK ? count : BLOCK;
    int32_t has_excess = 0;
    for (int64_t i = 0; i < block; ++i) has_excess |= (bits[i] & INT32_MAX) > limit;
    if (has_excess) return 0;
  }
  return 1;
}

static inline __attribute__((always_inline)) int are_halves_within(const Half *bits, int64_t count, int16_t limit) {
  for (; count > 0; bits += BLOCK, count -= BLOCK) {
    const int64_t block = count < BLOCK ? count : BLOCK;
    int16_t has_excess = 0;
    for (int64_t i = 0; i < block; ++i) has_excess |= (int16_t)(bits[i] & INT16_MAX) > limit;
    if (has_excess) return 0;
  }
  return 1;
}

static inline __attribute__((always_inline)) int are_elements_within(const char *elements, int64_t count, int32_t width,
                                                                     int32_t limit) {
  if (width == 2) return are_halves_within((const Half *)elements, count, (int16_t)limit);
  return are_words_within((const Word *)elements, count, limit);
}

static int are_within_by_baseline(const char *elements, int64_t count, int32_t width, int32_t limit) {
  return are_elements_within(elements, count, width, limit);
}

#if defined(__x86_64__)
/* Baseline vectors reach a third of the cache bandwidth. */
static __attribute__((target("avx2"))) int are_within_by_avx2(const char *elements, int64_t count, int32_t width,
                                                              int32_t limit) {
  return are_elements_within(elements, count, width, limit);
}
#endif

static int are_within(const char *elements, int64_t first, int64_t count, int32_t width, int32_t limit) {
  elements += first * width;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return are_within_by_avx2(elements, count, width, limit);
#endif
  return are_within_by_baseline(elements, count, width, limit);
}

typedef struct {
  const char *elements;
  int32_t width, limit;
  atomic_int has_excess;
} Scan;

static void scan_range(void *data, int64_t first, int64_t count) {
  Scan *scan = data;
  if (!atomic_load_explicit(&scan->has_excess, memory_order_relaxed) &&
      !are_within(scan->elements, first, count, scan->width, scan->limit))
    atomic_store_explicit(&scan->has_excess, 1, memory_order_relaxed);
}

int byoc_check(const Api *api, const void *elements, int64_t count, int32_t width, int32_t limit) {
  Scan scan_data = {.elements = elements, .width = width, .limit = limit};
  byoc_share(api, count, CHUNK, count > 2 * CHUNK, scan_range, &scan_data);
  return !atomic_load_explicit(&scan_data.has_excess, memory_order_relaxed);
}
