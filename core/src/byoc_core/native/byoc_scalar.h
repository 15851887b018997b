/* Scalar operations whose meaning C leaves open, or gives otherwise than byoc's reference kernels do.
 *
 * Suffixes: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64; bool is a byte that holds 0 or 1. Integers wrap around. Every
 * function is branch-free where that lets a compiler vectorise the loop that calls it.
 */
#ifndef BYOC_SCALAR_H_
#define BYOC_SCALAR_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Kernels that want a*b+c contracted into one operation say so themselves; everything else is compiled without. */
#if defined(__clang__)
#define BYOC_CONTRACTED __attribute__((noinline))
#define BYOC_CONTRACT _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define BYOC_CONTRACTED __attribute__((noinline, noclone, optimize("fp-contract=fast")))
#define BYOC_CONTRACT
#else
#define BYOC_CONTRACTED
#define BYOC_CONTRACT
#endif

#if defined(__clang__)
#define BYOC_UNROLL _Pragma("unroll")
#else
#define BYOC_UNROLL _Pragma("GCC unroll 32")
#endif

/* exp(x) for -700 < x < 700 within 1e-11 of its size: enough for a float result that is rounded once. Without a branch
 * or a call, so that loops over it vectorise. Source: x = n ln 2 + r, |r| <= ln 2 / 2; Taylor's series of exp(r); n is
 * taken from the low bits of a sum with 1.5 * 2^52, and put into the exponent. */
static inline double byoc_exp_core(double x) {
  const double shift = 6755399441055744.0;
  const double shifted = x * 1.44269504088896340736 + shift;
  const double r = x - (shifted - shift) * 0.69314718055994530942;
  double sum = 2.75573192239858906526e-7;
  sum = sum * r + 2.75573192239858906526e-6;
  sum = sum * r + 2.48015873015873015873e-5;
  sum = sum * r + 1.98412698412698412698e-4;
  sum = sum * r + 1.38888888888888888889e-3;
  sum = sum * r + 8.33333333333333333333e-3;
  sum = sum * r + 4.16666666666666666667e-2;
  sum = sum * r + 1.66666666666666666667e-1;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  int64_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  bits = (int64_t)(((uint64_t)bits + 1023u) << 52);
  double power;
  memcpy(&power, &bits, sizeof(power));
  return sum * power;
}

/* Beyond the limits the result is rounded to infinity or to zero; a NaN passes. */
static inline float byoc_exp_f32(float x) {
  const double wide = x < -110.0f ? -110.0 : x > 100.0f ? 100.0 : (double)x;
  return (float)byoc_exp_core(wide);
}
static inline double byoc_exp_f64(double x) { return exp(x); }

static inline float byoc_sigmoid_f32(float x) {
  const double magnitude = fabsf(x) > 110.0f ? 110.0 : (double)fabsf(x);
  const double decay = byoc_exp_core(-magnitude);
  return (float)((x < 0 ? decay : 1.0) / (1.0 + decay));
}
static inline double byoc_sigmoid_f64(double x) {
  const double decay = exp(-fabs(x));
  return (x < 0 ? decay : 1.0) / (1.0 + decay);
}

/* Near zero the quotient would cancel; there two terms of the series are exact enough. */
static inline float byoc_tanh_f32(float x) {
  const double magnitude = fabsf(x) > 20.0f ? 20.0 : (double)fabsf(x);
  const double decay = byoc_exp_core(-2.0 * magnitude);
  const double far = (1.0 - decay) / (1.0 + decay);
  const double near = magnitude - magnitude * magnitude * magnitude * (1.0 / 3.0);
  return copysignf((float)(magnitude < 1e-3 ? near : far), x);
}
static inline double byoc_tanh_f64(double x) { return tanh(x); }

/* Floating point: a NaN wins over every number. */
#define BYOC_DEFINE_FLOAT(S, T, EXP, LIMIT)                                                               \
  static inline T byoc_maximum_##S(T a, T b) { return ((a >= b) | (a != a)) ? a : b; }                    \
  static inline T byoc_minimum_##S(T a, T b) { return ((a <= b) | (a != a)) ? a : b; }                    \
  static inline T byoc_relu_##S(T x) { return x < 0 ? 0 : x; }                                            \
  /* x * Phi(x); by erfc, so that the negative tail keeps its digits */                                   \
  static inline T byoc_gelu_##S(T x) {                                                                    \
    const double wide = (double)x;                                                                        \
    return wide == -INFINITY ? (T)0 : (T)(wide * (0.5 * erfc(-0.70710678118654752440 * wide)));           \
  }                                                                                                       \
  /* (1 + tanh(u)) / 2 is the logistic function of 2u, which does not cancel for negative u */            \
  static inline T byoc_gelu_tanh_##S(T x) {                                                               \
    const double wide = (double)x;                                                                        \
    const double u = 1.59576912160573071175 * (wide + 0.044715 * (wide * wide * wide));                   \
    const double size = fabs(u) > LIMIT ? LIMIT : fabs(u);                                                \
    const double decay = EXP(-size);                                                                      \
    return wide < -1e5 ? (T)0 : (T)(wide * ((u < 0 ? decay : 1.0) / (1.0 + decay)));                      \
  }

BYOC_DEFINE_FLOAT(f32, float, byoc_exp_core, 690.0)
BYOC_DEFINE_FLOAT(f64, double, exp, 800.0)

/* Integers: U is an unsigned type no narrower than int, in which overflow is defined. */
#define BYOC_DEFINE_INTEGER(S, T, U)                                                                      \
  static inline T byoc_add_##S(T a, T b) { return (T)((U)a + (U)b); }                                     \
  static inline T byoc_subtract_##S(T a, T b) { return (T)((U)a - (U)b); }                                \
  static inline T byoc_multiply_##S(T a, T b) { return (T)((U)a * (U)b); }                                \
  static inline T byoc_maximum_##S(T a, T b) { return a >= b ? a : b; }                                   \
  static inline T byoc_minimum_##S(T a, T b) { return a <= b ? a : b; }                                   \
  static inline T byoc_relu_##S(T x) { return x > 0 ? x : 0; }                                            \
  static inline T byoc_raise_##S(T base, T exponent) {                                                    \
    U result = 1, factor = (U)base;                                                                       \
    for (U rest = (U)exponent; rest; rest >>= 1, factor *= factor) {                                      \
      if (rest & 1) result *= factor;                                                                     \
    }                                                                                                     \
    return (T)result;                                                                                     \
  }

#define BYOC_DEFINE_SIGNED(S, T, U)                                                                       \
  BYOC_DEFINE_INTEGER(S, T, U)                                                                            \
  static inline T byoc_negative_##S(T x) { return (T)((U)0 - (U)x); }                                     \
  static inline T byoc_abs_##S(T x) { return x < 0 ? (T)((U)0 - (U)x) : x; }                              \
  /* towards zero; by zero: 0; the smallest integer by -1: itself */                                      \
  static inline T byoc_divide_##S(T a, T b) {                                                             \
    return b == 0 ? (T)0 : b == -1 ? (T)((U)0 - (U)a) : (T)(a / b);                                       \
  }                                                                                                       \
  /* a negative exponent: 1 / x**-y, towards zero; 0 where x is 0 */                                      \
  static inline T byoc_power_##S(T x, T y) {                                                              \
    if (y >= 0) return byoc_raise_##S(x, y);                                                              \
    return x == 1 ? (T)1 : x == -1 ? (y % 2 ? (T)-1 : (T)1) : (T)0;                                       \
  }

#define BYOC_DEFINE_UNSIGNED(S, T, U)                                                                     \
  BYOC_DEFINE_INTEGER(S, T, U)                                                                            \
  static inline T byoc_abs_##S(T x) { return x; }                                                         \
  static inline T byoc_divide_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                        \
  static inline T byoc_power_##S(T x, T y) { return byoc_raise_##S(x, y); }

BYOC_DEFINE_SIGNED(i8, int8_t, uint32_t)
BYOC_DEFINE_SIGNED(i16, int16_t, uint32_t)
BYOC_DEFINE_SIGNED(i32, int32_t, uint32_t)
BYOC_DEFINE_SIGNED(i64, int64_t, uint64_t)
BYOC_DEFINE_UNSIGNED(u8, uint8_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u16, uint16_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u32, uint32_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u64, uint64_t, uint64_t)

#endif /* BYOC_SCALAR_H_ */
