/* Checks: all elements must be within the bound assumed by the proof of the following steps. */
#include "objects.h"

#include <stdatomic.h>

enum { BLOCK = 1 << 10, CHUNK = 1 << 15 };

/* Without the sign, the bits of numbers have the order of magnitudes, with NaN above infinity. */
typedef int32_t __attribute__((may_alias)) Word;
typedef int16_t __attribute__((may_alias)) Half;

static inline __attribute__((always_inline)) int holds_words(const Word *bits, int64_t count, int32_t limit) {
  for (; count > 0; bits += BLOCK, count -= BLOCK) {
    const int64_t block = count < BLOCK ? count : BLOCK;
    int32_t found = 0;
    for (int64_t i = 0; i < block; ++i) found |= (bits[i] & INT32_MAX) > limit;
    if (found) return 0;
  }
  return 1;
}

static inline __attribute__((always_inline)) int holds_halves(const Half *bits, int64_t count, int16_t limit) {
  for (; count > 0; bits += BLOCK, count -= BLOCK) {
    const int64_t block = count < BLOCK ? count : BLOCK;
    int16_t found = 0;
    for (int64_t i = 0; i < block; ++i) found |= (int16_t)(bits[i] & INT16_MAX) > limit;
    if (found) return 0;
  }
  return 1;
}

static inline __attribute__((always_inline)) int holds_all(const char *elements, int64_t count, int32_t width,
                                                           int32_t limit) {
  if (width == 2) return holds_halves((const Half *)elements, count, (int16_t)limit);
  return holds_words((const Word *)elements, count, limit);
}

static int holds_plainly(const char *elements, int64_t count, int32_t width, int32_t limit) {
  return holds_all(elements, count, width, limit);
}

#if defined(__x86_64__)
/* Baseline vectors reach a third of the cache bandwidth. */
static __attribute__((target("avx2"))) int holds_by_avx2(const char *elements, int64_t count, int32_t width,
                                                         int32_t limit) {
  return holds_all(elements, count, width, limit);
}
#endif

static int holds(const char *elements, int64_t first, int64_t count, int32_t width, int32_t limit) {
  elements += first * width;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return holds_by_avx2(elements, count, width, limit);
#endif
  return holds_plainly(elements, count, width, limit);
}

typedef struct {
  const char *elements;
  int32_t width, limit;
  atomic_int found;
} Look;

static void look(void *data, int64_t first, int64_t count) {
  Look *look = data;
  if (!atomic_load_explicit(&look->found, memory_order_relaxed) &&
      !holds(look->elements, first, count, look->width, look->limit))
    atomic_store_explicit(&look->found, 1, memory_order_relaxed);
}

int byoc_check(const Api *api, const void *elements, int64_t count, int32_t width, int32_t limit) {
  Look shared = {.elements = elements, .width = width, .limit = limit};
  byoc_share(api, count, CHUNK, count > 2 * CHUNK, look, &shared);
  return !atomic_load_explicit(&shared.found, memory_order_relaxed);
}
