/* Trigonometric and hyperbolic functions of float32, without branches and calls, for vectorised loops.
 *
 * The functions compute in float64: float64 has bits to spare for differences of near numbers, so results are rounded
 * nearly once. Polynomials are minimax over their intervals, relative to the function. Devices with OpenCL C or CUDA
 * have functions of their own; there, the names of this header call the functions of the device.
 *
 * Infinities, NaN, subnormal numbers and the signs of zeros are right. Errors are measured as in byoc_math_f32.h, over
 * every seventh input, and rounded up:
 *
 *     function         bound  measured with fused multiply-add, and without
 *     sin              1     0.51  0.51
 *     cos              1     0.51  0.51
 *     tan              1     0.51  0.51
 *     asin             1     0.51  0.51
 *     acos             1     0.51  0.51
 *     atan             1     0.86  0.86
 *     sinh             1     0.51  0.51
 *     cosh             1     0.51  0.51
 *     asinh            1     0.51  0.51
 *     acosh            1     0.51  0.51
 *     atanh            1     0.51  0.51
 */
#ifndef BYOC_TRIGONOMETRY_F32_H_
#define BYOC_TRIGONOMETRY_F32_H_

#include "byoc_floats.h"

#if defined(BYOC_CUDA_H_) || defined(BYOC_CL_H_)

static inline float byoc_sin_f32(float x) { return sinf(x); }
static inline float byoc_cos_f32(float x) { return cosf(x); }
static inline float byoc_tan_f32(float x) { return tanf(x); }
static inline float byoc_asin_f32(float x) { return asinf(x); }
static inline float byoc_acos_f32(float x) { return acosf(x); }
static inline float byoc_atan_f32(float x) { return atanf(x); }
static inline float byoc_sinh_f32(float x) { return sinhf(x); }
static inline float byoc_cosh_f32(float x) { return coshf(x); }
static inline float byoc_asinh_f32(float x) { return asinhf(x); }
static inline float byoc_acosh_f32(float x) { return acoshf(x); }
static inline float byoc_atanh_f32(float x) { return atanhf(x); }

#else

#define BYOC_HALF_PI_F64 0x1.921fb54442d18p0

/* Return y in -1/2 to 1/2 with sin(pi y) = sin(x + pi phase), for a phase of -0 or 1/2; -0 keeps the sign of zero.
 *
 * 1 / pi has three parts: 29 bits, 29 bits and a float64. Products of x by the first two parts are exact. From 2**50
 * up, bits of 1 / pi with even products are left out: each range of exponents has parts from the remaining bits. The
 * parts are chosen range by range, because gcc compiles a nested choice to more instructions. Sums with 1.5 * 2**53 and
 * 1.5 * 2**52 round to an even number and to an integer. An odd integer changes the sign. */
static inline double byoc_half_turns_f64(double x, double phase) {
  const double a = fabs(x);
  double first = 0x1.d5f47d4p-79, second = 0x1.a6ee06dp-108, third = 0x1.6295993c43904p-137;
  first = a < 0x1p102 ? 0x1.529fc27p-53 : first;
  second = a < 0x1p102 ? 0x1.5f47d4cp-83 : second;
  third = a < 0x1p102 ? 0x1.377036d8a5665p-111 : third;
  first = a < 0x1p76 ? 0x1.b939105p-27 : first;
  second = a < 0x1p76 ? 0x1.29fc274p-57 : second;
  third = a < 0x1p76 ? 0x1.7d1f534ddc0dbp-85 : third;
  first = a < 0x1p50 ? 0x1.45f306dp-2 : first;
  second = a < 0x1p50 ? 0x1.9391054p-31 : second;
  third = a < 0x1p50 ? 0x1.4fe13abe8fa9ap-60 : third;
  const double turns = x * first;
  const double even = (turns + 0x1.8p53) - 0x1.8p53;
  const double sum = ((turns - even) + x * second) + phase;
  const double rounded = sum + 0x1.8p52;
  const double y = BYOC_FMA_F64(x, third, sum - (rounded - 0x1.8p52));
  return byoc_from_bits_f64(byoc_bits_f64(y) ^ byoc_bits_f64(rounded) << 63);
}

/* Return sin(pi y) for -1/2 <= y <= 1/2. */
static inline double byoc_sine_core_f64(double y) {
  const double t = y * y;
  double p = -0x1.cc346252e8cbp-8;
  p = BYOC_FMA_F64(p, t, 0x1.500ff84a3aa94p-4);
  p = BYOC_FMA_F64(p, t, -0x1.32d1120467d68p-1);
  p = BYOC_FMA_F64(p, t, 0x1.466bbfc262655p1);
  p = BYOC_FMA_F64(p, t, -0x1.4abbce4f1aa5p2);
  p = BYOC_FMA_F64(p, t, 0x1.921fb5441e4d4p1);
  return y * p;
}

static inline float byoc_sin_f32(float x) { return (float)byoc_sine_core_f64(byoc_half_turns_f64(x, -0.0)); }

static inline float byoc_cos_f32(float x) { return (float)byoc_sine_core_f64(byoc_half_turns_f64(x, 0.5)); }

static inline float byoc_tan_f32(float x) {
  const double sine = byoc_sine_core_f64(byoc_half_turns_f64(x, -0.0));
  return (float)(sine / byoc_sine_core_f64(byoc_half_turns_f64(x, 0.5)));
}

/* Return asin(s) for -1/2 <= s <= 1/2 and t = s**2. */
static inline double byoc_arc_sine_core_f64(double s, double t) {
  double p = 0x1.365c01cc6a028p-5;
  p = BYOC_FMA_F64(p, t, 0x1.cf51e36c75878p-7);
  p = BYOC_FMA_F64(p, t, 0x1.0554e874e9719p-5);
  p = BYOC_FMA_F64(p, t, 0x1.6c91b97ca4901p-5);
  p = BYOC_FMA_F64(p, t, 0x1.333988eff5cdp-4);
  p = BYOC_FMA_F64(p, t, 0x1.555548488e0c1p-3);
  p = BYOC_FMA_F64(p, t, 0x1.0000000117e12p0);
  return s * p;
}

/* asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2)) for a > 1/2. */
static inline float byoc_asin_f32(float x) {
  const double a = fabs((double)x), far = 0.5 - 0.5 * a;
  const double t = a > 0.5 ? far : a * a;
  const double core = byoc_arc_sine_core_f64(a > 0.5 ? sqrt(far) : a, t);
  return copysignf((float)(a > 0.5 ? BYOC_HALF_PI_F64 - 2.0 * core : core), x);
}

static inline float byoc_acos_f32(float x) {
  const double wide = x, a = fabs(wide), far = 0.5 - 0.5 * a;
  const double t = a > 0.5 ? far : a * a;
  const double core = byoc_arc_sine_core_f64(a > 0.5 ? sqrt(far) : a, t);
  const double signed_core = copysign(core, wide);
  const double base = wide > 0 ? 0.0 : 2.0 * BYOC_HALF_PI_F64;
  return (float)(a > 0.5 ? base + 2.0 * signed_core : BYOC_HALF_PI_F64 - signed_core);
}

/* atan(a) = pi / 2 - atan(1 / a) for a > 1. */
static inline float byoc_atan_f32(float x) {
  const float a = fabsf(x);
  const double s = a > 1.0f ? 1.0f / a : a, t = s * s;
  double p = 0x1.1e07502ed0f6fp-10;
  p = BYOC_FMA_F64(p, t, -0x1.d7d1d67021878p-8);
  p = BYOC_FMA_F64(p, t, 0x1.6cf195aa98694p-6);
  p = BYOC_FMA_F64(p, t, -0x1.6b608baa971c9p-5);
  p = BYOC_FMA_F64(p, t, 0x1.13178e1fbf578p-4);
  p = BYOC_FMA_F64(p, t, -0x1.6865d92ce0f81p-4);
  p = BYOC_FMA_F64(p, t, 0x1.c4cadc028ea12p-4);
  p = BYOC_FMA_F64(p, t, -0x1.246febf9e05b9p-3);
  p = BYOC_FMA_F64(p, t, 0x1.999786fd7c102p-3);
  p = BYOC_FMA_F64(p, t, -0x1.55554f0702141p-2);
  p = BYOC_FMA_F64(p, t, 0x1.fffffffccebap-1);
  return copysignf((float)(a > 1.0f ? BYOC_HALF_PI_F64 - s * p : s * p), x);
}

/* Return sinh(a) or cosh(a) for a >= 0, infinite as float32 from 90 up. a = n ln 2 + r, and the sum of two arguments
 * gives sinh(a) = sinh(n ln 2) cosh(r) + cosh(n ln 2) sinh(r): exact without cancellation at n = 0 too. The sum with
 * 1.5 * 2**52 has n in the low bits. */
static inline double byoc_hyperbolic_f64(double a, double sign) {
  const double limited = 100.0 < a ? 100.0 : a;
  const double sum = BYOC_FMA_F64(limited, 0x1.71547652b82fep0, 0x1.8p52);
  const double r = BYOC_FMA_F64(sum - 0x1.8p52, -0x1.62e42fefa39efp-1, limited), t = r * r;
  const uint64_t n = byoc_bits_f64(sum) << 52, half_bits = UINT64_C(0x3fe0000000000000);
  const double power = byoc_from_bits_f64(half_bits + n), inverse = sign * byoc_from_bits_f64(half_bits - n);
  double odd = 0x1.a17d99a992d8fp-13;
  odd = BYOC_FMA_F64(odd, t, 0x1.1110a664b279bp-7);
  odd = BYOC_FMA_F64(odd, t, 0x1.5555557e3fa53p-3);
  odd = BYOC_FMA_F64(odd, t, 0x1.fffffffff635ap-1);
  double even = 0x1.6da5f6219f4abp-10;
  even = BYOC_FMA_F64(even, t, 0x1.5554669cbcc1ap-5);
  even = BYOC_FMA_F64(even, t, 0x1.0000005b18925p-1);
  even = BYOC_FMA_F64(even, t, 0x1.ffffffffa98f8p-1);
  return BYOC_FMA_F64(power + inverse, even, (power - inverse) * (r * odd));
}

static inline float byoc_sinh_f32(float x) {
  return copysignf((float)byoc_hyperbolic_f64(fabs((double)x), -1.0), x);
}

static inline float byoc_cosh_f32(float x) { return (float)byoc_hyperbolic_f64(fabs((double)x), 1.0); }

/* Return log(x) for finite x >= 1, with the error of float32 and a relative error near 1: x = 2**n m with
 * sqrt(1/2) <= m < sqrt(2). n becomes a float64 as in byoc_math_f64.h. */
static inline double byoc_short_log_f64(double x) {
  const uint64_t shifted = byoc_bits_f64(x) + UINT64_C(0x00095f619980c434);
  const double m = byoc_from_bits_f64((shifted & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcc));
  const double f = m - 1.0;
  const double n = byoc_from_bits_f64((shifted >> 52) + UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
  double p = -0x1.ea4b02cb03c7cp-5;
  p = BYOC_FMA_F64(p, f, 0x1.b7a8e75ec154fp-4);
  p = BYOC_FMA_F64(p, f, -0x1.bdb170d6391d7p-4);
  p = BYOC_FMA_F64(p, f, 0x1.c36d203b2bc9ap-4);
  p = BYOC_FMA_F64(p, f, -0x1.fc5678e0c46c5p-4);
  p = BYOC_FMA_F64(p, f, 0x1.24912e48853dfp-3);
  p = BYOC_FMA_F64(p, f, -0x1.556951fc180dp-3);
  p = BYOC_FMA_F64(p, f, 0x1.999a31c09b10ep-3);
  p = BYOC_FMA_F64(p, f, -0x1.ffffa6ba1c858p-3);
  p = BYOC_FMA_F64(p, f, 0x1.5555541cf42acp-2);
  p = BYOC_FMA_F64(p, f, -0x1.0000001c6363ep-1);
  p = BYOC_FMA_F64(p, f, 0x1.0000000026641p0);
  return BYOC_FMA_F64(n, 0x1.62e42fefa39efp-1, f * p);
}

/* asinh(a) = log(a + sqrt(a**2 + 1)); below 2**-12, where the sum loses bits of a, a - a**3 / 6. */
static inline float byoc_asinh_f32(float x) {
  const double a = fabs((double)x), square = a * a;
  const double log = byoc_short_log_f64(a + sqrt(square + 1.0));
  const double result = a < 0x1p-12 ? BYOC_FMA_F64(a * square, -0x1.5555555555555p-3, a) : log;
  return copysignf((float)(a < INFINITY ? result : a), x);
}

/* acosh(x) = log(x + sqrt(x**2 - 1)). */
static inline float byoc_acosh_f32(float x) {
  const double wide = x;
  const double result = byoc_short_log_f64(wide + sqrt(wide * wide - 1.0));
  return (float)(wide == INFINITY ? wide : wide >= 1.0 ? result : NAN);
}

/* atanh(a) = log((1 + a) / (1 - a)) / 2; below 2**-12, where the quotient loses bits of a, a + a**3 / 3. */
static inline float byoc_atanh_f32(float x) {
  const double a = fabs((double)x);
  const double log = 0.5 * byoc_short_log_f64((1.0 + a) / (1.0 - a));
  const double result = a < 0x1p-12 ? BYOC_FMA_F64(a * a * a, 0x1.5555555555555p-2, a) : log;
  return copysignf((float)(a < 1.0 ? result : a == 1.0 ? INFINITY : NAN), x);
}

#endif

#endif /* BYOC_TRIGONOMETRY_F32_H_ */
