/* Functions of float64, as in byoc_math_f32.h: without branches and calls, for vectorised loops.
 *
 * erf and the normal distribution use the C library, element by element: for 53 bits a single polynomial would need
 * about twenty terms, with cancellation.
 *
 * Errors as in byoc_math_f32.h, measured over ten million random inputs; the error of erf is the error of the GNU C
 * library:
 *
 *     function         bound  measured with fused multiply-add, and without
 *     exp               1.5   0.89  1.18
 *     exp_nonpositive   1.5   0.91  1.18
 *     expm1             2.5   2.01  2.13
 *     log               1.5   1.24  1.24
 *     tanh              3     2.53  2.53
 *     erf               1.5   1.07  1.07
 *     sigmoid           3     2.31  2.30
 */
#ifndef BYOC_MATH_F64_H_
#define BYOC_MATH_F64_H_

#include "byoc_floats.h"

#define BYOC_ROUNDER_F64 (0x1.8p52 + 1023.0)
#define BYOC_LOG2_E_F64 0x1.71547652b82fep0
#define BYOC_LN_2_F64 0x1.62e42fefa39efp-1
#define BYOC_LN_2_HIGH_F64 0x1.62e42fefa38p-1
#define BYOC_LN_2_LOW_F64 0x1.ef35793c7673p-45

/* Return 2**n from a sum with BYOC_ROUNDER_F64, for -1022 <= n <= 1023. */
static inline double byoc_power_of_two_f64(double sum) { return byoc_from_bits_f64(byoc_bits_f64(sum) << 52); }

/* Return x - n ln 2. */
static inline double byoc_reduced_f64(double x, double n) {
  return BYOC_FMA_F64(n, -BYOC_LN_2_LOW_F64, BYOC_FMA_F64(n, -BYOC_LN_2_HIGH_F64, x));
}

/* Return (exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2. */
static inline double byoc_exp_core_f64(double r) {
  double q = 0x1.af76b48285cd3p-26;
  q = BYOC_FMA_F64(q, r, 0x1.28a2abf26ec4ap-22);
  q = BYOC_FMA_F64(q, r, 0x1.71ddea0356daap-19);
  q = BYOC_FMA_F64(q, r, 0x1.a019a685640aap-16);
  q = BYOC_FMA_F64(q, r, 0x1.a01a01b5d7abcp-13);
  q = BYOC_FMA_F64(q, r, 0x1.6c16c17f37986p-10);
  q = BYOC_FMA_F64(q, r, 0x1.111111110e6dap-7);
  q = BYOC_FMA_F64(q, r, 0x1.55555555520f3p-5);
  q = BYOC_FMA_F64(q, r, 0x1.555555555555cp-3);
  return BYOC_FMA_F64(q, r, 0x1.0000000000005p-1);
}

/* Return exp(r) - 1. */
static inline double byoc_expm1_core_f64(double r) { return BYOC_FMA_F64(r * r, byoc_exp_core_f64(r), r); }

/* Return exp(x) for |x| <= 746; beyond, exp is 0 or infinity. */
static inline double byoc_exp_limited_f64(double x) {
  const double rounder = BYOC_ROUNDER_F64 + 1023.0;
  const double sum = BYOC_FMA_F64(x, BYOC_LOG2_E_F64, rounder);
  const double half_sum = BYOC_FMA_F64(x, BYOC_LOG2_E_F64 / 2, BYOC_ROUNDER_F64);
  const double other_half = byoc_from_bits_f64((byoc_bits_f64(sum) - byoc_bits_f64(half_sum)) << 52);
  const double r = byoc_reduced_f64(x, sum - rounder);
  const double power = BYOC_FMA_F64(BYOC_FMA_F64(byoc_exp_core_f64(r), r, 1.0), r, 1.0);
  return power * byoc_power_of_two_f64(half_sum) * other_half;
}

/* Return exp(x) for x <= 0, and 0 for results below 2**-1022.5. */
static inline double byoc_exp_nonpositive_f64(double x) {
  const double limited = -1023 * BYOC_LN_2_F64 > x ? -1023 * BYOC_LN_2_F64 : x;
  const double sum = BYOC_FMA_F64(limited, BYOC_LOG2_E_F64, BYOC_ROUNDER_F64);
  const double r = byoc_reduced_f64(limited, sum - BYOC_ROUNDER_F64);
  const double power = BYOC_FMA_F64(BYOC_FMA_F64(byoc_exp_core_f64(r), r, 1.0), r, 1.0);
  return power * byoc_power_of_two_f64(sum);
}

static inline double byoc_exp_f64(double x) {
  const double magnitude = fabs(x);
  return byoc_exp_limited_f64(copysign(746.0 < magnitude ? 746.0 : magnitude, x));
}

/* Return exp(-|x|). */
static inline double byoc_decay_f64(double x) {
  const double negative = -fabs(x);
  return byoc_exp_limited_f64(-746.0 > negative ? -746.0 : negative);
}

/* Return exp(x) - 1; 0 for both zeros. The sum is halved, because 2**1024 is no double. */
static inline double byoc_expm1_f64(double x) {
  const double capped = 710.0 < x ? 710.0 : x;
  const double limited = -50.0 > capped ? -50.0 : capped;
  const double rounder = BYOC_ROUNDER_F64 - 1.0;
  const double sum = BYOC_FMA_F64(limited, BYOC_LOG2_E_F64, rounder);
  const double scale = byoc_power_of_two_f64(sum);
  const double core = byoc_expm1_core_f64(byoc_reduced_f64(limited, sum - rounder));
  return 2.0 * BYOC_FMA_F64(scale, core, scale - 0.5);
}

/* Return log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2), with s = f / (2 + f) as 2s + 2/3 s**3 + 2/5 s**5 + ... */
static inline double byoc_log1p_core_f64(double f) {
  const double s = f / (2.0 + f), square = s * s, half = 0.5 * f * f;
  double p = 0x1.2f0635ee462eap-3;
  p = BYOC_FMA_F64(p, square, 0x1.39a1a6da869a1p-3);
  p = BYOC_FMA_F64(p, square, 0x1.74663fa2e60dfp-3);
  p = BYOC_FMA_F64(p, square, 0x1.c71c520606f73p-3);
  p = BYOC_FMA_F64(p, square, 0x1.24924941f4f71p-2);
  p = BYOC_FMA_F64(p, square, 0x1.999999997fd78p-2);
  p = BYOC_FMA_F64(p, square, 0x1.5555555555592p-1);
  return f - (half - s * (half + square * p));
}

/* x = 2**n m, sqrt(1/2) <= m < sqrt(2); log(x) = n ln 2 + log(m). The exponent, a small integer, becomes a double
 * through the bits of a double with a fixed exponent, because not every processor converts vectors of 64-bit
 * integers. */
static inline double byoc_log_f64(double x) {
  const double scale = x < 0x1p-1022 ? 0x1p54 : 1.0;
  const uint64_t shifted = byoc_bits_f64(x * scale) + UINT64_C(0x00095f619980c434);
  const double m = byoc_from_bits_f64((shifted & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcc));
  const uint64_t n = (shifted >> 52) - (byoc_bits_f64(scale) >> 52);
  const double exponent = byoc_from_bits_f64(n + UINT64_C(0x4330000000001000)) - (0x1p52 + 4096.0);
  const double log_m = byoc_log1p_core_f64(m - 1.0);
  const double result = BYOC_FMA_F64(exponent, BYOC_LN_2_HIGH_F64, BYOC_FMA_F64(exponent, BYOC_LN_2_LOW_F64, log_m));
  return x == INFINITY ? x : x > 0 ? result : x == 0 ? -INFINITY : NAN;
}

/* Return log(1 + x) for 0 <= x <= 1: for 1 + x above sqrt(2), ln 2 + log((1 + x) / 2). */
static inline double byoc_log1p_unit_f64(double x) {
  const double f = x < 0.414 ? x : 0.5 * (x - 1.0);
  return (x < 0.414 ? 0.0 : BYOC_LN_2_F64) + byoc_log1p_core_f64(f);
}

/* tanh(a) = e / (2 - e), e = 1 - exp(-2a). */
static inline double byoc_tanh_f64(double x) {
  const double magnitude = fabs(x), doubled = -2.0 * (20.0 < magnitude ? 20.0 : magnitude);
  const double sum = BYOC_FMA_F64(doubled, BYOC_LOG2_E_F64, BYOC_ROUNDER_F64);
  const double r = byoc_reduced_f64(doubled, sum - BYOC_ROUNDER_F64);
  const double scale = byoc_power_of_two_f64(sum);
  const double e = BYOC_FMA_F64(-scale, byoc_expm1_core_f64(r), 1.0 - scale);
  return copysign(e / (2.0 - e), x);
}

/* Return the logistic function 1 / (1 + exp(-x)). */
static inline double byoc_sigmoid_f64(double x) {
  const double decay = byoc_decay_f64(x);
  return (x < 0 ? decay : 1.0) / (1.0 + decay);
}

static inline double byoc_erf_f64(double x) { return erf(x); }

/* Return the distribution function of the normal distribution. */
static inline double byoc_normal_cdf_f64(double x) { return 0.5 * erfc(-0x1.6a09e667f3bcdp-1 * x); }

#endif /* BYOC_MATH_F64_H_ */
