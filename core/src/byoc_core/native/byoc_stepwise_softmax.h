/* Softmax of a row with each step rounded to a dtype: the difference to the maximum, the exponential, the sum, and the
 * quotient. Halves are read and written as floats.
 *
 * Exponentials of float16 are summed in float32. For bfloat16 each addition is rounded: the second half of the row is
 * added to the first half until at most eight numbers are left; these are added in order. Exponentials below 2**-126.5
 * (float64: 2**-1022.5) count as 0. A single NaN makes the row NaN. A row of minus infinities alone is NaN too, or
 * zeros with `zero_unseen`.
 */
#ifndef BYOC_STEPWISE_SOFTMAX_H_
#define BYOC_STEPWISE_SOFTMAX_H_

#include <math.h>

#include "byoc_half.h"
#include "byoc_math_f32.h"
#include "byoc_math_f64.h"

enum { BYOC_SOFTMAX_LANES = 16 };

static inline float byoc_step_bf16(float x) { return byoc_bf16_to_f32(byoc_f32_to_bf16(x)); }
static inline float byoc_step_f16(float x) { return byoc_f16_to_f32(byoc_f32_to_f16(x)); }
static inline float byoc_step_f32(float x) { return x; }
static inline double byoc_step_f64(double x) { return x; }

/* Separate lanes allow vectorisation: compilers keep the order of additions. */
#define BYOC_DEFINE_ROW(S, T)                                                                       \
  static inline T byoc_row_top_##S(const T *x, int64_t count) {                                     \
    T lanes[BYOC_SOFTMAX_LANES], top = -INFINITY;                                                   \
    int64_t i = 0;                                                                                  \
    for (int lane = 0; lane < BYOC_SOFTMAX_LANES; ++lane) lanes[lane] = top;                        \
    for (; i + BYOC_SOFTMAX_LANES <= count; i += BYOC_SOFTMAX_LANES)                                \
      for (int lane = 0; lane < BYOC_SOFTMAX_LANES; ++lane)                                         \
        lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];                        \
    for (; i < count; ++i) top = x[i] > top ? x[i] : top;                                           \
    for (int lane = 0; lane < BYOC_SOFTMAX_LANES; ++lane) top = lanes[lane] > top ? lanes[lane] : top; \
    return top;                                                                                     \
  }                                                                                                 \
  static inline T byoc_row_sum_##S(const T *x, int64_t count) {                                     \
    T lanes[BYOC_SOFTMAX_LANES] = {0}, total = 0;                                                   \
    int64_t i = 0;                                                                                  \
    for (; i + BYOC_SOFTMAX_LANES <= count; i += BYOC_SOFTMAX_LANES)                                \
      for (int lane = 0; lane < BYOC_SOFTMAX_LANES; ++lane) lanes[lane] += x[i + lane];             \
    for (; i < count; ++i) total += x[i];                                                           \
    for (int lane = 0; lane < BYOC_SOFTMAX_LANES; ++lane) total += lanes[lane];                     \
    return total;                                                                                   \
  }

BYOC_DEFINE_ROW(f32, float)
BYOC_DEFINE_ROW(f64, double)

/* The number subtracted from a row, and the divisor of the row. */
#define BYOC_SHIFT(top, zero_unseen) ((zero_unseen) && (top) == -INFINITY ? 0 : (top))
#define BYOC_DIVISOR(total, zero_unseen) ((zero_unseen) && (total) == 0 ? 1 : (total))

#define BYOC_DEFINE_STEPWISE_SOFTMAX(S, T, W)                                                                    \
  static inline T byoc_power_step_##S(T x, T top) {                                                              \
    return byoc_step_##S(byoc_exp_nonpositive_##W(byoc_step_##S(x - top)));                                      \
  }                                                                                                              \
  static inline void byoc_stepwise_softmax_##S(const T *restrict x, T *restrict y, int64_t count,                \
                                               int zero_unseen) {                                                \
    const T peak = byoc_row_top_##W(x, count), top = BYOC_SHIFT(peak, zero_unseen);                              \
    for (int64_t i = 0; i < count; ++i) y[i] = byoc_power_step_##S(x[i], top);                                   \
    const T sum = byoc_step_##S(byoc_row_sum_##W(y, count)), total = BYOC_DIVISOR(sum, zero_unseen);             \
    for (int64_t i = 0; i < count; ++i) y[i] = byoc_step_##S(y[i] / total);                                      \
  }

BYOC_DEFINE_STEPWISE_SOFTMAX(f16, float, f32)
BYOC_DEFINE_STEPWISE_SOFTMAX(f32, float, f32)
BYOC_DEFINE_STEPWISE_SOFTMAX(f64, double, f64)

static inline float byoc_power_step_bf16(float x, float top) {
  return byoc_step_bf16(byoc_exp_nonpositive_f32(byoc_step_bf16(x - top)));
}

/* The exponentials are computed twice, because the additions overwrite the exponentials and a row has no more
 * memory. */
static inline void byoc_stepwise_softmax_bf16(const float *restrict x, float *restrict y, int64_t count,
                                              int zero_unseen) {
  const float peak = byoc_row_top_f32(x, count), top = BYOC_SHIFT(peak, zero_unseen);
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_power_step_bf16(x[i], top);
  int64_t num_left = count;
  while (num_left > 8) {
    const int64_t half = (num_left + 1) / 2;
    for (int64_t i = 0; i < num_left - half; ++i) y[i] = byoc_step_bf16(y[i] + y[half + i]);
    num_left = half;
  }
  float total = num_left > 0 ? y[0] : 0;
  for (int64_t i = 1; i < num_left; ++i) total = byoc_step_bf16(total + y[i]);
  total = BYOC_DIVISOR(total, zero_unseen);
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_step_bf16(byoc_power_step_bf16(x[i], top) / total);
}

#endif /* BYOC_STEPWISE_SOFTMAX_H_ */
