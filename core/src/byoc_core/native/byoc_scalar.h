/* Scalar operations whose meaning C leaves open, or gives otherwise than byoc's reference kernels do.
 *
 * Suffixes: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64; bool is a byte that holds 0 or 1. Integers wrap around. Every
 * function is branch-free where that lets a compiler vectorise the loop that calls it.
 */
#ifndef BYOC_SCALAR_H_
#define BYOC_SCALAR_H_

#include <math.h>
#include <stdint.h>

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

/* Floating point: a NaN wins over every number. */
#define BYOC_DEFINE_FLOAT(S, T, M)                                                                        \
  static inline T byoc_maximum_##S(T a, T b) { return ((a >= b) | (a != a)) ? a : b; }                    \
  static inline T byoc_minimum_##S(T a, T b) { return ((a <= b) | (a != a)) ? a : b; }                    \
  static inline T byoc_relu_##S(T x) { return x < 0 ? 0 : x; }                                            \
  static inline T byoc_sigmoid_##S(T x) {                                                                 \
    const T decay = exp##M(-fabs##M(x));                                                                  \
    return (x >= 0 ? (T)1 : decay) / ((T)1 + decay);                                                      \
  }                                                                                                       \
  /* x * Phi(x); by erfc, so that the negative tail keeps its digits */                                   \
  static inline T byoc_gelu_##S(T x) {                                                                    \
    const double wide = (double)x;                                                                        \
    return wide == -INFINITY ? (T)0 : (T)(wide * (0.5 * erfc(-0.70710678118654752440 * wide)));           \
  }                                                                                                       \
  /* (1 + tanh(u)) / 2 is the logistic function of 2u, which does not cancel for negative u */            \
  static inline T byoc_gelu_tanh_##S(T x) {                                                               \
    const double wide = (double)x;                                                                        \
    const double u = 1.59576912160573071175 * (wide + 0.044715 * (wide * wide * wide));                   \
    const double decay = exp(-fabs(u));                                                                   \
    return wide == -INFINITY ? (T)0 : (T)(wide * ((u >= 0 ? 1.0 : decay) / (1.0 + decay)));               \
  }

BYOC_DEFINE_FLOAT(f32, float, f)
BYOC_DEFINE_FLOAT(f64, double, )

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
