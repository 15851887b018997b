/* The functions of vector_functions.h as BYOC_VECTOR_TABLE, for the instruction set selected by the including file,
 * with registers of BYOC_VECTOR_NBYTES bytes. Loops have no branches and calls, so compilers can vectorise the loops. */
#include "byoc_activations.h"
#include "byoc_stepwise_softmax.h"
#include "vector_functions.h"

enum { LANES = 16, BLOCK = 8 * LANES }; /* a sum adds the numbers of a block in float32, LANES at a time */

static void exp_each(const float *restrict x, float *restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_exp_f32(x[i]);
}

static void log_each(const float *restrict x, float *restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_log_f32(x[i]);
}

static void softplus_each(const float *restrict x, float *restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_softplus_f32(x[i]);
}

static void elu_each(const float *restrict x, float *restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = byoc_elu_f32(x[i], 1.0f);
}

/* Return an integer ordered as the float with these bits; the function is its own inverse. */
static inline int32_t order_key(uint32_t bits) { return (int32_t)(bits ^ (bits >> 31) * 0x7fffffffu); }

static inline float largest(const float *x, int64_t count) {
  int32_t max_key = INT32_MIN; /* stands for a NaN; below all others */
  for (int64_t i = 0; i < count; ++i) {
    const int32_t key = order_key(byoc_bits_f32(x[i]));
    max_key = key > max_key ? key : max_key;
  }
  return byoc_from_bits_f32((uint32_t)order_key((uint32_t)max_key));
}

/* Return the sum; lane sums of blocks are added in float64. */
static inline double sum(const float *x, int64_t count) {
  double total = 0;
  int64_t i = 0;
  for (; i + BLOCK <= count; i += BLOCK) {
    float lanes[LANES] = {0};
    for (int step = 0; step < BLOCK; step += LANES)
      for (int lane = 0; lane < LANES; ++lane) lanes[lane] += x[i + step + lane];
    for (int lane = 0; lane < LANES; ++lane) total += (double)lanes[lane];
  }
  for (; i < count; ++i) total += (double)x[i];
  return total;
}

/* Exponentials equal to 1 are counted separately: in a row dominated by a single number, the other exponentials alone
 * determine the logarithm of the sum. */
static void log_softmax_row(const float *restrict x, float *restrict y, int64_t count) {
  const float top = largest(x, count);
  int32_t num_tops = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float power = byoc_exp_nonpositive_f32(x[i] - top);
    num_tops += x[i] == top;
    y[i] = x[i] == top ? 0 : power;
  }
  const double rest_sum = sum(y, count) + (num_tops - 1) + (top - top); /* NaN if the largest number is infinite */
  const float log_sum = rest_sum <= 1 ? byoc_log1p_unit_f32((float)rest_sum) : byoc_log_f32((float)(1 + rest_sum));
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - top) - log_sum;
}

#define DEFINE_STEPWISE_SOFTMAX_ROW(name, dtype, zero_unseen)                                    \
  static void name(const float *restrict x, float *restrict y, int64_t count) {                  \
    byoc_stepwise_softmax_##dtype(x, y, count, zero_unseen);                                      \
  }

DEFINE_STEPWISE_SOFTMAX_ROW(stepwise_softmax_bf16_row, bf16, 0)
DEFINE_STEPWISE_SOFTMAX_ROW(stepwise_softmax_f16_row, f16, 0)
DEFINE_STEPWISE_SOFTMAX_ROW(zero_unseen_softmax_bf16_row, bf16, 1)
DEFINE_STEPWISE_SOFTMAX_ROW(zero_unseen_softmax_f16_row, f16, 1)

typedef float peak_lanes __attribute__((vector_size(BYOC_VECTOR_NBYTES)));

/* Independent chains of multiply-adds: enough chains for the latency of the units, few enough for the registers. */
#if !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static void
multiply_adds(const float *restrict x, float *restrict y, int64_t count) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  enum { NUM_CHAINS = 12, NUM_LANES = BYOC_VECTOR_NBYTES / 4 };
  const peak_lanes factor = (peak_lanes){0} + x[0], term = (peak_lanes){0} + x[1];
  /* Different numbers: the compiler would merge equal chains. */
  peak_lanes c0 = term, c1 = c0 + 1, c2 = c1 + 1, c3 = c2 + 1, c4 = c3 + 1, c5 = c4 + 1, c6 = c5 + 1, c7 = c6 + 1,
             c8 = c7 + 1, c9 = c8 + 1, c10 = c9 + 1, c11 = c10 + 1;
  for (int64_t i = 0; i < count; ++i) {
    c0 = c0 * factor + term, c1 = c1 * factor + term, c2 = c2 * factor + term, c3 = c3 * factor + term;
    c4 = c4 * factor + term, c5 = c5 * factor + term, c6 = c6 * factor + term, c7 = c7 * factor + term;
    c8 = c8 * factor + term, c9 = c9 * factor + term, c10 = c10 * factor + term, c11 = c11 * factor + term;
  }
  const peak_lanes total = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  y[0] = 2 * NUM_CHAINS * NUM_LANES;
  y[1] = total[0]; /* else the compiler would leave the loop out */
}

const byoc_vector_function BYOC_VECTOR_TABLE[BYOC_NUM_VECTOR_FUNCTIONS] = {
    [BYOC_EXP] = exp_each,
    [BYOC_LOG] = log_each,
    [BYOC_SOFTPLUS] = softplus_each,
    [BYOC_ELU] = elu_each,
    [BYOC_LOG_SOFTMAX] = log_softmax_row,
    [BYOC_STEPWISE_SOFTMAX_BF16] = stepwise_softmax_bf16_row,
    [BYOC_STEPWISE_SOFTMAX_F16] = stepwise_softmax_f16_row,
    [BYOC_ZERO_UNSEEN_SOFTMAX_BF16] = zero_unseen_softmax_bf16_row,
    [BYOC_ZERO_UNSEEN_SOFTMAX_F16] = zero_unseen_softmax_f16_row,
    [BYOC_MULTIPLY_ADDS] = multiply_adds,
};
