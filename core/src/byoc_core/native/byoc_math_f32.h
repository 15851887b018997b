/* Functions of float32 in float32 arithmetic, without branches and calls, for vectorised loops.
 *
 * exp(x) = 2**n exp(r), n = round(x / ln 2), r = x - n ln 2. The sum of x / ln 2 and BYOC_ROUNDER_F32 has n + 127 in
 * the low bits; shifted to the place of the exponent, these bits are 2**n. Polynomials are near-minimax over their
 * intervals, with coefficients rounded one after another to float32.
 *
 * Infinities, NaN and subnormal numbers are right, and so are the signs of zeros unless a function says otherwise.
 * Errors of results are in units in the last place (below the normal range, in units of the smallest subnormal number).
 * Errors are measured over all inputs (`python -m benchmarks.run math-accuracy`; `--sizes 7` takes every seventh
 * input).
 *
 *     function         bound  measured with fused multiply-add, and without
 *     exp               1.5   0.92  1.21
 *     exp_nonpositive   1.5   0.92  1.21
 *     expm1             2     1.56  1.70
 *     log               1     0.85  0.86
 *     tanh              3     2.50  2.50
 *     erf               3     1.84  2.66
 *     sigmoid           2.5   2.40  2.40
 */
#ifndef BYOC_MATH_F32_H_
#define BYOC_MATH_F32_H_

#include "byoc_floats.h"

#define BYOC_ROUNDER_F32 (0x1.8p23f + 127.0f)
#define BYOC_LOG2_E_F32 0x1.715476p0f
#define BYOC_LN_2_F32 0x1.62e43p-1f
/* ln 2 in two parts. The first part has so few bits that products with integer exponents are exact. */
#define BYOC_LN_2_HIGH_F32 0x1.62e4p-1f
#define BYOC_LN_2_LOW_F32 0x1.7f7d1cp-20f

/* Return 2**n from a sum with BYOC_ROUNDER_F32, for -126 <= n <= 127. */
static inline float byoc_power_of_two_f32(float sum) { return byoc_from_bits_f32(byoc_bits_f32(sum) << 23); }

/* Return x - n ln 2. */
static inline float byoc_reduced_f32(float x, float n) {
  return BYOC_FMA_F32(n, -BYOC_LN_2_LOW_F32, BYOC_FMA_F32(n, -BYOC_LN_2_HIGH_F32, x));
}

/* Return (exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2. */
static inline float byoc_exp_core_f32(float r) {
  float q = 0x1.6d5fcep-10f;
  q = BYOC_FMA_F32(q, r, 0x1.1227c2p-7f);
  q = BYOC_FMA_F32(q, r, 0x1.5554d8p-5f);
  q = BYOC_FMA_F32(q, r, 0x1.5554bp-3f);
  return BYOC_FMA_F32(q, r, 0.5f);
}

/* Return exp(r) - 1. */
static inline float byoc_expm1_core_f32(float r) { return BYOC_FMA_F32(r * r, byoc_exp_core_f32(r), r); }

/* Return exp(x) for |x| <= 104; beyond, exp is 0 or infinity. 2**n as two factors with about half of n each reaches
 * subnormal numbers and infinity. */
static inline float byoc_exp_limited_f32(float x) {
  const float rounder = BYOC_ROUNDER_F32 + 127.0f;
  const float sum = BYOC_FMA_F32(x, BYOC_LOG2_E_F32, rounder);
  const float half_sum = BYOC_FMA_F32(x, BYOC_LOG2_E_F32 / 2, BYOC_ROUNDER_F32);
  const float other_half = byoc_from_bits_f32((byoc_bits_f32(sum) - byoc_bits_f32(half_sum)) << 23);
  const float r = byoc_reduced_f32(x, sum - rounder);
  const float power = BYOC_FMA_F32(BYOC_FMA_F32(byoc_exp_core_f32(r), r, 1.0f), r, 1.0f);
  return power * byoc_power_of_two_f32(half_sum) * other_half;
}

static inline float byoc_exp_f32(float x) {
  const float magnitude = fabsf(x);
  return byoc_exp_limited_f32(copysignf(104.0f < magnitude ? 104.0f : magnitude, x));
}

/* Return exp(x) for x <= 0, and 0 for results below 2**-126.5: there the exponent bits are 0, so the power of two is
 * 0. */
static inline float byoc_exp_nonpositive_f32(float x) {
  const float limited = -127 * BYOC_LN_2_F32 > x ? -127 * BYOC_LN_2_F32 : x;
  const float sum = BYOC_FMA_F32(limited, BYOC_LOG2_E_F32, BYOC_ROUNDER_F32);
  const float r = byoc_reduced_f32(limited, sum - BYOC_ROUNDER_F32);
  const float power = BYOC_FMA_F32(BYOC_FMA_F32(byoc_exp_core_f32(r), r, 1.0f), r, 1.0f);
  return power * byoc_power_of_two_f32(sum);
}

/* Return exp(-|x|). */
static inline float byoc_decay_f32(float x) {
  const float negative = -fabsf(x);
  return byoc_exp_limited_f32(-104.0f > negative ? -104.0f : negative);
}

/* Return exp(x) - 1; 0 for both zeros. The sum is halved, because 2**128 is no float. */
static inline float byoc_expm1_f32(float x) {
  const float capped = 89.0f < x ? 89.0f : x;
  const float limited = -20.0f > capped ? -20.0f : capped;
  const float rounder = BYOC_ROUNDER_F32 - 1.0f;
  const float sum = BYOC_FMA_F32(limited, BYOC_LOG2_E_F32, rounder);
  const float r = byoc_reduced_f32(limited, sum - rounder);
  const float scale = byoc_power_of_two_f32(sum);
  return 2.0f * BYOC_FMA_F32(scale, byoc_expm1_core_f32(r), scale - 0.5f);
}

/* Return 1 - exp(x) for -40 <= x <= 0. The dropped part of ln 2 is scaled down by 2**n. */
static inline float byoc_saturation_f32(float x) {
  const float sum = BYOC_FMA_F32(x, BYOC_LOG2_E_F32, BYOC_ROUNDER_F32);
  const float r = BYOC_FMA_F32(sum - BYOC_ROUNDER_F32, -BYOC_LN_2_F32, x);
  const float scale = byoc_power_of_two_f32(sum);
  return BYOC_FMA_F32(-scale, byoc_expm1_core_f32(r), 1.0f - scale);
}

/* x = 2**n m, sqrt(1/2) <= m < sqrt(2); log(x) = n ln 2 + log(m). */
static inline float byoc_log_f32(float x) {
  const uint32_t subnormal = 0u - (uint32_t)(x < 0x1p-126f);
  const uint32_t bits = byoc_bits_f32(x * byoc_from_bits_f32(0x3f800000u + (subnormal & 23u << 23)));
  const int32_t n = (int32_t)(bits - 0x3f3504f3u) >> 23;
  const float f = byoc_from_bits_f32(bits - ((uint32_t)n << 23)) - 1.0f;
  const float exponent = (float)(n - (int32_t)(subnormal & 23u));
  const float square = f * f;
  float p = -0x1.38c882p-4f;
  p = BYOC_FMA_F32(p, f, 0x1.055f4p-3f);
  p = BYOC_FMA_F32(p, f, -0x1.0d82a4p-3f);
  p = BYOC_FMA_F32(p, f, 0x1.22d928p-3f);
  p = BYOC_FMA_F32(p, f, -0x1.547284p-3f);
  p = BYOC_FMA_F32(p, f, 0x1.99a01cp-3f);
  p = BYOC_FMA_F32(p, f, -0x1.000226p-2f);
  p = BYOC_FMA_F32(p, f, 0x1.555554p-2f);
  const float low = BYOC_FMA_F32(exponent, BYOC_LN_2_LOW_F32, f * square * p);
  const float log_m = BYOC_FMA_F32(-0.5f, square, low) + f;
  const float result = BYOC_FMA_F32(exponent, BYOC_LN_2_HIGH_F32, log_m);
  return x == INFINITY ? x : x > 0 ? result : x == 0 ? -INFINITY : NAN;
}

/* Return log(1 + x) for 0 <= x <= 1. */
static inline float byoc_log1p_unit_f32(float x) {
  float p = -0x1.b1537ep-9f;
  p = BYOC_FMA_F32(p, x, 0x1.4a1c4ep-6f);
  p = BYOC_FMA_F32(p, x, -0x1.d78516p-5f);
  p = BYOC_FMA_F32(p, x, 0x1.b508f2p-4f);
  p = BYOC_FMA_F32(p, x, -0x1.3a5914p-3f);
  p = BYOC_FMA_F32(p, x, 0x1.9350fep-3f);
  p = BYOC_FMA_F32(p, x, -0x1.ff249ep-3f);
  p = BYOC_FMA_F32(p, x, 0x1.554dd4p-2f);
  p = BYOC_FMA_F32(p, x, -0x1.ffffd2p-2f);
  return BYOC_FMA_F32(x * x, p, x);
}

/* tanh(a) = e / (2 - e), e = 1 - exp(-2a). */
static inline float byoc_tanh_f32(float x) {
  const float magnitude = fabsf(x);
  const float e = byoc_saturation_f32(-2.0f * (10.0f < magnitude ? 10.0f : magnitude));
  return copysignf(e / (2.0f - e), x);
}

/* Return the logistic function 1 / (1 + exp(-x)). */
static inline float byoc_sigmoid_f32(float x) {
  const float decay = byoc_decay_f32(x);
  return (x < 0 ? decay : 1.0f) / (1.0f + decay);
}

/* erf(a) = 1 - exp(-t), t = -log(erfc(a)). For a <= 4, t is a times a polynomial with the first coefficient in two
 * parts. */
static inline float byoc_erf_f32(float x) {
  const float magnitude = fabsf(x), a = 4.0f < magnitude ? 4.0f : magnitude;
  float p = -0x1.36db1p-17f;
  p = BYOC_FMA_F32(p, a, 0x1.edba6ap-14f);
  p = BYOC_FMA_F32(p, a, -0x1.4bed84p-11f);
  p = BYOC_FMA_F32(p, a, 0x1.b52194p-10f);
  p = BYOC_FMA_F32(p, a, -0x1.516fap-13f);
  p = BYOC_FMA_F32(p, a, -0x1.39cc9cp-6f);
  p = BYOC_FMA_F32(p, a, 0x1.a4fa4ap-4f);
  p = BYOC_FMA_F32(p, a, 0x1.45f2fap-1f);
  p = BYOC_FMA_F32(p, a, -0x1.d0e2f4p-25f);
  return copysignf(byoc_saturation_f32(-BYOC_FMA_F32(a, 0x1.20dd76p0f, a * p)), x);
}

/* Return the distribution function of the normal distribution, for x >= BYOC_NORMAL_LIMIT_F32 (1.1e-19 at the limit).
 * For a = |x|, Phi(-a) = 2**-(1 + u), u = -log2(2 Phi(-a)), computed as t in erf. Terms are summed in pairs: a chain of
 * all terms makes the loop wait for results. */
#define BYOC_NORMAL_LIMIT_F32 -9.0f
static inline float byoc_normal_cdf_f32(float x) {
  const float magnitude = fabsf(x), a = 9.0f < magnitude ? 9.0f : magnitude;
  const float square = a * a, fourth = square * square;
  const float p0 = BYOC_FMA_F32(0x1.d63598p-2f, a, 0x1.01edf6p-18f);
  const float p2 = BYOC_FMA_F32(-0x1.ce97fap-8f, a, 0x1.ae5398p-5f);
  const float p4 = BYOC_FMA_F32(0x1.1055e4p-12f, a, 0x1.2637cap-14f);
  const float p6 = BYOC_FMA_F32(0x1.aa5de6p-17f, a, -0x1.414454p-14f);
  const float p8 = BYOC_FMA_F32(0x1.8de2c4p-24f, a, -0x1.6cb674p-20f);
  const float p10 = BYOC_FMA_F32(0x1.1b6abep-34f, a, -0x1.f8adc6p-29f);
  const float high = BYOC_FMA_F32(BYOC_FMA_F32(p10, square, p8), fourth, BYOC_FMA_F32(p6, square, p4));
  const float p = BYOC_FMA_F32(high, fourth, BYOC_FMA_F32(p2, square, p0));
  const float u = BYOC_FMA_F32(a, 0x1.26aec2p0f, a * p);
  const float rounder = BYOC_ROUNDER_F32 - 1.0f;
  const float sum = rounder - u;
  const float r = (rounder - sum) - u;
  const float r_square = r * r;
  const float q0 = BYOC_FMA_F32(0x1.62e43p-1f, r, 1.0f), q2 = BYOC_FMA_F32(0x1.c6af78p-5f, r, 0x1.ebfbep-3f);
  const float q4 = BYOC_FMA_F32(0x1.4449fap-13f, r_square, BYOC_FMA_F32(0x1.5f0ad6p-10f, r, 0x1.3b2a26p-7f));
  const float power = BYOC_FMA_F32(BYOC_FMA_F32(q4, r_square, q2), r_square, q0);
  const float tail = power * byoc_power_of_two_f32(sum);
  return x < 0 ? tail : 1.0f - tail;
}

#endif /* BYOC_MATH_F32_H_ */
