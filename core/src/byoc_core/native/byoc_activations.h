/* Activations of neural networks, based on the functions of byoc_math_f32.h and byoc_math_f64.h.
 *
 * If the limit of an op at an infinity is a number, but the formula gives no number (0 times infinity), the code
 * returns the limit. NaN stays NaN.
 *
 * Errors include errors of rounded attributes. Errors are in units in the last place of the result, or of a larger
 * magnitude: the operand, or 1. Errors are measured as in byoc_math_f32.h, over every seventh input, with the default
 * attributes of the ops. In float64 all errors are at most 2.3.
 *
 *     function    bound  of       measured with fused multiply-add, and without
 *     gelu        2.5   operand  2.16  2.22
 *     gelu_tanh   2     operand  1.83  1.83
 *     softplus    2.5   result   1.82  2.18
 *     softsign    2     result   1.50  1.50
 *     mish        2.5   operand  2.08  1.97
 *     swish       2     operand  1.51  1.61
 *     hard_swish  2     operand  1.16  1.16
 *     elu         3.5   result   1.00  1.06
 *     selu        3.5   result   2.48  2.48
 *     celu        3.5   1        0.35  0.35
 *
 * Relative to the result, float32 activations measured by the operand lose digits further below zero. The error of gelu
 * is at most 4 units in the last place of the result down to -1, 60 at -6, and 1100 near -9; from -9 down, gelu is 0. In
 * celu with a negative attribute, the quotient grows without bound below zero, and is rounded before the exponential
 * multiplies the rounding error.
 */
#ifndef BYOC_ACTIVATIONS_H_
#define BYOC_ACTIVATIONS_H_

#include "byoc_math_f32.h"
#include "byoc_math_f64.h"

/* Return x / (1 + exp(-u)), and 0 for u below -88.4; for products of x with a gate. The error is measured by x, so that
 * fewer terms of the exponential are enough than for a logistic function exact far below zero. From u = -88.4 down
 * 2**n is infinite. The upper limit is taken in integers: C compilers make branches of two limits of floats. */
static inline float byoc_gated_f32(float x, float u) {
  const float above = -89.0f > u ? -89.0f : u;
  const int32_t limit = (int32_t)byoc_bits_f32(88.0f), bits = (int32_t)byoc_bits_f32(above);
  const float limited = byoc_from_bits_f32((uint32_t)(bits > limit ? limit : bits));
  const float sum = BYOC_FMA_F32(limited, -BYOC_LOG2_E_F32, BYOC_ROUNDER_F32);
  const float r = -BYOC_FMA_F32(sum - BYOC_ROUNDER_F32, BYOC_LN_2_F32, limited);
  float q = 0x1.10625p-7f;
  q = BYOC_FMA_F32(q, r, 0x1.572a64p-5f);
  q = BYOC_FMA_F32(q, r, 0x1.5557bp-3f);
  q = BYOC_FMA_F32(q, r, 0x1.fffdfcp-2f);
  q = BYOC_FMA_F32(q, r, 1.0f);
  q = BYOC_FMA_F32(q, r, 1.0f);
  const float divisor = BYOC_FMA_F32(q, byoc_power_of_two_f32(sum), 1.0f);
  return divisor == INFINITY ? 0 : x / divisor;
}
static inline double byoc_gated_f64(double x, double u) {
  const double gate = byoc_sigmoid_f64(u);
  return gate == 0 ? 0 : x * gate;
}

#define BYOC_DEFINE_ACTIVATIONS(S, T, F, NORMAL_LIMIT)                                                            \
  /* x * Phi(x); Phi is the distribution function of the normal distribution. */                                  \
  static inline T byoc_gelu_##S(T x) { return x <= NORMAL_LIMIT ? 0 : x * byoc_normal_cdf_##S(x); }               \
  /* (1 + tanh(u)) / 2 is the logistic function of 2u, free of cancellation for negative u. */                    \
  static inline T byoc_gelu_tanh_##S(T x) {                                                                       \
    return byoc_gated_##S(x, (T)1.59576912160573071176 * x * (1 + (T)0.044715 * (x * x)));                        \
  }                                                                                                               \
  static inline T byoc_softplus_##S(T x) { return (x > 0 ? x : 0) + byoc_log1p_unit_##S(byoc_decay_##S(x)); }     \
  static inline T byoc_softsign_##S(T x) {                                                                        \
    return fabs##F(x) == INFINITY ? copysign##F((T)1, x) : x / (1 + fabs##F(x));                                  \
  }                                                                                                               \
  /* tanh(log(1 + w)) is (w**2 + 2w) / (w**2 + 2w + 2) */                                                         \
  static inline T byoc_mish_##S(T x) {                                                                            \
    const T w = byoc_exp_##S(x > 40 ? 40 : x);                                                                    \
    const T above = w * (w + 2);                                                                                  \
    return above == 0 ? 0 : x * (above / (above + 2));                                                            \
  }                                                                                                               \
  static inline T byoc_swish_##S(T x, T alpha) { return byoc_gated_##S(x, alpha * x); }                           \
  static inline T byoc_hard_swish_##S(T x) {                                                                      \
    const T line = x * (T)(1.0 / 6.0) + (T)0.5;                                                                   \
    const T gate = line > 1 ? 1 : line;                                                                           \
    return gate <= 0 ? 0 : x * gate;                                                                              \
  }                                                                                                               \
  static inline T byoc_elu_##S(T x, T alpha) { return x < 0 ? alpha * byoc_expm1_##S(x) : x; }                    \
  static inline T byoc_selu_##S(T x, T gamma, T gamma_alpha) {                                                    \
    return x < 0 ? gamma_alpha * byoc_expm1_##S(x) : gamma * x;                                                   \
  }                                                                                                               \
  static inline T byoc_celu_##S(T x, T alpha) {                                                                   \
    const T below = alpha * byoc_expm1_##S(x / alpha);                                                            \
    return (x > 0 ? x : 0) + (below > 0 ? 0 : below);                                                             \
  }                                                                                                               \
  /* Attributes and arithmetic are float64; the result is rounded once. */                                        \
  static inline T byoc_hard_sigmoid_##S(T x, double alpha, double beta) {                                         \
    const double line = alpha * (double)x + beta;                                                                 \
    return (T)(line < 0 ? 0 : line > 1 ? 1 : line);                                                               \
  }                                                                                                               \
  static inline T byoc_shrink_##S(T x, T limit, double bias) {                                                    \
    const T up = (T)((double)x + bias), down = (T)((double)x - bias);                                             \
    return x < -limit ? up : x > limit ? down : x == x ? 0 : x;                                                   \
  }

BYOC_DEFINE_ACTIVATIONS(f32, float, f, BYOC_NORMAL_LIMIT_F32)
BYOC_DEFINE_ACTIVATIONS(f64, double, , -INFINITY)

#endif /* BYOC_ACTIVATIONS_H_ */
